//! Relayer accounts whose keys are elsewhere: in a token (PKCS#11), or in a signer over HTTPS.

use std::path::PathBuf;

use alloy::primitives::Address;
use anyhow::{Context as _, ensure};
use dvp_chain_indexer::signing::{Account, Pin, Pkcs11Config, RemoteConfig};
use serde::Deserialize;
use url::Url;

use super::value::{Secret, Span, is_private, within};

/// For one signature. A turn of the relayer makes several, and its lease lasts ten seconds.
const TIMEOUT: Span = Span(std::time::Duration::from_secs(5));

/// A key in a token.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pkcs11Section {
    /// The vendor's library.
    pub module: PathBuf,
    /// The token's label.
    pub token: String,
    /// The key's label.
    pub key: String,
    pub pin: Secret,
    /// The key's account.
    pub address: Address,
    pub timeout: Option<Span>,
}

/// A key in a signer of its own, which holds a policy.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemoteSection {
    pub url: Url,
    pub address: Address,
    /// The only authorities that are trusted.
    pub ca: PathBuf,
    pub client_certificate: PathBuf,
    pub client_key: PathBuf,
    pub timeout: Option<Span>,
}

impl Pkcs11Section {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.token.is_empty(), "token is empty");
        ensure!(!self.key.is_empty(), "key is empty");
        within("timeout", self.timeout, "100ms", "8s")
    }

    pub(super) fn account(&self) -> anyhow::Result<Account> {
        let config = Pkcs11Config {
            module: self.module.clone(),
            token: self.token.clone(),
            key: self.key.clone(),
            pin: Pin::from(self.pin.read().context("pin")?),
            address: self.address,
            time_limit: self.timeout.unwrap_or(TIMEOUT).0,
        };
        Account::pkcs11(config).context("no thread for the token")
    }
}

impl RemoteSection {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(self.url.scheme() == "https", "url: {} is not https", self.url.scheme());
        within("timeout", self.timeout, "100ms", "8s")
    }

    pub(super) fn account(&self) -> anyhow::Result<Account> {
        is_private(&self.client_key).context("client_key")?;
        let config = RemoteConfig {
            url: self.url.clone(),
            address: self.address,
            ca: self.ca.clone(),
            client_certificate: self.client_certificate.clone(),
            client_key: self.client_key.clone(),
            time_limit: self.timeout.unwrap_or(TIMEOUT).0,
        };
        Ok(Account::remote(&config)?)
    }
}

/// The signers of a sandbox.
#[cfg(feature = "sandbox")]
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignersFile {
    #[serde(default)]
    pkcs11_signers: Vec<Pkcs11Section>,
    #[serde(default)]
    remote_signers: Vec<RemoteSection>,
}

#[cfg(feature = "sandbox")]
impl SignersFile {
    pub(crate) fn accounts(path: &std::path::Path) -> anyhow::Result<Vec<Account>> {
        let place = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(place)?;
        let Self { pkcs11_signers, remote_signers } = toml::from_str(&text).with_context(place)?;
        let mut accounts = Vec::new();
        for signer in &pkcs11_signers {
            accounts.push(signer.check().and_then(|()| signer.account()).context("pkcs11_signers")?);
        }
        for signer in &remote_signers {
            accounts.push(signer.check().and_then(|()| signer.account()).context("remote_signers")?);
        }
        ensure!(!accounts.is_empty(), "{} names no signer", path.display());
        Ok(accounts)
    }
}
