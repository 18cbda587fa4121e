//! The one place that reads clocks.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use dvp_fix::{UtcNanos, session::Now};

/// The present time of both clocks. A time before 1970 counts as 1970.
pub(crate) fn now() -> Now {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { mono: Instant::now(), utc: UtcNanos(u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX)) }
}
