//! `GET /v1/executions/{reference}` and its receipt (contract section 4, rules 1 and 2).
//!
//! A reference of another tenant, one that never existed and one that could not exist get the same answer.

use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use dvp_core::engine::ReceiptLookup;
use dvp_core::store::executions::RefType;

use crate::app::Api;
use crate::auth::Caller;
use crate::error::{ApiError, json, text};
use crate::fields::is_id;
use crate::query::Params;

pub(crate) async fn show(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    reference: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let named = ref_type(&uri)?;
    let reference = possible(reference).ok_or(ApiError::ExecutionNotFound)?;
    let found = api.engine.execution(&caller.tenant, named, &reference).await?;
    found.map(|view| json(StatusCode::OK, text(&view))).ok_or(ApiError::ExecutionNotFound)
}

pub(crate) async fn receipt(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    reference: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let named = ref_type(&uri)?;
    let reference = possible(reference).ok_or(ApiError::ReceiptNotFound)?;
    match api.engine.receipt(&caller.tenant, named, &reference).await? {
        ReceiptLookup::Found(body) => Ok(json(StatusCode::OK, text(&body))),
        ReceiptLookup::NotFound => Err(ApiError::ReceiptNotFound),
        ReceiptLookup::NotIssued => Err(ApiError::ReceiptNotIssued),
        ReceiptLookup::Unreadable => Err(ApiError::ReceiptCorrupt),
    }
}

fn ref_type(uri: &Uri) -> Result<RefType, ApiError> {
    match Params::of(uri)?.get("refType")? {
        None | Some("clientReference") => Ok(RefType::ClientReference),
        Some("executionId") => Ok(RefType::ExecutionId),
        Some(_) => Err(ApiError::InvalidRefType),
    }
}

fn possible(reference: Result<Path<String>, PathRejection>) -> Option<String> {
    reference.ok().map(|Path(reference)| reference).filter(|reference| is_id(reference))
}
