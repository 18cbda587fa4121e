//! The service's clock.
//!
//! Engine, writer and workflow read the time here, and the database's own functions decide about leases and due work;
//! tests and sandboxes advance both together ([`dvp_store::database::clock`]).
//!
//! Kept by `tests/boundaries.rs::settlement_reads_the_time_from_the_injected_clock`.

use std::fmt;
use std::sync::Arc;

use dvp_domain::time::Timestamp;
pub use dvp_store::database::clock::{now, system};

/// The time of decisions and of recorded events: the process's, except in a test that supplies its own.
///
/// Two things are measured by other clocks: the age of an answer of a provider, a price source or the node by the
/// process's, and times that several processes must agree on, such as the end of a lease, by the database's.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    pub fn new(read: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new(now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
