//! The list of all routes: path, access, and handler.

mod cursor;
pub(crate) mod docs;
mod events;
mod executions;
mod firm_quotes;
mod health;
mod intent_status;
mod intents;
mod quotes;
mod reconciliation;
mod resting_orders;
mod webhooks;

use axum::routing::{self, MethodRouter};
use serde_json::Value;

use crate::access::scope::{Access, Scope};
use crate::legacy;
use crate::openapi::{self, Endpoint, Operation, operations as doc, webhooks as webhook};
use crate::state::Api;

/// An endpoint and its handler.
pub(crate) struct Route {
    pub(crate) endpoint: Endpoint,
    pub(crate) handler: MethodRouter<Api>,
}

fn route(
    method: &'static str,
    path: &'static str,
    access: Access,
    handler: MethodRouter<Api>,
    operation: fn() -> Operation,
) -> Route {
    Route { endpoint: Endpoint { method, path, access, operation }, handler }
}

const QUOTES: Access = Access::Key(&[Scope::QuotesWrite]);
const EXECUTIONS: Access = Access::Key(&[Scope::ExecutionsRead]);
const EVENTS: Access = Access::Key(&[Scope::EventsRead]);
const WEBHOOKS: Access = Access::Key(&[Scope::WebhooksWrite]);
const REPORTS: Access = Access::Key(&[Scope::ReportsRead]);

/// The scope for submitting includes following the submission.
const INTENT_STATUS: Access = Access::Key(&[Scope::IntentsWrite, Scope::ExecutionsRead]);

/// The routes in the order of the documentation.
pub(crate) fn all() -> Vec<Route> {
    let get = |path, access, handler, operation| route("get", path, access, handler, operation);
    let post = |path, access, handler, operation| route("post", path, access, handler, operation);
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
        route(
            "delete",
            "/v1/intents/{intentId}",
            Access::Key(&[Scope::IntentsWrite]),
            routing::delete(intents::cancel),
            doc::cancel_intent,
        ),
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
        get("/v1/openapi.json", Access::Open, routing::get(docs::openapi), doc::openapi),
        get("/docs", Access::Open, routing::get(docs::html), doc::docs),
        get("/healthz", Access::Open, routing::get(health::show), doc::health),
    ];
    all.extend(webhooks());
    all.extend(resting_orders());
    all
}

/// Of makers.
fn resting_orders() -> Vec<Route> {
    let scopes = &[Scope::RestingOrdersWrite];
    let (by_key, path) = (Access::Key(scopes), "/v1/resting-orders");
    let cancel = "/v1/resting-orders/{orderId}";
    vec![
        route(
            "post",
            path,
            Access::Signed(scopes),
            routing::post(resting_orders::create),
            doc::place_resting_order,
        ),
        route("get", path, by_key, routing::get(resting_orders::list), doc::resting_orders),
        route("delete", cancel, by_key, routing::delete(resting_orders::cancel), doc::cancel_resting_order),
    ]
}

/// Of the webhooks.
fn webhooks() -> Vec<Route> {
    let route = |method, path, handler, operation| route(method, path, WEBHOOKS, handler, operation);
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

/// The OpenAPI document.
pub fn document() -> Value {
    openapi::document(all().into_iter().map(|route| route.endpoint))
}

/// The document's text as it is committed: pretty, with a line break at the end.
pub fn document_text() -> String {
    openapi::text(&document())
}
