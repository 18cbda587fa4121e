//! A write of webhook management: its caller, its body, and its optional `Idempotency-Key` (contract section 4,
//! rule 6).

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::{HeaderMap, HeaderValue};
use dvp_core::engine::webhooks::{
    Command, Owner, WebhookError, WebhookIdempotency, WebhookRejection, carry_out,
};
use dvp_store::webhooks::WebhookRecordId;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{NO_ENDPOINT, render};
use crate::access::auth::Caller;
use crate::access::idempotency::REPLAYED;
use crate::http::body::{RawBody, require_json};
use crate::http::error::{ApiError, Code, Reply, given};
use crate::http::fields::{Object, fault, read_body};
use crate::state::Api;

const KEY_BYTES_MAX: usize = 255;

pub(crate) struct Managed {
    pub(crate) caller: Caller,
    /// `None`: there was no body.
    pub(crate) body: Option<Value>,
    key: Option<WebhookIdempotency>,
}

impl Managed {
    pub(crate) fn required_body(&self) -> Result<&Value, ApiError> {
        self.body.as_ref().ok_or_else(|| fault("body", "must be a JSON object"))
    }

    pub(crate) async fn write(&self, api: &Api, command: Command) -> Reply {
        write(api, &self.caller, self.key.as_ref(), command).await
    }

    /// For a request whose body has no field, if there is one.
    pub(crate) fn no_fields(&self) -> Result<(), ApiError> {
        self.body.as_ref().map_or(Ok(()), |body| Object::root(body, &[]).map(drop))
    }
}

impl FromRequest<Api> for Managed {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Api) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        let caller = Caller::from_request_parts(&mut parts, api).await?;
        let bytes = RawBody::take(&mut parts, body).await?;
        let key = parse_key(&parts.headers)?.map(|idempotency_key| {
            let operation = format!("{} {}", parts.method, parts.uri.path());
            let id = WebhookRecordId { key_id: caller.key_id.clone(), operation, idempotency_key };
            (id, Sha256::digest(&bytes).into())
        });
        let body = if bytes.is_empty() {
            None
        } else {
            require_json(&parts.headers)?;
            Some(read_body(&bytes)?)
        };
        Ok(Self { caller, body, key })
    }
}

fn parse_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    const FORM: ApiError =
        ApiError::IdempotencyKeyInvalid("Idempotency-Key must be one text of 1 to 255 visible characters");
    let mut sent = headers.get_all("idempotency-key").iter();
    let Some(first) = sent.next() else { return Ok(None) };
    let key = first.to_str().map_err(|_| FORM)?;
    let visible = key.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if sent.next().is_some() || !visible || !(1..=KEY_BYTES_MAX).contains(&key.len()) {
        return Err(FORM);
    }
    Ok(Some(key.to_owned()))
}

/// Executes a command and answers.
pub(crate) async fn write(
    api: &Api,
    caller: &Caller,
    key: Option<&WebhookIdempotency>,
    command: Command,
) -> Reply {
    let owner = Owner { key_id: caller.key_id.clone(), tenant: caller.tenant.clone() };
    let mut conn = api.engine.reads().acquire().await?;
    let vault = &api.engine.context().vault;
    let done = carry_out(&mut conn, vault, &owner, command, key, render).await?;
    let mut response = given(done.response);
    if done.replayed {
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

impl From<WebhookError> for ApiError {
    fn from(error: WebhookError) -> Self {
        match error {
            WebhookError::Refused(WebhookRejection::AlreadyExists) => Self::AlreadyExists("endpoint"),
            WebhookError::Refused(WebhookRejection::NoEndpoint) => NO_ENDPOINT,
            WebhookError::Refused(WebhookRejection::Inactive) => {
                Self::Missing("the webhook endpoint of this API key is not active")
            }
            WebhookError::Refused(WebhookRejection::NoEvent) => super::NO_EVENT,
            WebhookError::Refused(WebhookRejection::ReplayInProgress) => Self::ReplayInProgress,
            WebhookError::KeyConflict => Code::IdempotencyConflict.into(),
            WebhookError::Store(error) => error.into(),
            error @ (WebhookError::Sealed(_) | WebhookError::Randomness(_)) => {
                Self::Internal(error.to_string())
            }
        }
    }
}
