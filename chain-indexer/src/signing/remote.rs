//! A signer that is a service of its own, over HTTPS with certificates on both sides; docs/keys.md has the protocol.
//!
//! It is given the transaction, not its digest: it holds a policy of its own against the chain, the contract, the
//! function and the value.

use super::http::{printable, read, unreached};
use super::{SignError, SignerSetup};
use alloy::consensus::TxEip1559;
use alloy::primitives::{Address, Bytes, Signature, TxKind};
use reqwest::{Client, Response, StatusCode, Url};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Where the signer is, and how both sides prove who they are.
#[derive(Debug, Clone)]
pub struct RemoteConfig {
    /// `https://HOST:PORT`, and a path if there is one.
    pub url: Url,
    pub address: Address,
    /// The only authorities that are trusted (PEM).
    pub ca: PathBuf,
    pub client_certificate: PathBuf,
    pub client_key: PathBuf,
    /// For one signature, connecting included.
    pub time_limit: Duration,
}

pub(super) struct RemoteSigner {
    http: Client,
    sign: Url,
    accounts: Url,
    address: Address,
    pub(super) time_limit: Duration,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    address: Address,
    chain_id: String,
    nonce: String,
    to: Option<Address>,
    value: String,
    data: Bytes,
    gas_limit: String,
    max_fee_per_gas: String,
    max_priority_fee_per_gas: String,
}

#[derive(Deserialize)]
struct Signed {
    signature: Bytes,
}

#[derive(Deserialize)]
struct Accounts {
    accounts: Vec<Address>,
}

#[derive(Deserialize)]
struct Refusal {
    error: Reason,
}

#[derive(Deserialize)]
struct Reason {
    code: String,
    #[serde(default)]
    message: String,
}

impl RemoteSigner {
    /// Reads the files; does not connect yet.
    pub(super) fn new(config: &RemoteConfig) -> Result<Self, SignerSetup> {
        let wrong = |field, reason: String| SignerSetup { field, reason };
        if config.url.scheme() != "https" || !config.url.has_host() {
            return Err(wrong("url", format!("{} is no https URL", config.url)));
        }
        if !config.url.username().is_empty() || config.url.password().is_some() {
            return Err(wrong("url", "holds a password; the client certificate takes its place".to_owned()));
        }
        let mut base = config.url.clone();
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        let join = |path| base.join(path).map_err(|error| wrong("url", error.to_string()));
        let http = Client::builder()
            .tls_backend_preconfigured(tls(config)?)
            .https_only(true)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .tcp_nodelay(true)
            .build()
            .map_err(|error| wrong("url", error.to_string()))?;
        let (sign, accounts) = (join("v1/sign-transaction")?, join("v1/accounts")?);
        Ok(Self { http, sign, accounts, address: config.address, time_limit: config.time_limit })
    }

    pub(super) async fn sign(&self, tx: &TxEip1559) -> Result<Signature, SignError> {
        let request = Request {
            address: self.address,
            chain_id: tx.chain_id.to_string(),
            nonce: tx.nonce.to_string(),
            to: match tx.to {
                TxKind::Call(to) => Some(to),
                TxKind::Create => None,
            },
            value: tx.value.to_string(),
            data: tx.input.clone(),
            gas_limit: tx.gas_limit.to_string(),
            max_fee_per_gas: tx.max_fee_per_gas.to_string(),
            max_priority_fee_per_gas: tx.max_priority_fee_per_gas.to_string(),
        };
        let answer = self.http.post(self.sign.clone()).json(&request).send().await.map_err(unreached)?;
        let Signed { signature } = content(answer).await?;
        parsed(&signature)
    }

    /// Whether the signer answers and holds the account's key.
    pub(super) async fn check(&self) -> Result<(), SignError> {
        let answer = self.http.get(self.accounts.clone()).send().await.map_err(unreached)?;
        let Accounts { accounts } = content(answer).await?;
        if accounts.contains(&self.address) {
            return Ok(());
        }
        Err(SignError::Unusable(format!("it does not sign for {}", self.address)))
    }
}

/// `r`, `s` and the parity of `y` (0 and 1, or 27 and 28).
fn parsed(bytes: &[u8]) -> Result<Signature, SignError> {
    match bytes {
        [.., 0 | 1 | 27 | 28] if bytes.len() == 65 => {
            Signature::from_raw(bytes).map_err(|error| SignError::Malformed(error.to_string()))
        }
        [.., last] if bytes.len() == 65 => {
            Err(SignError::Malformed(format!("its last byte is {last}, neither 0, 1, 27 nor 28")))
        }
        _ => Err(SignError::Malformed(format!("{} bytes instead of 65", bytes.len()))),
    }
}

/// The answer's content, or the reason for its absence.
async fn content<T: for<'a> Deserialize<'a>>(answer: Response) -> Result<T, SignError> {
    let (status, body) = read(answer).await?;
    if status == StatusCode::OK {
        return serde_json::from_slice(&body)
            .map_err(|_| SignError::Malformed("an answer of another form".to_owned()));
    }
    let Ok(Refusal { error: Reason { code, message } }) = serde_json::from_slice(&body) else {
        return Err(SignError::Unavailable(format!("it answers with the status {status}")));
    };
    let (code, message) = (printable(&code), printable(&message));
    Err(match code.as_str() {
        "unknown_account" | "client_not_allowed" => SignError::Unusable(format!("{code}: {message}")),
        "rate_exceeded" => SignError::Unavailable(format!("{code}: {message}")),
        _ if status.is_server_error() => SignError::Unavailable(format!("{code}: {message}")),
        _ => SignError::Refused { code, message },
    })
}

fn tls(config: &RemoteConfig) -> Result<ClientConfig, SignerSetup> {
    let wrong = |field, reason: &dyn std::fmt::Display| SignerSetup { field, reason: reason.to_string() };
    let mut roots = RootCertStore::empty();
    for authority in certificates("ca", &config.ca)? {
        roots.add(authority).map_err(|error| wrong("ca", &error))?;
    }
    let chain = certificates("client_certificate", &config.client_certificate)?;
    let key = PrivateKeyDer::from_pem_file(&config.client_key)
        .map_err(|error| wrong("client_key", &format_args!("{}: {error}", config.client_key.display())))?;
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong("url", &error))?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(|error| wrong("client_key", &error))
}

fn certificates(field: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, SignerSetup> {
    let wrong = |reason: String| SignerSetup { field, reason: format!("{}: {reason}", path.display()) };
    let read = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
    let found: Vec<_> = read.collect::<Result<_, _>>().map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() { Err(wrong("no certificate".to_owned())) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_another_form_is_not_a_signature() {
        for (bytes, why) in [
            (vec![], "0 bytes"),
            (vec![1; 64], "64 bytes"),
            (vec![1; 66], "66 bytes"),
            (vec![2; 65], "its last byte is 2"),
            // A transaction's signature carries no chain id (EIP-2930, EIP-1559).
            (vec![37; 65], "its last byte is 37"),
        ] {
            let said = parsed(&bytes).unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        }
        assert!(parsed(&[27; 65]).is_ok());
    }
}
