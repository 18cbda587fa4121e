//! Authentication: API keys by their hash.
//!
//! Neither a busy partner nor a guessing client costs a look-up per request:
//!
//! | the key | costs |
//! |---|---|
//! | found within the last second | nothing |
//! | unknown within the last second | nothing |
//! | one that was ever issued (`directory`) | a look-up, shared by all concurrent requests |
//! | any other | the same, for [`UNAUTHENTICATED_MAX`] keys at once and for a bounded number a minute of one source |
//!
//! A source that has sent too many unknown keys is refused without a look-up. Its valid keys are still accepted,
//! because they are in the directory, which contains every new key within a second or two.
//!
//! Kept by `api/tests/it/unauthenticated.rs::unknown_keys_of_a_source_are_limited_and_valid_keys_are_not`.

mod directory;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use dvp_core::engine::Engine;
use dvp_core::listeners::source::Source;
use dvp_core::secrets::{MacKey, SealBroken, Vault};
use dvp_store::partners::registry::{self, KeyRow};
use parking_lot::Mutex;
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use self::directory::Directory;
use crate::http::error::{ApiError, Code};
use crate::http::windows::Windows;
use crate::state::generations::Generations;

/// How long a look-up is valid: a disabled key stops working, and a new one works, within this time or, for an unknown
/// one, twice this time.
const FRESH: Duration = Duration::from_secs(1);
const KEYS_MAX: usize = 10_000;
/// The maximum number of cached unknown keys, in each of two generations.
const UNKNOWN_MAX: usize = 1 << 15;
/// Concurrent look-ups of keys that are not in the directory.
const UNAUTHENTICATED_MAX: usize = 2;
/// How long such a key waits for its look-up.
const UNAUTHENTICATED_WAIT: Duration = Duration::from_secs(3);

pub(crate) type KeyHash = [u8; 32];

/// A cached key, and its signing secret once it was needed.
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
    /// The signing secret as a MAC key, decrypted at the first use.
    pub(crate) fn signing(&self, vault: &Vault) -> Result<&MacKey, SealBroken> {
        if let Some(key) = self.signing.get() {
            return Ok(key);
        }
        let secret = vault.open(&self.row.key_id, &self.row.sealed_secret)?;
        Ok(self.signing.get_or_init(|| MacKey::new(&secret)))
    }
}

type LookUp = Arc<OnceCell<Option<Arc<FoundKey>>>>;

pub(crate) struct KeyCache {
    found: Mutex<HashMap<KeyHash, (Instant, Arc<FoundKey>)>>,
    unknown: Generations<KeyHash>,
    under_way: Mutex<HashMap<KeyHash, LookUp>>,
    directory: Directory,
    unauthenticated: Semaphore,
    failures: Windows<Source>,
    /// Unknown keys of one source a minute.
    failures_max: u32,
}

impl KeyCache {
    pub(crate) fn new(failures_max: u32) -> Self {
        Self {
            found: Mutex::default(),
            unknown: Generations::new(FRESH, UNKNOWN_MAX),
            under_way: Mutex::default(),
            directory: Directory::default(),
            unauthenticated: Semaphore::new(UNAUTHENTICATED_MAX),
            failures: Windows::default(),
            failures_max,
        }
    }

    /// Starts to load the directory.
    pub(crate) fn follow(&self, engine: &Engine) {
        self.directory.follow(engine.lookups());
    }

    /// The caller's key, as it was at most a second ago. `source`: the request's source, if known.
    pub(crate) async fn find(
        &self,
        engine: &Engine,
        source: Option<Source>,
        api_key: &str,
    ) -> Result<Arc<FoundKey>, ApiError> {
        let vault = &engine.context().vault;
        let hash = vault.api_key_hash(api_key);
        if let Some(found) = self.fresh(&hash) {
            return Ok(found);
        }
        self.follow(engine);
        let hashes = vault.api_key_hashes(api_key);
        if hashes.iter().any(|hash| self.directory.holds(hash)) {
            return self
                .look_up(engine, &hash, &hashes, false)
                .await?
                .ok_or(ApiError::Plain(Code::InvalidApiKey));
        }
        let exhausted =
            source.and_then(|from| self.failures.exhausted(&from, self.failures_max, Instant::now()));
        if let Some(retry_after_secs) = exhausted {
            return Err(ApiError::TooManyUnknownKeys { retry_after_secs });
        }
        // A caller that closes its connection before the answer has tried the key, too.
        let attempt = Attempt { failures: &self.failures, source };
        let is_unknown = self.unknown.holds(&hash, Instant::now());
        let found = if is_unknown { Ok(None) } else { self.look_up(engine, &hash, &hashes, true).await };
        if !matches!(found, Ok(None)) {
            attempt.forget();
        }
        found?.ok_or(ApiError::Plain(Code::InvalidApiKey))
    }

    /// Queries the database, once for all concurrent requests with the same key. A key that is not in the directory
    /// waits for one of the few concurrent look-ups of such keys. `hashes`: under each master key; a key stored under
    /// an earlier one is stored under the current one from then on.
    async fn look_up(
        &self,
        engine: &Engine,
        hash: &KeyHash,
        hashes: &[KeyHash],
        is_unknown: bool,
    ) -> Result<Option<Arc<FoundKey>>, ApiError> {
        let waiting = Waiting::begin(self, *hash);
        waiting
            .look_up
            .get_or_try_init(|| async {
                let _turn = if is_unknown { Some(self.turn().await?) } else { None };
                let mut conn = engine.lookups().acquire().await?;
                let row = registry::find_key(&mut conn, hashes).await?;
                if let Some(row) = row.as_ref().filter(|row| row.has_old_hash) {
                    let master_key = engine.context().vault.current_id();
                    registry::rehash_key(&mut conn, &row.key_id, hash, master_key).await?;
                }
                let found = row.map(|row| Arc::new(FoundKey { row, signing: OnceLock::new() }));
                match &found {
                    Some(found) => self.keep(*hash, found),
                    None => {
                        self.unknown.note(*hash, Instant::now());
                    }
                }
                Ok::<_, ApiError>(found)
            })
            .await
            .cloned()
    }

    async fn turn(&self) -> Result<SemaphorePermit<'_>, ApiError> {
        // Other keys are guesses: a new key is in the directory when its caller retries.
        let turn = tokio::time::timeout(UNAUTHENTICATED_WAIT, self.unauthenticated.acquire()).await;
        turn.ok().and_then(Result::ok).ok_or(ApiError::Busy)
    }

    fn keep(&self, hash: KeyHash, key: &Arc<FoundKey>) {
        let mut found = self.found.lock();
        if found.len() >= KEYS_MAX {
            found.clear();
        }
        found.insert(hash, (Instant::now(), Arc::clone(key)));
    }

    fn fresh(&self, hash: &KeyHash) -> Option<Arc<FoundKey>> {
        let found = self.found.lock();
        found.get(hash).filter(|(at, _)| at.elapsed() < FRESH).map(|(_, row)| row.clone())
    }
}

/// A request that waits for a look-up, which is forgotten when it is done, or when no request waits for it any more.
struct Waiting<'a> {
    cache: &'a KeyCache,
    hash: KeyHash,
    look_up: LookUp,
}

impl<'a> Waiting<'a> {
    fn begin(cache: &'a KeyCache, hash: KeyHash) -> Self {
        let look_up = Arc::clone(cache.under_way.lock().entry(hash).or_default());
        Self { cache, hash, look_up }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut under_way = self.cache.under_way.lock();
        let is_present = under_way.get(&self.hash).is_some_and(|present| Arc::ptr_eq(present, &self.look_up));
        // All are cloned under this lock: this one and the map's.
        let is_last = Arc::strong_count(&self.look_up) <= 2;
        if is_present && (is_last || self.look_up.initialized()) {
            under_way.remove(&self.hash);
        }
    }
}

/// A source's attempt to use a key, which counts as a failure unless it is forgotten.
struct Attempt<'a> {
    failures: &'a Windows<Source>,
    source: Option<Source>,
}

impl Attempt<'_> {
    fn forget(mut self) {
        self.source = None;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(source) = self.source.take() {
            self.failures.add(source, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_that_is_given_up_leaves_no_look_up_and_counts() {
        let cache = KeyCache::new(2);
        let source = Source::from(std::net::IpAddr::from([192, 0, 2, 1]));
        for _ in 0..3 {
            let first = Waiting::begin(&cache, [7; 32]);
            let second = Waiting::begin(&cache, [7; 32]);
            assert!(Arc::ptr_eq(&first.look_up, &second.look_up));
            drop(first);
            assert_eq!(cache.under_way.lock().len(), 1, "another waits for it");
            drop(second);
            assert_eq!(cache.under_way.lock().len(), 0);
        }
        for is_found in [true, false, false] {
            let attempt = Attempt { failures: &cache.failures, source: Some(source) };
            if is_found {
                attempt.forget();
            }
        }
        let now = Instant::now();
        assert!(cache.failures.exhausted(&source, 2, now).is_some());
        assert!(cache.failures.exhausted(&source, 3, now).is_none());
    }
}
