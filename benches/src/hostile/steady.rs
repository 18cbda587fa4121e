//! The well-behaved partner: orders at a fixed rate over REST and over FIX, and orders of each kind that are followed to
//! their settlement, each on a thread of its own, so that what is measured is the service and not the peers that share
//! this process.

mod fix;
mod rest;
mod settlement;

use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

use super::latency::Recorder;
use super::promises::Promises;
use super::target::Target;
use crate::crash::fix::SessionTranscript;
use crate::crash::rest::Placed;

/// Between two orders with permits of one wallet, at least.
const TOKEN_PAUSE: Duration = Duration::from_secs(1);
/// Before a request that was told to try again is sent again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How long the last answers and reports may take.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Clone)]
pub(super) struct Terms {
    pub target: Target,
    pub recorder: Recorder,
    pub promises: Promises,
    /// Between two orders at a interface.
    pub interval: Duration,
    /// Orders of each kind that are followed to their settlement at a time.
    pub settling: usize,
    pub stop: CancellationToken,
}

pub(super) struct Steady {
    rest: JoinHandle<anyhow::Result<Vec<Placed>>>,
    fix: JoinHandle<anyhow::Result<SessionTranscript>>,
    settlement: JoinHandle<anyhow::Result<Vec<Placed>>>,
}

impl Terms {
    fn dollars(&self) -> &str {
        &self.target.accounts[0]
    }

    fn euros(&self) -> &str {
        &self.target.accounts[1]
    }
}

impl Steady {
    pub(super) fn start(terms: &Terms) -> anyhow::Result<Self> {
        let (for_rest, for_fix, for_settlement) = (terms.clone(), terms.clone(), terms.clone());
        Ok(Self {
            rest: on_a_thread("steady-rest", move || rest::run(for_rest))?,
            fix: on_a_thread("steady-fix", move || fix::run(for_fix))?,
            settlement: on_a_thread("steady-settle", move || settlement::run(for_settlement))?,
        })
    }

    /// Waits for the clients' end; returns their orders and the transcript.
    pub(super) async fn join(self) -> anyhow::Result<(Vec<Placed>, SessionTranscript)> {
        let Self { rest, fix, settlement } = self;
        let joined = move || (rest.join(), fix.join(), settlement.join());
        let (rest, fix, settlement) = tokio::task::spawn_blocking(joined).await?;
        let panicked = |_| anyhow::anyhow!("a client panicked");
        let mut placed = rest.map_err(panicked)??;
        placed.extend(settlement.map_err(panicked)??);
        Ok((placed, fix.map_err(panicked)??))
    }
}

pub(super) fn on_a_thread<T: Send + 'static, F: Future<Output = anyhow::Result<T>>>(
    name: &str,
    work: impl FnOnce() -> F + Send + 'static,
) -> anyhow::Result<JoinHandle<anyhow::Result<T>>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || runtime.block_on(work())).context("a thread")
}
