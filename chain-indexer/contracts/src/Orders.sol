// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

/// @title The terms of an order
/// @notice The chain keeps one word an order: a hash of these terms and a state. The terms are in the events of
/// `create`, and every later call brings them along and is refused when they hash to something else.
library Orders {
    /// @param amount Units of `token`.
    /// @param fillDeadline Unix seconds: `fill` strictly before, `cancel` by anyone from then on.
    /// @param timelock Unix seconds, later than the fill deadline: release strictly before, refund from then on.
    /// @param hashlock SHA-256 of the 32-byte preimage that releases the funds.
    /// @param terms SHA-256 of the terms agreed off-chain.
    struct Order {
        address maker;
        address solver;
        address token;
        uint256 amount;
        uint64 fillDeadline;
        uint64 timelock;
        bytes32 hashlock;
        bytes32 terms;
    }

    /// @notice What a swap delivers.
    /// @param agreed SHA-256 of the terms agreed off-chain.
    struct Output {
        address token;
        address receiver;
        uint256 amount;
        bytes32 agreed;
    }

    function commitment(Order calldata order) internal pure returns (bytes32) {
        return keccak256(abi.encode(order));
    }

    function binding(Output calldata output) internal pure returns (bytes32) {
        return keccak256(abi.encode(output));
    }
}
