//! Webhook delivery (contract section 6.2): the feed's events, sent to the endpoints that subscribe to them.
//!
//! ```text
//! feed ──dispatcher──> queue ──read by the lane's holder (lease, fence)──> lanes, one an endpoint ──> client ──> endpoint
//!                        ^                                                                              │
//!                        └── outcomes, in batches: out of the queue into the log, or due again; health <┘
//! ```
//!
//! Invariants: a delivery is queued with the dispatcher's position in one transaction, so no event is passed over; no
//! database transaction is open while a request is under way; a delivery leaves the queue in the transaction that logs
//! its end, and an outcome counts only under the fence its lane was taken with; what a process that dies had in hand is
//! in the queue, and is sent by whoever takes the lane when its lease has ended. What is repeated has the same id and
//! the same bytes, and the log says only what is durable.
//!
//! Reading order: [`address`], [`url`], [`names`] where may be sent; `network` whose fault it is when nothing is reached; [`signature`]; `client` one attempt;
//! `dispatcher`; `holds` what this process holds; `lanes` who may have how much; `lease`, `route`, `sender`, `worker` and
//! `outcome`. What is past its time is let go by `dvp_core::retention`.

pub mod address;
mod client;
mod dispatcher;
mod lanes;
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
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;

use self::address::Reach;
use self::client::Client;
pub use self::client::SetupError;
use self::names::{Names, SystemNames};
use self::wake::Wake;

/// Where and how much is sent.
pub struct DeliveryConfig {
    pub reach: Reach,
    pub names: Arc<dyn Names>,
    /// A name that always has addresses: when it has none, names do not resolve because of us.
    pub probe_name: String,
    /// Authorities beside the system's.
    pub authorities: Vec<CertificateDer<'static>>,
    pub limits: DeliveryLimits,
}

/// How much at a time, and how long.
#[derive(Debug, Clone, Copy)]
pub struct DeliveryLimits {
    /// From the first byte to the answer's head (contract section 6.2, rule 3).
    pub timeout: Duration,
    /// Requests under way to one endpoint, at most.
    pub per_endpoint: usize,
    /// Deliveries in hand of one process, at most: read, and their outcome not yet written.
    pub in_hand: usize,
    /// How long a lane is held without being renewed; renewed four times as often.
    pub lease: Duration,
    /// How often is looked without a wake-up.
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

/// The delivery role of a process, ready to run.
pub struct Delivery {
    engine: Engine,
    client: Arc<Client>,
    limits: DeliveryLimits,
}

impl Delivery {
    /// # Errors
    /// When the TLS client cannot be set up.
    pub fn new(engine: Engine, config: DeliveryConfig) -> Result<Self, SetupError> {
        let limits = config.limits;
        Ok(Self { engine, client: Arc::new(Client::new(config)?), limits })
    }

    /// Delivers until `shutdown`. What is under way then is given a moment to end.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self { engine, client, limits } = self;
        let wake = Wake::default();
        tokio::join!(
            wake::listen(engine.pool(), &wake, &shutdown),
            dispatcher::run(engine.pool(), &wake, limits.poll, &shutdown),
            worker::run(&engine, &client, limits, &wake, &shutdown),
        );
    }
}
