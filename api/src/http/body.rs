//! The body of a request: read whole, once, within the limit.

use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use http_body_util::LengthLimitError;

use super::error::{ApiError, Code};

const BODY_MAX: usize = 64 * 1024;

/// A request's body, read. A layer that has to see the bytes leaves them here for the handler.
#[derive(Clone)]
pub(crate) struct RawBody(pub(crate) Bytes);

impl RawBody {
    /// Takes the body out of the request: as a layer has left it, or else off the wire.
    pub(crate) async fn take(parts: &mut Parts, body: Body) -> Result<Bytes, ApiError> {
        if let Some(Self(bytes)) = parts.extensions.remove() {
            return Ok(bytes);
        }
        axum::body::to_bytes(body, BODY_MAX).await.map_err(|error| {
            if error.into_inner().is::<LengthLimitError>() {
                ApiError::Plain(Code::PayloadTooLarge)
            } else {
                ApiError::IdempotencyKeyInvalid("the body did not arrive whole")
            }
        })
    }
}

/// Without a type the body cannot be read as anything; another type is one we do not take.
pub(crate) fn check_media(headers: &HeaderMap) -> Result<(), ApiError> {
    if !headers.contains_key(header::CONTENT_TYPE) {
        return Err(ApiError::IdempotencyKeyInvalid("Content-Type is missing"));
    }
    require_json(headers)
}

pub(crate) fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let media = kind.split(';').next().unwrap_or_default().trim();
    if media.eq_ignore_ascii_case("application/json") {
        Ok(())
    } else {
        Err(Code::UnsupportedMediaType.into())
    }
}
