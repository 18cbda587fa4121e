//! How old an order may be, and how far ahead of the service's clock.

use std::time::Duration;

use dvp_fix::{UtcNanos, codec::MessageRef, tag};
use dvp_store::fix::settings::FixSessionSettings;

use super::{Version, facts::Rejection, parse::other_reason, tags};

/// OrdRejReason(103) "too late to enter".
const TOO_LATE: u8 = 4;

/// The configured limits; `None`: any age.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgeLimits {
    fresh: Option<Duration>,
    /// For an order that may have been sent before.
    repeated: Option<Duration>,
    /// How far a clock may be ahead, as for SendingTime(52).
    ahead: Duration,
}

impl AgeLimits {
    pub(crate) fn agreed(settings: &FixSessionSettings) -> Self {
        let seconds = |agreed: Option<i32>| {
            agreed.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs)
        };
        Self {
            fresh: seconds(settings.order_age_secs),
            repeated: seconds(settings.repeated_order_age_secs),
            ahead: seconds(Some(settings.max_latency_secs)).unwrap_or_default(),
        }
    }

    /// Rejects an order that is too old to be executed as a new one, or of a time that has not come: it would escape the
    /// limits of its age.
    pub(crate) fn check(
        self,
        message: MessageRef<'_>,
        is_repetition: bool,
        now: UtcNanos,
        version: Version,
    ) -> Result<(), Rejection> {
        let too_old = |limit: Option<Duration>, tag| {
            let at = message.get(tag).and_then(UtcNanos::parse)?;
            let age = Duration::from_nanos(now.0.saturating_sub(at.0));
            limit.filter(|limit| age > *limit)
        };
        let at = message.get(tags::TRANSACT_TIME).and_then(UtcNanos::parse);
        if at.is_some_and(|at| Duration::from_nanos(at.0.saturating_sub(now.0)) > self.ahead) {
            let text = format!("TransactTime(60) is more than {} seconds ahead", self.ahead.as_secs());
            return Err(Rejection { ord_rej_reason: other_reason(version), text });
        }
        let refused = |name: &str, limit: Duration, why: &str| {
            let text = format!("{name} is more than {} seconds ago{why}", limit.as_secs());
            Err(Rejection { ord_rej_reason: TOO_LATE, text })
        };
        if let Some(limit) = too_old(self.fresh, tags::TRANSACT_TIME) {
            return refused("TransactTime(60)", limit, "");
        }
        let repeated = self.repeated.filter(|_| is_repetition);
        let why = ", and the order may have been sent before";
        if let Some(limit) = too_old(repeated, tags::TRANSACT_TIME) {
            return refused("TransactTime(60)", limit, why);
        }
        match too_old(repeated, tag::ORIG_SENDING_TIME) {
            Some(limit) => refused("OrigSendingTime(122)", limit, why),
            None => Ok(()),
        }
    }
}
