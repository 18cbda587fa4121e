// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {TestToken} from "./TestToken.sol";

/// @title A test token that keeps 1 % of every transfer, as the tokens that the escrow must refuse do
contract FeeToken is TestToken {
    constructor() TestToken("Fee Token", "FEE", 6) {}

    function _update(address from, address to, uint256 value) internal override {
        if (from == address(0) || to == address(0)) {
            super._update(from, to, value);
            return;
        }
        uint256 fee = value / 100;
        super._update(from, address(0), fee);
        super._update(from, to, value - fee);
    }
}
