//! How sure the chain must be of a fill before the beneficiary is paid, by token and amount. Pure.

use alloy::primitives::{Address, U256};

/// What the block of a fill must have reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// So many blocks, its own included.
    Depth(u64),
    /// The node's `safe` block.
    Safe,
    /// What counts as final here: the node's `finalized` block, less the chain's finality margin, and agreed on by two
    /// endpoints where there are several.
    Finalized,
}

/// One step of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateStep {
    /// The token locked; `None`: any.
    pub token: Option<Address>,
    /// Amounts below this, in token units; `None`: any.
    pub below: Option<U256>,
    pub wait: Wait,
}

/// A chain's steps, of which the first that fits an order holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayoutGate(Vec<GateStep>);

impl PayoutGate {
    /// The same for every order.
    #[must_use]
    pub fn always(wait: Wait) -> Self {
        Self(vec![GateStep { token: None, below: None, wait }])
    }

    /// Steps in the order in which they are looked at.
    #[must_use]
    pub const fn new(steps: Vec<GateStep>) -> Self {
        Self(steps)
    }

    /// What an order of so much of a token waits for. One that no step fits, or whose token or amount is not known, waits
    /// longest.
    #[must_use]
    pub fn wait(&self, order: Option<(Address, U256)>) -> Wait {
        let Some((token, amount)) = order else { return Wait::Finalized };
        let fits = |step: &&GateStep| {
            step.token.is_none_or(|of| of == token) && step.below.is_none_or(|below| amount < below)
        };
        self.0.iter().find(fits).map_or(Wait::Finalized, |step| step.wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_step_that_fits_holds_and_what_fits_none_waits_longest() {
        let (usdc, weth) = (Address::repeat_byte(1), Address::repeat_byte(2));
        let step = |token, below: Option<u64>, wait| GateStep { token, below: below.map(U256::from), wait };
        let gate = PayoutGate::new(vec![
            step(Some(usdc), Some(100), Wait::Depth(2)),
            step(Some(usdc), Some(1_000), Wait::Safe),
            step(Some(weth), None, Wait::Depth(7)),
        ]);
        let wait = |token, amount: u64| gate.wait(Some((token, U256::from(amount))));
        assert_eq!(wait(usdc, 99), Wait::Depth(2));
        assert_eq!(wait(usdc, 100), Wait::Safe, "not below");
        assert_eq!(wait(usdc, 1_000), Wait::Finalized);
        assert_eq!(wait(weth, u64::MAX), Wait::Depth(7));
        assert_eq!(wait(Address::ZERO, 1), Wait::Finalized);
        assert_eq!(gate.wait(None), Wait::Finalized);
        assert_eq!(PayoutGate::always(Wait::Depth(1)).wait(Some((usdc, U256::MAX))), Wait::Depth(1));
    }
}
