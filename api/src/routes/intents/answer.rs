//! The answer that is stored with the outcome of a submission.

use axum::http::StatusCode;
use dvp_core::writer::{Accepted, DepositDue, Outcome, Refusal, UsedKey};
use dvp_domain::asset::Registry;
use dvp_domain::fees::FeeItem;
use dvp_domain::intent::IntentRequest;
use dvp_domain::money::Minor;
use dvp_domain::plan::{SolvedPath, plan_id, shown_fees};
use dvp_domain::rejection;
use dvp_domain::time::Timestamp;
use dvp_store::orders::idempotency::StoredResponse;
use serde::Serialize;

use crate::http::error::{ApiError, Code, text};
use crate::http::fields::fault;

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
    #[serde(skip_serializing_if = "Option::is_none")]
    deposit: Option<DepositView<'a>>,
}

/// What the user deposits of a chain's coin.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DepositView<'a> {
    chain: &'a str,
    chain_id: i64,
    contract: &'a str,
    id: &'a str,
    amount_minor: Minor,
    deposit_by: Timestamp,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RejectedView<'a> {
    intent_id: &'a str,
    status: &'static str,
    reason: &'static str,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    param: Option<&'static str>,
}

/// Called by the writer, in the transaction of the outcome.
pub(super) fn render(outcome: &Outcome, request: &IntentRequest, registry: &Registry) -> StoredResponse {
    match outcome {
        Outcome::Accepted(accepted) => {
            StoredResponse { status: StatusCode::ACCEPTED.as_u16(), body: text(&view(accepted)) }
        }
        Outcome::Rejected { intent_id, reason } => {
            let words = rejection::detail(*reason, request, registry);
            let (param, detail) = (words.param, words.to_string());
            let view = RejectedView {
                intent_id,
                status: "rejected",
                reason: reason.as_str(),
                detail: &detail,
                param,
            };
            StoredResponse { status: StatusCode::UNPROCESSABLE_ENTITY.as_u16(), body: text(&view) }
        }
        Outcome::Refused(Refusal::InvalidPermit(defect)) => ApiError::InvalidPermit(*defect).stored(),
        Outcome::Refused(Refusal::Unpayable(why)) => fault(why.field, why).stored(),
        Outcome::Refused(Refusal::DuplicateIntent) => ApiError::AlreadyExists("intentId").stored(),
        Outcome::Refused(Refusal::DuplicateClientReference) => {
            ApiError::AlreadyExists("clientReference").stored()
        }
        Outcome::KeyUsed(UsedKey::Replayed(stored)) => stored.clone(),
        Outcome::KeyUsed(UsedKey::Conflict) => ApiError::Plain(Code::IdempotencyKeyConflict).stored(),
        Outcome::KeyUsed(UsedKey::Processing) => ApiError::Plain(Code::IdempotencyKeyProcessing).stored(),
        Outcome::Refused(Refusal::PartnerDisabled) => ApiError::Plain(Code::ApiKeyDisabled).stored(),
        Outcome::Refused(Refusal::TooManyWaiting) => ApiError::TooManyWaiting.stored(),
        Outcome::Refused(Refusal::CoolingDown(cool_down)) => ApiError::CoolingDown(*cool_down).stored(),
        // Of a legacy order's turn, which answers no request.
        Outcome::Refused(Refusal::Redirected) => ApiError::Internal(String::new()).stored(),
        Outcome::Refused(Refusal::NotHeld) => ApiError::Plain(Code::InsufficientLiquidity).stored(),
        Outcome::Written | Outcome::Unfilled(_) => ApiError::Internal(String::new()).stored(),
    }
}

fn view(accepted: &Accepted) -> AcceptedView<'_> {
    let Accepted { intent_id, reference, plan, exact_output, deposit } = accepted;
    AcceptedView {
        intent_id,
        status: "accepted",
        plan_id: plan_id(intent_id),
        solver_id: &plan.solver_id,
        input_amount_minor: exact_output.then_some(plan.priced.input),
        fees: shown_fees(plan),
        path: &plan.path,
        reference,
        deposit: deposit.as_ref().map(|DepositDue { chain, chain_id, contract, id, amount, by }| {
            DepositView { chain, chain_id: *chain_id, contract, id, amount_minor: *amount, deposit_by: *by }
        }),
    }
}
