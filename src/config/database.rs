//! How the database is reached, and how this process's connections to it are divided.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use dvp_store::database::pools::PoolSizes;
use dvp_store::database::{Database, TlsFiles};
use serde::Deserialize;

use super::value::Secret;

/// Of the pools together, unless something else is said.
const CONNECTIONS: u32 = 40;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DatabaseSection {
    /// `postgres://…`
    pub url: Option<Secret>,
    /// In its place: the servers of a database that replicates, which differ in host and port only.
    #[serde(default)]
    pub urls: Vec<Secret>,
    /// Whether a server is refused whose commits do not wait for a standby; with `urls` it is, unless this says
    /// otherwise.
    pub require_standby: Option<bool>,
    /// The authorities (PEM) that the server's certificate may be signed by; without it the system's.
    pub ca: Option<PathBuf>,
    /// Our client certificate, for servers that require one (PEM).
    pub client_certificate: Option<PathBuf>,
    pub client_key: Option<PathBuf>,
    /// Connections of this process's pools together.
    pub max_connections: Option<u32>,
    /// The same, by pool.
    pub pools: Option<PoolsSection>,
}

/// Connections of each pool.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PoolsSection {
    pub orders: u32,
    pub reads: u32,
    pub lookups: u32,
    pub background: u32,
}

impl DatabaseSection {
    pub(super) fn check(&self, relayers: usize) -> anyhow::Result<()> {
        ensure!(
            self.url.is_some() == self.urls.is_empty(),
            "database: give one of database.url and database.urls"
        );
        ensure!(
            self.max_connections.is_none() || self.pools.is_none(),
            "database.max_connections and [database.pools] exclude each other"
        );
        let sizes = self.sizes();
        let needs = u32::try_from(relayers).unwrap_or(u32::MAX).saturating_add(8);
        for (name, size, least) in [
            ("orders", sizes.orders, 4),
            ("reads", sizes.reads, 4),
            ("lookups", sizes.lookups, 2),
            ("background", sizes.background, needs),
        ] {
            let setting =
                if self.pools.is_some() { "database.pools" } else { "database.max_connections, pool" };
            ensure!(
                size >= least,
                "{setting} {name}: {size} connections are fewer than the {least} it needs"
            );
        }
        Ok(())
    }

    pub(crate) fn sizes(&self) -> PoolSizes {
        match self.pools {
            Some(PoolsSection { orders, reads, lookups, background }) => {
                PoolSizes { orders, reads, lookups, background }
            }
            None => PoolSizes::of(self.max_connections.unwrap_or(CONNECTIONS)),
        }
    }

    /// Reads the URLs and the certificates.
    pub(super) fn database(&self) -> anyhow::Result<Database> {
        let (setting, urls) = match &self.url {
            Some(url) => ("database.url", std::slice::from_ref(url)),
            None => ("database.urls", self.urls.as_slice()),
        };
        let urls: Vec<String> =
            urls.iter().map(|url| url.read().context(setting)).collect::<anyhow::Result<_>>()?;
        let files = TlsFiles {
            ca: self.ca.clone(),
            client_certificate: self.client_certificate.clone(),
            client_key: self.client_key.clone(),
        };
        let requires_standby = self.require_standby.unwrap_or(self.url.is_none());
        match urls.as_slice() {
            [url] if !requires_standby => Ok(Database::at(url, &files)?),
            urls => Ok(Database::among(urls, &files, requires_standby)?),
        }
    }
}
