//! Webhook management (contract sections 2.8 and 4, rules 4 to 6): one endpoint an API key.
//!
//! Each write parses its body, builds a [`Command`] and renders its [`CommandOutcome`]; [`managed`] handles the
//! optional `Idempotency-Key` in one place.

pub(crate) mod log;
mod managed;
mod parse;

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use dvp_core::engine::webhooks::{Command, CommandOutcome};
use dvp_core::secrets::{REPLAY, Vault};
use dvp_domain::time::Timestamp;
use dvp_store::orders::idempotency::StoredResponse;
use dvp_store::webhooks::{self, Endpoint};
use serde::Serialize;
use serde_json::json as value;
use url::{Host, Url};

use self::managed::Managed;
use crate::access::auth::Caller;
use crate::delivery::url::{UrlFault, check};
use crate::http::error::{ApiError, Reply, json, text};
use crate::http::path::PathId;
use crate::state::Api;

const NO_ENDPOINT: ApiError = ApiError::Missing("no webhook endpoint is registered for this API key");
pub(crate) const NO_EVENT: ApiError = ApiError::Missing("no event of the last 15 days has this id");
/// The time limit for resolving a new URL's host. Without an answer, the host is checked at delivery.
const LOOK_UP: Duration = Duration::from_secs(2);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EndpointView<'a> {
    endpoint_id: &'a str,
    url: &'a str,
    subscribed_types: &'a [String],
    is_active: bool,
    rotated_at: Option<String>,
    api_version: &'a str,
}

impl<'a> From<&'a Endpoint> for EndpointView<'a> {
    fn from(endpoint: &'a Endpoint) -> Self {
        Self {
            endpoint_id: &endpoint.id,
            url: &endpoint.url,
            subscribed_types: &endpoint.subscribed_types,
            is_active: endpoint.is_active,
            rotated_at: endpoint.rotated_at.map(|at| Timestamp::from(at).iso8601()),
            api_version: &endpoint.api_version,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Rotated<'a> {
    next_secret: &'a str,
    grace_expires_at: String,
}

fn render(vault: &Vault, outcome: &CommandOutcome) -> StoredResponse {
    let (status, body) = match outcome {
        CommandOutcome::Registered { endpoint_id, secret } => {
            (StatusCode::CREATED, value!({"endpointId": endpoint_id, "secret": secret}).to_string())
        }
        CommandOutcome::Updated(endpoint) => (StatusCode::OK, text(&EndpointView::from(endpoint.as_ref()))),
        CommandOutcome::Rotated { next_secret, grace_expires_at } => {
            (StatusCode::OK, text(&Rotated { next_secret, grace_expires_at: grace_expires_at.iso8601() }))
        }
        CommandOutcome::Queued { event_id } => {
            (StatusCode::ACCEPTED, value!({"eventId": event_id}).to_string())
        }
        CommandOutcome::Replaying { replay_id } => {
            (StatusCode::ACCEPTED, value!({"replayId": vault.opaque_id(REPLAY, *replay_id)}).to_string())
        }
    };
    StoredResponse { status: status.as_u16(), body }
}

async fn endpoint_of(api: &Api, caller: &Caller) -> Result<Endpoint, ApiError> {
    let mut conn = api.engine.reads().acquire().await?;
    webhooks::find_by_key(&mut conn, &caller.key_id).await?.ok_or(NO_ENDPOINT)
}

pub(crate) async fn show(State(api): State<Api>, caller: Caller) -> Reply {
    let endpoint = endpoint_of(&api, &caller).await?;
    Ok(json(StatusCode::OK, text(&EndpointView::from(&endpoint))))
}

pub(crate) async fn register(State(api): State<Api>, managed: Managed) -> Reply {
    let command = parse::register(managed.required_body()?)?;
    if let Command::Register { url, .. } = &command {
        check_url(&api, url).await?;
    }
    managed.write(&api, command).await
}

pub(crate) async fn update(State(api): State<Api>, managed: Managed) -> Reply {
    let command = parse::update(managed.required_body()?)?;
    if let Command::Update { url: Some(url), .. } = &command {
        check_url(&api, url).await?;
    }
    managed.write(&api, command).await
}

pub(crate) async fn rotate(State(api): State<Api>, managed: Managed) -> Reply {
    managed.no_fields()?;
    managed.write(&api, Command::Rotate).await
}

pub(crate) async fn test(State(api): State<Api>, managed: Managed) -> Reply {
    let kind = parse::test(managed.body.as_ref(), managed.caller.tenant.livemode)?;
    managed.write(&api, Command::Test { kind }).await
}

pub(crate) async fn replay(State(api): State<Api>, managed: Managed) -> Reply {
    managed.write(&api, parse::replay(managed.required_body()?)?).await
}

pub(crate) async fn resend(State(api): State<Api>, event_id: PathId, managed: Managed) -> Reply {
    let event_id = event_id.or(NO_EVENT)?;
    managed.no_fields()?;
    managed.write(&api, Command::Resend { event_id }).await
}

/// Deactivates the caller's endpoint. Its row stays: events are still recorded, and `PATCH` activates it again.
pub(crate) async fn remove(State(api): State<Api>, endpoint_id: PathId, caller: Caller) -> Reply {
    let endpoint_id = endpoint_id.or(NO_ENDPOINT)?;
    managed::write(&api, &caller, None, Command::Remove { endpoint_id }).await
}

/// The contract's rules for URLs, and the host's addresses as far as they are known now.
async fn check_url(api: &Api, text: &str) -> Result<(), ApiError> {
    let rules = &api.webhooks;
    let url: Url = check(text, &rules.reach).map_err(ApiError::InvalidUrl)?;
    let Some(Host::Domain(name)) = url.host() else { return Ok(()) };
    match tokio::time::timeout(LOOK_UP, rules.names.look_up(name)).await {
        Ok(Ok(found)) if !found.iter().all(|address| rules.reach.allows(*address)) => {
            Err(ApiError::InvalidUrl(UrlFault::NotPublic))
        }
        Ok(Ok(_) | Err(_)) | Err(_) => Ok(()),
    }
}
