//! Whether the indexer has halted a chain: then what was final is final no more, and until an operator resumes it no
//! order of its tokens is accepted and no leg of one begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dvp_store::workers::{self, Items, Step, Worker, in_database};
use dvp_store::{PgPool, StoreError, chain as store};
use tokio::sync::watch;
use tracing::{error, info};

/// The interval at which the cursors are read.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The longest time for one reading.
const LOOK_WITHIN: Duration = Duration::from_secs(5);
const CHAINS: &str = "chains";

/// Whether a chain is halted, as last read. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Halt(Arc<AtomicBool>);

impl Halt {
    pub fn is_halted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns whether this changed it.
    pub fn set(&self, is_halted: bool) -> bool {
        self.0.swap(is_halted, Ordering::Relaxed) != is_halted
    }
}

/// The chains to watch: id, name and state.
#[derive(Debug)]
pub struct Halts(pub(crate) Vec<(i64, String, Halt)>);

impl Halts {
    /// Reads which chains are halted. A process does so before it begins its first leg.
    pub async fn look(&self, pool: &PgPool) -> Result<(), StoreError> {
        workers::at(Step::HaltsRead, in_database(pool, CHAINS)).await?;
        let mut conn = pool.acquire().await?;
        let halted = store::list_halted(&mut conn).await?;
        for (chain_id, chain, halt) in &self.0 {
            let is_halted = halted.contains(chain_id);
            match (halt.set(is_halted), is_halted) {
                (true, true) => {
                    error!(
                        chain,
                        "chain halted: no order of its tokens is accepted, and no leg of one begins"
                    );
                }
                (true, false) => info!(chain, "chain resumed"),
                (false, _) => {}
            }
        }
        Ok(())
    }

    /// Reads it every second until `stop` turns true. While the database does not answer, the last result stands.
    pub async fn run(self, pool: PgPool, mut stop: watch::Receiver<bool>) {
        let items = Items::waiting(pool.clone(), Worker::Halts, LOOK_WITHIN, LOOK_EVERY);
        while !*stop.borrow() {
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                _ = stop.changed() => continue,
            }
            items.attend(CHAINS, CHAINS, self.look(&pool)).await;
        }
    }
}
