//! Webhook management (contract sections 2.8 and 4, rules 4 to 6): one endpoint an API key.
//!
//! Each write parses its body, builds a [`Command`] and renders its [`CommandOutcome`]; [`managed`] handles the
//! optional `Idempotency-Key` in one place.

pub(crate) mod log;
mod managed;
mod parse;

use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use dvp_core::engine::webhooks::{Command, CommandOutcome};
use dvp_domain::time::Timestamp;
use dvp_store::orders::idempotency::StoredResponse;
use dvp_store::webhooks::{self, Endpoint};
use serde::Serialize;
use url::{Host, Url};

use self::managed::{Managed, write, write_unkeyed};
use crate::access::auth::Caller;
use crate::delivery::url::{UrlFault, check};
use crate::http::error::{ApiError, json, text};
use crate::http::fields::is_id;
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
struct Registered<'a> {
    endpoint_id: &'a str,
    secret: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Rotated<'a> {
    next_secret: &'a str,
    grace_expires_at: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Queued<'a> {
    event_id: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Replaying {
    replay_id: String,
}

fn render(outcome: &CommandOutcome) -> StoredResponse {
    let (status, body) = match outcome {
        CommandOutcome::Registered { endpoint_id, secret } => {
            (StatusCode::CREATED, text(&Registered { endpoint_id, secret }))
        }
        CommandOutcome::Updated(endpoint) => (StatusCode::OK, text(&EndpointView::from(endpoint.as_ref()))),
        CommandOutcome::Rotated { next_secret, grace_expires_at } => {
            (StatusCode::OK, text(&Rotated { next_secret, grace_expires_at: grace_expires_at.iso8601() }))
        }
        CommandOutcome::Queued { event_id } => (StatusCode::ACCEPTED, text(&Queued { event_id })),
        CommandOutcome::Replaying { replay_id } => {
            (StatusCode::ACCEPTED, text(&Replaying { replay_id: format!("rpl_{replay_id}") }))
        }
    };
    StoredResponse { status: status.as_u16(), body }
}

async fn endpoint_of(api: &Api, caller: &Caller) -> Result<Endpoint, ApiError> {
    let mut conn = api.engine.reads().acquire().await?;
    webhooks::find_by_key(&mut conn, &caller.key_id).await?.ok_or(NO_ENDPOINT)
}

pub(crate) async fn show(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, ApiError> {
    let endpoint = endpoint_of(&api, &caller).await?;
    Ok(json(StatusCode::OK, text(&EndpointView::from(&endpoint))))
}

pub(crate) async fn register(State(api): State<Api>, managed: Managed) -> Result<Response, ApiError> {
    let requested = parse::register(managed.required_body()?)?;
    check_url(&api, &requested.url).await?;
    let command = Command::Register { url: requested.url, subscribed_types: requested.subscribed_types };
    write(&api, &managed, command).await
}

pub(crate) async fn update(State(api): State<Api>, managed: Managed) -> Result<Response, ApiError> {
    let requested = parse::update(managed.required_body()?)?;
    if let Some(url) = &requested.url {
        check_url(&api, url).await?;
    }
    let parse::Update { url, subscribed_types, is_active } = requested;
    write(&api, &managed, Command::Update { url, subscribed_types, is_active }).await
}

pub(crate) async fn rotate(State(api): State<Api>, managed: Managed) -> Result<Response, ApiError> {
    managed.no_fields()?;
    write(&api, &managed, Command::Rotate).await
}

pub(crate) async fn test(State(api): State<Api>, managed: Managed) -> Result<Response, ApiError> {
    let kind = parse::test(managed.body.as_ref(), managed.caller.tenant.livemode)?;
    write(&api, &managed, Command::Test { kind }).await
}

pub(crate) async fn replay(State(api): State<Api>, managed: Managed) -> Result<Response, ApiError> {
    let parse::Replay { from, to, types } = parse::replay(managed.required_body()?)?;
    write(&api, &managed, Command::Replay { from, to, types }).await
}

pub(crate) async fn resend(
    State(api): State<Api>,
    event_id: Result<Path<String>, PathRejection>,
    managed: Managed,
) -> Result<Response, ApiError> {
    let event_id = event_id.ok().map(|Path(id)| id).filter(|id| is_id(id)).ok_or(NO_EVENT)?;
    managed.no_fields()?;
    write(&api, &managed, Command::Resend { event_id }).await
}

/// Deactivates the caller's endpoint. Its row stays: events are still recorded, and `PATCH` activates it again.
pub(crate) async fn remove(
    State(api): State<Api>,
    endpoint_id: Result<Path<String>, PathRejection>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, ApiError> {
    let endpoint_id = endpoint_id.ok().map(|Path(id)| id).ok_or(NO_ENDPOINT)?;
    write_unkeyed(&api, &caller, Command::Remove { endpoint_id }).await
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
