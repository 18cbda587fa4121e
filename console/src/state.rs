//! What every page needs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dvp_core::chain::backlog::{Backlog, WINDOW};
use dvp_core::operators::targets::Targets;
use dvp_core::secrets::Vault;
use dvp_domain::address::OwnContracts;
use dvp_domain::environment::Environment;
use dvp_ops::{FixRules, House};
use dvp_store::chain::commands::{self, OpenCommands};
use dvp_store::database::pools::Pools;
use dvp_store::{PoolConnection, StoreError};
use ipnet::IpNet;
use tokio::sync::Mutex;
use url::{Origin, Url};

use crate::attempts::Attempts;
use crate::operator::SessionPolicy;
use crate::overview::Overview;
use crate::passwords::Passwords;
use crate::pulse::{Pulse, Versions};

/// The settings of the console's listener.
#[derive(Debug, Clone)]
pub struct ConsoleSettings {
    /// The addresses by which browsers reach the console. Forms are accepted from these only; with the scheme https
    /// cookies are sent over TLS only.
    pub origins: Vec<Url>,
    pub environment: Environment,
    /// The decimals of each asset.
    pub decimals: HashMap<String, u8>,
    /// What operators' controls can be about.
    pub targets: Targets,
    /// Proxies whose X-Forwarded-For gives the client's address.
    pub proxies: Vec<IpNet>,
    pub sessions: SessionPolicy,
    /// An identity provider, where operators can sign in; used with the feature `oidc`.
    pub provider: Option<ProviderSettings>,
    /// Connections served at once.
    pub connections: usize,
}

/// The time limits of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestTimes {
    /// From a request's head to the end of its body.
    pub arrival: Duration,
    /// From the moment a client stops reading an answer to the answer's last byte.
    pub answer: Duration,
}

impl Default for RequestTimes {
    fn default() -> Self {
        // An export of some megabytes is read over a slow line, too.
        Self { arrival: Duration::from_secs(15), answer: Duration::from_secs(300) }
    }
}

/// An OpenID Connect provider.
#[derive(Clone)]
pub struct ProviderSettings {
    pub issuer: Url,
    pub client_id: String,
    pub client_secret: String,
}

impl std::fmt::Debug for ProviderSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} <secret>", self.issuer, self.client_id)
    }
}

impl ConsoleSettings {
    /// The usual number of connections.
    pub const CONNECTIONS: usize = 256;
    /// The maximum size of a form: a month of a bank's statement.
    pub(crate) const FORM_BYTES_MAX: usize = 1024 * 1024;

    /// The connections of one source: half of all, so that one host cannot hold them, and the operators behind one address
    /// have enough.
    pub(crate) fn connections_per_source(&self) -> usize {
        self.connections.div_ceil(2)
    }

    /// Whether browsers reach the console over TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.origins.iter().all(|origin| origin.scheme() == "https")
    }

    /// Whether a form on a page of this origin may be accepted.
    pub(crate) fn is_own(&self, origin: &str) -> bool {
        let Ok(origin) = Url::parse(origin) else { return false };
        let given = origin.origin();
        matches!(given, Origin::Tuple(..)) && self.origins.iter().any(|own| own.origin() == given)
    }
}

/// The console of a process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Console {
    pub(crate) pools: Pools,
    /// Seals what is stored of webhook commands.
    pub(crate) vault: Arc<Vault>,
    pub(crate) settings: Arc<ConsoleSettings>,
    /// What operators' actions are about.
    pub(crate) house: Arc<House>,
    pub(crate) times: RequestTimes,
    pub(crate) pulse: Pulse,
    /// Sign-ins that failed.
    pub(crate) failures: Arc<Attempts>,
    pub(crate) passwords: Arc<Passwords>,
    /// Challenges of browsers that are not signed in.
    pub(crate) challenges: Arc<Attempts>,
    overview: Arc<Shared<Versions, Overview>>,
    /// What waits for each chain, estimated as admission does.
    loads: Arc<Mutex<HashMap<u64, ChainSamples>>>,
}

/// The estimate of a chain's backlog, and its last sample.
type ChainSamples = (Backlog, Arc<Shared<(), ChainLoad>>);

/// What waits for a chain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChainLoad {
    pub open: OpenCommands,
    /// The expected wait of a new lock.
    pub wait: Duration,
}

/// Failed sign-ins in a minute of one source, and of all together.
const FAILURES: (u32, u32) = (60, 120);
/// Challenges for sign-ins in a minute of one source, and of all together.
const CHALLENGES: (u32, u32) = (60, 600);
/// The time between two samples of a chain's backlog.
const SAMPLE: Duration = Duration::from_secs(1);
/// How long the rows of the home page are used for all operators while nothing changes, and at least.
const OVERVIEW: Duration = Duration::from_secs(1);
const OVERVIEW_MIN: Duration = Duration::from_millis(200);

impl Console {
    /// `contracts`: no wallet may be one of them.
    pub fn new(
        pools: Pools,
        vault: Arc<Vault>,
        settings: ConsoleSettings,
        contracts: OwnContracts,
        fix: FixRules,
    ) -> Self {
        let overview = Arc::new(Shared::new(OVERVIEW_MIN, OVERVIEW));
        let house = House {
            environment: settings.environment,
            vault: Arc::clone(&vault),
            targets: settings.targets.clone(),
            decimals: settings.decimals.clone(),
            contracts,
            fix,
            console: settings.origins.first().map(Url::to_string).unwrap_or_default(),
        };
        let settings = Arc::new(settings);
        Self {
            pulse: Pulse::new(),
            failures: Arc::new(Attempts::new(FAILURES.0, FAILURES.1)),
            passwords: Arc::default(),
            challenges: Arc::new(Attempts::new(CHALLENGES.0, CHALLENGES.1)),
            overview,
            loads: Arc::default(),
            settings,
            house: Arc::new(house),
            times: RequestTimes::default(),
            vault,
            pools,
        }
    }

    /// With other time limits of a request.
    #[must_use]
    pub fn with_times(self, times: RequestTimes) -> Self {
        Self { times, ..self }
    }

    /// The rows of the home page.
    pub(crate) async fn overview(&self) -> Result<Arc<Overview>, StoreError> {
        let load = async {
            let mut conn = self.reading().await?;
            Overview::load(&mut conn).await
        };
        self.overview.get(|| self.pulse.versions(), load).await
    }

    /// What waits for a chain, sampled once a second at most.
    pub(crate) async fn chain_load(&self, chain: u64) -> Result<Arc<ChainLoad>, StoreError> {
        let (backlog, load) = {
            let mut loads = self.loads.lock().await;
            let new = || (Backlog::default(), Arc::new(Shared::new(Duration::ZERO, SAMPLE)));
            loads.entry(chain).or_insert_with(new).clone()
        };
        let sample = async {
            let mut conn = self.reading().await?;
            let id = i64::try_from(chain).unwrap_or(i64::MAX);
            let open = commands::count_open(&mut conn, id, WINDOW).await?;
            backlog.look(&open);
            Ok(ChainLoad { open, wait: backlog.wait() })
        };
        load.get(|| (), sample).await
    }

    /// A connection for a page.
    pub(crate) async fn reading(&self) -> Result<PoolConnection, StoreError> {
        Ok(self.pools.reads.acquire().await?)
    }

    /// A connection for sessions and sign-in, which browsers that are not signed in use, too.
    pub(crate) async fn looking_up(&self) -> Result<PoolConnection, StoreError> {
        Ok(self.pools.lookups.acquire().await?)
    }

    /// A connection for an operator's action.
    pub(crate) async fn acting(&self) -> Result<PoolConnection, StoreError> {
        Ok(self.pools.background.acquire().await?)
    }

    /// The decimals of an asset; those of one that is not configured are not known, so that its minor units are shown.
    pub(crate) fn decimals(&self, asset: &str) -> u8 {
        self.settings.decimals.get(asset).copied().unwrap_or(0)
    }
}

/// A value that is computed once for all operators who request it at about the same time, and again when its version
/// has changed.
#[derive(Debug)]
pub(crate) struct Shared<V, T> {
    kept: Mutex<Option<Kept<V, T>>>,
    /// The shortest time between two computations.
    apart: Duration,
    good_for: Duration,
}

#[derive(Debug)]
struct Kept<V, T> {
    begun: Instant,
    version: V,
    value: Arc<T>,
}

impl<V: PartialEq, T> Shared<V, T> {
    pub(crate) fn new(apart: Duration, good_for: Duration) -> Self {
        Self { kept: Mutex::new(None), apart, good_for }
    }

    /// The kept value, unless it is of another version or too old, or else a new one. While it is computed, or waits
    /// to be, other requests wait for it.
    pub(crate) async fn get<E>(
        &self,
        version: impl Fn() -> V,
        compute: impl Future<Output = Result<T, E>>,
    ) -> Result<Arc<T>, E> {
        let mut kept = self.kept.lock().await;
        if let Some(Kept { begun, version: of, value }) = &*kept {
            if *of == version() && begun.elapsed() < self.good_for {
                return Ok(Arc::clone(value));
            }
            tokio::time::sleep(self.apart.saturating_sub(begun.elapsed())).await;
        }
        // Before the value: what changes meanwhile makes another version.
        let (begun, version) = (Instant::now(), version());
        let value = Arc::new(compute.await?);
        *kept = Some(Kept { begun, version, value: Arc::clone(&value) });
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_value_of_an_earlier_version_is_never_given_out() {
        let shared = Shared::new(Duration::ZERO, Duration::from_secs(3600));
        let version = AtomicU64::new(1);
        let get = || {
            let read = || version.load(Ordering::Relaxed);
            shared.get(read, async move { Ok::<u64, ()>(read()) })
        };
        assert_eq!(*get().await.unwrap(), 1);
        version.store(2, Ordering::Relaxed);
        assert_eq!(*get().await.unwrap(), 2);
        let again = shared.get(|| 2, async { Ok::<u64, ()>(9) }).await.unwrap();
        assert_eq!(*again, 2, "a value of the same version is computed once");
    }
}
