//! Every route, once: its path, who may use it, and what answers.

use axum::routing::{MethodRouter, get, post};

use crate::app::Api;
use crate::auth::{Scope, Scopes};
use crate::{events, executions, firm_quotes, health, intent_status, intents, quotes, reconciliation};

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
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    pub(crate) handler: MethodRouter<Api>,
}

const QUOTES: Access = Access::Key(&[Scope::QuotesWrite]);
const EXECUTIONS: Access = Access::Key(&[Scope::ExecutionsRead]);
const REPORTS: Access = Access::Key(&[Scope::ReportsRead]);

/// The routes in the order they are documented.
pub(crate) fn all() -> Vec<Route> {
    let route = |path, access, handler| Route { path, access, handler };
    vec![
        route("/v1/quotes", QUOTES, post(quotes::create)),
        route("/v1/quotes/firm", QUOTES, post(firm_quotes::create)),
        route("/v1/intents", Access::Signed(&[Scope::IntentsWrite]), post(intents::create)),
        route(
            "/v1/intents/{intentId}/status",
            Access::Key(&[Scope::IntentsWrite, Scope::ExecutionsRead]),
            get(intent_status::show),
        ),
        route("/v1/executions", EXECUTIONS, get(executions::list)),
        route("/v1/executions/{reference}", EXECUTIONS, get(executions::show)),
        route("/v1/executions/{reference}/receipt", EXECUTIONS, get(executions::receipt)),
        route("/v1/reconciliation", REPORTS, get(reconciliation::range)),
        route("/v1/reports/reconciliation/daily", REPORTS, get(reconciliation::daily)),
        route("/v1/events", Access::Key(&[Scope::EventsRead]), get(events::list)),
        route("/healthz", Access::Open, get(health::show)),
    ]
}
