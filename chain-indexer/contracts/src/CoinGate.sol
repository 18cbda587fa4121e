// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {Coin, IWrappedCoin} from "./Coin.sol";
import {Escrow} from "./Escrow.sol";
import {Sequenced} from "./Sequenced.sol";

/// @title Deposits of the chain's coin for orders
/// @notice A wallet pays an order's input in the coin by depositing it under the order's id. The escrow takes what the
/// order needs when it is created; the depositor may take the rest back at any time.
/// @dev Deposits are kept by id and depositor, so that nobody's deposit changes what another's is for. The coin is
/// wrapped at once: from there on it is a token like any other. Nobody administers this contract.
contract CoinGate is ReentrancyGuardTransient, Sequenced {
    using SafeERC20 for IERC20;

    /// @notice The chain's wrapped coin (WETH9 and contracts that behave like it).
    IWrappedCoin public immutable wrapped;
    /// @notice The only contract that may claim a deposit.
    Escrow public immutable escrow;

    /// @notice What is deposited under an id and was neither claimed nor reclaimed.
    mapping(bytes32 id => mapping(address depositor => uint256)) public deposits;

    /// @notice `total` is what the depositor has under the id after it, here and in the other events.
    event Deposited(bytes32 indexed id, address indexed depositor, uint256 amount, uint256 total, uint64 seq);
    event Reclaimed(bytes32 indexed id, address indexed depositor, uint256 amount, uint256 total, uint64 seq);
    event Claimed(bytes32 indexed id, address indexed depositor, uint256 amount, uint256 total, uint64 seq);

    error NotWiredTo(address gate);
    error OnlyEscrow(address caller);
    error OnlyWrappedCoin(address caller);
    error NotTheCoin(address token);
    error ZeroAmount();
    error DepositTooSmall(bytes32 id, address depositor, uint256 held, uint256 needed);
    error NothingDeposited(bytes32 id, address depositor);
    error AmountNotWrapped(uint256 expected, uint256 wrapped);
    error CoinRefused(address receiver);

    constructor(IWrappedCoin wrapped_, Escrow escrow_) {
        if (address(escrow_.gate()) != address(this)) revert NotWiredTo(address(escrow_.gate()));
        wrapped = wrapped_;
        escrow = escrow_;
    }

    /// @dev The wrapped coin pays here what it unwraps. A deposit without an id would belong to nobody.
    receive() external payable {
        if (msg.sender != address(wrapped)) revert OnlyWrappedCoin(msg.sender);
    }

    /// @notice Deposits coin for an order, once or in parts, before or after the order exists.
    function deposit(bytes32 id) external payable nonReentrant {
        if (msg.value == 0) revert ZeroAmount();
        uint256 total = deposits[id][msg.sender] + msg.value;
        deposits[id][msg.sender] = total;
        emit Deposited(id, msg.sender, msg.value, total, _nextSeq());
        uint256 before = wrapped.balanceOf(address(this));
        wrapped.deposit{value: msg.value}();
        uint256 got = wrapped.balanceOf(address(this)) - before;
        if (got != msg.value) revert AmountNotWrapped(msg.value, got);
    }

    /// @notice Takes back all that the caller has under an id, in coin; at any time.
    /// @param to Who receives it: the caller, or another account of its choice if the caller's takes no coin.
    function reclaim(bytes32 id, address to) external nonReentrant {
        uint256 amount = deposits[id][msg.sender];
        if (amount == 0) revert NothingDeposited(id, msg.sender);
        deposits[id][msg.sender] = 0;
        emit Reclaimed(id, msg.sender, amount, 0, _nextSeq());
        wrapped.withdraw(amount);
        if (to == address(wrapped) || !Coin.send(to, amount, gasleft())) revert CoinRefused(to);
    }

    /// @notice Moves exactly `amount` of the maker's deposit under the id to `to`, in wrapped coin.
    /// @param token The order's token, which must be the wrapped coin.
    function claim(bytes32 id, address maker, address token, address to, uint256 amount) external nonReentrant {
        if (msg.sender != address(escrow)) revert OnlyEscrow(msg.sender);
        if (token != address(wrapped)) revert NotTheCoin(token);
        uint256 held = deposits[id][maker];
        if (held < amount) revert DepositTooSmall(id, maker, held, amount);
        deposits[id][maker] = held - amount;
        emit Claimed(id, maker, amount, held - amount, _nextSeq());
        IERC20(address(wrapped)).safeTransfer(to, amount);
    }
}
