//! When a legacy order is executed: pure rules over the market's offers in one window.
//!
//! - `instant` takes the best offer within its constraints at its only evaluation, or is rejected.
//! - `optimized` records the best offer in the first half of its lifetime; then it takes the first offer that is as good,
//!   or any offer at its last window. It is evaluated when its pair's market changes, at most once a second, when the
//!   second half begins, and at its last window.
//! - `scheduled` takes the first offer within its constraints. It is evaluated at its first epoch of ten seconds, and at
//!   the next epoch after its pair's market changed.

use chrono::{DateTime, TimeDelta, Utc};
use dvp_domain::money::Minor;
use dvp_domain::names::names;

use super::{CONSTRAINTS_NOT_MET, INSUFFICIENT_LIQUIDITY};

pub(super) const WINDOW: TimeDelta = TimeDelta::seconds(1);
const EPOCH_SECS: i64 = 10;

names! {
    pub enum Strategy {
        Instant = "instant",
        Optimized = "optimized",
        Scheduled = "scheduled",
    }
}

impl Strategy {
    /// The stage between two evaluations.
    pub(super) const fn waiting_stage(self) -> &'static str {
        match self {
            Self::Instant | Self::Optimized => "solving",
            Self::Scheduled => "queued",
        }
    }

    /// When an order whose execution was rejected is evaluated again.
    pub(super) fn next_turn(self, window: &Window) -> DateTime<Utc> {
        let next = match self {
            Self::Instant | Self::Optimized => window.now.checked_add_signed(WINDOW).unwrap_or(window.now),
            Self::Scheduled => next_epoch(window.now),
        };
        next.min(window.expires_at)
    }

    /// When an order is evaluated again at an unchanged market: the next time at which that may decide otherwise.
    fn next_time(self, window: &Window) -> DateTime<Utc> {
        let Window { now, created_at, expires_at } = *window;
        let times = match self {
            Self::Optimized => [created_at + (expires_at - created_at) / 2, expires_at - WINDOW],
            Self::Instant | Self::Scheduled => [expires_at; 2],
        };
        times.into_iter().filter(|time| *time > now).min().unwrap_or(expires_at)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offer {
    pub output: Minor,
    pub min_output: Minor,
    /// Slippage and fee are within the order's constraints.
    pub within: bool,
}

/// The order's progress within its lifetime.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub now: DateTime<Utc>,
    pub created_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StrategyDecision {
    Take { min_output: Minor },
    Wait { run_at: DateTime<Utc>, best_output: Option<Minor> },
    Reject(&'static str),
    Expire,
}

/// The first stage and the time of the first evaluation of a new order.
pub fn first_turn(
    strategy: Strategy,
    created_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
) -> (&'static str, DateTime<Utc>) {
    match strategy {
        Strategy::Instant | Strategy::Optimized => ("pending", created_at),
        Strategy::Scheduled => ("queued", next_epoch(created_at).min(expires_at)),
    }
}

pub(super) fn judge(
    strategy: Strategy,
    offers: &[Offer],
    window: &Window,
    best_seen: Option<Minor>,
) -> StrategyDecision {
    if window.now >= window.expires_at {
        return StrategyDecision::Expire;
    }
    let best = offers.iter().filter(|offer| offer.within).max_by_key(|offer| offer.output);
    let take = |offer: &Offer| StrategyDecision::Take { min_output: offer.min_output };
    let wait = |best_output| StrategyDecision::Wait { run_at: strategy.next_time(window), best_output };
    match (strategy, best) {
        (Strategy::Instant, None) if offers.is_empty() => StrategyDecision::Reject(INSUFFICIENT_LIQUIDITY),
        (Strategy::Instant, None) => StrategyDecision::Reject(CONSTRAINTS_NOT_MET),
        (Strategy::Instant | Strategy::Scheduled, Some(offer)) => take(offer),
        (Strategy::Optimized | Strategy::Scheduled, None) => wait(best_seen),
        (Strategy::Optimized, Some(offer)) => {
            let best_seen = best_seen.unwrap_or_default();
            let looking = window.now - window.created_at < (window.expires_at - window.created_at) / 2;
            let is_last = window.expires_at - window.now <= WINDOW;
            if is_last || (!looking && offer.output >= best_seen) {
                take(offer)
            } else {
                wait(Some(best_seen.max(offer.output)))
            }
        }
    }
}

/// When the next epoch begins.
pub(super) fn next_epoch(now: DateTime<Utc>) -> DateTime<Utc> {
    let epoch = now.timestamp().div_euclid(EPOCH_SECS).saturating_add(1).saturating_mul(EPOCH_SECS);
    DateTime::from_timestamp(epoch, 0).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(1_800_000_000_000 + millis).unwrap()
    }

    fn window(now: i64) -> Window {
        Window { now: at(now), created_at: at(0), expires_at: at(30_000) }
    }

    fn offer(output: u128, within: bool) -> Offer {
        Offer { output: Minor::new(output), min_output: Minor::new(output - 1), within }
    }

    fn take(output: u128) -> StrategyDecision {
        StrategyDecision::Take { min_output: Minor::new(output - 1) }
    }

    fn wait(now: i64, best: Option<u128>) -> StrategyDecision {
        StrategyDecision::Wait { run_at: at(now), best_output: best.map(Minor::new) }
    }

    #[test]
    fn an_instant_order_takes_the_best_valid_offer_or_is_rejected() {
        let judge = |offers: &[Offer]| judge(Strategy::Instant, offers, &window(10), None);
        assert_eq!(judge(&[offer(9, true), offer(11, true), offer(12, false)]), take(11));
        assert_eq!(judge(&[offer(12, false)]), StrategyDecision::Reject(CONSTRAINTS_NOT_MET));
        assert_eq!(judge(&[]), StrategyDecision::Reject(INSUFFICIENT_LIQUIDITY));
    }

    #[test]
    fn an_optimized_order_observes_for_half_its_life_then_takes_an_equal_offer() {
        let judge = |now, offers: &[Offer], best: Option<u128>| {
            judge(Strategy::Optimized, offers, &window(now), best.map(Minor::new))
        };
        assert_eq!(judge(0, &[offer(10, true)], None), wait(15_000, Some(10)));
        assert_eq!(judge(5_000, &[offer(8, true)], Some(10)), wait(15_000, Some(10)));
        assert_eq!(judge(6_000, &[], Some(10)), wait(15_000, Some(10)));
        assert_eq!(judge(16_000, &[offer(9, true)], Some(10)), wait(29_000, Some(10)));
        assert_eq!(judge(17_000, &[offer(10, true)], Some(10)), take(10));
        assert_eq!(judge(29_100, &[offer(3, true)], Some(10)), take(3));
        assert_eq!(judge(29_100, &[offer(3, false)], Some(10)), wait(30_000, Some(10)));
        assert_eq!(judge(30_000, &[offer(20, true)], Some(10)), StrategyDecision::Expire);
    }

    #[test]
    fn a_scheduled_order_is_queued_for_the_next_epoch_and_waits_for_the_market() {
        let (stage, turn) = first_turn(Strategy::Scheduled, at(1_234), at(31_234));
        assert_eq!((stage, turn), ("queued", at(10_000)));
        let judge = |now, offers: &[Offer]| judge(Strategy::Scheduled, offers, &window(now), None);
        assert_eq!(judge(10_000, &[offer(9, false)]), wait(30_000, None));
        assert_eq!(judge(20_001, &[offer(9, true)]), take(9));
        assert_eq!(judge(20_001, &[]), wait(30_000, None));
        assert_eq!(first_turn(Strategy::Scheduled, at(1_234), at(2_000)).1, at(2_000));
    }
}
