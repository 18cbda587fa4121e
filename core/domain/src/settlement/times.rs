//! When events occurred. Within a settlement no event occurs before the previous one, or after it was recorded.
//!
//! Sources are less precise than the service: banks book by date, blocks have whole seconds, and the clocks of other
//! machines differ. A time before the last event's becomes that event's; a time in the future becomes now.

use super::{Happened, RailAnswer, Step};
use crate::time::Timestamp;

impl Happened {
    /// Limits its times to between `last`, the last event's, and `now`. State, events and receipt all follow from it
    /// and so have the same times.
    #[must_use]
    pub fn between(mut self, last: Timestamp, now: Timestamp) -> Self {
        let clamp = |at: &mut Timestamp| *at = (*at).min(now).max(last);
        match &mut self {
            Self::DeadlinePassed { at }
            | Self::Locked { at, .. }
            | Self::LockFailed { at, .. }
            | Self::Refused { at, .. }
            | Self::LockLost { at }
            | Self::ConversionGivenUp { at, .. }
            | Self::Filled { at }
            | Self::FillFailed { at, .. }
            | Self::Withheld { at, .. }
            | Self::Settled { at, .. }
            | Self::Refunded { at, .. } => clamp(at),
            Self::Offramp { answer, at } | Self::Payout { answer, at } => {
                clamp(at);
                if let RailAnswer::Done(done) = answer {
                    clamp(&mut done.occurred_at);
                }
            }
            Self::FoundPaid { done, at }
            | Self::DebtReturned { done, at }
            | Self::PaymentReturned { done, at, .. } => {
                clamp(at);
                clamp(&mut done.occurred_at);
            }
            Self::ReversalResolved { done, .. } => clamp(&mut done.occurred_at),
            Self::Matched
            | Self::LockDue
            | Self::CancelRequested
            | Self::FillLost
            | Self::TimelockNear
            | Self::ConversionClosed
            | Self::Anchored(_) => {}
        }
        self
    }
}

impl Step {
    /// When each of its events occurred, after one that occurred at `last`, when they are recorded at `now`.
    pub fn occurred(&self, last: Timestamp, now: Timestamp) -> Vec<Timestamp> {
        let mut at = last;
        let next = self.events.iter().map(|reported| {
            at = reported.occurred_at.min(now).max(at);
            at
        });
        next.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{KINDS, everything, straight, terms_of};
    use super::super::{Effect, State, accept};
    use super::*;
    use crate::terms::Terms;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
    const DAY: i64 = 86_400_000;

    /// The same with its times far off.
    fn claimed(happened: Happened, days: i64) -> Happened {
        let at = NOW.plus_millis(days * DAY);
        happened.between(at, at)
    }

    /// Whether the history led to a receipt.
    fn check(terms: &Terms, history: impl Iterator<Item = Happened>) -> bool {
        let mut step = accept(terms);
        let (mut last, mut reported, mut is_complete) = (NOW, Vec::<Timestamp>::new(), false);
        for (n, happened) in history.enumerate() {
            let n = i64::try_from(n).unwrap();
            let now = NOW.plus_millis(1 + n);
            // Every source is a day further off than the one before it, into the past or into the future.
            let days = if n % 3 == 2 { n } else { -n };
            let happened = claimed(happened, days).between(last, now);
            let Ok(next) = step.next.clone().step(terms, happened) else { continue };
            step = next;
            let occurred = step.occurred(last, now);
            assert!(occurred.iter().all(|at| *at <= now), "recorded before it occurred");
            reported.extend(&occurred);
            last = occurred.last().copied().unwrap_or(last);
            if step.effects.contains(&Effect::IssueReceipt)
                && let State::Completed { offramp, payout, .. } = &step.next
            {
                let legs = offramp.iter().map(|one| &one.done).chain([payout]).map(|leg| leg.occurred_at);
                assert!(legs.is_sorted() && payout.occurred_at == last, "the receipt differs from the feed");
                is_complete = true;
            }
        }
        assert!(reported.is_sorted(), "{reported:?}");
        is_complete
    }

    #[test]
    fn no_history_goes_back_in_time_for_any_source() {
        for kind in KINDS {
            let terms = terms_of(kind);
            assert!(check(&terms, straight().into_iter()), "{kind:?}");
            for (_, other) in everything() {
                for at in 0..=straight().len() {
                    let mut history = straight();
                    history.insert(at, other.clone());
                    check(&terms, history.into_iter());
                }
            }
        }
    }

    #[test]
    fn a_future_time_becomes_now_and_one_within_bounds_is_kept() {
        let at = |millis| Happened::LockLost { at: NOW.plus_millis(millis) };
        let clamped = |millis| at(millis).between(NOW, NOW.plus_millis(10));
        assert_eq!([clamped(-1), clamped(5), clamped(11)], [at(0), at(5), at(10)]);
        // A process whose clock is behind the one that recorded the last event.
        assert_eq!(at(5).between(NOW.plus_millis(20), NOW), at(20));
    }
}
