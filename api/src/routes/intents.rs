//! `POST /v1/intents`: accepted or rejected, single-step and final (contract section 2.5).

mod answer;
pub(crate) mod parse;

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use dvp_core::engine::SubmitCommand;
use tracing::Span;

use crate::access::idempotency::{self, IdempotentRequest, Lookup, Stopped, Unchecked};
use crate::http::error::ApiError;
use crate::legacy;
use crate::state::Api;

pub(crate) async fn create(State(api): State<Api>, write: Unchecked) -> Result<Response, Stopped> {
    if !parse::is_intent(write.body()) && legacy::intents::is_order(write.body()) {
        return write
            .perform(&api, Lookup::First, async |write| legacy::intents::create(&api, write).await)
            .await;
    }
    write.perform(&api, Lookup::Late, async |write| submit(&api, write).await).await
}

async fn submit(api: &Api, write: &IdempotentRequest) -> Result<Response, ApiError> {
    let request = parse::intent(&write.body, api.now())?;
    Span::current().record("intent_id", &request.intent_id);
    let idempotency = Some(write.part(Arc::new(answer::render)));
    let command = SubmitCommand { tenant: write.caller.tenant.clone(), request, idempotency, fix: None };
    idempotency::answer(api.engine.submit(command).await?)
}
