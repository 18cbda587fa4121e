// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";

/// @title The chain's coin as a token: WETH9 and contracts that behave like it
interface IWrappedCoin is IERC20 {
    function deposit() external payable;
    function withdraw(uint256 amount) external;
}

/// @title Sends the chain's coin
library Coin {
    /// @notice Stands for the coin where a token is named.
    address internal constant AS_TOKEN = 0xEeeeeEeeeEeEeeEeEeEeeEEEeeeeEeeeeeeeEEeE;

    /// @dev False when the receiver refused. What it returns is not copied: it could return megabytes at the caller's
    /// expense.
    function send(address to, uint256 amount, uint256 gas_) internal returns (bool sent) {
        assembly ("memory-safe") {
            sent := call(gas_, to, amount, 0, 0, 0, 0)
        }
    }
}
