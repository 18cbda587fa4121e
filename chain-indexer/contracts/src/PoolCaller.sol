// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";

interface ICalledPool {
    function token0() external view returns (IERC20);
    function token1() external view returns (IERC20);
    function mint(address recipient, int24 tickLower, int24 tickUpper, uint128 amount, bytes calldata data)
        external
        returns (uint256 amount0, uint256 amount1);
    function swap(address recipient, bool zeroForOne, int256 amountSpecified, uint160 sqrtPriceLimitX96, bytes calldata data)
        external
        returns (int256 amount0, int256 amount1);
}

/// @title Calls pools with concentrated liquidity and pays what they call back for, for tests
/// @notice Pays out of its own tokens, to whoever calls back: for worthless tokens only.
contract PoolCaller {
    using SafeERC20 for IERC20;

    function mint(ICalledPool pool, int24 lower, int24 upper, uint128 amount) external {
        pool.mint(address(this), lower, upper, amount, "");
    }

    function swap(ICalledPool pool, bool zeroForOne, int256 amount, uint160 limit) external returns (int256, int256) {
        return pool.swap(address(this), zeroForOne, amount, limit, "");
    }

    function uniswapV3MintCallback(uint256 amount0, uint256 amount1, bytes calldata) external {
        _pay(amount0, amount1);
    }

    function uniswapV3SwapCallback(int256 amount0, int256 amount1, bytes calldata) external {
        _pay(amount0 > 0 ? uint256(amount0) : 0, amount1 > 0 ? uint256(amount1) : 0);
    }

    function _pay(uint256 amount0, uint256 amount1) private {
        if (amount0 > 0) ICalledPool(msg.sender).token0().safeTransfer(msg.sender, amount0);
        if (amount1 > 0) ICalledPool(msg.sender).token1().safeTransfer(msg.sender, amount1);
    }
}
