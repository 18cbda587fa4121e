// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {IERC1271} from "@openzeppelin/contracts/interfaces/IERC1271.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";

/// @title Single-use signed permission to pull tokens
/// @notice A wallet approves this contract once for a token and from then on signs one EIP-712 message a payment. A
/// wallet that is a contract says by ERC-1271 whether the signature is its own.
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

    /// @dev What a wallet may use to check a signature: a multisignature wallet uses some 8,000 for each owner.
    uint256 private constant CHECK_GAS = 250_000;
    /// @dev What the call itself uses: up to two cold accounts.
    uint256 private constant CALL_GAS = 6_000;
    /// @dev Of nonces that one call takes back, so that the rest cannot be used up by mistake.
    uint256 private constant INVALIDATED_MAX = 65_535;

    /// @notice The domain's name.
    string public constant name = "Permit";

    /// @notice The next unused nonce of an owner; they are used in order.
    mapping(address owner => uint256) public nonces;

    error PermitExpired(uint256 deadline, uint256 timestamp);
    error InvalidNonce(uint256 expected, uint256 given);
    error NotSpender(address spender, address caller);
    error AmountAbovePermit(uint256 permitted, uint256 requested);
    error InvalidSigner(address recovered, address owner);
    error SignatureRefused(address owner);
    error CheckOutOfGas(uint256 needed, uint256 left);
    error TooManyInvalidated(uint256 latest, uint256 given);

    /// @notice The owner took back its permits with nonces below `next`.
    event Invalidated(address indexed owner, uint256 next);

    constructor() EIP712("Permit", "1") {}

    /// @notice The domain separator that signers use.
    // solhint-disable-next-line func-name-mixedcase
    function DOMAIN_SEPARATOR() external view returns (bytes32) {
        return _domainSeparatorV4();
    }

    /// @notice Takes back the caller's permits with nonces below `next`, and lets later ones follow an order that failed.
    function invalidate(uint256 next) external {
        uint256 expected = nonces[msg.sender];
        if (next <= expected) revert InvalidNonce(expected, next);
        if (next - expected > INVALIDATED_MAX) revert TooManyInvalidated(expected + INVALIDATED_MAX, next);
        nonces[msg.sender] = next;
        emit Invalidated(msg.sender, next);
    }

    /// @notice Uses up a permit and moves `requested` of its token from the owner to `receiver`.
    /// @dev Refused unless the caller is the permit's spender.
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
        nonces[owner] = expected + 1;
        _requireSigned(owner, _digest(permit), signature);
        IERC20(permit.token).safeTransferFrom(owner, receiver, requested);
    }

    /// @notice Whether the contract at an address confirms a signature (ERC-1271).
    /// @dev It is asked with a static call and exactly `CHECK_GAS`, so that a caller short of gas cannot make it refuse; of
    /// its answer 32 bytes are read.
    function confirms(address owner, bytes32 digest, bytes calldata signature) public view returns (bool) {
        bytes memory call_ = abi.encodeCall(IERC1271.isValidSignature, (digest, signature));
        uint256 needed = CHECK_GAS + CHECK_GAS / 63 + CALL_GAS;
        if (gasleft() < needed) revert CheckOutOfGas(needed, gasleft());
        bool answered;
        bytes32 answer;
        assembly ("memory-safe") {
            answered := staticcall(CHECK_GAS, owner, add(call_, 0x20), mload(call_), 0, 0x20)
            answered := and(answered, gt(returndatasize(), 0x1f))
            answer := mload(0)
        }
        return answered && answer == bytes32(IERC1271.isValidSignature.selector);
    }

    /// @dev The owner's key, or what the contract at its address says: an account that delegates to a contract
    /// (EIP-7702) may sign either way. Without a contract, signatures with a high `s` or of any length but 65 bytes are
    /// refused.
    function _requireSigned(address owner, bytes32 digest, bytes calldata signature) private view {
        (address recovered, ECDSA.RecoverError fault,) = ECDSA.tryRecover(digest, signature);
        if (fault == ECDSA.RecoverError.NoError && recovered == owner) return;
        if (owner.code.length == 0) {
            revert InvalidSigner(ECDSA.recover(digest, signature), owner);
        }
        if (!confirms(owner, digest, signature)) revert SignatureRefused(owner);
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
