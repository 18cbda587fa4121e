//! The providers' balances as last read, less the holds of firm quotes: sufficient to price a quote. The decision of an
//! order, and the hold of a firm quote, read the rows themselves, under lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dvp_domain::hold::QuoteHolds;
use dvp_domain::ledger::Owner;
use dvp_domain::liquidity::{AnswerId, Holdings};
use dvp_domain::money::Minor;
use parking_lot::RwLock;
use sqlx::PgPool;

use super::taken::Taken;
use dvp_store::StoreError;
use dvp_store::ledger::balances::{self, BalanceKey};
use dvp_store::orders::quote_holds;

/// The interval of background reads.
pub(super) const REFRESH_EVERY: Duration = Duration::from_millis(250);
/// The interval of reads by quotes when no background task reads the balances.
const STALE_AFTER: Duration = Duration::from_secs(2);
const _: () = assert!(
    REFRESH_EVERY.as_millis() * 2 < STALE_AFTER.as_millis(),
    "one missed refresh costs quotes nothing"
);

/// Amounts by asset and provider.
type ByAsset = HashMap<String, HashMap<String, Minor>>;

/// Free balances, and the holds of firm quotes on them.
#[derive(Debug, Clone, Default)]
pub struct Read {
    free: ByAsset,
    held: ByAsset,
    taken: Arc<Taken>,
}

impl Holdings for Read {
    fn available(&self, provider_id: &str, asset: &str) -> Minor {
        let find =
            |of: &ByAsset| of.get(asset).and_then(|of| of.get(provider_id)).copied().unwrap_or_default();
        find(&self.free).checked_sub(find(&self.held)).unwrap_or_default()
    }

    fn taken_of(&self, answer: AnswerId) -> Minor {
        self.taken.of(answer)
    }
}

#[derive(Debug, Default)]
pub struct KnownBalances {
    newest: RwLock<Option<(Instant, Arc<Read>)>>,
    taken: Arc<Taken>,
}

impl KnownBalances {
    pub(super) fn taken(&self) -> &Taken {
        &self.taken
    }

    /// The latest reading, or a new one when the latest is too old.
    pub async fn read(&self, pool: &PgPool) -> Result<Arc<Read>, StoreError> {
        let known = self.newest.read().clone();
        match known {
            Some((at, read)) if at.elapsed() < STALE_AFTER => Ok(read),
            Some(_) | None => {
                self.load(pool).await?;
                let newest = self.newest.read();
                Ok(newest.as_ref().map(|(_, read)| Arc::clone(read)).unwrap_or_default())
            }
        }
    }

    /// Reads them all.
    pub(super) async fn load(&self, pool: &PgPool) -> Result<(), StoreError> {
        let started = Instant::now();
        let mut conn = pool.acquire().await?;
        let mut read = Read { taken: Arc::clone(&self.taken), ..Read::default() };
        for ((provider, asset), available) in balances::list_available(&mut conn).await? {
            read.free.entry(asset).or_default().insert(provider, available);
        }
        for ((provider, asset), held) in quote_holds::list_held(&mut conn).await? {
            read.held.entry(asset).or_default().insert(provider, held);
        }
        let mut newest = self.newest.write();
        // A reading that began before another one's commit is older, even if it ends later.
        if newest.as_ref().is_none_or(|(at, _)| *at <= started) {
            *newest = Some((started, Arc::new(read)));
        }
        Ok(())
    }

    /// Applies the balances and holds after a commit of this process.
    pub(crate) fn moved<'a>(
        &self,
        after: impl IntoIterator<Item = (&'a BalanceKey, Minor)>,
        holds: &QuoteHolds,
    ) {
        let mut newest = self.newest.write();
        let Some((at, read)) = newest.as_mut() else { return };
        let read = Arc::make_mut(read);
        for ((owner, asset), available) in after {
            let Owner::Provider(provider) = owner else { continue };
            read.free.entry(asset.clone()).or_default().insert(provider.clone(), available);
        }
        for (provider, asset, held) in holds.places() {
            read.held.entry(asset.to_owned()).or_default().insert(provider.to_owned(), held);
        }
        *at = Instant::now();
    }
}
