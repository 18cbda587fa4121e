// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

/// @title A contract whose events are numbered
/// @notice Every event carries the next number, so that a reader sees an omitted log as a hole: between two logs
/// as a jump, at the end as a difference from `seq()` read at the same block.
abstract contract Sequenced {
    /// @notice Number of the last event emitted; zero before the first.
    uint64 public seq;

    /// @dev Called once for each event, as its last argument.
    function _nextSeq() internal returns (uint64) {
        return ++seq;
    }
}
