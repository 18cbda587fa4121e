// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {IERC1271} from "@openzeppelin/contracts/interfaces/IERC1271.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {MessageHashUtils} from "@openzeppelin/contracts/utils/cryptography/MessageHashUtils.sol";

/// @title A wallet that is a contract, for sandboxes and tests
/// @notice Its owners sign together as those of a Safe do: a message bound to this very wallet, so that their signatures
/// are no other wallet's. It can be made to answer badly.
contract TestWallet is IERC1271 {
    enum Answer {
        BySignatures,
        Refuses,
        Reverts,
        BurnsGas,
        ReturnsMegabytes,
        ReturnsNothing,
        OnlyWithMuchGas,
        OnlyInSimulations
    }

    bytes32 private constant MESSAGE_TYPEHASH = keccak256("SafeMessage(bytes message)");
    bytes32 private constant DOMAIN_TYPEHASH = keccak256("EIP712Domain(uint256 chainId,address verifyingContract)");
    uint256 private constant SIGNATURE_BYTES = 65;

    uint256 public immutable threshold;
    mapping(address account => bool) public isOwner;
    Answer public answer;

    constructor(address[] memory owners, uint256 threshold_) {
        for (uint256 i = 0; i < owners.length; ++i) {
            isOwner[owners[i]] = true;
        }
        threshold = threshold_;
    }

    receive() external payable {}

    function turn(Answer to) external {
        answer = to;
    }

    /// @notice Makes a call as this wallet, for one of its owners.
    function act(address target, uint256 value, bytes calldata call_) external {
        require(isOwner[msg.sender], "not an owner");
        (bool through, bytes memory reason) = target.call{value: value}(call_);
        if (!through) {
            assembly ("memory-safe") {
                revert(add(reason, 0x20), mload(reason))
            }
        }
    }

    /// @notice What the owners sign in place of a hash.
    function messageHash(bytes32 hash) public view returns (bytes32) {
        bytes32 domain = keccak256(abi.encode(DOMAIN_TYPEHASH, block.chainid, address(this)));
        return MessageHashUtils.toTypedDataHash(domain, keccak256(abi.encode(MESSAGE_TYPEHASH, keccak256(abi.encode(hash)))));
    }

    /// @param signature The owners' signatures one after the other, ascending by their addresses.
    function isValidSignature(bytes32 hash, bytes calldata signature) external view returns (bytes4) {
        if (answer == Answer.Refuses) return 0xffffffff;
        if (answer == Answer.Reverts) revert("not today");
        if (answer == Answer.BurnsGas) {
            while (true) {}
        }
        if (answer == Answer.ReturnsMegabytes) {
            assembly {
                return(0, 65536)
            }
        }
        if (answer == Answer.ReturnsNothing) {
            assembly {
                return(0, 0)
            }
        }
        if (answer == Answer.OnlyWithMuchGas && gasleft() < 300_000) return 0xffffffff;
        if (answer == Answer.OnlyInSimulations && tx.gasprice > 0) return 0xffffffff;
        bytes32 message = messageHash(hash);
        address before = address(0);
        uint256 signed = 0;
        for (uint256 from = 0; from + SIGNATURE_BYTES <= signature.length; from += SIGNATURE_BYTES) {
            address signer = ECDSA.recover(message, signature[from:from + SIGNATURE_BYTES]);
            if (signer <= before || !isOwner[signer]) return 0xffffffff;
            before = signer;
            signed += 1;
        }
        return signed >= threshold ? IERC1271.isValidSignature.selector : bytes4(0xffffffff);
    }
}
