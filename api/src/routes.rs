//! Every route, once: its path, who may use it, and what answers.

use axum::routing::{self, MethodRouter};

use crate::app::Api;
use crate::auth::{Scope, Scopes};
use crate::openapi::{self, Operation, operations as doc, webhooks as webhook};
use crate::{
    docs, events, executions, firm_quotes, health, intent_status, intents, legacy, quotes, reconciliation,
    webhooks,
};

/// What a caller must show.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Access {
    /// Nothing.
    Open,
    /// An API key with one of the scopes.
    Key(Scopes),
    /// The same, and the request signed.
    Signed(Scopes),
}

pub(crate) struct Route {
    /// In lower case, as OpenAPI has it.
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    pub(crate) handler: MethodRouter<Api>,
    pub(crate) operation: fn() -> Operation,
}

const QUOTES: Access = Access::Key(&[Scope::QuotesWrite]);
const EXECUTIONS: Access = Access::Key(&[Scope::ExecutionsRead]);
const EVENTS: Access = Access::Key(&[Scope::EventsRead]);
const WEBHOOKS: Access = Access::Key(&[Scope::WebhooksWrite]);
const REPORTS: Access = Access::Key(&[Scope::ReportsRead]);

/// Who submits may follow what was submitted.
const INTENT_STATUS: Access = Access::Key(&[Scope::IntentsWrite, Scope::ExecutionsRead]);

/// The routes in the order they are documented.
pub(crate) fn all() -> Vec<Route> {
    let get = |path, access, handler, operation| Route { method: "get", path, access, handler, operation };
    let post = |path, access, handler, operation| Route { method: "post", path, access, handler, operation };
    let signed = Access::Signed(&[Scope::IntentsWrite]);
    let mut all = vec![
        post("/v1/quotes", QUOTES, routing::post(quotes::create), doc::quote),
        post("/v1/quotes/firm", QUOTES, routing::post(firm_quotes::create), doc::firm_quote),
        post("/v1/intents", signed, routing::post(intents::create), doc::intent),
        get(
            "/v1/intents/{intentId}/status",
            INTENT_STATUS,
            routing::get(intent_status::show),
            doc::intent_status,
        ),
        get("/v1/intents", EXECUTIONS, routing::get(legacy::intents::list), doc::legacy_intents),
        get("/v1/intents/{intentId}", EXECUTIONS, routing::get(legacy::intents::show), doc::legacy_intent),
        Route {
            method: "delete",
            path: "/v1/intents/{intentId}",
            access: Access::Key(&[Scope::IntentsWrite]),
            handler: routing::delete(legacy::intents::cancel),
            operation: doc::cancel_legacy_intent,
        },
        get("/v1/rates/{base}/{target}", QUOTES, routing::get(legacy::rate), doc::rate),
        get("/v1/pairs", QUOTES, routing::get(legacy::pairs), doc::pairs),
        get("/v1/executions", EXECUTIONS, routing::get(executions::list), doc::executions),
        get("/v1/executions/{reference}", EXECUTIONS, routing::get(executions::show), doc::execution),
        get(
            "/v1/executions/{reference}/receipt",
            EXECUTIONS,
            routing::get(executions::receipt),
            doc::receipt,
        ),
        get("/v1/reconciliation", REPORTS, routing::get(reconciliation::range), doc::reconciliation),
        get("/v1/reports/reconciliation/daily", REPORTS, routing::get(reconciliation::daily), doc::daily),
        get("/v1/events", EVENTS, routing::get(events::list), doc::events),
        get("/v1/events/{eventId}", EVENTS, routing::get(events::show), doc::event),
        get("/v1/openapi.json", Access::Open, routing::get(openapi::show), doc::openapi),
        get("/docs", Access::Open, routing::get(docs::show), doc::docs),
        get("/healthz", Access::Open, routing::get(health::show), doc::health),
    ];
    all.extend(webhooks());
    all
}

/// Of the webhooks.
fn webhooks() -> Vec<Route> {
    let route =
        |method, path, handler, operation| Route { method, path, access: WEBHOOKS, handler, operation };
    let path = "/v1/webhook_endpoints";
    vec![
        route("get", path, routing::get(webhooks::show), webhook::show),
        route("post", path, routing::post(webhooks::register), webhook::register),
        route("patch", path, routing::patch(webhooks::update), webhook::update),
        route("post", "/v1/webhook_endpoints/rotate", routing::post(webhooks::rotate), webhook::rotate),
        route("post", "/v1/webhook_endpoints/test", routing::post(webhooks::test), webhook::test),
        route("post", "/v1/webhook_endpoints/replay", routing::post(webhooks::replay), webhook::replay),
        route(
            "get",
            "/v1/webhook_endpoints/deliveries",
            routing::get(webhooks::log::list),
            webhook::deliveries,
        ),
        route(
            "delete",
            "/v1/webhook_endpoints/{endpointId}",
            routing::delete(webhooks::remove),
            webhook::remove,
        ),
        route("post", "/v1/events/{eventId}/resend", routing::post(webhooks::resend), webhook::resend),
    ]
}
