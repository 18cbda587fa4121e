//! Bearer tokens (OAuth 2.0): of the machine's service account, or of one whose key is in a file.

use super::super::{SignError, SignerSetup, answered, endpoint};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, TimeDelta, Utc};
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use serde_json::json;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio_rustls::rustls::SignatureScheme;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::sign::SigningKey;

const SCOPE: &str = "https://www.googleapis.com/auth/cloudkms";
const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// A token is replaced so long before it expires.
const EARLY: TimeDelta = TimeDelta::minutes(5);

#[derive(Clone)]
pub enum GcpCredentials {
    /// The metadata service at this address gives tokens of the machine's, or the pod's, service account.
    Machine { url: String },
    /// A service account's key, as the cloud issues it (JSON).
    File(PathBuf),
}

impl GcpCredentials {
    #[must_use]
    pub fn of_machine() -> Self {
        Self::Machine { url: "http://metadata.google.internal".to_owned() }
    }
}

impl fmt::Debug for GcpCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine { .. } => f.write_str("the machine's service account"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

#[derive(Deserialize)]
struct KeyFile {
    client_email: String,
    private_key_id: String,
    private_key: String,
    token_uri: String,
}

#[derive(Deserialize)]
struct Issued {
    access_token: String,
    expires_in: i64,
}

enum From {
    Machine(Url),
    Key { email: String, id: String, key: Arc<dyn SigningKey>, token_uri: Url },
}

pub(super) struct Source {
    from: From,
    http: Client,
    issued: Mutex<Option<(String, DateTime<Utc>)>>,
}

impl Source {
    pub(super) fn new(credentials: GcpCredentials, http: Client) -> Result<Self, SignerSetup> {
        let from = match credentials {
            GcpCredentials::Machine { url } => {
                let place = "/computeMetadata/v1/instance/service-accounts/default/token";
                let url = url.parse().and_then(|url: Url| url.join(place));
                From::Machine(url.map_err(|error| wrong(&error))?)
            }
            GcpCredentials::File(path) => {
                // Neither error quotes the file: it holds a key.
                let text = std::fs::read(&path).map_err(|error| wrong(&error.kind()))?;
                let file: KeyFile = serde_json::from_slice(&text)
                    .map_err(|_| wrong(&"the file is no key of a service account"))?;
                let key = PrivateKeyDer::from_pem_slice(file.private_key.as_bytes())
                    .map_err(|_| wrong(&"private_key is no PEM"))?;
                let key = ring::sign::any_supported_type(&key).map_err(|error| wrong(&error))?;
                let token_uri = endpoint(&file.token_uri).map_err(|error| wrong(&error.reason))?;
                From::Key { email: file.client_email, id: file.private_key_id, key, token_uri }
            }
        };
        Ok(Self { from, http, issued: Mutex::default() })
    }

    /// A token that is valid for some minutes.
    pub(super) async fn current(&self) -> Result<String, SignError> {
        let mut issued = self.issued.lock().await;
        if let Some((token, until)) = &*issued
            && Utc::now() + EARLY < *until
        {
            return Ok(token.clone());
        }
        let request = match &self.from {
            From::Machine(url) => self.http.get(url.clone()).header("metadata-flavor", "Google"),
            From::Key { email, id, key, token_uri } => {
                let assertion = assertion(email, id, key.as_ref(), token_uri)?;
                let form = [("grant_type", GRANT), ("assertion", assertion.as_str())];
                let form: String = reqwest::Url::parse_with_params("http://form", form)
                    .ok()
                    .and_then(|url| url.query().map(str::to_owned))
                    .unwrap_or_default();
                let kind = "application/x-www-form-urlencoded";
                self.http.post(token_uri.clone()).header("content-type", kind).body(form)
            }
        };
        let Issued { access_token, expires_in } = answered(request, refused).await?;
        let lifetime = TimeDelta::try_seconds(expires_in).unwrap_or_default();
        *issued = Some((access_token.clone(), Utc::now() + lifetime));
        Ok(access_token)
    }

    /// The next call asks for another token.
    pub(super) async fn forget(&self) {
        *self.issued.lock().await = None;
    }
}

fn wrong(reason: &dyn fmt::Display) -> SignerSetup {
    SignerSetup { field: "service_account", reason: reason.to_string() }
}

fn refused(status: StatusCode, _: &[u8]) -> SignError {
    let said = format!("no token of the service account: the status is {status}");
    if status == StatusCode::BAD_REQUEST || status == StatusCode::UNAUTHORIZED {
        SignError::Unusable(said)
    } else {
        SignError::Unavailable(said)
    }
}

/// A JSON Web Token (RFC 7523) by which the service account asks for a token.
fn assertion(email: &str, id: &str, key: &dyn SigningKey, token_uri: &Url) -> Result<String, SignError> {
    let now = Utc::now().timestamp();
    let header = json!({"alg": "RS256", "typ": "JWT", "kid": id});
    let claims =
        json!({"iss": email, "scope": SCOPE, "aud": token_uri.as_str(), "iat": now, "exp": now + 3_600});
    let encoded = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    let text = encoded.join(".");
    let signer = key
        .choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256])
        .ok_or_else(|| SignError::Unusable("the service account's key is not one of RSA".to_owned()))?;
    let signature = signer
        .sign(text.as_bytes())
        .map_err(|error| SignError::Unusable(format!("the service account's key: {error}")))?;
    Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
}
