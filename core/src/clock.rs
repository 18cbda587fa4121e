//! The service's clock.

use dvp_domain::time::Timestamp;

/// The time of decisions and of recorded events.
pub fn now() -> Timestamp {
    chrono::Utc::now().into()
}
