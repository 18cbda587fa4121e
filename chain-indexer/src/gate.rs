//! The finality that a fill requires before the beneficiary is paid, by token and amount. Pure.

use alloy::primitives::{Address, U256};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// This many blocks, its own included.
    Depth(u64),
    Safe,
    /// A final block: at or below the node's `finalized` block, less the chain's finality margin, and agreed on by two
    /// endpoints where there are several.
    Finalized,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateStep {
    /// The locked token; `None`: any.
    pub token: Option<Address>,
    /// Amounts below this, in token units; `None`: any.
    pub below: Option<U256>,
    pub wait: Wait,
}

/// A chain's steps, of which the first that matches an order applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayoutGate(Vec<GateStep>);

impl PayoutGate {
    #[must_use]
    pub fn always(wait: Wait) -> Self {
        Self(vec![GateStep { token: None, below: None, wait }])
    }

    /// Steps in the order in which they are matched.
    #[must_use]
    pub const fn new(steps: Vec<GateStep>) -> Self {
        Self(steps)
    }

    /// Whether a step requires this.
    #[must_use]
    pub fn waits_for(&self, wait: Wait) -> bool {
        self.0.iter().any(|step| step.wait == wait)
    }

    /// The finality required for an order of this token and amount. An order that no step matches, or whose token or
    /// amount is unknown, requires the highest.
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
    fn the_first_matching_step_applies_and_no_match_waits_longest() {
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
