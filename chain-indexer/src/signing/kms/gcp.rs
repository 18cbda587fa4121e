//! Google Cloud KMS: requests in JSON with a bearer token.

mod token;

pub use token::GcpCredentials;

use super::super::http::printable;
use super::{SignError, SignerSetup, answered, client, decoded, endpoint};
use alloy::primitives::{Address, B256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;
use token::Source;
use tokio_rustls::rustls::pki_types::SubjectPublicKeyInfoDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

const ENDPOINT: &str = "https://cloudkms.googleapis.com/";

/// Where the key is, and who asks for its signatures.
#[derive(Debug, Clone)]
pub struct GcpKmsConfig {
    /// `projects/…/locations/…/keyRings/…/cryptoKeys/…/cryptoKeyVersions/…`
    pub key: String,
    pub address: Address,
    pub credentials: GcpCredentials,
    /// Another address of the service, of a private endpoint for example.
    pub endpoint: Option<String>,
    /// For one signature, connecting included.
    pub time_limit: Duration,
}

pub(super) struct Gcp {
    http: Client,
    public_key: Url,
    sign: Url,
    token: Source,
}

#[derive(Deserialize)]
struct Signed {
    signature: String,
}

#[derive(Deserialize)]
struct PublicKey {
    pem: String,
}

#[derive(Deserialize)]
struct Refusal {
    error: Reason,
}

#[derive(Deserialize)]
struct Reason {
    #[serde(default)]
    status: String,
    #[serde(default)]
    message: String,
}

impl Gcp {
    pub(super) fn new(config: GcpKmsConfig) -> Result<Self, SignerSetup> {
        let GcpKmsConfig { key, credentials, endpoint: given, .. } = config;
        let base = endpoint(given.as_deref().unwrap_or(ENDPOINT))?;
        let parts: Vec<&str> = key.split('/').collect();
        let is_name = matches!(
            parts.as_slice(),
            ["projects", _, "locations", _, "keyRings", _, "cryptoKeys", _, "cryptoKeyVersions", _]
        );
        if !is_name || key.contains(['?', '#', '%', '\\']) || parts.contains(&"..") {
            return Err(SignerSetup { field: "key", reason: format!("{key} names no version of a key") });
        }
        let at = |path: String| {
            base.join(&path).map_err(|error| SignerSetup { field: "key", reason: error.to_string() })
        };
        let (public_key, sign) =
            (at(format!("v1/{key}/publicKey"))?, at(format!("v1/{key}:asymmetricSign"))?);
        let http = client()?;
        Ok(Self { token: Source::new(credentials, http.clone())?, http, public_key, sign })
    }

    /// The signature in DER. The service has one field for digests of 32 bytes, and does not know their hash function.
    pub(super) async fn sign(&self, digest: B256) -> Result<Vec<u8>, SignError> {
        let request = json!({"digest": {"sha256": STANDARD.encode(digest)}});
        let Signed { signature } = self.call(self.http.post(self.sign.clone()).json(&request)).await?;
        decoded(&signature)
    }

    pub(super) async fn public_key(&self) -> Result<Vec<u8>, SignError> {
        let PublicKey { pem } = self.call(self.http.get(self.public_key.clone())).await?;
        let spki = SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| SignError::Malformed("the public key is no PEM".to_owned()))?;
        Ok(spki.as_ref().to_vec())
    }

    async fn call<T: for<'a> Deserialize<'a>>(&self, request: RequestBuilder) -> Result<T, SignError> {
        let token = self.token.current().await?;
        let answer = answered(request.bearer_auth(token), refused).await;
        if let Err(SignError::Unavailable(_)) = &answer {
            // A token that was withdrawn is among the reasons: the next trial asks for another one.
            self.token.forget().await;
        }
        answer
    }
}

fn refused(status: StatusCode, body: &[u8]) -> SignError {
    let Ok(Refusal { error: Reason { status: code, message } }) = serde_json::from_slice(body) else {
        return SignError::Unavailable(format!("it answers with the status {status}"));
    };
    let said = format!("{}: {}", printable(&code), printable(&message));
    let passes = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::TOO_MANY_REQUESTS);
    if passes || status.is_server_error() { SignError::Unavailable(said) } else { SignError::Unusable(said) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_named_with_its_version() {
        let of = |key: &str| {
            Gcp::new(GcpKmsConfig {
                key: key.to_owned(),
                address: Address::ZERO,
                credentials: GcpCredentials::of_machine(),
                endpoint: Some("http://127.0.0.1:1".to_owned()),
                time_limit: Duration::from_secs(1),
            })
        };
        let good = "projects/p/locations/europe-west3/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1";
        assert_eq!(
            of(good).map(|gcp| gcp.sign.path().to_owned()).unwrap(),
            format!("/v1/{good}:asymmetricSign")
        );
        for bad in [
            "k",
            &good.replace("/cryptoKeyVersions/1", ""),
            &good.replace("/1", "/1?x"),
            &good.replace("/r/", "/../"),
        ] {
            assert_eq!(of(bad).err().unwrap().field, "key", "{bad}");
        }
    }

    #[test]
    fn an_error_that_passes_is_an_absence_and_any_other_needs_a_person() {
        let of = |status: u16| {
            let body =
                json!({"error": {"code": status, "status": "WHY", "message": "because\n"}}).to_string();
            refused(StatusCode::from_u16(status).unwrap(), body.as_bytes())
        };
        assert!([401, 429, 500, 503].into_iter().all(|status| of(status).is_absence()));
        assert!(![400, 403, 404].into_iter().any(|status| of(status).is_absence()));
        assert!(of(403).to_string().ends_with("WHY: because"));
    }
}
