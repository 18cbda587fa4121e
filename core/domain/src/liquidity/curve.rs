//! The exact integer arithmetic of the pools of the chain: the price shown is the price that the pool would give.
//!
//! A pool keeps the fractions that its rounding cuts off, so a pool has no residual.

mod product;
mod sqrt_price;
mod ticks;

use crate::money::{Minor, Ratio};

pub use product::ProductPool;
pub use sqrt_price::SwapDirection;
pub use ticks::{TickPool, TickState, tick_price};

/// A pool as last read, in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pool {
    Product(ProductPool),
    Ticks(TickPool),
}

impl Pool {
    /// A constant-product pool. `None` for one without reserves, or with a fee of 100 percent.
    pub fn product(reserve_in: Minor, reserve_out: Minor, fee_bps: u32) -> Option<Self> {
        ProductPool::new(reserve_in, reserve_out, fee_bps).map(Self::Product)
    }

    /// A pool with concentrated liquidity. `None` for one without liquidity in this direction.
    pub fn ticks(state: &TickState, direction: SwapDirection) -> Option<Self> {
        TickPool::new(state, direction).map(Self::Ticks)
    }

    /// The pool, limited to the point at which the next unit would cost more than at `worst`.
    #[must_use]
    pub fn until(self, worst: &Ratio) -> Self {
        match self {
            Self::Product(pool) => Self::Product(pool.until(worst)),
            Self::Ticks(pool) => Self::Ticks(pool.until(worst)),
        }
    }

    /// The pool without any output to give.
    #[must_use]
    pub fn emptied(self) -> Self {
        match self {
            Self::Product(pool) => Self::Product(pool.emptied()),
            Self::Ticks(pool) => Self::Ticks(pool.emptied()),
        }
    }

    /// The most output that the pool gives.
    pub const fn depth(&self) -> Minor {
        match self {
            Self::Product(pool) => pool.depth(),
            Self::Ticks(pool) => pool.depth(),
        }
    }

    /// The output for `input`. `None` beyond the end of what is known of the pool.
    pub fn forward(&self, input: Minor) -> Option<Minor> {
        match self {
            Self::Product(pool) => Some(pool.forward(input)),
            Self::Ticks(pool) => pool.forward(input),
        }
    }

    /// The smallest input for `output`. `None` when there is none.
    pub fn inverse(&self, output: Minor) -> Option<Minor> {
        match self {
            Self::Product(pool) => pool.inverse(output),
            Self::Ticks(pool) => pool.inverse(output),
        }
    }

    /// The price of the first unit, after the pool's fee.
    pub fn spot(&self) -> Ratio {
        match self {
            Self::Product(pool) => pool.marginal(Minor::ZERO),
            Self::Ticks(pool) => pool.spot(),
        }
    }

    /// The input up to which the next unit costs no more than at `ratio`, rounded down. Zero when it costs more from
    /// the start.
    pub fn input_until(&self, ratio: &Ratio) -> Minor {
        match self {
            Self::Product(pool) => pool.input_until(ratio),
            Self::Ticks(pool) => pool.input_until(ratio),
        }
    }
}
