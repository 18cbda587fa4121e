//! The hashes of all issued keys, refreshed in the background: distinguishes callers from guesses without a look-up.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use dvp_store::workers::{Worker, supervise_until};
use dvp_store::{PgPool, StoreError, partners::registry};
use parking_lot::Mutex;
use tracing::warn;

use super::KeyHash;

const EVERY: Duration = Duration::from_secs(1);
/// How long the transaction that issues a key may take to commit.
const LATE: TimeDelta = TimeDelta::seconds(60);

#[derive(Default)]
pub(super) struct Directory {
    known: Arc<Mutex<KeySnapshot>>,
}

#[derive(Default)]
struct KeySnapshot {
    is_followed: bool,
    hashes: HashSet<KeyHash>,
    newest: Option<DateTime<Utc>>,
}

impl Directory {
    pub(super) fn holds(&self, hash: &KeyHash) -> bool {
        self.known.lock().hashes.contains(hash)
    }

    /// Starts to load the keys, once.
    pub(super) fn follow(&self, pool: &PgPool) {
        let mut known = self.known.lock();
        if !known.is_followed {
            known.is_followed = true;
            let (pool, known) = (pool.clone(), Arc::downgrade(&self.known));
            tokio::spawn(async move {
                let is_over = || known.strong_count() == 0;
                supervise_until(Worker::Caches, is_over, || follow(&pool, &known)).await;
            });
        }
    }
}

/// Ends with the API.
async fn follow(pool: &PgPool, known: &Weak<Mutex<KeySnapshot>>) {
    let mut failing = false;
    while let Some(known) = known.upgrade() {
        let since = known.lock().newest.and_then(|newest| newest.checked_sub_signed(LATE));
        match read(pool, since).await {
            Ok(issued) => {
                failing = false;
                let mut known = known.lock();
                for (hash, created_at) in issued {
                    known.hashes.insert(hash);
                    known.newest = known.newest.max(Some(created_at));
                }
            }
            Err(error) => {
                if !failing {
                    warn!(%error, "API key directory could not be refreshed, retrying every second");
                }
                failing = true;
            }
        }
        drop(known);
        tokio::time::sleep(EVERY).await;
    }
}

async fn read(
    pool: &PgPool,
    since: Option<DateTime<Utc>>,
) -> Result<Vec<(KeyHash, DateTime<Utc>)>, StoreError> {
    let mut conn = pool.acquire().await?;
    registry::list_key_hashes(&mut conn, since).await
}
