//! Relayer accounts whose keys are elsewhere: in a token (PKCS#11), in a signer over HTTPS, or in a cloud's key management
//! service.

use std::path::PathBuf;

use alloy::primitives::Address;
use anyhow::{Context as _, ensure};
use dvp_chain_indexer::signing::{Account, Pin, Pkcs11Config, RemoteConfig};
use serde::Deserialize;
use url::Url;

use super::value::{Secret, Span, is_private, within};

/// For one signature. A turn of the relayer makes several, and its lease lasts ten seconds.
const TIMEOUT: Span = Span(std::time::Duration::from_secs(5));

/// A section that names a key.
pub(super) trait Signer {
    fn check(&self) -> anyhow::Result<()>;

    /// Its account. No signer is reached yet.
    fn account(&self) -> anyhow::Result<Account>;
}

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

impl Signer for Pkcs11Section {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.token.is_empty(), "token is empty");
        ensure!(!self.key.is_empty(), "key is empty");
        within("timeout", self.timeout, "100ms", "8s")
    }

    fn account(&self) -> anyhow::Result<Account> {
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

impl Signer for RemoteSection {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.url.scheme() == "https", "url: {} is not https", self.url.scheme());
        within("timeout", self.timeout, "100ms", "8s")
    }

    fn account(&self) -> anyhow::Result<Account> {
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

/// A key in AWS KMS.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(feature = "aws-kms"), expect(dead_code, reason = "read by the feature"))]
pub(crate) struct AwsKmsSection {
    pub region: String,
    /// Its id, ARN or alias.
    pub key: String,
    pub address: Address,
    /// Both, or neither: then the role of the container or machine is used.
    pub access_key_id: Option<Secret>,
    pub secret_access_key: Option<Secret>,
    /// Another address of the service.
    pub endpoint: Option<String>,
    pub timeout: Option<Span>,
}

/// A key in Google Cloud KMS.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(feature = "gcp-kms"), expect(dead_code, reason = "read by the feature"))]
pub(crate) struct GcpKmsSection {
    /// The name of a version of a key.
    pub key: String,
    pub address: Address,
    /// The key of a service account; without it the machine's is used.
    pub service_account: Option<PathBuf>,
    /// Another address of the service.
    pub endpoint: Option<String>,
    pub timeout: Option<Span>,
}

impl Signer for AwsKmsSection {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(cfg!(feature = "aws-kms"), "this program was built without the feature aws-kms");
        ensure!(!self.region.is_empty(), "region is empty");
        ensure!(!self.key.is_empty(), "key is empty");
        ensure!(
            self.access_key_id.is_some() == self.secret_access_key.is_some(),
            "access_key_id and secret_access_key belong together"
        );
        within("timeout", self.timeout, "100ms", "8s")
    }

    #[cfg(feature = "aws-kms")]
    fn account(&self) -> anyhow::Result<Account> {
        use dvp_chain_indexer::signing::{AwsCredentials, AwsKmsConfig};
        let credentials = match (&self.access_key_id, &self.secret_access_key) {
            (Some(id), Some(secret)) => AwsCredentials::Keys {
                access_key_id: id.read().context("access_key_id")?,
                secret_access_key: secret.read().context("secret_access_key")?,
            },
            _ => AwsCredentials::of_role(),
        };
        Ok(Account::aws_kms(AwsKmsConfig {
            region: self.region.clone(),
            key: self.key.clone(),
            address: self.address,
            credentials,
            endpoint: self.endpoint.clone(),
            time_limit: self.timeout.unwrap_or(TIMEOUT).0,
        })?)
    }

    #[cfg(not(feature = "aws-kms"))]
    fn account(&self) -> anyhow::Result<Account> {
        self.check()?;
        anyhow::bail!("no account")
    }
}

impl Signer for GcpKmsSection {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(cfg!(feature = "gcp-kms"), "this program was built without the feature gcp-kms");
        ensure!(!self.key.is_empty(), "key is empty");
        within("timeout", self.timeout, "100ms", "8s")
    }

    #[cfg(feature = "gcp-kms")]
    fn account(&self) -> anyhow::Result<Account> {
        use dvp_chain_indexer::signing::{GcpCredentials, GcpKmsConfig};
        let credentials = match &self.service_account {
            Some(path) => {
                is_private(path).context("service_account")?;
                GcpCredentials::File(path.clone())
            }
            None => GcpCredentials::of_machine(),
        };
        Ok(Account::gcp_kms(GcpKmsConfig {
            key: self.key.clone(),
            address: self.address,
            credentials,
            endpoint: self.endpoint.clone(),
            time_limit: self.timeout.unwrap_or(TIMEOUT).0,
        })?)
    }

    #[cfg(not(feature = "gcp-kms"))]
    fn account(&self) -> anyhow::Result<Account> {
        self.check()?;
        anyhow::bail!("no account")
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
