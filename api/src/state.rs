//! The state that every request needs: the engine, and this process's caches, which may be lost.

pub(crate) mod feed_watch;
mod generations;
pub(crate) mod health;
pub(crate) mod keys;
pub(crate) mod limit;
mod nonces;
pub(crate) mod report_totals;

use std::sync::Arc;
use std::time::Duration;

use dvp_core::context;
use dvp_core::engine::Engine;
use dvp_domain::time::Timestamp;
use uuid::Uuid;

use self::feed_watch::FeedWatch;
use self::generations::Generations;
use self::health::Health;
use self::keys::KeyCache;
use self::limit::Limiter;
use self::nonces::Nonces;
use self::report_totals::Totals;
use crate::delivery::address::Reach;
use crate::delivery::names::{Names, SystemNames};
use crate::http::load::{Limits, Load};

const KEYS_SEEN_MAX: usize = 1 << 16;

/// The service's clock, against which signatures and deadlines are checked.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

#[derive(Clone)]
pub struct Api {
    pub(crate) engine: Engine,
    pub(crate) keys: Arc<KeyCache>,
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) nonces: Arc<Nonces>,
    /// Idempotency keys of recent requests: a hint, because the writer finds every repetition itself. A repetition that
    /// reaches the writer makes it check later requests too, which is slower.
    pub(crate) keys_seen: Arc<Generations<Uuid>>,
    pub(crate) load: Arc<Load>,
    pub(crate) feed: Arc<FeedWatch>,
    pub(crate) totals: Arc<Totals>,
    pub(crate) health: Arc<Health>,
    /// The allowed destinations of webhooks.
    pub(crate) webhooks: Arc<WebhookRules>,
    clock: Clock,
}

pub struct WebhookRules {
    pub reach: Reach,
    pub names: Arc<dyn Names>,
}

impl Default for WebhookRules {
    fn default() -> Self {
        Self { reach: Reach::Public, names: Arc::new(SystemNames) }
    }
}

impl Api {
    pub fn new(engine: Engine) -> Self {
        Self::with_clock(engine, Arc::new(context::now))
    }

    pub fn with_clock(engine: Engine, clock: Clock) -> Self {
        Self {
            engine,
            keys: Arc::new(KeyCache::new(Limits::default().unknown_keys_per_source)),
            limiter: Arc::default(),
            nonces: Arc::default(),
            keys_seen: Arc::new(Generations::new(Duration::MAX, KEYS_SEEN_MAX)),
            load: Arc::default(),
            feed: Arc::default(),
            totals: Arc::default(),
            health: Arc::default(),
            webhooks: Arc::default(),
            clock,
        }
    }

    /// With rules for webhook URLs that differ from the contract's.
    #[must_use]
    pub fn with_webhook_rules(self, rules: WebhookRules) -> Self {
        Self { webhooks: Arc::new(rules), ..self }
    }

    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        let keys = Arc::new(KeyCache::new(limits.unknown_keys_per_source));
        Self { keys, load: Arc::new(Load::new(limits)), ..self }
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }
}
