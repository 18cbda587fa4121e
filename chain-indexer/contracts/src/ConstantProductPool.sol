// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuard} from "@openzeppelin/contracts/utils/ReentrancyGuard.sol";

/// @title A constant-product pool of two tokens, for sandboxes and tests
/// @notice Speaks the interface of a Uniswap v2 pair, its fee of 0.3 % included. The product of the reserves never
/// falls. Whoever adds liquidity gives it: there are no shares.
contract ConstantProductPool is ReentrancyGuard {
    using SafeERC20 for IERC20;

    /// The fee, in thousandths.
    uint256 private constant FEE = 3;
    uint256 private constant WHOLE = 1000;

    IERC20 public immutable token0;
    IERC20 public immutable token1;
    uint112 private _reserve0;
    uint112 private _reserve1;
    uint32 private _updatedAt;
    /// Prices with 112 bits behind the point, times seconds. They run over.
    uint256 public price0CumulativeLast;
    uint256 public price1CumulativeLast;

    event Sync(uint112 reserve0, uint112 reserve1);

    error InsufficientLiquidity();
    error InsufficientInput();
    error TooMuch();
    error NoCallbacks();

    constructor(IERC20 token0_, IERC20 token1_) {
        token0 = token0_;
        token1 = token1_;
    }

    function getReserves() external view returns (uint112 reserve0, uint112 reserve1, uint32 blockTimestampLast) {
        return (_reserve0, _reserve1, _updatedAt);
    }

    /// @notice Takes what was transferred here into the reserves.
    function sync() external nonReentrant {
        _sync();
    }

    /// @notice Gives the outputs for what was transferred here before.
    function swap(uint256 amount0Out, uint256 amount1Out, address to, bytes calldata data) external nonReentrant {
        require(data.length == 0, NoCallbacks());
        (uint256 reserve0, uint256 reserve1) = (_reserve0, _reserve1);
        require(amount0Out < reserve0 && amount1Out < reserve1, InsufficientLiquidity());
        uint256 amount0In = token0.balanceOf(address(this)) - reserve0;
        uint256 amount1In = token1.balanceOf(address(this)) - reserve1;
        if (amount0Out > 0) token0.safeTransfer(to, amount0Out);
        if (amount1Out > 0) token1.safeTransfer(to, amount1Out);
        uint256 left0 = (reserve0 + amount0In - amount0Out) * WHOLE - amount0In * FEE;
        uint256 left1 = (reserve1 + amount1In - amount1Out) * WHOLE - amount1In * FEE;
        require(left0 * left1 >= reserve0 * reserve1 * WHOLE * WHOLE, InsufficientInput());
        _sync();
    }

    function _sync() private {
        uint256 balance0 = token0.balanceOf(address(this));
        uint256 balance1 = token1.balanceOf(address(this));
        require(balance0 <= type(uint112).max && balance1 <= type(uint112).max, TooMuch());
        unchecked {
            uint32 time = uint32(block.timestamp);
            uint32 passed = time - _updatedAt;
            if (_reserve0 != 0 && _reserve1 != 0) {
                price0CumulativeLast += ((uint256(_reserve1) << 112) / _reserve0) * passed;
                price1CumulativeLast += ((uint256(_reserve0) << 112) / _reserve1) * passed;
            }
            _updatedAt = time;
        }
        _reserve0 = uint112(balance0);
        _reserve1 = uint112(balance1);
        emit Sync(_reserve0, _reserve1);
    }
}
