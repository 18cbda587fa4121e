//! Signed requests (contract section 5): HMAC-SHA256 over method, path with query, timestamp, nonce and body, all as
//! received and without separators.
//!
//! Moving a boundary between two parts gives the same text, but never another valid request: the timestamp has no
//! leading zeros and must be recent, a nonce is visible ASCII, and a body begins with its brace.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use chrono::DateTime;
use dvp_core::secrets::MacKey;
use dvp_store::partners::registry::nonces::NewNonce;

use crate::access::auth::Caller;
use crate::http::body::RawBody;
use crate::http::error::ApiError;
use crate::state::Api;

/// The tolerated difference of a timestamp from the service's clock, in both directions.
const WINDOW_SECS: u64 = 300;
const NONCE_USED: ApiError = ApiError::InvalidSignature("X-Nonce was used before");

/// The layer of signed routes, inside authentication.
pub(crate) async fn require(
    State(api): State<Api>,
    caller: Caller,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let body = match RawBody::take(&mut parts, body).await {
        Ok(body) => body,
        Err(refused) => return refused.into_response(),
    };
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    match verify(&api, &caller, &parts.method, path, &parts.headers, &body) {
        Ok(used) => {
            parts.extensions.insert(used);
            parts.extensions.insert(RawBody(body));
            next.run(Request::from_parts(parts, Body::empty())).await
        }
        Err(refused) => refused.into_response(),
    }
}

/// The nonce of the present request, already used in this process.
#[derive(Debug, Clone)]
pub(crate) struct SignedNonce {
    nonce: String,
    /// Unix seconds.
    expires: u64,
}

impl SignedNonce {
    /// Marks the nonce as used for every process, also after a restart: for requests whose body contains no unique id.
    /// It must be called before the request writes anything.
    pub(crate) async fn use_up(&self, api: &Api, caller: &Caller) -> Result<(), ApiError> {
        let expires = i64::try_from(self.expires).ok().and_then(|secs| DateTime::from_timestamp(secs, 0));
        let expires_at =
            expires.ok_or_else(|| ApiError::Internal("a timestamp beyond the calendar".into()))?;
        let nonce = NewNonce {
            key_id: caller.key_id.clone(),
            partner_id: caller.tenant.partner_id.clone(),
            nonce: self.nonce.clone(),
            expires_at,
        };
        if api.engine.use_nonce(&nonce).await? { Ok(()) } else { Err(NONCE_USED) }
    }
}

fn verify(
    api: &Api,
    caller: &Caller,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<SignedNonce, ApiError> {
    let key = caller
        .signing(&api.engine.context().vault)
        .map_err(|error| ApiError::Internal(format!("key {}: {error}", caller.key_id)))?;
    let now = api.caller_time().unix_secs();
    let used = check_signature(key, method, path, headers, body, now).map_err(ApiError::InvalidSignature)?;
    // Checked last, so that a nonce cannot be used up without the secret.
    if api.nonces.first_use(&caller.key_id, used.nonce, now, used.expires) {
        Ok(SignedNonce { nonce: used.nonce.to_owned(), expires: used.expires })
    } else {
        Err(NONCE_USED)
    }
}

/// The nonce of a request with a valid signature, to be marked as used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsedNonce<'a> {
    pub nonce: &'a str,
    /// Unix seconds: the timestamp would be accepted until then.
    pub expires: u64,
}

/// Verifies the signature headers of a request. `now` is Unix seconds. The error names the cause.
pub fn check_signature<'a>(
    key: &MacKey,
    method: &Method,
    path: &str,
    headers: &'a HeaderMap,
    body: &[u8],
    now: u64,
) -> Result<UsedNonce<'a>, &'static str> {
    let signature = single(headers, "x-signature", "X-Signature is missing or sent twice")?;
    let timestamp = single(headers, "x-timestamp", "X-Timestamp is missing or sent twice")?;
    let nonce = single(headers, "x-nonce", "X-Nonce is missing or sent twice")?;
    let signature = parse_signature(signature).ok_or("X-Signature must be 64 lowercase hex digits")?;
    let sent_at = parse_timestamp(timestamp).ok_or("X-Timestamp must be Unix seconds")?;
    if !(16..=64).contains(&nonce.len()) || !nonce.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("X-Nonce must be 16 to 64 visible ASCII characters");
    }
    if now.abs_diff(sent_at) > WINDOW_SECS {
        return Err("X-Timestamp is more than 300 seconds from the service's clock");
    }
    let canonical =
        [method.as_str().as_bytes(), path.as_bytes(), timestamp.as_bytes(), nonce.as_bytes(), body];
    if !key.verifies(&canonical, &signature) {
        return Err("X-Signature does not match the request");
    }
    Ok(UsedNonce { nonce, expires: sent_at.saturating_add(WINDOW_SECS) })
}

fn single<'a>(headers: &'a HeaderMap, name: &str, problem: &'static str) -> Result<&'a str, &'static str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().map_err(|_| "a signature header is not ASCII"),
        _ => Err(problem),
    }
}

fn parse_signature(text: &str) -> Option<[u8; 32]> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    hex::decode(text).ok()?.try_into().ok()
}

/// Digits without a sign or leading zeros.
fn parse_timestamp(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| plain)
}
