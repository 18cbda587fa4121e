//! The retries of a delivery, and when an endpoint is disabled (spec section 6.2, rules 4 and 5).
//!
//! ```text
//! delivery   attempt 1 ── 1 min ── 2 ── 5 min ── 3 ── 30 min ── 4 ── 2 h ── 5 ── 6 h ── 6 ── 24 h ── 7 ── 24 h ── 8 ── failed
//! endpoint   healthy ──failure──> failing ──4 days──> owner notified ──5 days, and a day after──> inactive
//!              ^───────────────any success─────────────┘
//! ```
//!
//! Pure: the time and the random share are arguments, so weeks pass in a test.

use std::time::Duration;

use crate::time::Timestamp;

/// The pauses after each failed attempt.
const PAUSES_SECS: [u64; 7] = [60, 300, 1800, 7200, 21_600, 86_400, 86_400];
/// How many times a delivery is tried.
pub const ATTEMPTS_MAX: u32 = 8;
/// Jitter adds at most a tenth of the pause: it spreads deliveries that failed together and never shortens the promised
/// pause.
const JITTER_DIVISOR: u128 = 10;

const DAY_MILLIS: i64 = 86_400_000;
/// An endpoint that has failed for this long is disabled.
const GIVEN_UP_AFTER: i64 = 5 * DAY_MILLIS;
/// The owner of an endpoint that has failed for this long is notified.
const REPORTED_AFTER: i64 = 4 * DAY_MILLIS;
/// An endpoint is disabled at the earliest this long after its owner was notified.
const NOTICE: i64 = DAY_MILLIS;
const _: () = assert!(
    REPORTED_AFTER + NOTICE <= GIVEN_UP_AFTER,
    "the owner is notified before the endpoint is disabled"
);

/// The pause after a failed attempt, of `made` attempts so far. `share` of `u16::MAX` is the part of the jitter that is
/// used. `None`: that was the last attempt.
pub fn pause_after(made: u32, share: u16) -> Option<Duration> {
    let index = usize::try_from(made.checked_sub(1)?).ok()?;
    let pause = Duration::from_secs(*PAUSES_SECS.get(index)?);
    let jitter = pause.as_millis() / JITTER_DIVISOR * u128::from(share) / u128::from(u16::MAX);
    Some(pause.saturating_add(Duration::from_millis(u64::try_from(jitter).unwrap_or(0))))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptResult {
    /// Any 2xx.
    Delivered,
    /// Any other result for which the endpoint is responsible.
    Failed,
    /// 410: the endpoint refuses all further events.
    Gone,
    /// The request could not be made: the endpoint's health is unchanged and no attempt is used up.
    OurFault,
}

/// The record of an endpoint's failures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Health {
    /// The first failure since the last success.
    pub failing_since: Option<Timestamp>,
    /// When the owner was notified of this series of failures.
    pub reported_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointAction {
    TellOwner,
    DeactivateFailing,
    DeactivateGone,
}

impl Health {
    #[must_use]
    pub fn after(self, verdict: AttemptResult, now: Timestamp) -> (Self, Option<EndpointAction>) {
        match verdict {
            AttemptResult::Delivered => (Self::default(), None),
            AttemptResult::OurFault => (self, None),
            AttemptResult::Gone => (self, Some(EndpointAction::DeactivateGone)),
            AttemptResult::Failed => self.after_failure(now),
        }
    }

    fn after_failure(self, now: Timestamp) -> (Self, Option<EndpointAction>) {
        let since = self.failing_since.unwrap_or(now);
        let passed = |from: Timestamp, span: i64| now.millis().saturating_sub(from.millis()) >= span;
        let health = Self { failing_since: Some(since), ..self };
        match self.reported_at {
            None if passed(since, REPORTED_AFTER) => {
                (Self { reported_at: Some(now), ..health }, Some(EndpointAction::TellOwner))
            }
            Some(reported) if passed(since, GIVEN_UP_AFTER) && passed(reported, NOTICE) => {
                (health, Some(EndpointAction::DeactivateFailing))
            }
            None | Some(_) => (health, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    #[test]
    fn a_delivery_is_tried_eight_times_over_two_and_a_half_days() {
        for (share, last_minute) in [(0, 3396), (u16::MAX, 3735)] {
            let mut clock = Duration::ZERO;
            let mut attempts = vec![clock];
            for made in 1.. {
                let Some(pause) = pause_after(made, share) else { break };
                clock += pause;
                attempts.push(clock);
            }
            assert_eq!(u32::try_from(attempts.len()), Ok(ATTEMPTS_MAX));
            assert_eq!(attempts.last().map(|at| at.as_secs() / 60), Some(last_minute));
        }
        let planned: Vec<u64> =
            (1..ATTEMPTS_MAX).filter_map(|made| pause_after(made, 0)).map(|pause| pause.as_secs()).collect();
        assert_eq!(planned, [60, 300, 1800, 7200, 21_600, 86_400, 86_400]);
        assert_eq!(pause_after(0, 0), None);
        assert_eq!(pause_after(ATTEMPTS_MAX, 0), None);
    }

    #[test]
    fn jitter_lengthens_a_pause_by_at_most_a_tenth() {
        assert_eq!(pause_after(1, u16::MAX), Some(Duration::from_secs(66)));
        assert_eq!(pause_after(7, u16::MAX / 2 + 1).map(|pause| pause.as_secs()), Some(86_400 + 4320));
    }

    /// Fails every `hours` from the start on; returns the actions, each with its hour.
    fn fail_every(hours: i64, until: i64) -> Vec<(i64, EndpointAction)> {
        let mut health = Health::default();
        let mut done = Vec::new();
        for hour in (0..=until).filter(|hour| hour % hours == 0) {
            let (after, action) = health.after(AttemptResult::Failed, Timestamp::from_millis(hour * HOUR));
            health = after;
            if let Some(action) = action {
                done.push((hour, action));
                if action != EndpointAction::TellOwner {
                    break;
                }
            }
        }
        done
    }

    #[test]
    fn an_endpoint_is_disabled_after_five_days_with_a_days_notice() {
        let both = |reported, ended| {
            vec![(reported, EndpointAction::TellOwner), (ended, EndpointAction::DeactivateFailing)]
        };
        assert_eq!(fail_every(1, 1000), both(96, 120));
        // Rare failures: no endpoint is disabled without a day's notice.
        assert_eq!(fail_every(70, 1000), both(140, 210));
        assert_eq!(fail_every(1, 119), vec![(96, EndpointAction::TellOwner)]);
    }

    #[test]
    fn one_success_resets_the_count() {
        let mut health = Health::default();
        for hour in 0..1000 {
            let verdict = if hour % 119 == 118 { AttemptResult::Delivered } else { AttemptResult::Failed };
            let (after, action) = health.after(verdict, Timestamp::from_millis(hour * HOUR));
            health = after;
            assert_ne!(action, Some(EndpointAction::DeactivateFailing), "hour {hour}");
        }
    }

    #[test]
    fn gone_disables_an_endpoint_at_once_and_our_faults_never() {
        let sick = Health { failing_since: Some(Timestamp::from_millis(0)), reported_at: None };
        let late = Timestamp::from_millis(400 * HOUR);
        assert_eq!(sick.after(AttemptResult::OurFault, late), (sick, None));
        assert_eq!(sick.after(AttemptResult::Gone, late).1, Some(EndpointAction::DeactivateGone));
        assert_eq!(sick.after(AttemptResult::Delivered, late), (Health::default(), None));
    }
}
