// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {Sequenced} from "./Sequenced.sol";

/// @title Many anchors in one transaction
/// @notice Emits what `ReceiptAnchor` emits, numbered as it numbers, and keeps nothing: for measurements, in the
/// place of `ReceiptAnchor` on a chain of one's own.
contract AnchorStorm is Sequenced {
    event Anchored(bytes32 indexed contentHash, address indexed submitter, uint64 seq);

    /// @notice Emits `count` events for the caller.
    function storm(uint256 count) external {
        for (uint256 i = 0; i < count; ++i) {
            uint64 next = _nextSeq();
            emit Anchored(keccak256(abi.encode(next)), msg.sender, next);
        }
    }
}
