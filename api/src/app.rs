//! What every request needs.

use std::sync::Arc;

use dvp_core::context;
use dvp_core::engine::Engine;
use dvp_domain::time::Timestamp;

use crate::keys::KeyCache;
use crate::limit::Limiter;
use crate::nonces::Nonces;

/// The service's clock, as signatures and deadlines are checked against it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The state of the API. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    pub(crate) engine: Engine,
    pub(crate) keys: Arc<KeyCache>,
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) nonces: Arc<Nonces>,
    clock: Clock,
}

impl Api {
    /// On the machine's clock.
    pub fn new(engine: Engine) -> Self {
        Self::with_clock(engine, Arc::new(context::now))
    }

    pub fn with_clock(engine: Engine, clock: Clock) -> Self {
        Self { engine, keys: Arc::default(), limiter: Arc::default(), nonces: Arc::default(), clock }
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }
}
