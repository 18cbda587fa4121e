// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {Sequenced} from "./Sequenced.sol";

/// @title Content hashes with a date
/// @notice Proves that a document's hash was known to its submitter at a block. Anyone may anchor anything: a
/// reader asks for the submitter it trusts.
contract ReceiptAnchor is Sequenced {
    /// @notice When a submitter first anchored a hash, in Unix seconds; zero if it never did.
    mapping(bytes32 contentHash => mapping(address submitter => uint64)) public anchors;

    event Anchored(bytes32 indexed contentHash, address indexed submitter, uint64 seq);

    /// @notice Anchors a hash for the caller; a repeat changes nothing and emits nothing.
    function anchor(bytes32 contentHash) external {
        if (anchors[contentHash][msg.sender] != 0) return;
        anchors[contentHash][msg.sender] = uint64(block.timestamp);
        emit Anchored(contentHash, msg.sender, _nextSeq());
    }
}
