//! API keys seen a moment ago, so that a busy partner does not cost a lookup a request.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dvp_core::engine::{Engine, EngineError};
use dvp_core::secrets::{MacKey, SealBroken, Vault};
use dvp_core::store::partners::{self, KeyRow};

/// How long a found key is believed: a key that is disabled stops working within this time.
const FRESH: Duration = Duration::from_secs(1);
/// How many keys are kept at most.
const KEYS_MAX: usize = 10_000;

type KeyHash = [u8; 32];

/// A key that was found, and its signing secret once it was needed.
pub(crate) struct FoundKey {
    row: KeyRow,
    signing: OnceLock<MacKey>,
}

impl Deref for FoundKey {
    type Target = KeyRow;

    fn deref(&self) -> &KeyRow {
        &self.row
    }
}

impl FoundKey {
    /// The signing secret as a MAC's key, unsealed at the first use.
    pub(crate) fn signing(&self, vault: &Vault) -> Result<&MacKey, SealBroken> {
        if let Some(key) = self.signing.get() {
            return Ok(key);
        }
        let secret = vault.open(&self.row.key_id, &self.row.sealed_secret)?;
        Ok(self.signing.get_or_init(|| MacKey::new(&secret)))
    }
}

/// Only found keys are kept: guessing fills nothing.
#[derive(Default)]
pub(crate) struct KeyCache {
    found: Mutex<HashMap<KeyHash, (Instant, Arc<FoundKey>)>>,
}

impl KeyCache {
    /// The key a caller sent, as it was at most a second ago.
    pub(crate) async fn find(
        &self,
        engine: &Engine,
        api_key: &str,
    ) -> Result<Option<Arc<FoundKey>>, EngineError> {
        let hash = engine.context().vault.api_key_hash(api_key);
        if let Some(row) = self.fresh(&hash) {
            return Ok(Some(row));
        }
        let mut conn = engine.pool().acquire().await?;
        let Some(row) = partners::find_key(&mut conn, &hash).await? else { return Ok(None) };
        let row = Arc::new(FoundKey { row, signing: OnceLock::new() });
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.len() >= KEYS_MAX {
            found.clear();
        }
        found.insert(hash, (Instant::now(), row.clone()));
        Ok(Some(row))
    }

    fn fresh(&self, hash: &KeyHash) -> Option<Arc<FoundKey>> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.get(hash).filter(|(at, _)| at.elapsed() < FRESH).map(|(_, row)| row.clone())
    }
}
