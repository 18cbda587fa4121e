// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";

/// @title Single-use signed permission to pull tokens
/// @notice A wallet approves this contract once for a token and from then on signs one EIP-712 message a payment.
/// @dev The signature does not commit to what the spender does with the funds: whoever signs trusts the spender
/// named in it. The only spender dvp names is `Escrow`, which pays to receivers on the settler's list or back.
contract Permit is EIP712 {
    using SafeERC20 for IERC20;

    /// @notice What the owner signs.
    /// @param token The ERC-20 to pull.
    /// @param amount The most that may be pulled.
    /// @param spender The only caller that may use the permit.
    /// @param nonce The owner's next nonce.
    /// @param deadline Unix seconds; the last second at which the permit is good.
    struct PermitSingle {
        address token;
        uint256 amount;
        address spender;
        uint256 nonce;
        uint256 deadline;
    }

    bytes32 public constant PERMIT_SINGLE_TYPEHASH = keccak256(
        "PermitSingle(address token,uint256 amount,address spender,uint256 nonce,uint256 deadline)"
    );

    /// @notice The domain's name.
    string public constant name = "Permit";

    /// @notice The next unused nonce of an owner; they are used in order.
    mapping(address owner => uint256) public nonces;

    error PermitExpired(uint256 deadline, uint256 timestamp);
    error InvalidNonce(uint256 expected, uint256 given);
    error NotSpender(address spender, address caller);
    error AmountAbovePermit(uint256 permitted, uint256 requested);
    error InvalidSigner(address recovered, address owner);

    constructor() EIP712("Permit", "1") {}

    /// @notice The domain separator that signers use.
    // solhint-disable-next-line func-name-mixedcase
    function DOMAIN_SEPARATOR() external view returns (bytes32) {
        return _domainSeparatorV4();
    }

    /// @notice Uses up a permit and moves `requested` of its token from the owner to `receiver`.
    /// @dev Refused unless the caller is the permit's spender. Signatures with a high `s` or of any length but 65
    /// bytes are refused by `ECDSA`, so that one permission has one signature.
    function pull(
        address owner,
        address receiver,
        uint256 requested,
        PermitSingle calldata permit,
        bytes calldata signature
    ) external {
        if (msg.sender != permit.spender) revert NotSpender(permit.spender, msg.sender);
        if (block.timestamp > permit.deadline) revert PermitExpired(permit.deadline, block.timestamp);
        if (requested > permit.amount) revert AmountAbovePermit(permit.amount, requested);
        uint256 expected = nonces[owner];
        if (permit.nonce != expected) revert InvalidNonce(expected, permit.nonce);
        address recovered = ECDSA.recover(_digest(permit), signature);
        if (recovered != owner) revert InvalidSigner(recovered, owner);
        nonces[owner] = expected + 1;
        IERC20(permit.token).safeTransferFrom(owner, receiver, requested);
    }

    function _digest(PermitSingle calldata permit) private view returns (bytes32) {
        return _hashTypedDataV4(
            keccak256(
                abi.encode(
                    PERMIT_SINGLE_TYPEHASH,
                    permit.token,
                    permit.amount,
                    permit.spender,
                    permit.nonce,
                    permit.deadline
                )
            )
        );
    }
}
