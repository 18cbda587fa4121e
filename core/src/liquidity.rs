//! The sources of liquidity and of reference prices, behind one trait each.
//!
//! ```text
//! outside ──refresh (background)──> sources, references ──offer()──> Snapshot ──> quotes and decisions
//! ```
//!
//! Invariants: external requests run in the background or under a deadline of their own, and quotes and decisions read
//! memory. When the refresh of a source fails, its last offer stays valid only until its own expiry. Balances are the
//! database's, and are checked again under lock when an order commits.
//!
//! Kept by `core/tests/it/liquidity.rs::a_misbehaving_provider_has_no_candidate_and_the_others_have`.

mod balances;
mod book;
mod breaker;
mod external;
mod http;
mod network;
mod pool;
mod providers;
mod references;
mod refused;
mod taken;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dvp_domain::asset::{Asset, Registry};
use dvp_domain::intent::ActorType;
use dvp_domain::liquidity::band::{Bands, RefusedPrice};
use dvp_domain::liquidity::{Offer, Reference, Snapshot};
use dvp_domain::money::Minor;
use dvp_domain::pause::Pauses;
use dvp_store::StoreError;
use dvp_store::operators::controls::{self, Controls};
use dvp_store::workers::{self, Items, Step, Worker, guarded, in_database};
use parking_lot::{Mutex, RwLock};
use rust_decimal::Decimal;
use sqlx::PgPool;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::warn;

use self::network::Network;
use self::refused::RefusedPrices;
pub(crate) use self::taken::Taken;
use crate::clock::now;

pub use self::balances::KnownBalances;
pub use self::book::{BookConfig, OrderBook};
pub use self::external::{ExternalConfig, ExternalProvider};
pub(crate) use self::http::HttpClient;
pub use self::network::{FEES_GOOD_FOR_MS, GasConfig};
pub use self::pool::{AmmPool, PoolConfig, PoolKind};
pub use self::providers::ConfiguredProvider;
pub use self::references::{ConfiguredPrices, FeedConfig, HttpPrices, HttpPricesConfig, OnChainFeed};

/// The longest time for a refresh: longer than the time limit of any source.
const REFRESH_MAX: Duration = Duration::from_secs(30);
/// How often a source that still fails is noted again.
const NOTE_AGAIN: Duration = Duration::from_secs(60);

/// A future of a trait object.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why the refresh of a source failed.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The source did not answer, or not in time.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The source's answer is unusable.
    #[error("invalid response: {0}")]
    InvalidResponse(String),
}

#[derive(Debug, Clone, Copy)]
pub struct PairAssets<'a> {
    pub input: &'a Asset,
    pub output: &'a Asset,
}

/// An order to be priced by sources that answer requests.
#[derive(Debug, Clone, Copy)]
pub struct PriceRequest<'a> {
    pub pair: PairAssets<'a>,
    /// Of the input.
    pub amount: Minor,
    pub actor: ActorType,
}

/// A source of fills.
pub trait LiquiditySource: Send + Sync {
    /// Unique among the sources.
    fn id(&self) -> &str;

    /// Its present offer for a pair, from memory. `reference` is fresh.
    fn offer(&self, pair: PairAssets<'_>, reference: Option<&Reference>) -> Option<Offer>;

    /// The refresh interval; `None`: it needs no refresh.
    fn refresh_every(&self) -> Option<Duration> {
        None
    }

    /// Refreshes the offer from the outside.
    fn refresh(&self) -> Boxed<'_, Result<(), SourceError>> {
        Box::pin(async { Ok(()) })
    }

    /// Requests a price for this order. The source applies its own time limit; `None`: it has no price.
    fn request<'a>(&'a self, _request: PriceRequest<'a>) -> Option<Boxed<'a, Option<Offer>>> {
        None
    }
}

/// A source of reference prices.
pub trait ReferenceSource: Send + Sync {
    /// Unique among the sources of references.
    fn id(&self) -> &str;

    /// The price of a pair, from memory.
    fn reference(&self, input: &str, output: &str) -> Option<Reference>;

    /// The refresh interval; `None`: it needs no refresh.
    fn refresh_every(&self) -> Option<Duration> {
        None
    }

    /// Refreshes the prices from the outside.
    fn refresh(&self) -> Boxed<'_, Result<(), SourceError>> {
        Box::pin(async { Ok(()) })
    }
}

/// Half of the balance, so that at least two partners can have quotes at a time.
pub const FIRM_SHARE_BPS: u32 = 5_000;

/// All sources and their present offers.
pub struct Liquidity {
    registry: Registry,
    sources: Vec<Arc<dyn LiquiditySource>>,
    /// The first source that knows a pair determines its price.
    references: Vec<Arc<dyn ReferenceSource>>,
    published: RwLock<Published>,
    balances: KnownBalances,
    /// The fees of the chains that network fees follow.
    network: Network,
    /// The configured price bands, which those of operators replace.
    configured_bands: Bands,
    /// The controls as last read: this process's quotes offer neither paused liquidity nor prices outside of a band.
    /// Held while offers are published, so that the newest controls are published last.
    known: Mutex<Known>,
    refused: RefusedPrices,
    /// Grows when offers or balances may have changed.
    changes: watch::Sender<u64>,
    /// See [`with_firm_share`](Self::with_firm_share).
    firm_share_bps: u32,
}

/// The controls that offers are compared with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Known {
    pauses: Pauses,
    bands: Bands,
}

/// The present offers, and the controls applied to them.
#[derive(Debug, Clone, Default)]
struct Published {
    snapshot: Arc<Snapshot>,
    under: Known,
}

impl std::fmt::Debug for Liquidity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids: Vec<&str> = self.sources.iter().map(|source| source.id()).collect();
        f.debug_struct("Liquidity").field("sources", &ids).finish_non_exhaustive()
    }
}

impl Liquidity {
    /// Takes the sources' present offers; [`run`](Self::run) refreshes them.
    pub fn new(
        registry: Registry,
        sources: Vec<Arc<dyn LiquiditySource>>,
        references: Vec<Arc<dyn ReferenceSource>>,
    ) -> Self {
        Self::with_bands(registry, sources, references, Bands::default())
    }

    /// The same with configured price bands.
    pub fn with_bands(
        registry: Registry,
        sources: Vec<Arc<dyn LiquiditySource>>,
        references: Vec<Arc<dyn ReferenceSource>>,
        bands: Bands,
    ) -> Self {
        let liquidity = Self {
            registry,
            sources,
            references,
            published: RwLock::default(),
            balances: KnownBalances::default(),
            network: Network::default(),
            known: Mutex::new(Known { pauses: Pauses::default(), bands: bands.clone() }),
            configured_bands: bands,
            refused: RefusedPrices::default(),
            changes: watch::Sender::new(0),
            firm_share_bps: FIRM_SHARE_BPS,
        };
        liquidity.publish();
        liquidity
    }

    /// Sets how much of a provider's free balance one partner's open firm quotes may hold, in basis points.
    #[must_use]
    pub fn with_firm_share(mut self, bps: u32) -> Self {
        self.firm_share_bps = bps;
        self
    }

    /// Has the network fees of these chains' pairs follow the chains' fees. Until these were read
    /// ([`load_network_fees`](Self::load_network_fees)), such a pair has no offers.
    #[must_use]
    pub fn with_network_fees(mut self, chains: Vec<GasConfig>) -> Self {
        self.network = Network::new(chains);
        self.publish();
        self
    }

    /// Reads the chains' recorded fees, and recomputes the offers when they have changed. `false`: a chain has no fresh
    /// fee.
    pub async fn load_network_fees(&self, pool: &PgPool) -> Result<bool, StoreError> {
        if self.network.is_empty() {
            return Ok(true);
        }
        if self.network.load(pool, now()).await? {
            self.publish();
        }
        Ok(self.network.is_known(now()))
    }

    /// How much of a provider's free balance one partner's open firm quotes may hold, in basis points.
    pub const fn firm_share_bps(&self) -> u32 {
        self.firm_share_bps
    }

    /// Configured providers around the registry's configured prices: they need no refresh.
    pub fn configured(
        registry: &Registry,
        providers: impl IntoIterator<Item = dvp_domain::liquidity::LiquidityProvider>,
    ) -> Self {
        let prices: Arc<dyn ReferenceSource> = Arc::new(ConfiguredPrices::of(registry));
        let source = |provider| -> Arc<dyn LiquiditySource> { Arc::new(ConfiguredProvider::new(provider)) };
        Self::new(registry.clone(), providers.into_iter().map(source).collect(), vec![prices])
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.published.read().snapshot)
    }

    pub const fn balances(&self) -> &KnownBalances {
        &self.balances
    }

    /// What orders have taken from the sources' answers.
    pub(crate) fn taken(&self) -> &Taken {
        self.balances.taken()
    }

    /// The present offers under the controls of a transaction, which may be newer than those of this process.
    pub fn snapshot_under(&self, controls: &Controls) -> Arc<Snapshot> {
        let under = self.of(controls);
        let published = self.published.read().clone();
        if under == published.under {
            return published.snapshot;
        }
        let mut snapshot = Snapshot::clone(&published.snapshot);
        self.apply(&under, &mut snapshot);
        Arc::new(snapshot)
    }

    fn of(&self, controls: &Controls) -> Known {
        let bands = self.configured_bands.overridden_by(controls.bands.iter().cloned());
        Known { pauses: controls.pauses.clone(), bands }
    }

    /// Removes what the controls refuse, and prices the network fees with what is left.
    fn apply(&self, under: &Known, snapshot: &mut Snapshot) -> Vec<RefusedPrice> {
        under.pauses.apply(snapshot, |symbol| self.registry.find(symbol)?.chain().map(str::to_owned));
        let refused = under.bands.apply(snapshot, &self.registry, now());
        let price = |coin: &str, asset: &str| self.references.iter().find_map(|r| r.reference(coin, asset));
        self.network.apply(snapshot, &self.registry, price);
        refused
    }

    /// Reads the controls, and recomputes the offers when they have changed.
    pub async fn load_controls(&self, pool: &PgPool) -> Result<(), StoreError> {
        let loaded = self.of(&controls::load(&mut *pool.acquire().await?, &[], &[], now()).await?);
        let is_new = loaded != std::mem::replace(&mut *self.known.lock(), loaded.clone());
        if is_new {
            self.publish();
        }
        Ok(())
    }

    /// Combines the sources' offers, and reports which prices are not used.
    pub fn publish(&self) {
        let known = self.known.lock();
        let mut snapshot = Snapshot::default();
        for pair in &self.registry.pairs {
            let assets = self.registry.find(&pair.base).zip(self.registry.find(&pair.quote));
            let Some((input, output)) = assets else { continue };
            let mut references = self.references.iter().filter_map(|r| r.reference(&pair.base, &pair.quote));
            let reference = references.next();
            let assets = PairAssets { input, output };
            let market = snapshot.pair_mut(&pair.base, &pair.quote);
            market.reference = reference;
            market.other_references = references.collect();
            let offers = self.sources.iter().filter_map(|source| source.offer(assets, reference.as_ref()));
            market.offers = offers.collect();
        }
        let refused = self.apply(&known, &mut snapshot);
        let published = Published { snapshot: Arc::new(snapshot), under: known.clone() };
        *self.published.write() = published;
        self.refused.report(refused);
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    /// Ends a wait when offers or balances may have changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The present offers, with the answers of the sources that answer requests in place of their last offers. All are
    /// called concurrently, each under its own time limit.
    pub async fn snapshot_with_answers(&self, request: PriceRequest<'_>) -> Arc<Snapshot> {
        let Published { snapshot, under } = self.published.read().clone();
        let requested: Vec<_> = self.sources.iter().filter_map(|source| source.request(request)).collect();
        if requested.is_empty() {
            return snapshot;
        }
        let answers = futures_util::future::join_all(requested).await;
        let mut with_answers = Snapshot::clone(&snapshot);
        let PairAssets { input, output } = request.pair;
        let offers = &mut with_answers.pair_mut(&input.symbol, &output.symbol).offers;
        for answer in answers.into_iter().flatten() {
            offers.retain(|offer| offer.source != answer.source);
            offers.push(answer);
        }
        self.apply(&under, &mut with_answers);
        Arc::new(with_answers)
    }

    /// Refreshes every source once, one after the other. A failed refresh is reported, and the last offer stays.
    pub async fn refresh(&self) {
        let report = |id: &str, refreshed: Result<(), SourceError>| {
            if let Err(error) = refreshed {
                warn!(source = id, %error, "liquidity source refresh failed; its prices will expire");
            }
        };
        for reference in &self.references {
            report(reference.id(), reference.refresh().await);
        }
        for source in &self.sources {
            report(source.id(), source.refresh().await);
        }
        self.publish();
    }

    /// Refreshes all sources until `stop` turns true, each by a task of its own.
    pub async fn run(self: Arc<Self>, pool: PgPool, mut stop: watch::Receiver<bool>) {
        let items = Items::new(pool.clone(), Worker::Liquidity, REFRESH_MAX);
        let mut tasks = JoinSet::new();
        for source in &self.sources {
            let Some(every) = source.refresh_every() else { continue };
            let (liquidity, source, items) = (Arc::clone(&self), Arc::clone(source), items.clone());
            let pool = pool.clone();
            tasks.spawn(async move {
                let refresh = || async {
                    let refreshed = source.refresh().await;
                    liquidity.publish();
                    refreshed
                };
                keep_fresh(&pool, &items, source.id(), every, refresh).await;
            });
        }
        for reference in &self.references {
            let Some(every) = reference.refresh_every() else { continue };
            let (liquidity, reference, items) = (Arc::clone(&self), Arc::clone(reference), items.clone());
            let pool = pool.clone();
            tasks.spawn(async move {
                let refresh = || async {
                    let refreshed = reference.refresh().await;
                    liquidity.publish();
                    refreshed
                };
                keep_fresh(&pool, &items, reference.id(), every, refresh).await;
            });
        }
        let unavailable = |error: StoreError| SourceError::Unavailable(error.to_string());
        if !self.network.is_empty() {
            let (liquidity, pool, items) = (Arc::clone(&self), pool.clone(), items.clone());
            tasks.spawn(async move {
                let load =
                    || async { liquidity.load_network_fees(&pool).await.map(drop).map_err(unavailable) };
                keep_fresh(&pool, &items, "network fees", network::REFRESH_EVERY, load).await;
            });
        }
        let liquidity = Arc::clone(&self);
        tasks.spawn(async move {
            let load = || async {
                let loaded = liquidity.balances.load(&pool).await;
                liquidity.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
                loaded.map_err(unavailable)?;
                liquidity.load_controls(&pool).await.map_err(unavailable)
            };
            keep_fresh(&pool, &items, "balances and controls", balances::REFRESH_EVERY, load).await;
        });
        // Ends when the value is true or its sender is gone; the tasks end with the set.
        let _ = stop.wait_for(|stopped| *stopped).await;
    }
}

/// Refreshes one source at its interval for ever. While it fails, panics or hangs, its prices expire and it is listed.
async fn keep_fresh<F: Future<Output = Result<(), SourceError>>>(
    pool: &PgPool,
    items: &Items,
    id: &str,
    every: Duration,
    refresh: impl Fn() -> F,
) {
    let (mut is_noted, mut noted_at) = (false, None::<Instant>);
    loop {
        let refreshing = async {
            let step = workers::at(Step::SourceRefresh, in_database(pool, id)).await;
            step.map_err(|error| SourceError::Unavailable(error.to_string()))?;
            refresh().await
        };
        match guarded(REFRESH_MAX, refreshing).await {
            Ok(()) => {
                if noted_at.take().is_some() || !is_noted {
                    items.note(id, id, Ok(())).await;
                }
                is_noted = true;
            }
            // It is tried at its own interval, and noted less often.
            Err(error) if noted_at.is_none_or(|at| at.elapsed() >= NOTE_AGAIN) => {
                noted_at = Some(Instant::now());
                items.note(id, id, Err(error.to_string())).await;
            }
            Err(_) => {}
        }
        tokio::time::sleep(every).await;
    }
}

/// A price as text: digits and at most one point.
fn positive_decimal(text: &str) -> Result<Decimal, SourceError> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let price = if plain { Decimal::from_str_exact(text).ok() } else { None };
    price
        .filter(|price| *price > Decimal::ZERO)
        .ok_or_else(|| SourceError::InvalidResponse("a price that is no positive decimal".into()))
}
