//! The state that every request needs: the engine, and this process's caches, which may be lost.

pub(crate) mod feed_watch;
mod generations;
pub(crate) mod health;
pub(crate) mod keys;
pub(crate) mod limit;
mod nonces;
pub(crate) mod report_totals;
mod request_log;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dvp_core::context;
use dvp_core::engine::Engine;
use dvp_core::listeners::source::Source;
use dvp_domain::time::Timestamp;
use dvp_store::database::clock;
use uuid::Uuid;

use self::feed_watch::FeedWatch;
use self::generations::Generations;
use self::health::Health;
use self::keys::KeyCache;
use self::limit::Limiter;
use self::nonces::Nonces;
use self::report_totals::Totals;
use self::request_log::RequestLog;
use crate::delivery::address::Reach;
use crate::delivery::names::{Names, SystemNames};
use crate::http::load::{Limits, Load};
use crate::http::windows::Windows;

const KEYS_SEEN_MAX: usize = 1 << 16;

/// Ends when a sandbox's clock has been advanced; the error is for the log.
pub type Advancing = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// The clock of a sandbox.
pub trait SandboxClock: Send + Sync {
    fn advance(self: Arc<Self>, to: Timestamp) -> Advancing;
}

/// The service's clock, against which signatures and deadlines are checked.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

#[derive(Clone)]
pub struct Api {
    pub(crate) engine: Engine,
    pub(crate) keys: Arc<KeyCache>,
    pub(crate) limiter: Arc<Limiter>,
    /// Requests of each source to the routes that need no key.
    pub(crate) open: Arc<Windows<Source>>,
    pub(crate) nonces: Arc<Nonces>,
    /// Idempotency keys of recent requests: a hint, because the writer finds every repetition itself. A repetition that
    /// reaches the writer makes it check later requests too, which is slower.
    pub(crate) keys_seen: Arc<Generations<Uuid>>,
    pub(crate) load: Arc<Load>,
    pub(crate) feed: Arc<FeedWatch>,
    pub(crate) totals: Arc<Totals>,
    pub(crate) requests: Arc<RequestLog>,
    pub(crate) health: Arc<Health>,
    /// The allowed destinations of webhooks.
    pub(crate) webhooks: Arc<WebhookRules>,
    /// In a sandbox: its clock.
    pub(crate) sandbox: Option<Arc<dyn SandboxClock>>,
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
            sandbox: None,
            open: Arc::default(),
            nonces: Arc::default(),
            keys_seen: Arc::new(Generations::new(Duration::MAX, KEYS_SEEN_MAX)),
            load: Arc::default(),
            feed: Arc::default(),
            totals: Arc::default(),
            requests: Arc::default(),
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

    /// With what only a sandbox has: its clock, and a form for each operation on the page of the API.
    #[must_use]
    pub fn in_sandbox(self, sandbox: Option<Arc<dyn SandboxClock>>) -> Self {
        Self { sandbox, ..self }
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// What a caller's clock shows, however far a sandbox is ahead.
    pub(crate) fn caller_time(&self) -> Timestamp {
        loop {
            let ahead = clock::ahead();
            let now = self.now();
            if clock::ahead() == ahead {
                return now.plus_millis(-ahead);
            }
        }
    }
}
