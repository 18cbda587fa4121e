//! The list of all routes: path, access, and handler.

mod account;
mod beneficiaries;
mod chains;
mod cursor;
pub(crate) mod docs;
pub(crate) mod event_stream;
mod events;
mod executions;
mod firm_quotes;
mod health;
mod intent_status;
mod intents;
mod quotes;
mod reconciliation;
mod requests;
mod resting_orders;
mod sandbox_clock;
mod statements;
mod webhooks;

use axum::routing::{self, MethodRouter};

use crate::access::scope::{Access, Scope};
use crate::legacy;
use crate::state::Api;

/// A method of a path: its requirements and its handler.
pub(crate) struct Route {
    /// In lower case, as OpenAPI has it.
    #[cfg_attr(not(test), expect(dead_code, reason = "the handler has it, too"))]
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    pub(crate) handler: MethodRouter<Api>,
}

fn route(method: &'static str, path: &'static str, access: Access, handler: MethodRouter<Api>) -> Route {
    Route { method, path, access, handler }
}

const QUOTES: Access = Access::Key(&[Scope::QuotesWrite]);
const EXECUTIONS: Access = Access::Key(&[Scope::ExecutionsRead]);
const ASSETS: Access = Access::Key(&[Scope::QuotesWrite, Scope::IntentsWrite, Scope::ExecutionsRead]);
const EVENTS: Access = Access::Key(&[Scope::EventsRead]);
const WEBHOOKS: Access = Access::Key(&[Scope::WebhooksWrite]);
const REPORTS: Access = Access::Key(&[Scope::ReportsRead]);

/// The scope for submitting includes following the submission.
const INTENT_STATUS: Access = Access::Key(&[Scope::IntentsWrite, Scope::ExecutionsRead]);

pub(crate) fn all() -> Vec<Route> {
    let get = |path, access, handler| route("get", path, access, handler);
    let post = |path, access, handler| route("post", path, access, handler);
    let signed = Access::Signed(&[Scope::IntentsWrite]);
    let mut all = vec![
        post("/v1/quotes", QUOTES, routing::post(quotes::create)),
        post("/v1/quotes/firm", QUOTES, routing::post(firm_quotes::create)),
        post("/v1/intents", signed, routing::post(intents::create)),
        get("/v1/intents/{intentId}/status", INTENT_STATUS, routing::get(intent_status::show)),
        get("/v1/intents", EXECUTIONS, routing::get(legacy::intents::list)),
        get("/v1/intents/{intentId}", EXECUTIONS, routing::get(legacy::intents::show)),
        route(
            "delete",
            "/v1/intents/{intentId}",
            Access::Key(&[Scope::IntentsWrite]),
            routing::delete(intents::cancel),
        ),
        get("/v1/rates/{base}/{target}", QUOTES, routing::get(legacy::rate)),
        get("/v1/pairs", QUOTES, routing::get(legacy::pairs)),
        get("/v1/executions", EXECUTIONS, routing::get(executions::list)),
        get("/v1/executions/{reference}", EXECUTIONS, routing::get(executions::show)),
        get("/v1/executions/{reference}/receipt", EXECUTIONS, routing::get(executions::receipt)),
        get("/v1/assets", ASSETS, routing::get(account::assets)),
        get("/v1/wallets/{address}", INTENT_STATUS, routing::get(account::wallet)),
        get("/v1/balances", REPORTS, routing::get(account::balances)),
        get("/v1/limits", REPORTS, routing::get(account::limits)),
        get("/v1/beneficiaries", REPORTS, routing::get(beneficiaries::show)),
        post("/v1/beneficiaries", signed, routing::post(beneficiaries::register)),
        get("/v1/requests", INTENT_STATUS, routing::get(requests::list)),
        get("/v1/chains", EXECUTIONS, routing::get(chains::list)),
        get("/v1/statements", REPORTS, routing::get(statements::show)),
        get("/v1/reconciliation", REPORTS, routing::get(reconciliation::range)),
        get("/v1/reports/reconciliation/daily", REPORTS, routing::get(reconciliation::daily)),
        get("/v1/events", EVENTS, routing::get(events::list)),
        get("/v1/events/stream", EVENTS, routing::get(event_stream::open)),
        get("/v1/events/{eventId}", EVENTS, routing::get(events::show)),
        get("/v1/sandbox/clock", ASSETS, routing::get(sandbox_clock::show)),
        post("/v1/sandbox/clock", ASSETS, routing::post(sandbox_clock::advance)),
        get("/v1/openapi.json", Access::Open, routing::get(docs::openapi)),
        get("/docs", Access::Open, routing::get(docs::html)),
        get("/docs/errors/{code}", Access::Open, routing::get(docs::error)),
        get("/healthz", Access::Watched, routing::get(health::show)),
    ];
    all.extend(webhooks());
    all.extend(resting_orders());
    all
}

fn resting_orders() -> Vec<Route> {
    let scopes = &[Scope::RestingOrdersWrite];
    let (by_key, path) = (Access::Key(scopes), "/v1/resting-orders");
    let cancel = "/v1/resting-orders/{orderId}";
    vec![
        route("post", path, Access::Signed(scopes), routing::post(resting_orders::create)),
        route("get", path, by_key, routing::get(resting_orders::list)),
        route("delete", cancel, by_key, routing::delete(resting_orders::cancel)),
    ]
}

fn webhooks() -> Vec<Route> {
    let route = |method, path, handler| route(method, path, WEBHOOKS, handler);
    let path = "/v1/webhook_endpoints";
    vec![
        route("get", path, routing::get(webhooks::show)),
        route("post", path, routing::post(webhooks::register)),
        route("patch", path, routing::patch(webhooks::update)),
        route("post", "/v1/webhook_endpoints/rotate", routing::post(webhooks::rotate)),
        route("post", "/v1/webhook_endpoints/test", routing::post(webhooks::test)),
        route("post", "/v1/webhook_endpoints/replay", routing::post(webhooks::replay)),
        route("get", "/v1/webhook_endpoints/deliveries", routing::get(webhooks::log::list)),
        route("delete", "/v1/webhook_endpoints/{endpointId}", routing::delete(webhooks::remove)),
        route("post", "/v1/events/{eventId}/resend", routing::post(webhooks::resend)),
    ]
}
