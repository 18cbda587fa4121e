//! The well-behaved partner: orders at a fixed rate over REST and over FIX, each on a thread of its own, so that what
//! is measured is the service and not the peers that share this process.

mod fix;
mod rest;

use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

use super::latency::Recorder;
use super::promises::Promises;
use super::target::Target;
use crate::crash::fix::SessionTranscript;
use crate::crash::rest::Placed;

/// A beneficiary whose payouts succeed at once.
const ACCOUNT: &str = "bene_straight:dest_10000000";
/// Between two orders with permits of one wallet, at least.
const TOKEN_PAUSE: Duration = Duration::from_secs(1);
/// Before a request that was told to try again is sent again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How long the last answers and reports may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The parameters of both interfaces' clients.
#[derive(Clone)]
pub(super) struct Terms {
    pub target: Target,
    pub recorder: Recorder,
    pub promises: Promises,
    /// Between two orders at a interface.
    pub interval: Duration,
    pub stop: CancellationToken,
}

/// The clients while they run.
pub(super) struct Steady {
    rest: JoinHandle<anyhow::Result<Vec<Placed>>>,
    fix: JoinHandle<anyhow::Result<SessionTranscript>>,
}

impl Steady {
    pub(super) fn start(terms: &Terms) -> anyhow::Result<Self> {
        let (for_rest, for_fix) = (terms.clone(), terms.clone());
        Ok(Self {
            rest: on_a_thread("steady-rest", move || rest::run(for_rest))?,
            fix: on_a_thread("steady-fix", move || fix::run(for_fix))?,
        })
    }

    /// Waits for the clients' end; returns their orders and the transcript.
    pub(super) async fn join(self) -> anyhow::Result<(Vec<Placed>, SessionTranscript)> {
        let joined = tokio::task::spawn_blocking(move || (self.rest.join(), self.fix.join())).await?;
        let panicked = |_| anyhow::anyhow!("a client panicked");
        Ok((joined.0.map_err(panicked)??, joined.1.map_err(panicked)??))
    }
}

fn on_a_thread<T: Send + 'static, F: Future<Output = anyhow::Result<T>>>(
    name: &str,
    work: impl FnOnce() -> F + Send + 'static,
) -> anyhow::Result<JoinHandle<anyhow::Result<T>>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || runtime.block_on(work())).context("a thread")
}
