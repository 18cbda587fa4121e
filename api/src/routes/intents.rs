//! `POST /v1/intents`: accepted or rejected, single-step and final (contract section 2.5).

pub(crate) mod parse;

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use dvp_core::engine::SubmitCommand;
use dvp_core::writer::{Accepted, Outcome};
use dvp_domain::fees::FeeItem;
use dvp_domain::money::Minor;
use dvp_domain::plan::{SolvedPath, plan_id, shown_fees};
use dvp_store::orders::idempotency::StoredResponse;
use serde::Serialize;
use tracing::Span;

use crate::access::idempotency::{IdempotentRequest, Stopped, Unchecked, answer};
use crate::http::error::{ApiError, text};
use crate::legacy;
use crate::state::Api;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AcceptedView<'a> {
    intent_id: &'a str,
    status: &'static str,
    plan_id: String,
    solver_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_amount_minor: Option<Minor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fees: Option<&'a [FeeItem]>,
    path: &'a SolvedPath,
    reference: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RejectedView<'a> {
    intent_id: &'a str,
    status: &'static str,
    reason: &'static str,
}

pub(crate) async fn create(State(api): State<Api>, Unchecked(write): Unchecked) -> Result<Response, Stopped> {
    if legacy::intents::is_older(&write.body) {
        write.ask(&api).await?;
        return Ok(legacy::intents::create(&api, write).await?);
    }
    write.ask_if_seen(&api).await?;
    match submit(&api, &write).await {
        Ok(answer) => Ok(answer),
        Err(error) => {
            write.ask(&api).await?;
            Err(error.into())
        }
    }
}

async fn submit(api: &Api, write: &IdempotentRequest) -> Result<Response, ApiError> {
    let request = parse::intent(&write.body, api.now())?;
    Span::current().record("intent_id", &request.intent_id);
    let idempotency = Some(write.part(Arc::new(render)));
    let command = SubmitCommand { tenant: write.caller.tenant.clone(), request, idempotency, fix: None };
    answer(api.engine.submit(command).await?)
}

/// The answer that is stored with the outcome.
fn render(outcome: &Outcome) -> StoredResponse {
    match outcome {
        Outcome::Accepted(accepted) => {
            StoredResponse { status: StatusCode::ACCEPTED.as_u16(), body: text(&view(accepted)) }
        }
        Outcome::Rejected { intent_id, reason } => StoredResponse {
            status: StatusCode::UNPROCESSABLE_ENTITY.as_u16(),
            body: text(&RejectedView { intent_id, status: "rejected", reason: reason.as_str() }),
        },
        Outcome::InvalidPermit(defect) => ApiError::InvalidPermit(*defect).stored(),
        Outcome::Unpayable(why) => ApiError::InvalidParameter(format!("beneficiary: {why}")).stored(),
        Outcome::DuplicateIntent => ApiError::AlreadyExists("intentId").stored(),
        Outcome::DuplicateClientReference => ApiError::AlreadyExists("clientReference").stored(),
        Outcome::Replayed(stored) => stored.clone(),
        Outcome::KeyConflict => ApiError::IdempotencyKeyConflict.stored(),
        Outcome::KeyProcessing => ApiError::IdempotencyKeyProcessing.stored(),
        Outcome::PartnerDisabled => ApiError::ApiKeyDisabled.stored(),
        Outcome::Written => ApiError::Internal(String::new()).stored(),
    }
}

fn view(accepted: &Accepted) -> AcceptedView<'_> {
    let Accepted { intent_id, reference, plan, exact_output } = accepted;
    AcceptedView {
        intent_id,
        status: "accepted",
        plan_id: plan_id(intent_id),
        solver_id: &plan.solver_id,
        input_amount_minor: exact_output.then_some(plan.priced.input),
        fees: shown_fees(plan),
        path: &plan.path,
        reference,
    }
}
