//! The body of a request: read whole, once, within the limit.

use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use http_body_util::LengthLimitError;

use super::error::ApiError;

/// How many bytes of body a request may have.
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
                ApiError::PayloadTooLarge
            } else {
                ApiError::IdempotencyKeyInvalid("the body did not arrive whole")
            }
        })
    }
}

/// Without a type the body cannot be read as anything; another type is one we do not take.
pub(crate) fn check_media(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else {
        return Err(ApiError::IdempotencyKeyInvalid("Content-Type is missing"));
    };
    let media = kind.to_str().ok().and_then(|kind| kind.split(';').next()).unwrap_or_default();
    if media.trim().eq_ignore_ascii_case("application/json") {
        Ok(())
    } else {
        Err(ApiError::UnsupportedMediaType)
    }
}
