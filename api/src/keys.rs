//! API keys seen a moment ago, so that a busy partner does not cost a lookup a request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dvp_core::engine::{Engine, EngineError};
use dvp_core::store::partners::{self, KeyRow};

/// How long a found key is believed: a key that is disabled stops working within this time.
const FRESH: Duration = Duration::from_secs(1);
/// How many keys are kept at most.
const KEYS_MAX: usize = 10_000;

type KeyHash = [u8; 32];

/// Only found keys are kept: guessing fills nothing.
#[derive(Default)]
pub(crate) struct KeyCache {
    found: Mutex<HashMap<KeyHash, (Instant, Arc<KeyRow>)>>,
}

impl KeyCache {
    /// The key a caller sent, as it was at most a second ago.
    pub(crate) async fn find(
        &self,
        engine: &Engine,
        api_key: &str,
    ) -> Result<Option<Arc<KeyRow>>, EngineError> {
        let hash = engine.context().vault.api_key_hash(api_key);
        if let Some(row) = self.fresh(&hash) {
            return Ok(Some(row));
        }
        let mut conn = engine.pool().acquire().await?;
        let Some(row) = partners::find_key(&mut conn, &hash).await?.map(Arc::new) else { return Ok(None) };
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.len() >= KEYS_MAX {
            found.clear();
        }
        found.insert(hash, (Instant::now(), row.clone()));
        Ok(Some(row))
    }

    fn fresh(&self, hash: &KeyHash) -> Option<Arc<KeyRow>> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.get(hash).filter(|(at, _)| at.elapsed() < FRESH).map(|(_, row)| row.clone())
    }
}
