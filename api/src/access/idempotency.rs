//! Idempotent writes (contract section 8): the same key and the same request do the work once and get the same answer.
//!
//! The record and the work are one transaction of the engine; this module creates the key, the fingerprint, and the
//! answer from the engine's outcome. Requests that fail before the engine leave no record.
//!
//! A stored answer takes precedence over every error that a repeated request would meet now. Each write is looked up
//! once by [`IdempotentRequest::perform`], before it or after its failure; the writer looks again within the commit.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use dvp_core::writer::{Done, IdempotencyPart, Outcome, Refusal, UsedKey};
use dvp_domain::json::{self, Document};
use dvp_store::orders::idempotency::{RecordId, StoredResponse};
use serde_json::Value;
use sha2::{Digest, Sha256};
use uuid::{Uuid, Variant};

use crate::access::auth::Caller;
use crate::access::signature::SignedNonce;
use crate::http::body::{RawBody, check_media};
use crate::http::error::{ApiError, Code, Reply, given};
use crate::http::fields::{fault, repeated};
use crate::http::request_id::{answering, current_id};
use crate::state::Api;

/// A request that cannot be read cannot be told from another one, either (contract section 7).
const UNREADABLE: ApiError = ApiError::IdempotencyKeyInvalid(
    "the body is not valid JSON, so that the request cannot be told from another one; the key can be used again",
);
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("x-idempotency-replayed");

/// A write that may be a repeated one: [`perform`](Self::perform) looks for its stored answer.
pub(crate) struct IdempotentRequest {
    pub(crate) caller: Caller,
    pub(crate) body: Value,
    /// Of a signed request.
    pub(crate) nonce: Option<SignedNonce>,
    /// The path of a member that the body has twice: nothing is done then.
    repeated: Option<String>,
    id: RecordId,
    fingerprint: [u8; 32],
}

/// When a request is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// Before its work, which has effects outside of the writer's transaction.
    First,
    /// Before its work only if its key was seen here a while ago, and after its work if that failed. Most requests are
    /// not repeats, and the writer finds those that are.
    Late,
}

impl FromRequest<Api> for IdempotentRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Api) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        let caller = Caller::from_request_parts(&mut parts, api).await?;
        let key = parse_key(&parts.headers)?;
        let bytes = RawBody::take(&mut parts, body).await?;
        check_media(&parts.headers)?;
        let Document { value: body, repeated } = json::read(&bytes).map_err(|_| UNREADABLE)?;
        let method = parts.method.as_str();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            id: RecordId {
                partner_id: caller.tenant.partner_id.clone(),
                livemode: caller.tenant.livemode,
                method: method.to_owned(),
                path: parts.uri.path().to_owned(),
                key,
            },
            fingerprint: fingerprint(method, path, &bytes),
            caller,
            body,
            repeated,
            nonce: parts.extensions.remove(),
        })
    }
}

impl IdempotentRequest {
    /// Performs `work`, or replays the stored answer.
    pub(crate) async fn perform(
        self,
        api: &Api,
        lookup: Lookup,
        work: impl AsyncFnOnce(&Self) -> Reply,
    ) -> Reply {
        if (lookup == Lookup::First || api.keys_seen.note(self.id.key, Instant::now()))
            && let Some(stored) = self.find_answer(api).await?
        {
            return Ok(replay(stored));
        }
        let done = match self.check_body() {
            Ok(()) => work(&self).await,
            Err(error) => Err(error),
        };
        if lookup == Lookup::Late
            && done.is_err()
            && let Some(stored) = self.find_answer(api).await?
        {
            return Ok(replay(stored));
        }
        done
    }

    /// The stored answer of the same request, if there is one.
    async fn find_answer(&self, api: &Api) -> Result<Option<StoredResponse>, ApiError> {
        match api.engine.find_answer(&self.id).await? {
            Some(record) if record.fingerprint == self.fingerprint => Ok(Some(record.response)),
            Some(_) => Err(Code::IdempotencyKeyConflict.into()),
            None => Ok(None),
        }
    }

    fn check_body(&self) -> Result<(), ApiError> {
        self.repeated.as_ref().map_or(Ok(()), |path| Err(repeated(path)))
    }

    /// The record that the engine stores with the work: `render` creates the answer from its outcome.
    /// The answer's request id is this request's, also when it is repeated.
    pub(crate) fn part(
        &self,
        render: impl Fn(&Outcome) -> StoredResponse + Send + Sync + 'static,
    ) -> IdempotencyPart {
        let request = current_id();
        let render = Arc::new(move |outcome: &Outcome| answering(request.clone(), || render(outcome)));
        IdempotencyPart { id: self.id.clone(), fingerprint: self.fingerprint, render }
    }

    /// As [`part`](Self::part), for an answer that is known beforehand.
    pub(crate) fn part_with(&self, answer: StoredResponse) -> IdempotencyPart {
        self.part(move |_| answer.clone())
    }
}

pub(crate) fn answer(done: Done) -> Reply {
    match done.outcome {
        Outcome::KeyUsed(UsedKey::Replayed(stored)) => Ok(replay(stored)),
        Outcome::KeyUsed(UsedKey::Conflict) => Err(ApiError::Plain(Code::IdempotencyKeyConflict)),
        Outcome::KeyUsed(UsedKey::Processing) => Err(ApiError::Plain(Code::IdempotencyKeyProcessing)),
        // The key was enabled when it was looked up, within the last second.
        Outcome::Refused(Refusal::PartnerDisabled) => Err(ApiError::Plain(Code::ApiKeyDisabled)),
        Outcome::Refused(Refusal::TooManyWaiting) => Err(ApiError::TooManyWaiting),
        Outcome::Refused(Refusal::CoolingDown(cool_down)) => Err(ApiError::CoolingDown(cool_down)),
        // A fault of a field, as the parser finds others: the corrected body may have the same key.
        Outcome::Refused(Refusal::Unpayable(why)) => Err(fault(why.field, why)),
        Outcome::Accepted(_)
        | Outcome::Rejected { .. }
        | Outcome::Refused(_)
        | Outcome::Unfilled(_)
        | Outcome::Written => {
            done.response.map(given).ok_or_else(|| ApiError::Internal("a write without an answer".into()))
        }
    }
}

fn replay(stored: StoredResponse) -> Response {
    let mut response = given(stored);
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

/// SHA-256 over method, path with query and raw body. A zero byte ends the first two, which cannot contain one.
pub fn fingerprint(method: &str, path: &str, body: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [method.as_bytes(), &[0], path.as_bytes(), &[0], body] {
        hash.update(part);
    }
    hash.finalize().into()
}

fn parse_key(headers: &HeaderMap) -> Result<Uuid, ApiError> {
    let mut sent = headers.get_all("x-idempotency-key").iter();
    let first = sent.next().ok_or(Code::IdempotencyKeyRequired)?;
    let twice = sent.next().is_some();
    canonical_uuid(first.as_bytes()).filter(|_| !twice).ok_or(ApiError::IdempotencyKeyInvalid(
        "X-Idempotency-Key must be one RFC 9562 UUID in the form 8-4-4-4-12",
    ))
}

/// Only the hyphenated form has 36 characters; nil, max and foreign variants are no keys.
fn canonical_uuid(text: &[u8]) -> Option<Uuid> {
    let uuid = Uuid::try_parse_ascii(text).ok().filter(|_| text.len() == 36)?;
    let versioned = (1..=8).contains(&uuid.get_version_num());
    (versioned && uuid.get_variant() == Variant::RFC4122).then_some(uuid)
}

#[cfg(test)]
mod tests {
    use axum::http::header;
    use axum::response::IntoResponse as _;

    use super::*;

    #[test]
    fn a_key_is_a_hyphenated_uuid_of_version_1_to_8() {
        let parse = |text: &str| canonical_uuid(text.as_bytes());
        let key = parse("6f1e2d3c-aaaa-4000-8000-00000000000b").unwrap();
        assert_eq!(parse("6F1E2D3C-AAAA-4000-8000-00000000000B"), Some(key));
        for version in 1..=8 {
            assert!(parse(&format!("6f1e2d3c-0000-{version}000-b000-000000000001")).is_some());
        }
        for other in [
            "",
            "6f1e2d3c00004000800000000000000b",
            "{6f1e2d3c-0000-4000-8000-00000000000b}",
            "urn:uuid:6f1e2d3c-0000-4000-8000-00000000000b",
            "6f1e2d3c-0000-9000-8000-00000000000b",
            "6f1e2d3c-0000-0000-8000-00000000000b",
            "6f1e2d3c-0000-4000-c000-00000000000b",
            "6f1e2d3c-0000-4000-7000-00000000000b",
            "00000000-0000-0000-0000-000000000000",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
            "6f1e2d3c-0000-4000-8000-00000000000g",
            "6f1e2d3c-0000-4000-80000-0000000000b",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_key_in_progress_is_a_conflict_with_retry_after() {
        let refused = answer(Done {
            outcome: Outcome::KeyUsed(UsedKey::Processing),
            response: None,
            outbound: Vec::new(),
        });
        let response = refused.unwrap_err().into_response();
        assert_eq!(response.status(), 409);
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
    }
}
