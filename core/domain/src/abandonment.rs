//! Reservations that their taker lets go: each was an option that cost nothing. They are counted over a sliding time, and
//! whoever has too many cools down.
//!
//! | what | counted for |
//! |---|---|
//! | an accepted order whose wallet no longer pays: balance, allowance, permit nonce or deposit are gone, or a contract takes its signature back | its wallet, its partner |
//! | an accepted order that is cancelled while screening holds it | its wallet, its partner |
//! | the output that an unused firm quote holds, times the time for which it holds it | its partner, at that provider |
//!
//! The step that ends such an order counts it in its transaction, and acceptance reads only the running cool-downs. A
//! firm quote counts as unused when it is issued and is taken off when it is used, so that nothing has to watch it
//! lapse.
//!
//! Kept by `core/tests/it/free_options.rs::a_wallet_that_is_emptied_after_each_acceptance_cools_down` and
//! `core/tests/it/free_options.rs::firm_quotes_that_are_used_are_not_counted`.

use crate::event::Stage;
use crate::names::names;
use crate::settlement::State;
use crate::time::Timestamp;

names! {
    /// How an accepted order was let go.
    pub enum Abandoned {
        Unfunded = "unfunded",
        CancelledHeld = "cancelled_held",
    }
}

impl Abandoned {
    /// How an order that held its output was let go by a step to `next`. `was_held`: screening held it, and its taker
    /// cancels it. `deposits`: it was priced when its deposit was there.
    pub fn of_step(next: &State, was_held: bool, deposits: bool) -> Option<Self> {
        // What the wallet's owner alone decides: a deposit that was there can be taken back.
        let unfunded = |code: &str| match code {
            "insufficient_funds" | "permit_nonce_used" | "permit_refused" => true,
            "lock_rejected" | "swap_rejected" => deposits,
            _ => false,
        };
        match next {
            State::Failed { failure } if failure.stage == Stage::Intent && unfunded(&failure.code) => {
                Some(Self::Unfunded)
            }
            State::Cancelled if was_held => Some(Self::CancelledHeld),
            _ => None,
        }
    }
}

names! {
    /// Whose new orders or firm quotes are refused for a while.
    pub enum CoolDownScope {
        /// Orders that a wallet would pay.
        Wallet = "wallet",
        /// Orders of a partner.
        Partner = "partner",
        /// Firm quotes of a partner on a provider's asset.
        Quotes = "quotes",
    }
}

impl CoolDownScope {
    /// What is refused, and why.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Wallet => {
                "orders of this wallet are refused for now: too many of its accepted orders could not be paid, or were \
                 cancelled while they were held"
            }
            Self::Partner => {
                "orders of this partner are refused for now: too many of its accepted orders could not be paid by their \
                 wallets, or were cancelled while they were held"
            }
            Self::Quotes => {
                "firm quotes of this pair are refused for now: earlier ones held too much for too long and were not used"
            }
        }
    }
}

/// A refusal that ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoolDown {
    pub scope: CoolDownScope,
    pub until: Timestamp,
    /// From the refusal on, rounded up.
    pub retry_after_secs: u64,
}

impl CoolDown {
    pub fn new(scope: CoolDownScope, until: Timestamp, now: Timestamp) -> Self {
        let left = u64::try_from(until.millis().saturating_sub(now.millis())).unwrap_or(0);
        Self { scope, until, retry_after_secs: left.div_ceil(1000).max(1) }
    }
}

impl std::fmt::Display for CoolDown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; try again after {}", self.scope.reason(), self.until.iso8601())
    }
}

/// When a taker cools down. The defaults are beyond what a taker who means its orders comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoolDownRules {
    /// The sliding time, in seconds.
    pub window_secs: u32,
    /// So many abandoned orders of a wallet within the time are too many.
    pub orders_of_wallet: u32,
    /// So many of a partner, if they are also more than this share of its accepted orders.
    pub orders_of_partner: u32,
    pub orders_share_bps: u32,
    /// How much of a provider's balance a partner's unused firm quotes may hold, on average over the time.
    pub quotes_share_bps: u32,
}

impl Default for CoolDownRules {
    fn default() -> Self {
        Self {
            window_secs: 3600,
            orders_of_wallet: 5,
            orders_of_partner: 50,
            orders_share_bps: 1_000,
            quotes_share_bps: 1_000,
        }
    }
}

impl CoolDownRules {
    /// The beginning of the sliding time.
    pub fn since(&self, now: Timestamp) -> Timestamp {
        now.plus_millis(-i64::from(self.window_secs).saturating_mul(1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settlement::Failure;

    fn failed(stage: Stage, code: &str) -> State {
        let failure = Failure { stage, code: code.to_owned(), message: String::new(), retryable: false };
        State::Failed { failure }
    }

    #[test]
    fn only_what_the_taker_decides_counts() {
        let rejected = failed(Stage::Intent, "lock_rejected");
        assert_eq!(Abandoned::of_step(&rejected, false, true), Some(Abandoned::Unfunded), "reclaimed");
        for (next, was_held, counted) in [
            (failed(Stage::Intent, "insufficient_funds"), false, Some(Abandoned::Unfunded)),
            (failed(Stage::Intent, "permit_nonce_used"), false, Some(Abandoned::Unfunded)),
            (failed(Stage::Intent, "permit_refused"), false, Some(Abandoned::Unfunded)),
            (failed(Stage::Intent, "lock_rejected"), false, None),
            (failed(Stage::Intent, "permit_expired"), false, None),
            (failed(Stage::Intent, "screening_refused"), true, None),
            (State::Cancelled, true, Some(Abandoned::CancelledHeld)),
            (State::Cancelled, false, None),
            (State::Expired, true, None),
        ] {
            assert_eq!(Abandoned::of_step(&next, was_held, false), counted, "{next:?}");
        }
    }

    #[test]
    fn a_refusal_names_its_end() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let cool = CoolDown::new(CoolDownScope::Wallet, now.plus_millis(1_500), now);
        assert_eq!(cool.retry_after_secs, 2);
        assert!(cool.to_string().ends_with("try again after 2027-01-15T08:00:01.500Z"), "{cool}");
        assert_eq!(CoolDown::new(CoolDownScope::Partner, now, now).retry_after_secs, 1);
    }
}
