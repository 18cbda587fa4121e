//! Webhook delivery (contract section 6.2): the feed's events, sent to the endpoints that subscribe to them.
//!
//! ```text
//! feed ──dispatcher──> queue ──read by the owner of the lease (lease, fence)──> endpoint queues ──> client ──> endpoint
//!                        ^                                                                              │
//!                        └── outcomes, in batches: out of the queue into the log, or due again; health <┘
//! ```
//!
//! Invariants: deliveries are queued in the transaction that moves the dispatcher's position, so that no event is
//! skipped; no database transaction is open during a request; a delivery leaves the queue in the transaction that logs
//! its end, and an outcome counts only under the fence of its endpoint lease; the deliveries that a process had in
//! flight when it ended are still in the queue, and the next owner of the lease sends them. A repeated delivery has
//! the same id and the same bytes, and the log contains durable facts only.
//!
//! Reading order: [`address`], [`url`], [`names`] the allowed destinations; `network` the cause of an unreachable
//! receiver; [`signature`]; `client` one attempt; `dispatcher`; `leased_queues` the leased queues; `endpoint_queues` the
//! concurrency of each endpoint; `lease`, `route`, `sender`, `worker` and `outcome`. `dvp_core::workflow::retention` deletes
//! expired rows.
//!
//! A destination's address is checked at registration, before each attempt, and by the resolver at each connection.
//!
//! Kept by `tests/e2e/webhooks.rs::a_kill_during_delivery_loses_no_event_and_repeats_identically` and
//! `core/tests/it/endpoint_leases.rs::an_outcome_is_written_only_under_its_leases_fence`.

pub mod address;
mod client;
mod dispatcher;
mod endpoint_queues;
mod lease;
mod leased_queues;
pub mod names;
mod network;
mod outcome;
mod route;
mod sender;
pub mod signature;
pub mod url;
mod wake;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use dvp_core::engine::Engine;
use dvp_store::workers::{Worker, supervise_until};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;

use self::address::Reach;
use self::client::Client;
pub use self::client::SetupError;
use self::names::{Names, SystemNames};
use self::wake::Wake;

pub struct DeliveryConfig {
    pub reach: Reach,
    pub names: Arc<dyn Names>,
    /// A name that always has addresses: when it has none, our resolver is at fault.
    pub probe_name: String,
    /// Trusted authorities in addition to the system's.
    pub authorities: Vec<CertificateDer<'static>>,
    pub limits: DeliveryLimits,
}

#[derive(Debug, Clone, Copy)]
pub struct DeliveryLimits {
    /// From the first byte to the answer's head (contract section 6.2, rule 3).
    pub timeout: Duration,
    /// Concurrent requests to one endpoint, at most.
    pub per_endpoint: usize,
    /// Deliveries in flight in one process, at most: read, with an outcome that is not written yet.
    pub in_hand: usize,
    /// The duration of an endpoint lease; it is renewed four times as often.
    pub lease: Duration,
    /// The polling interval without a wake-up.
    pub poll: Duration,
}

impl Default for DeliveryLimits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(15),
            per_endpoint: 32,
            in_hand: 4096,
            lease: Duration::from_secs(60),
            poll: Duration::from_millis(500),
        }
    }
}

impl Default for DeliveryConfig {
    fn default() -> Self {
        Self {
            reach: Reach::Public,
            names: Arc::new(SystemNames),
            probe_name: network::PROBE_NAME.to_owned(),
            authorities: Vec::new(),
            limits: DeliveryLimits::default(),
        }
    }
}

/// The delivery worker of a process, ready to run.
pub struct Delivery {
    engine: Engine,
    client: Arc<Client>,
    limits: DeliveryLimits,
}

impl Delivery {
    /// # Errors
    /// Fails when the TLS client cannot be set up.
    pub fn new(engine: Engine, config: DeliveryConfig) -> Result<Self, SetupError> {
        let limits = config.limits;
        Ok(Self { engine, client: Arc::new(Client::new(config)?), limits })
    }

    /// Delivers until `shutdown`. Requests in flight then get a moment to end.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self { engine, client, limits } = self;
        let wake = Wake::default();
        let (pool, is_stopped) = (engine.pool(), || shutdown.is_cancelled());
        tokio::join!(
            wake::listen(pool, &wake, &shutdown),
            supervise_until(Worker::Dispatcher, is_stopped, || {
                dispatcher::run(pool, &wake, limits.poll, &shutdown)
            }),
            supervise_until(Worker::Replays, is_stopped, || {
                dispatcher::run_replays(pool, limits.poll, &shutdown)
            }),
            supervise_until(Worker::Deliveries, is_stopped, || {
                worker::run(&engine, &client, limits, &wake, &shutdown)
            }),
        );
    }
}
