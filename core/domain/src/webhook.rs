//! When a delivery is tried again, and when an endpoint is given up (spec section 6.2, rules 4 and 5).
//!
//! ```text
//! delivery   attempt 1 ── 1 min ── 2 ── 5 min ── 3 ── 30 min ── 4 ── 2 h ── 5 ── 6 h ── 6 ── 24 h ── 7 ── 24 h ── 8 ── failed
//! endpoint   well ──failure──> failing ──4 days──> owner told ──5 days, told a day ago──> inactive
//!              ^───────────────any success─────────────┘
//! ```
//!
//! Pure: the time and the random share are arguments, so weeks pass in a test.

use std::time::Duration;

use crate::time::Timestamp;

/// What follows each attempt that failed.
const PAUSES_SECS: [u64; 7] = [60, 300, 1800, 7200, 21_600, 86_400, 86_400];
/// How many times a delivery is tried.
pub const ATTEMPTS_MAX: u32 = 8;
/// Jitter adds at most a tenth of the pause: it spreads what failed together and never shortens what was promised.
const JITTER_DIVISOR: u128 = 10;

const DAY_MILLIS: i64 = 86_400_000;
/// Failing for so long, an endpoint is switched off.
const GIVEN_UP_AFTER: i64 = 5 * DAY_MILLIS;
/// Failing for so long, its owner is told.
const TOLD_AFTER: i64 = 4 * DAY_MILLIS;
/// An endpoint is switched off at the earliest so long after its owner was told.
const NOTICE: i64 = DAY_MILLIS;
const _: () = assert!(
    TOLD_AFTER + NOTICE <= GIVEN_UP_AFTER,
    "the owner has its notice before the endpoint is given up"
);

/// The pause after an attempt that failed, `made` attempts having been made. `share` of `u16::MAX` is the part of the
/// jitter that is taken. `None`: that was the last attempt.
pub fn pause_after(made: u32, share: u16) -> Option<Duration> {
    let index = usize::try_from(made.checked_sub(1)?).ok()?;
    let pause = Duration::from_secs(*PAUSES_SECS.get(index)?);
    let jitter = pause.as_millis() / JITTER_DIVISOR * u128::from(share) / u128::from(u16::MAX);
    Some(pause.saturating_add(Duration::from_millis(u64::try_from(jitter).unwrap_or(0))))
}

/// How an attempt ended, as the endpoint's health sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptResult {
    /// Any 2xx.
    Delivered,
    /// Anything else the endpoint is answerable for.
    Failed,
    /// 410: the endpoint wants no more.
    Gone,
    /// We could not ask: nothing is learnt about the endpoint and no attempt is used up.
    OurFault,
}

/// What is known of an endpoint's failures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Health {
    /// The first failure since the last success.
    pub failing_since: Option<Timestamp>,
    /// When the owner was told of this stretch of failures.
    pub told_at: Option<Timestamp>,
}

/// What is to be done about an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointAction {
    TellOwner,
    DeactivateFailing,
    DeactivateGone,
}

impl Health {
    /// The health after an attempt that ended at `now`.
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
        match self.told_at {
            None if passed(since, TOLD_AFTER) => {
                (Self { told_at: Some(now), ..health }, Some(EndpointAction::TellOwner))
            }
            Some(told) if passed(since, GIVEN_UP_AFTER) && passed(told, NOTICE) => {
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

    /// Fails every `hours` from the start on; returns what was done and after how many hours.
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
    fn five_days_of_failures_end_an_endpoint_and_its_owner_is_told_a_day_before() {
        let both =
            |told, ended| vec![(told, EndpointAction::TellOwner), (ended, EndpointAction::DeactivateFailing)];
        assert_eq!(fail_every(1, 1000), both(96, 120));
        // Rare failures: nobody is switched off without a day's notice.
        assert_eq!(fail_every(70, 1000), both(140, 210));
        assert_eq!(fail_every(1, 119), vec![(96, EndpointAction::TellOwner)]);
    }

    #[test]
    fn one_success_starts_the_count_anew() {
        let mut health = Health::default();
        for hour in 0..1000 {
            let verdict = if hour % 119 == 118 { AttemptResult::Delivered } else { AttemptResult::Failed };
            let (after, action) = health.after(verdict, Timestamp::from_millis(hour * HOUR));
            health = after;
            assert_ne!(action, Some(EndpointAction::DeactivateFailing), "hour {hour}");
        }
    }

    #[test]
    fn gone_ends_an_endpoint_at_once_and_our_own_faults_never_do() {
        let sick = Health { failing_since: Some(Timestamp::from_millis(0)), told_at: None };
        let late = Timestamp::from_millis(400 * HOUR);
        assert_eq!(sick.after(AttemptResult::OurFault, late), (sick, None));
        assert_eq!(sick.after(AttemptResult::Gone, late).1, Some(EndpointAction::DeactivateGone));
        assert_eq!(sick.after(AttemptResult::Delivered, late), (Health::default(), None));
    }
}
