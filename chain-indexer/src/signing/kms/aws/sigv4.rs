//! Signature Version 4 of a POST to the root of a service, as its documentation defines it.

use super::credentials::Keys;
use chrono::{DateTime, Utc};
use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::Url;
use sha2::{Digest as _, Sha256};

const SERVICE: &str = "kms";
const CONTENT_TYPE: &str = "application/x-amz-json-1.1";

pub(super) struct Request<'a> {
    pub(super) url: &'a Url,
    pub(super) region: &'a str,
    pub(super) target: &'static str,
    pub(super) body: &'a [u8],
    pub(super) at: DateTime<Utc>,
    pub(super) keys: &'a Keys,
}

/// The headers of the request; HTTP adds the host, which is signed, too.
pub(super) fn headers(request: &Request<'_>) -> Vec<(&'static str, String)> {
    let time = request.at.format("%Y%m%dT%H%M%SZ").to_string();
    let host = match (request.url.host_str().unwrap_or_default(), request.url.port()) {
        (host, Some(port)) => format!("{host}:{port}"),
        (host, None) => host.to_owned(),
    };
    // In the order of their names.
    let mut signed =
        vec![("content-type", CONTENT_TYPE.to_owned()), ("host", host), ("x-amz-date", time.clone())];
    if let Some(token) = &request.keys.session_token {
        signed.push(("x-amz-security-token", token.clone()));
    }
    signed.push(("x-amz-target", request.target.to_owned()));
    let scope = Scope { at: request.at, region: request.region, service: SERVICE };
    let path = request.url.path();
    let authorization = authorization("POST", path, &signed, request.body, &scope, request.keys);
    signed.retain(|(name, _)| *name != "host");
    signed.push(("authorization", authorization));
    signed
}

struct Scope<'a> {
    at: DateTime<Utc>,
    region: &'a str,
    service: &'a str,
}

fn authorization(
    method: &str,
    path: &str,
    headers: &[(&'static str, String)],
    body: &[u8],
    scope: &Scope<'_>,
    keys: &Keys,
) -> String {
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let canonical = format!("{method}\n{path}\n\n{lines}\n{names}\n{}", sha256(body));
    let (day, time) = (scope.at.format("%Y%m%d").to_string(), scope.at.format("%Y%m%dT%H%M%SZ"));
    let place = format!("{day}/{}/{}/aws4_request", scope.region, scope.service);
    let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{place}\n{}", sha256(canonical.as_bytes()));
    let mut key = keyed(format!("AWS4{}", keys.secret_access_key).as_bytes(), &day);
    for part in [scope.region, scope.service, "aws4_request"] {
        key = keyed(&key, part);
    }
    let signature = hex::encode(keyed(&key, &to_sign));
    let id = &keys.access_key_id;
    format!("AWS4-HMAC-SHA256 Credential={id}/{place}, SignedHeaders={names}, Signature={signature}")
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn keyed(key: &[u8], text: &str) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `get-vanilla` and `post-vanilla` of the published test suite.
    #[test]
    fn signatures_are_those_of_the_published_test_suite() {
        let keys = Keys {
            access_key_id: "AKIDEXAMPLE".to_owned(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
            session_token: None,
        };
        let at = "2015-08-30T12:36:00Z".parse().unwrap();
        let scope = Scope { at, region: "us-east-1", service: "service" };
        let headers =
            [("host", "example.amazonaws.com".to_owned()), ("x-amz-date", "20150830T123600Z".to_owned())];
        for (method, signature) in [
            ("GET", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
            ("POST", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        ] {
            assert_eq!(
                authorization(method, "/", &headers, b"", &scope, &keys),
                format!(
                    "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                     SignedHeaders=host;x-amz-date, Signature={signature}"
                )
            );
        }
    }
}
