//! `GET /v1/intents/{intentId}/status`: the status of an accepted intent, without its history.
//!
//! A key that may submit may query its own intents, without the scope for executions.

use axum::extract::State;
use axum::http::StatusCode;
use dvp_core::engine::CancelOutcome;
use dvp_domain::event::Stage;
use dvp_domain::plan::plan_id;
use dvp_domain::settlement::ShownFailure;
use dvp_domain::status::ExecutionStatus;
use serde::Serialize;

use crate::access::auth::Caller;
use crate::http::error::{ApiError, Code, Reply, json, text};
use crate::http::path::PathId;
use crate::state::Api;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    intent_id: String,
    client_reference: Option<String>,
    plan_id: String,
    status: ExecutionStatus,
    phase: Stage,
    failure: Option<ShownFailure>,
    updated_at: String,
}

pub(crate) async fn show(State(api): State<Api>, caller: Caller, intent_id: PathId) -> Reply {
    let requested = intent_id.or(Code::IntentNotFound)?;
    status(&api, &caller, &requested).await
}

/// Cancels an accepted intent whose lock was not requested yet. A repeated cancellation gets the same answer.
pub(super) async fn cancel(api: &Api, caller: &Caller, intent_id: &str) -> Reply {
    let find = || api.engine.intent_status(&caller.tenant, intent_id);
    let found = find().await?.ok_or(Code::IntentNotFound)?;
    match api.engine.cancel(&caller.tenant, &found.view.reference, None).await? {
        CancelOutcome::Cancelled => {}
        CancelOutcome::Unknown => return Err(ApiError::Plain(Code::IntentNotFound)),
        CancelOutcome::TooLate => {
            let found = find().await?.ok_or(Code::IntentNotFound)?;
            match found.view.failure.as_ref().map(|failure| failure.exact_code()) {
                Some("cancelled") => {}
                Some("expired") => return Err(ApiError::Plain(Code::IntentExpired)),
                Some(_) | None => return Err(ApiError::Plain(Code::IntentAlreadyExecuting)),
            }
        }
    }
    status(api, caller, intent_id).await
}

async fn status(api: &Api, caller: &Caller, intent_id: &str) -> Reply {
    let found = api.engine.intent_status(&caller.tenant, intent_id).await?.ok_or(Code::IntentNotFound)?;
    let view = View {
        plan_id: plan_id(&found.intent_id),
        intent_id: found.intent_id,
        client_reference: found.view.client_reference,
        status: found.view.status,
        phase: found.view.phase,
        failure: found.view.failure,
        updated_at: found.updated_at.iso8601(),
    };
    Ok(json(StatusCode::OK, text(&view)))
}
