//! The exact integer arithmetic of a constant-product pool (Uniswap v2).
//!
//! `out = floor(in × kept × R_out / (R_in × 10 000 + in × kept))`, `kept = 10 000 - fee`: the arithmetic of the pool's
//! contract, so that the price shown is the price that the pool would give. The pool keeps the fraction that is cut
//! off, so a pool has no residual.

use crate::money::{Minor, Ratio, U512, floor_root};

const WHOLE_BPS: u32 = 10_000;

/// A pool's reserves as last read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProductPool {
    reserve_in: Minor,
    reserve_out: Minor,
    /// The part of an input that is left after the fee, in basis points.
    kept_bps: u32,
    /// The most output that the pool gives.
    depth: Minor,
}

impl ProductPool {
    /// `None` for a pool without reserves, or with a fee of 100 percent.
    pub fn new(reserve_in: Minor, reserve_out: Minor, fee_bps: u32) -> Option<Self> {
        let kept_bps = WHOLE_BPS.checked_sub(fee_bps).filter(|kept| *kept > 0)?;
        if reserve_in.is_zero() || reserve_out.is_zero() {
            return None;
        }
        // A pool is never emptied, whatever the input.
        let depth = Minor::new(reserve_out.get().saturating_sub(1));
        Some(Self { reserve_in, reserve_out, kept_bps, depth })
    }

    /// The pool, limited to the point at which the next unit would cost more than at `worst`.
    #[must_use]
    pub fn until(self, worst: &Ratio) -> Self {
        let depth = self.forward(self.input_until(worst)).min(self.depth);
        Self { depth, ..self }
    }

    /// The pool without any output to give.
    #[must_use]
    pub const fn emptied(self) -> Self {
        Self { depth: Minor::ZERO, ..self }
    }

    fn kept(&self) -> U512 {
        U512::from(self.kept_bps)
    }

    fn scaled_in(&self) -> U512 {
        U512::from(self.reserve_in.get()) * U512::from(WHOLE_BPS)
    }

    /// The most output that the pool gives.
    pub const fn depth(&self) -> Minor {
        self.depth
    }

    /// The output for `input`.
    pub fn forward(&self, input: Minor) -> Minor {
        let paid = U512::from(input.get()) * self.kept();
        let out = paid * U512::from(self.reserve_out.get()) / (self.scaled_in() + paid);
        // It is less than the reserve, which is an amount.
        Minor::new(u128::try_from(out).unwrap_or(u128::MAX))
    }

    /// The smallest input for `output`. `None` when there is none.
    pub fn inverse(&self, output: Minor) -> Option<Minor> {
        let left = self.reserve_out.checked_sub(output).filter(|left| !left.is_zero())?;
        let numerator = U512::from(output.get()) * self.scaled_in();
        let input = numerator.div_ceil(self.kept() * U512::from(left.get()));
        u128::try_from(input).ok().map(Minor::new)
    }

    /// The price of the next unit after `input` was paid.
    pub fn marginal(&self, input: Minor) -> Ratio {
        let inside = self.scaled_in() + U512::from(input.get()) * self.kept();
        let num = self.kept()
            * U512::from(WHOLE_BPS)
            * U512::from(self.reserve_in.get())
            * U512::from(self.reserve_out.get());
        Ratio { num, den: inside * inside }
    }

    /// The input up to which the next unit costs no more than at `ratio`, rounded down. Zero when it costs more from
    /// the start.
    pub fn input_until(&self, ratio: &Ratio) -> Minor {
        let at_start = self.marginal(Minor::ZERO);
        // (R_in × 10 000 + in × kept)² = kept × 10 000 × R_in × R_out ÷ ratio
        let Some(product) = at_start.num.checked_mul(ratio.den) else { return Minor::ZERO };
        let inside = floor_root(product / ratio.num);
        let paid = inside.saturating_sub(self.scaled_in()) / self.kept();
        Minor::new(u128::try_from(paid).unwrap_or(u128::MAX))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pool(reserve_in: u128, reserve_out: u128) -> ProductPool {
        ProductPool::new(Minor::new(reserve_in), Minor::new(reserve_out), 30).unwrap()
    }

    #[test]
    fn the_pool_gives_what_its_contract_gives() {
        let pool = pool(1_000_000, 2_000_000);
        // 10 000 × 9 970 × 2 000 000 / (1 000 000 × 10 000 + 10 000 × 9 970), rounded down.
        assert_eq!(pool.forward(Minor::new(10_000)), Minor::new(19_743));
        assert_eq!(pool.inverse(Minor::new(2_000_000)), None);
        assert_eq!(ProductPool::new(Minor::ZERO, Minor::new(1), 30), None);
    }

    proptest! {
        #[test]
        fn the_inverse_is_the_smallest_input_for_an_output(
            reserve_in in 1_u128.., reserve_out in 1_u128.., output: u128, fee in 0_u32..10_000,
        ) {
            let pool = ProductPool::new(Minor::new(reserve_in), Minor::new(reserve_out), fee).unwrap();
            let output = Minor::new(output % reserve_out);
            if let Some(input) = pool.inverse(output) {
                prop_assert!(pool.forward(input) >= output);
                if let Some(below) = input.checked_sub(Minor::new(1)) {
                    prop_assert!(pool.forward(below) < output);
                }
            }
        }

        #[test]
        fn a_trade_neither_empties_a_pool_nor_lessens_its_product(
            reserve_in in 1_u128.., reserve_out in 1_u128.., input: u128,
        ) {
            let pool = pool(reserve_in, reserve_out);
            let out = pool.forward(Minor::new(input));
            prop_assert!(out.get() < reserve_out);
            let wide = |n: u128| U512::from(n);
            let after = (wide(reserve_in) + wide(input)) * wide(reserve_out - out.get());
            prop_assert!(after >= wide(reserve_in) * wide(reserve_out));
        }

        #[test]
        fn the_price_reaches_a_ratio_at_the_computed_input(
            reserve_in in 1_000_u128..u128::from(u64::MAX), reserve_out in 1_000_u128..u128::from(u64::MAX),
            first in 0_u128..u128::from(u32::MAX),
        ) {
            let pool = pool(reserve_in, reserve_out);
            let at = pool.marginal(Minor::new(first));
            let found = pool.input_until(&at).get();
            prop_assert!(found <= first && first - found <= 1, "{first} {found}");
        }
    }
}
