// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {Sequenced} from "./Sequenced.sol";

/// @title Content hashes with a date
/// @notice Proves that a document's hash was known to its submitter at a block. Anyone may anchor anything: a
/// reader asks for the submitter it trusts.
/// @dev The anchor is the event; nothing else is stored. A hash that its submitter anchors again has a second event,
/// which takes nothing from the first and adds nothing to it: a reader takes the earliest, and that one cannot be
/// unmade or given an earlier date. Nobody can emit one for another submitter.
contract ReceiptAnchor is Sequenced {
    event Anchored(bytes32 indexed contentHash, address indexed submitter, uint64 seq);

    /// @notice Anchors a hash for the caller.
    function anchor(bytes32 contentHash) external {
        emit Anchored(contentHash, msg.sender, _nextSeq());
    }

    /// @notice Anchors each hash for the caller. None can fail.
    function anchorMany(bytes32[] calldata contentHashes) external {
        uint64 next = seq;
        for (uint256 i = 0; i < contentHashes.length; ++i) {
            emit Anchored(contentHashes[i], msg.sender, ++next);
        }
        seq = next;
    }
}
