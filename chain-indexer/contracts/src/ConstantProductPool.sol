// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuard} from "@openzeppelin/contracts/utils/ReentrancyGuard.sol";

/// @title A constant-product pool of two tokens, for sandboxes and tests
/// @notice The product of the reserves never falls. Whoever adds liquidity gives it: there are no shares.
contract ConstantProductPool is ReentrancyGuard {
    using SafeERC20 for IERC20;

    uint256 private constant WHOLE_BPS = 10_000;

    IERC20 public immutable token0;
    IERC20 public immutable token1;
    uint256 public immutable feeBps;
    uint128 private _reserve0;
    uint128 private _reserve1;

    event Synced(uint128 reserve0, uint128 reserve1);

    error UnknownToken();
    error TooLittle();
    error TooMuch();

    constructor(IERC20 token0_, IERC20 token1_, uint256 feeBps_) {
        require(feeBps_ < WHOLE_BPS, TooMuch());
        token0 = token0_;
        token1 = token1_;
        feeBps = feeBps_;
    }

    function getReserves() external view returns (uint128 reserve0, uint128 reserve1) {
        return (_reserve0, _reserve1);
    }

    /// @notice Takes what was transferred here into the reserves.
    function sync() external nonReentrant {
        _sync();
    }

    /// @notice What `amountIn` of `tokenIn` takes out, rounded down.
    function quote(IERC20 tokenIn, uint256 amountIn) public view returns (uint256) {
        (uint256 reserveIn, uint256 reserveOut) = _oriented(tokenIn);
        uint256 paid = amountIn * (WHOLE_BPS - feeBps);
        return (paid * reserveOut) / (reserveIn * WHOLE_BPS + paid);
    }

    /// @notice Swaps exactly `amountIn`, which the caller has approved.
    function swap(IERC20 tokenIn, uint256 amountIn, uint256 minOut, address to)
        external
        nonReentrant
        returns (uint256 amountOut)
    {
        amountOut = quote(tokenIn, amountIn);
        require(amountOut > 0 && amountOut >= minOut, TooLittle());
        tokenIn.safeTransferFrom(msg.sender, address(this), amountIn);
        (address(tokenIn) == address(token0) ? token1 : token0).safeTransfer(to, amountOut);
        _sync();
    }

    function _oriented(IERC20 tokenIn) private view returns (uint256, uint256) {
        if (address(tokenIn) == address(token0)) return (_reserve0, _reserve1);
        require(address(tokenIn) == address(token1), UnknownToken());
        return (_reserve1, _reserve0);
    }

    function _sync() private {
        uint256 balance0 = token0.balanceOf(address(this));
        uint256 balance1 = token1.balanceOf(address(this));
        require(balance0 <= type(uint128).max && balance1 <= type(uint128).max, TooMuch());
        _reserve0 = uint128(balance0);
        _reserve1 = uint128(balance1);
        emit Synced(_reserve0, _reserve1);
    }
}
