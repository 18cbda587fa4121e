//! How a command reaches a service that runs elsewhere: its database and its master key.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use dvp_core::operators::targets::Targets;
use dvp_core::secrets::Vault;
use dvp_domain::environment::Environment;
use dvp_store::database::clock;
use dvp_store::database::deployment::{self, EnvironmentMismatch};
use dvp_store::database::pool::pool_options;
use dvp_store::database::{Database, TlsFiles};
use dvp_store::{PgConnection, PgPool};
use serde_json::Value;

use crate::cli::PlaceArgs;
use crate::config::Config;
use crate::sandbox_dir::{self, text};

/// A service's database and secrets.
pub(crate) struct Access {
    pub conn: PgConnection,
    pub vault: Vault,
    pub environment: Environment,
    /// The decimals of the assets.
    pub decimals: HashMap<String, u8>,
    pub targets: Targets,
    pub place: ServiceLocation,
}

/// Where a service is.
pub(crate) enum ServiceLocation {
    /// A running sandbox, by its ready file.
    Sandbox {
        dir: PathBuf,
        ready: Value,
    },
    Configured(Box<Config>),
}

impl ServiceLocation {
    pub(crate) fn find(dir: Option<&Path>, config: Option<&Path>) -> anyhow::Result<Self> {
        match (dir, config) {
            (Some(dir), None) => {
                Ok(Self::Sandbox { dir: dir.to_owned(), ready: sandbox_dir::read_ready(dir)? })
            }
            (None, Some(path)) => Ok(Self::Configured(Box::new(Config::read(path)?))),
            _ => bail!("give --dir or --config"),
        }
    }

    /// The database, with its protection as configured.
    pub(crate) fn database(&self) -> anyhow::Result<Database> {
        match self {
            Self::Sandbox { ready, .. } => {
                let urls = ready.pointer("/databaseUrls").and_then(Value::as_array);
                let file = |name: &str| {
                    ready
                        .pointer(&format!("/databaseFiles/{name}"))
                        .and_then(Value::as_str)
                        .map(PathBuf::from)
                };
                let files = TlsFiles {
                    ca: file("ca"),
                    client_certificate: file("certificate"),
                    client_key: file("key"),
                };
                let urls = urls.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
                match urls.collect::<Vec<_>>().as_slice() {
                    several @ [_, _, ..] => Ok(Database::among(several, &files, false)?),
                    _ => Ok(Database::at(text(ready, "/databaseUrl")?, &files)?),
                }
            }
            Self::Configured(config) => config.database(),
        }
    }

    /// A pool for a command: its statements may take as long as they need.
    pub(crate) async fn pool(&self, connections: u32) -> anyhow::Result<PgPool> {
        let options = self.database()?.unbounded().await?;
        let pool = pool_options().max_connections(connections).connect_with(options).await;
        let pool = pool.context("the database does not answer")?;
        self.follow_time(&mut *pool.acquire().await?).await?;
        Ok(pool)
    }

    pub(crate) fn vault(&self) -> anyhow::Result<Vault> {
        match self {
            Self::Sandbox { dir, .. } => Ok(Vault::new(sandbox_dir::read_master_key(dir)?)),
            Self::Configured(config) => config.vault(),
        }
    }

    /// The environment that the database belongs to. It and the cell must be the configured ones.
    pub(crate) async fn environment(&self, conn: &mut PgConnection) -> anyhow::Result<Environment> {
        let stamped = deployment::find_environment(conn).await?;
        let stamped = stamped.context("the database has no environment yet: run dvp migrate")?;
        if let Self::Configured(config) = self {
            let configured = config.environment;
            ensure!(stamped == configured, EnvironmentMismatch { stamped, configured });
            deployment::check_cell(conn, config.cell()).await??;
        }
        Ok(stamped)
    }

    pub(crate) async fn connect(&self) -> anyhow::Result<PgConnection> {
        let mut conn = self.database()?.connect().await.context("the database does not answer")?;
        self.follow_time(&mut conn).await?;
        Ok(conn)
    }

    /// A sandbox may be ahead of this machine.
    async fn follow_time(&self, conn: &mut PgConnection) -> anyhow::Result<()> {
        match self {
            Self::Sandbox { .. } => Ok(clock::follow(conn).await?),
            Self::Configured(_) => Ok(()),
        }
    }
}

impl Access {
    pub(crate) async fn open(place: &PlaceArgs) -> anyhow::Result<Self> {
        let place = ServiceLocation::find(place.dir.as_deref(), place.config.as_deref())?;
        let mut conn = place.connect().await?;
        let environment = place.environment(&mut conn).await?;
        let (decimals, targets) = match &place {
            ServiceLocation::Configured(config) => (config.decimals(), config.targets()),
            ServiceLocation::Sandbox { ready, .. } => {
                (sandbox_dir::assets(ready), sandbox_dir::targets(ready))
            }
        };
        Ok(Self { conn, vault: place.vault()?, environment, decimals, targets, place })
    }

    /// The decimals of a configured asset.
    pub(crate) fn exponent(&self, asset: &str) -> anyhow::Result<u8> {
        self.decimals.get(asset).copied().with_context(|| format!("no asset is called {asset}"))
    }

    /// How many decimals each asset has.
    pub(crate) fn decimals(&self) -> HashMap<String, u8> {
        self.decimals.clone()
    }
}

/// The account logged in at this machine, for the record of what is done beside the service.
pub(crate) fn account() -> String {
    let names = ["USER", "LOGNAME"].map(|name| std::env::var(name).ok());
    let name = names.into_iter().flatten().find(|name| !name.trim().is_empty());
    format!("{} at this machine", name.as_deref().unwrap_or("somebody"))
}

/// The name of this machine.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "a machine without a name".to_owned() } else { name.to_owned() }
}
