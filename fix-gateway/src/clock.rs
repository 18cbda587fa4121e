//! The one place that reads clocks.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dvp_fix::{UtcNanos, session::Now};
use dvp_store::database::clock;

/// The present time of all clocks. A time before 1970 counts as 1970. SendingTime(52) is compared with the
/// counterparty's clock: it is the machine's in a sandbox too.
pub(crate) fn now() -> Now {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ahead = Duration::from_millis(u64::try_from(clock::ahead()).unwrap_or_default());
    let nanos = |since: Duration| UtcNanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
    Now { mono: Instant::now(), utc: nanos(since_epoch), calendar: nanos(since_epoch + ahead) }
}
