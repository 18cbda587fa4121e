//! `GET /v1/webhook_endpoints/deliveries`: deliveries, their times and their results.

use axum::extract::State;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use dvp_core::secrets::{DELIVERY, Vault};
use dvp_domain::time::Timestamp;
use dvp_store::webhooks::deliveries::{LogFilter, Logged, LoggedAttempt};
use serde::Serialize;

use super::endpoint_of;
use crate::access::auth::Caller;
use crate::http::error::{ApiError, Code, Reply, json, text};
use crate::http::fields::{fault, is_id};
use crate::http::query::Params;
use crate::state::Api;

const LIMIT: i64 = 20;
const STATES: [&str; 3] = ["pending", "delivered", "failed"];

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    data: Vec<View>,
    has_more: bool,
    next_cursor: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    delivery_id: String,
    event_id: String,
    #[serde(rename = "type")]
    kind: String,
    origin: String,
    state: String,
    created_at: String,
    ended_at: Option<String>,
    next_attempt_at: Option<String>,
    attempts: Vec<AttemptView>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AttemptView {
    number: i32,
    at: String,
    status: Option<i32>,
    latency_ms: i64,
    error: Option<String>,
    body: Option<String>,
}

fn iso(at: DateTime<Utc>) -> String {
    Timestamp::from(at).iso8601()
}

impl From<LoggedAttempt> for AttemptView {
    fn from(attempt: LoggedAttempt) -> Self {
        let LoggedAttempt { delivery_id: _, number, at, status, latency_ms, error, body_prefix } = attempt;
        Self { number, at: iso(at), status, latency_ms, error, body: body_prefix }
    }
}

fn view(vault: &Vault, logged: Logged, attempts: &[LoggedAttempt]) -> View {
    let own = attempts.iter().filter(|attempt| attempt.delivery_id == logged.id);
    View {
        delivery_id: vault.opaque_id(DELIVERY, logged.id),
        event_id: logged.event_id,
        kind: logged.kind,
        origin: logged.origin,
        next_attempt_at: logged.due_at.map(iso),
        state: logged.state,
        created_at: iso(logged.created_at),
        ended_at: logged.ended_at.map(iso),
        attempts: own.cloned().map(AttemptView::from).collect(),
    }
}

/// Latest first. `nextCursor` leads to older deliveries and is null at the end.
pub(crate) async fn list(State(api): State<Api>, caller: Caller, params: Params) -> Reply {
    let limit = params.limit(LIMIT)?;
    let vault = &api.engine.context().vault;
    let mut filter = parse(vault, &params)?;
    filter.limit = limit.saturating_add(1);
    let endpoint = endpoint_of(&api, &caller).await?;
    let (mut found, attempts) = api.engine.delivery_log(&endpoint.id, &filter).await?;
    let limit = usize::try_from(limit).unwrap_or_default();
    let has_more = found.len() > limit;
    found.truncate(limit);
    let next_cursor = found.last().filter(|_| has_more).map(|last| vault.opaque_id(DELIVERY, last.id));
    let data = found.into_iter().map(|logged| view(vault, logged, &attempts)).collect();
    Ok(json(StatusCode::OK, text(&Page { data, has_more, next_cursor })))
}

fn parse(vault: &Vault, params: &Params) -> Result<LogFilter, ApiError> {
    let before = match params.get("since")? {
        None => None,
        Some(cursor) => Some(vault.id_behind(DELIVERY, cursor).ok_or(Code::InvalidCursor)?),
    };
    let state = params.get("state")?;
    if state.is_some_and(|state| !STATES.contains(&state)) {
        return Err(fault("state", format_args!("must be one of {}", STATES.join(", "))));
    }
    let event_id = params.get("eventId")?;
    if event_id.is_some_and(|id| !is_id(id)) {
        return Err(fault("eventId", "must have 1 to 128 characters"));
    }
    Ok(LogFilter { before, event_id: event_id.map(str::to_owned), state: state.map(str::to_owned), limit: 0 })
}
