//! The service's clock.

use dvp_domain::time::Timestamp;

/// The time that decisions are made at and events are recorded with.
pub fn now() -> Timestamp {
    chrono::Utc::now().into()
}
