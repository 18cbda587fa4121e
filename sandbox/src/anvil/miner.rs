//! Blocks by the clock, made on our word.
//!
//! anvil writes its state part by part, and its own clock does not wait for it: a file written while a block was made
//! has the block's effects and not the block, and a chain that is loaded from it has balances, nonces and counts of
//! events that no transaction of its explains. So it gets no clock: this module requests blocks one at a time, and
//! none while the state is written for the last time. [`SETTLE`] covers a block that was requested as we were killed.

use std::time::Duration;

use alloy::providers::{DynProvider, Provider};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::{CancellationToken, DropGuard};

/// From our end to the order to write the state: longer than a block takes to be made.
pub(super) const SETTLE: Duration = Duration::from_millis(200);

/// Asks for blocks until it is stopped or dropped.
#[derive(Debug)]
pub(super) struct Miner {
    stop: DropGuard,
    task: JoinHandle<()>,
}

impl Miner {
    pub(super) fn start(provider: DynProvider, every: Duration) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(mine(provider, every, stop.clone()));
        Self { stop: stop.drop_guard(), task }
    }

    /// Returns when no block is being made any more.
    pub(super) async fn stop(self) {
        drop(self.stop);
        // A runtime that is going down has ended the task.
        let _ = self.task.await;
    }
}

async fn mine(provider: DynProvider, every: Duration, stop: CancellationToken) {
    let mut clock = tokio::time::interval(every);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    clock.tick().await;
    let mut failing = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = clock.tick() => {}
        }
        match provider.raw_request::<_, Value>("evm_mine".into(), ()).await {
            Ok(_) => failing = false,
            Err(error) if !failing => {
                tracing::warn!(%error, "chain produces no block, will retry");
                failing = true;
            }
            Err(_) => {}
        }
    }
}
