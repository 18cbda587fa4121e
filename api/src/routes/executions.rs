//! `GET /v1/executions/{reference}`, its receipt, and several at once (contract section 4, rules 1, 2 and 8).
//!
//! A reference of another tenant, an unknown one and an invalid one get the same answer.

use std::collections::HashSet;

use axum::extract::State;
use axum::http::StatusCode;
use dvp_core::engine::ReceiptLookup;
use dvp_domain::status::ExecutionView;
use dvp_store::orders::executions::RefType;
use serde::Serialize;

use crate::access::auth::Caller;
use crate::http::error::{ApiError, Code, Reply, json, text};
use crate::http::fields::{fault, is_id};
use crate::http::path::PathId;
use crate::http::query::Params;
use crate::state::Api;

pub(crate) async fn show(State(api): State<Api>, caller: Caller, reference: PathId, params: Params) -> Reply {
    let named = ref_type(&params)?;
    let reference = reference.or(Code::ExecutionNotFound)?;
    let found = api.engine.execution_text(&caller.tenant, named, &reference).await?;
    found.map(|body| json(StatusCode::OK, body)).ok_or(ApiError::Plain(Code::ExecutionNotFound))
}

pub(crate) async fn receipt(
    State(api): State<Api>,
    caller: Caller,
    reference: PathId,
    params: Params,
) -> Reply {
    let named = ref_type(&params)?;
    let reference = reference.or(Code::ReceiptNotFound)?;
    match api.engine.receipt(&caller.tenant, named, &reference).await? {
        ReceiptLookup::Found(body) => Ok(json(StatusCode::OK, text(&body))),
        ReceiptLookup::NotFound => Err(ApiError::Plain(Code::ReceiptNotFound)),
        ReceiptLookup::NotIssued => Err(ApiError::Plain(Code::ReceiptNotIssued)),
        ReceiptLookup::Unreadable => Err(ApiError::Plain(Code::ReceiptCorrupt)),
    }
}

const REFERENCES_MAX: usize = 100;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExecutionLookup {
    data: Vec<ExecutionView>,
    not_found: Vec<String>,
}

/// Answers in the order of the request; a repeated reference is answered once.
pub(crate) async fn list(State(api): State<Api>, caller: Caller, params: Params) -> Reply {
    let named = ref_type(&params)?;
    let mut seen = HashSet::new();
    let requested: Vec<&str> =
        params.all("reference").into_iter().filter(|name| seen.insert(*name)).collect();
    if !(1..=REFERENCES_MAX).contains(&requested.len()) {
        return Err(fault("reference", format_args!("must be given 1 to {REFERENCES_MAX} times")));
    }
    let possible: Vec<&str> = requested.iter().copied().filter(|name| is_id(name)).collect();
    let mut found = api.engine.executions(&caller.tenant, named, &possible).await?;
    let mut answer = ExecutionLookup { data: Vec::new(), not_found: Vec::new() };
    for name in requested {
        match found.remove(name) {
            Some(view) => answer.data.push(view),
            None => answer.not_found.push(name.to_owned()),
        }
    }
    Ok(json(StatusCode::OK, text(&answer)))
}

fn ref_type(params: &Params) -> Result<RefType, ApiError> {
    match params.get("refType")? {
        None | Some("clientReference") => Ok(RefType::ClientReference),
        Some("executionId") => Ok(RefType::ExecutionId),
        Some(_) => Err(ApiError::Plain(Code::InvalidRefType)),
    }
}
