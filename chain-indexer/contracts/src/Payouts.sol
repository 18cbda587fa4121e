// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {AccessControl} from "@openzeppelin/contracts/access/AccessControl.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuard} from "@openzeppelin/contracts/utils/ReentrancyGuard.sol";
import {Sequenced} from "./Sequenced.sol";

/// @title Payouts in tokens, each at most once
/// @notice Moves a payer's tokens to a receiver under an id that is used once only, so that a payout sent twice is
/// paid once. The payer consents by its allowance to this contract.
/// @dev What is trusted: whoever holds RELAYER_ROLE chooses payer, receiver and amount within the allowances.
contract Payouts is AccessControl, ReentrancyGuard, Sequenced {
    using SafeERC20 for IERC20;

    bytes32 public constant RELAYER_ROLE = keccak256("RELAYER_ROLE");

    /// @notice When an id was paid, in Unix seconds; zero if it was not.
    mapping(bytes32 id => uint64) public paidAt;

    event Paid(
        bytes32 indexed id,
        address indexed payer,
        address indexed receiver,
        address token,
        uint256 amount,
        uint64 seq
    );

    error AlreadyPaid(bytes32 id);
    error ZeroAmount();
    error AmountNotReceived(uint256 expected, uint256 received);

    constructor(address admin) {
        _grantRole(DEFAULT_ADMIN_ROLE, admin);
    }

    /// @notice Pays `amount` of `token` from `payer` to `receiver`, once per id.
    /// @dev A token that delivers another amount than asked (fee on transfer, rebasing) is refused, and so is a
    /// payer that pays itself: nothing would be delivered.
    function pay(bytes32 id, address payer, address receiver, address token, uint256 amount)
        external
        onlyRole(RELAYER_ROLE)
        nonReentrant
    {
        if (paidAt[id] != 0) revert AlreadyPaid(id);
        if (amount == 0) revert ZeroAmount();
        paidAt[id] = uint64(block.timestamp);
        emit Paid(id, payer, receiver, token, amount, _nextSeq());
        uint256 before = IERC20(token).balanceOf(receiver);
        IERC20(token).safeTransferFrom(payer, receiver, amount);
        uint256 received = IERC20(token).balanceOf(receiver) - before;
        if (received != amount) revert AmountNotReceived(amount, received);
    }
}
