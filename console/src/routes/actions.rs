//! The operators' actions for programs: what the command line asks, as JSON, with a token of the operator's own.
//!
//! ```text
//! GET  /api/actions  the caller, and the actions that it may carry out
//! POST /api/actions  {"action": "pause add", "fields": {"scope": "pair", …}}
//! ```

use std::net::IpAddr;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use dvp_ops::{Caller, Refusal, TABLE};
use dvp_store::StoreError;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::request::Bearer;
use crate::state::Console;

/// An action with its fields.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    action: String,
    #[serde(default)]
    fields: Map<String, Value>,
}

fn refused(status: StatusCode, code: &str, field: Option<&str>, message: &str) -> Response {
    let error = json!({"error": {"code": code, "field": field, "message": message}});
    (status, Json(error)).into_response()
}

/// The caller of a request by its token, or the answer to somebody else.
async fn caller(console: &Console, source: IpAddr, headers: &HeaderMap) -> Result<Caller, Response> {
    let unknown = || {
        let message = "a token of an operator is needed, and this one is not good: run dvp login";
        refused(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", None, message)
    };
    let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = token.and_then(|value| value.strip_prefix("Bearer ")).ok_or_else(unknown)?;
    if !console.failures.has_room(source) {
        let message = "too many tokens were not good: try again in a minute";
        return Err(refused(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY", None, message));
    }
    let found = async {
        let mut conn = console.looking_up().await?;
        dvp_ops::authenticate(&mut conn, token, source, console.settings.sessions.step_up).await
    };
    let found: Result<_, StoreError> = found.await;
    match found {
        Ok(Some(caller)) => Ok(caller),
        Ok(None) => {
            console.failures.count(source);
            Err(unknown())
        }
        Err(error) => Err(answer(&error.into())),
    }
}

fn answer(refusal: &Refusal) -> Response {
    let (status, field) = match refusal {
        Refusal::UnknownAction(_) => (StatusCode::NOT_FOUND, None),
        Refusal::Forbidden(_) | Refusal::NotOfToken | Refusal::StepUp => (StatusCode::FORBIDDEN, None),
        Refusal::Field { field, .. } => (StatusCode::BAD_REQUEST, field.as_deref()),
        Refusal::Refused(_) => (StatusCode::CONFLICT, None),
        Refusal::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, None),
    };
    refused(status, refusal.code(), field, &refusal.to_string())
}

/// The caller, and what it may do.
pub(crate) async fn list(State(console): State<Console>, Bearer { source, headers }: Bearer) -> Response {
    let caller = match caller(&console, source, &headers).await {
        Ok(caller) => caller,
        Err(refused) => return refused,
    };
    let may = TABLE.iter().filter(|spec| caller.may_perform(spec)).map(|spec| spec.name);
    Json(json!({"operator": caller.name, "roles": caller.roles, "actions": may.collect::<Vec<_>>()}))
        .into_response()
}

/// Carries out an action.
pub(crate) async fn perform(
    State(console): State<Console>,
    Bearer { source, headers }: Bearer,
    wanted: Result<Json<Wanted>, JsonRejection>,
) -> Response {
    let caller = match caller(&console, source, &headers).await {
        Ok(caller) => caller,
        Err(refused) => return refused,
    };
    let wanted = match wanted {
        Ok(Json(wanted)) => wanted,
        Err(error) => return refused(StatusCode::BAD_REQUEST, "INVALID_BODY", None, &error.body_text()),
    };
    let performed = async {
        let mut conn = console.acting().await?;
        dvp_ops::perform(&mut conn, &console.house, &caller, &wanted.action, &wanted.fields).await
    };
    match performed.await {
        Ok(outcome) => Json(json!({"result": outcome.value, "lines": outcome.lines})).into_response(),
        Err(refusal) => answer(&refusal),
    }
}
