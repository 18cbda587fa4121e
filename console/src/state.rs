//! What every page needs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dvp_core::secrets::Vault;
use dvp_domain::environment::Environment;
use dvp_store::pools::Pools;
use dvp_store::{PoolConnection, StoreError};
use ipnet::IpNet;
use tokio::sync::Mutex;
use url::{Origin, Url};

use crate::attempts::Attempts;
use crate::operator::SessionPolicy;
use crate::overview::Overview;
use crate::passwords::Passwords;
use crate::pulse::Pulse;

/// The settings of the console's listener.
#[derive(Debug, Clone)]
pub struct ConsoleSettings {
    /// The addresses by which browsers reach the console. Forms are accepted from these only; with the scheme https
    /// cookies are sent over TLS only.
    pub origins: Vec<Url>,
    pub environment: Environment,
    /// The decimals of each asset.
    pub decimals: BTreeMap<String, u8>,
    /// Types of FIX messages that a reset of a session's numbers does not keep.
    pub stale_fix_types: Vec<String>,
    /// Proxies whose X-Forwarded-For gives the client's address.
    pub proxies: Vec<IpNet>,
    pub sessions: SessionPolicy,
    /// An identity provider, where operators can sign in; used with the feature `oidc`.
    pub provider: Option<ProviderSettings>,
    /// Connections served at once.
    pub connections: usize,
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
    /// The maximum size of a form.
    pub(crate) const FORM_BYTES_MAX: usize = 64 * 1024;

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
    pub(crate) pulse: Pulse,
    /// Sign-ins that failed.
    pub(crate) failures: Arc<Attempts>,
    pub(crate) passwords: Arc<Passwords>,
    /// Challenges of browsers that are not signed in.
    pub(crate) challenges: Arc<Attempts>,
    overview: Arc<Shared<Overview>>,
}

/// Failed sign-ins in a minute, of all sources together.
const FAILURES: u32 = 120;
/// Challenges for sign-ins in a minute.
const CHALLENGES: u32 = 600;
/// How long the rows of the home page are used for all operators.
const OVERVIEW: Duration = Duration::from_millis(500);

impl Console {
    pub fn new(pools: Pools, vault: Arc<Vault>, settings: ConsoleSettings) -> Self {
        let overview = Arc::new(Shared::new(OVERVIEW));
        let settings = Arc::new(settings);
        Self {
            pulse: Pulse::new(),
            failures: Arc::new(Attempts::new(FAILURES)),
            passwords: Arc::default(),
            challenges: Arc::new(Attempts::new(CHALLENGES)),
            overview,
            settings,
            vault,
            pools,
        }
    }

    /// The rows of the home page.
    pub(crate) async fn overview(&self) -> Result<Arc<Overview>, StoreError> {
        let load = async {
            let mut conn = self.reading().await?;
            Overview::load(&mut conn).await
        };
        self.overview.get(load).await
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

/// A value that is computed once for all operators who request it at about the same time.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    kept: Mutex<Option<(Instant, Arc<T>)>>,
    good_for: Duration,
}

impl<T> Shared<T> {
    pub(crate) fn new(good_for: Duration) -> Self {
        Self { kept: Mutex::new(None), good_for }
    }

    /// The kept value, or else a new one. While it is computed, other requests wait for it.
    pub(crate) async fn get<E>(&self, compute: impl Future<Output = Result<T, E>>) -> Result<Arc<T>, E> {
        let mut kept = self.kept.lock().await;
        if let Some((at, value)) = &*kept
            && at.elapsed() < self.good_for
        {
            return Ok(Arc::clone(value));
        }
        let value = Arc::new(compute.await?);
        *kept = Some((Instant::now(), Arc::clone(&value)));
        Ok(value)
    }
}
