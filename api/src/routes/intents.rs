//! `POST /v1/intents`: accepted or rejected, single-step and final (contract section 2.5). `DELETE /v1/intents/{intentId}`
//! cancels an intent, or a legacy order, that is not being executed.

mod answer;
pub(crate) mod parse;

use axum::extract::State;
use dvp_core::engine::SubmitCommand;
use dvp_core::writer::Outcome;
use tracing::Span;

use super::intent_status;
use crate::access::auth::Caller;
use crate::access::idempotency::{self, IdempotentRequest, Lookup};
use crate::http::error::{Code, Reply};
use crate::http::path::PathId;
use crate::legacy;
use crate::state::Api;

pub(crate) async fn create(State(api): State<Api>, write: IdempotentRequest) -> Reply {
    if !parse::is_intent(&write.body) && legacy::intents::is_order(&write.body) {
        return write
            .perform(&api, Lookup::First, async |write| legacy::intents::create(&api, write).await)
            .await;
    }
    write.perform(&api, Lookup::Late, async |write| submit(&api, write).await).await
}

pub(crate) async fn cancel(State(api): State<Api>, caller: Caller, intent_id: PathId) -> Reply {
    let id = intent_id.or(Code::IntentNotFound)?;
    match legacy::intents::cancel(&api, &caller, &id).await? {
        Some(cancelled) => Ok(cancelled),
        None => intent_status::cancel(&api, &caller, &id).await,
    }
}

async fn submit(api: &Api, write: &IdempotentRequest) -> Reply {
    let request = parse::intent(&write.body, api.engine.context(), api.now())?;
    Span::current().record("intent_id", &request.intent_id);
    let (engine, asked) = (api.engine.clone(), request.clone());
    let render = move |outcome: &Outcome| answer::render(outcome, &asked, &engine.context().registry);
    let idempotency = Some(write.part(render));
    let command = SubmitCommand { tenant: write.caller.tenant.clone(), request, idempotency, fix: None };
    idempotency::answer(api.engine.submit(command).await?)
}
