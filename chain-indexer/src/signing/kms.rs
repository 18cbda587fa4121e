//! Keys in a cloud's key management service: AWS KMS (feature `aws-kms`), Google Cloud KMS (feature `gcp-kms`).
//!
//! The services' REST interfaces are called directly: two calls each. Their SDKs would bring a hundred and fifty further
//! crates, among them a second TLS library in C, into the process that signs.
//!
//! A service signs the digest that it is given, and answers with r and s in DER: s may be high, and the parity of y is
//! missing. Both follow from the account's address.

#[cfg(feature = "aws-kms")]
mod aws;
#[cfg(feature = "gcp-kms")]
mod gcp;

#[cfg(feature = "aws-kms")]
pub use aws::{AwsCredentials, AwsKmsConfig};
#[cfg(feature = "gcp-kms")]
pub use gcp::{GcpCredentials, GcpKmsConfig};

use super::http::{read, unreached};
use super::raw::with_parity;
use super::{SignError, SignerSetup};
use alloy::primitives::{Address, B256, Signature, keccak256};
use alloy::signers::k256::ecdsa;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use serde::Deserialize;
use std::time::Duration;

/// What is signed to see whether the service signs: the hash of this is the hash of no transaction.
const CHECK: &[u8] = b"dvp signer check";

/// A public key of secp256k1 in DER begins with this (SubjectPublicKeyInfo of RFC 5480, an uncompressed point); 64 bytes
/// of x and y follow. DER has one form only, so no parser is needed.
const SPKI_PREFIX: [u8; 24] = [
    0x30, 0x56, 0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81,
    0x04, 0x00, 0x0a, 0x03, 0x42, 0x00, 0x04,
];

pub(super) struct KmsSigner {
    service: Service,
    address: Address,
    pub(super) time_limit: Duration,
}

enum Service {
    #[cfg(feature = "aws-kms")]
    Aws(aws::Aws),
    #[cfg(feature = "gcp-kms")]
    Gcp(gcp::Gcp),
}

impl KmsSigner {
    #[cfg(feature = "aws-kms")]
    pub(super) fn aws(config: AwsKmsConfig) -> Result<Self, SignerSetup> {
        let (address, time_limit) = (config.address, config.time_limit);
        Ok(Self { service: Service::Aws(aws::Aws::new(config)?), address, time_limit })
    }

    #[cfg(feature = "gcp-kms")]
    pub(super) fn gcp(config: GcpKmsConfig) -> Result<Self, SignerSetup> {
        let (address, time_limit) = (config.address, config.time_limit);
        Ok(Self { service: Service::Gcp(gcp::Gcp::new(config)?), address, time_limit })
    }

    pub(super) const fn kind(&self) -> &'static str {
        match self.service {
            #[cfg(feature = "aws-kms")]
            Service::Aws(_) => "aws_kms",
            #[cfg(feature = "gcp-kms")]
            Service::Gcp(_) => "gcp_kms",
        }
    }

    pub(super) async fn sign(&self, digest: B256) -> Result<Signature, SignError> {
        let der = match &self.service {
            #[cfg(feature = "aws-kms")]
            Service::Aws(aws) => aws.sign(digest).await?,
            #[cfg(feature = "gcp-kms")]
            Service::Gcp(gcp) => gcp.sign(digest).await?,
        };
        let raw = ecdsa::Signature::from_der(&der)
            .map_err(|_| SignError::Malformed("it is no ECDSA signature in DER".to_owned()))?;
        with_parity(&raw.to_bytes().into(), digest, self.address)
    }

    /// Whether the service holds the account's key and lets us sign with it.
    pub(super) async fn check(&self) -> Result<(Signature, B256), SignError> {
        let spki = match &self.service {
            #[cfg(feature = "aws-kms")]
            Service::Aws(aws) => aws.public_key().await?,
            #[cfg(feature = "gcp-kms")]
            Service::Gcp(gcp) => gcp.public_key().await?,
        };
        let found = address_of(&spki)?;
        if found != self.address {
            return Err(SignError::WrongKey { expected: self.address, found });
        }
        let digest = keccak256(CHECK);
        Ok((self.sign(digest).await?, digest))
    }
}

/// The address of a public key in DER.
fn address_of(spki: &[u8]) -> Result<Address, SignError> {
    match spki.strip_prefix(&SPKI_PREFIX) {
        Some(point) if point.len() == 64 => Ok(Address::from_raw_public_key(point)),
        _ => Err(SignError::Unusable("the key is not one of the curve secp256k1".to_owned())),
    }
}

fn client() -> Result<Client, SignerSetup> {
    Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .tcp_nodelay(true)
        .build()
        .map_err(|error| SignerSetup { field: "endpoint", reason: error.to_string() })
}

/// An address of the service: over TLS, unless it is on this machine.
fn endpoint(url: &str) -> Result<Url, SignerSetup> {
    let wrong = |reason: String| SignerSetup { field: "endpoint", reason };
    let url: Url = url.parse().map_err(|error| wrong(format!("{url}: {error}")))?;
    let is_here = matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
    if url.scheme() == "https" || (url.scheme() == "http" && is_here) {
        Ok(url)
    } else {
        Err(wrong(format!("{url} is no https URL")))
    }
}

/// Sends a request, and reads an answer of the form that is expected; `refused` judges any other status.
async fn answered<T: for<'a> Deserialize<'a>>(
    request: RequestBuilder,
    refused: impl FnOnce(StatusCode, &[u8]) -> SignError,
) -> Result<T, SignError> {
    let (status, body) = read(request.send().await.map_err(unreached)?).await?;
    if status == StatusCode::OK { parsed(&body) } else { Err(refused(status, &body)) }
}

fn parsed<T: for<'a> Deserialize<'a>>(body: &[u8]) -> Result<T, SignError> {
    serde_json::from_slice(body).map_err(|_| SignError::Malformed("an answer of another form".to_owned()))
}

fn decoded(text: &str) -> Result<Vec<u8>, SignError> {
    STANDARD.decode(text).map_err(|_| SignError::Malformed("an answer that is not in base64".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_reached_over_tls_or_on_this_machine() {
        for good in ["https://kms.eu-central-1.amazonaws.com", "http://127.0.0.1:4566"] {
            endpoint(good).unwrap();
        }
        for bad in ["http://kms.example.com", "ftp://127.0.0.1", "kms"] {
            assert_eq!(endpoint(bad).unwrap_err().field, "endpoint", "{bad}");
        }
    }
}
