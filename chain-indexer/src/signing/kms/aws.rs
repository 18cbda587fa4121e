//! AWS KMS: requests in JSON, signed by Signature Version 4.

mod credentials;
mod sigv4;

pub use credentials::AwsCredentials;

use super::super::http::printable;
use super::{SignError, SignerSetup, answered, client, decoded, endpoint};
use alloy::primitives::{Address, B256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use credentials::Source;
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Where the key is, and who asks for its signatures.
#[derive(Debug, Clone)]
pub struct AwsKmsConfig {
    pub region: String,
    /// The key's id, its ARN, or an alias.
    pub key: String,
    pub address: Address,
    pub credentials: AwsCredentials,
    /// Another address of the service, of a private endpoint for example.
    pub endpoint: Option<String>,
    /// For one signature, connecting included.
    pub time_limit: Duration,
}

pub(super) struct Aws {
    http: Client,
    endpoint: Url,
    region: String,
    key: String,
    credentials: Source,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Signed {
    signature: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PublicKey {
    public_key: String,
}

#[derive(Deserialize)]
struct Refusal {
    #[serde(rename = "__type")]
    code: String,
    #[serde(default, alias = "Message")]
    message: String,
}

impl Aws {
    pub(super) fn new(config: AwsKmsConfig) -> Result<Self, SignerSetup> {
        let AwsKmsConfig { region, key, credentials, endpoint: given, .. } = config;
        let endpoint = endpoint(&given.unwrap_or_else(|| format!("https://kms.{region}.amazonaws.com/")))?;
        let http = client()?;
        let credentials = Source::new(credentials, http.clone())?;
        Ok(Self { http, endpoint, region, key, credentials })
    }

    /// The signature in DER.
    pub(super) async fn sign(&self, digest: B256) -> Result<Vec<u8>, SignError> {
        let request = json!({
            "KeyId": self.key,
            "Message": STANDARD.encode(digest),
            "MessageType": "DIGEST",
            "SigningAlgorithm": "ECDSA_SHA_256",
        });
        let Signed { signature } = self.call("TrentService.Sign", &request).await?;
        decoded(&signature)
    }

    pub(super) async fn public_key(&self) -> Result<Vec<u8>, SignError> {
        let request = json!({"KeyId": self.key});
        let PublicKey { public_key } = self.call("TrentService.GetPublicKey", &request).await?;
        decoded(&public_key)
    }

    async fn call<T: for<'a> Deserialize<'a>>(
        &self,
        target: &'static str,
        request: &Value,
    ) -> Result<T, SignError> {
        let keys = self.credentials.current().await?;
        let body = request.to_string();
        let headers = sigv4::headers(&sigv4::Request {
            url: &self.endpoint,
            region: &self.region,
            target,
            body: body.as_bytes(),
            at: chrono::Utc::now(),
            keys: &keys,
        });
        let mut http = self.http.post(self.endpoint.clone()).body(body);
        for (name, value) in headers {
            http = http.header(name, value);
        }
        let answer = answered(http, refused).await;
        if let Err(SignError::Unavailable(_)) = &answer {
            // Expired credentials are among the reasons: the next trial asks for new ones.
            self.credentials.forget().await;
        }
        answer
    }
}

/// Errors of KMS carry a code; a few of them pass by themselves.
fn refused(status: StatusCode, body: &[u8]) -> SignError {
    let Ok(Refusal { code, message }) = serde_json::from_slice(body) else {
        return SignError::Unavailable(format!("it answers with the status {status}"));
    };
    let code = printable(code.rsplit('#').next().unwrap_or_default());
    let said = format!("{code}: {}", printable(&message));
    let passes = matches!(
        code.as_str(),
        "ThrottlingException"
            | "LimitExceededException"
            | "RequestExpired"
            | "ExpiredTokenException"
            | "KeyUnavailableException"
            | "DependencyTimeoutException"
            | "KMSInternalException"
    );
    if passes || status.is_server_error() { SignError::Unavailable(said) } else { SignError::Unusable(said) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_passes_is_an_absence_and_any_other_needs_a_person() {
        let of = |status: u16, code: &str| {
            let body = json!({"__type": code, "message": "because\n"}).to_string();
            refused(StatusCode::from_u16(status).unwrap(), body.as_bytes())
        };
        for code in ["ThrottlingException", "com.amazonaws.kms#KeyUnavailableException"] {
            assert!(of(400, code).is_absence(), "{code}");
        }
        assert!(of(500, "Whatever").is_absence());
        for code in ["AccessDeniedException", "com.amazonaws.kms#DisabledException", "NotFoundException"] {
            let error = of(400, code);
            assert!(!error.is_absence() && error.to_string().ends_with("Exception: because"), "{error}");
        }
        assert!(refused(StatusCode::BAD_GATEWAY, b"<html>").is_absence());
    }
}
