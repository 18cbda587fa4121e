//! The requests and answers of each route.

use serde_json::{Value, json};

use super::Content::{Html, Json, JsonOrCsv};
use super::{Operation, Success};
use crate::http::error::Code;
use crate::wire::LEGACY_STATUSES;

/// The tag of makers' resting orders.
pub(super) const RESTING: &str = "resting orders";

pub(super) fn tags() -> Value {
    json!([
        {"name": "quotes", "description": "Indicative and firm prices."},
        {"name": "intents", "description": "Orders: accepted or rejected, once and for all."},
        {"name": "executions", "description": "The settlement of accepted intents."},
        {"name": "reports", "description": "Executions over days, with totals."},
        {"name": "events", "description": "The feed."},
        {"name": "webhooks", "description": "Events sent to you."},
        {"name": RESTING, "description": "Orders that makers leave for takers."},
        {"name": "legacy", "description": "The older surface: rates, pairs, orders by strategy."},
        {"name": "service", "description": "About the service itself."},
    ])
}

pub(super) fn ok(status: u16, description: &'static str, schema: &'static str) -> Success {
    Success { status, description, content: Json(schema) }
}

pub(super) fn text_param(place: &str, name: &str, required: bool, description: &str) -> Value {
    let schema = json!({"type": "string", "minLength": 1, "maxLength": 128});
    json!({"name": name, "in": place, "required": required, "description": description, "schema": schema})
}

pub(super) fn limit_param(default: u32) -> Value {
    json!({
        "name": "limit", "in": "query", "description": "Items a page.",
        "schema": {"type": "integer", "minimum": 1, "maximum": 100, "default": default},
    })
}

fn date_param(name: &str, description: &str) -> Value {
    json!({
        "name": name, "in": "query", "required": true, "description": description,
        "schema": {"type": "string", "format": "date"},
    })
}

pub(super) fn cursor_param(name: &str) -> Value {
    json!({
        "name": name, "in": "query", "description": "`nextCursor` of the page before, as it is.",
        "schema": {"type": "string", "maxLength": 4096},
    })
}

fn ref_type_param() -> Value {
    json!({
        "name": "refType", "in": "query", "description": "The kind of `reference`.",
        "schema": {"type": "string", "enum": ["clientReference", "executionId"], "default": "clientReference"},
    })
}

fn reference_params() -> Vec<Value> {
    vec![text_param("path", "reference", true, "Your reference, or the service's."), ref_type_param()]
}

pub(super) fn signature_headers() -> Vec<Value> {
    let header = |name: &str, description: &str, schema: Value| json!({"name": name, "in": "header", "required": true, "description": description, "schema": schema});
    vec![
        header(
            "X-Signature",
            "Hex of HMAC-SHA256 over method, path with query, timestamp, nonce and body, with nothing between them.",
            json!({"type": "string", "pattern": "^[0-9a-f]{64}$"}),
        ),
        header(
            "X-Timestamp",
            "Unix seconds, within 300 of the service's clock.",
            json!({"type": "string", "pattern": "^[1-9][0-9]{0,11}$"}),
        ),
        header(
            "X-Nonce",
            "Fresh for each request.",
            json!({"type": "string", "minLength": 16, "maxLength": 64, "pattern": "^[!-~]{16,64}$"}),
        ),
    ]
}

pub(super) fn idempotency_header() -> Value {
    json!({
        "name": "X-Idempotency-Key", "in": "header", "required": true,
        "description": "An RFC 9562 UUID, one per operation and the same on every retry of it.",
        "schema": {
            "type": "string", "format": "uuid",
            "pattern": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$",
        },
    })
}

pub(super) fn request_id_header() -> Value {
    json!({
        "name": "X-Request-Id", "in": "header", "required": false,
        "description": "Echoed when it has 1 to 128 of the characters A-Z a-z 0-9 . _ -; else a fresh one is given.",
        "schema": {"type": "string"},
    })
}

pub(crate) fn quote() -> Operation {
    Operation {
        id: "createQuote",
        tag: "quotes",
        summary: "Ask for indicative prices",
        description: "Candidates, best first. An empty list means no liquidity right now.",
        params: vec![],
        body: Some("QuoteRequest"),
        answers: vec![ok(200, "Candidates, best first.", "Quote")],
        errors: &[],
    }
}

pub(crate) fn firm_quote() -> Operation {
    Operation {
        id: "createFirmQuote",
        tag: "quotes",
        summary: "Lock a price",
        description: "Rate and fees are locked until `validUntil`, for one intent.",
        params: vec![],
        body: Some("FirmQuoteRequest"),
        answers: vec![ok(201, "The locked price.", "FirmQuote")],
        errors: &[Code::InsufficientLiquidity],
    }
}

pub(crate) fn intent() -> Operation {
    Operation {
        id: "createIntent",
        tag: "intents",
        summary: "Submit an intent",
        description: "Accepted or rejected, single-step and final. Settlement follows an acceptance. A body with \
            `pair` or `strategy` is an order of the older surface.",
        params: vec![],
        body: Some("IntentRequest"),
        answers: vec![
            ok(202, "Accepted.", "AcceptedIntent"),
            ok(201, "An order of the older surface is kept.", "LegacyIntentAnswer"),
            ok(422, "Rejected, with the first reason that applies.", "RejectedIntent"),
        ],
        errors: &[
            Code::InvalidPermit,
            Code::AlreadyExists,
            Code::InvalidPair,
            Code::InvalidStrategy,
            Code::AmountOutOfRange,
            Code::ConstraintsNotMet,
            Code::PartnerMoving,
        ],
    }
}

pub(crate) fn legacy_intents() -> Operation {
    let one_of = |name: &str, names: &[&str]| json!({"name": name, "in": "query", "schema": {"type": "string", "enum": names}});
    let date = |name: &str, description: &str| json!({"name": name, "in": "query", "description": description, "schema": {"type": "string", "format": "date"}});
    let page = json!({
        "name": "page", "in": "query",
        "schema": {"type": "integer", "minimum": 1, "maximum": 1_000_000, "default": 1},
    });
    Operation {
        id: "listLegacyIntents",
        tag: "legacy",
        summary: "Orders of the older surface, newest first",
        description: "",
        params: vec![
            one_of("status", &LEGACY_STATUSES),
            one_of("strategy", &["instant", "optimized", "scheduled"]),
            date("fromDate", "First day, or an ISO 8601 instant."),
            date("toDate", "Last day, or an ISO 8601 instant."),
            page,
            limit_param(20),
        ],
        body: None,
        answers: vec![ok(200, "A page.", "LegacyIntentPage")],
        errors: &[Code::InvalidParameter],
    }
}

pub(crate) fn legacy_intent() -> Operation {
    Operation {
        id: "getLegacyIntent",
        tag: "legacy",
        summary: "An order of the older surface",
        description: "",
        params: vec![text_param("path", "intentId", true, "As it was answered.")],
        body: None,
        answers: vec![ok(200, "The order.", "LegacyIntentAnswer")],
        errors: &[Code::IntentNotFound, Code::NotFound],
    }
}

pub(crate) fn cancel_intent() -> Operation {
    Operation {
        id: "cancelIntent",
        tag: "intents",
        summary: "Cancel an intent",
        description: "An intent that rests, or whose lock was not requested yet: nothing was moved. An order of the older \
            surface, until it is executed. A repetition gets the same answer.",
        answers: vec![ok(200, "Cancelled.", "CancelledIntent")],
        errors: &[Code::IntentNotFound, Code::NotFound, Code::IntentExpired, Code::IntentAlreadyExecuting],
        ..legacy_intent()
    }
}

pub(crate) fn place_resting_order() -> Operation {
    Operation {
        id: "placeRestingOrder",
        tag: RESTING,
        summary: "Place a resting order",
        description: "The provider's balance is offered at a rate. The same `clientOrderId` with the same order is \
            answered with the order that stands. It reserves nothing; a taker that ends unpaid gives back what it had \
            taken.",
        params: vec![],
        body: Some("RestingOrderRequest"),
        answers: vec![
            ok(201, "Placed.", "RestingOrder"),
            ok(200, "It was placed before: as it stands.", "RestingOrder"),
        ],
        errors: &[
            Code::IdempotencyKeyInvalid,
            Code::PayloadTooLarge,
            Code::UnsupportedMediaType,
            Code::InvalidParameter,
            Code::InvalidPair,
            Code::AlreadyExists,
            Code::NotFound,
        ],
    }
}

pub(crate) fn resting_orders() -> Operation {
    let before = json!({
        "name": "before", "in": "query", "description": "`orderId` of the last order of the page before.",
        "schema": {"type": "integer", "minimum": 1},
    });
    let status = json!({
        "name": "status", "in": "query", "description": "Only those with a remaining amount.",
        "schema": {"type": "string", "enum": ["open"]},
    });
    Operation {
        id: "listRestingOrders",
        tag: RESTING,
        summary: "The maker's resting orders",
        description: "The newest first.",
        params: vec![status, before, limit_param(50)],
        body: None,
        answers: vec![ok(200, "A page.", "RestingOrderPage")],
        errors: &[Code::InvalidParameter, Code::NotFound],
    }
}

pub(crate) fn cancel_resting_order() -> Operation {
    Operation {
        id: "cancelRestingOrder",
        tag: RESTING,
        summary: "Cancel the remainder of a resting order",
        description: "A cancelled order stays cancelled; amounts that takers return later are not offered again.",
        params: vec![text_param("path", "orderId", true, "The service's id of the order.")],
        body: None,
        answers: vec![ok(200, "As it stands.", "RestingOrder")],
        errors: &[Code::NotFound],
    }
}

pub(crate) fn rate() -> Operation {
    Operation {
        id: "getRate",
        tag: "legacy",
        summary: "The rate of a pair",
        description: "For orders use a quote, which knows the amount.",
        params: vec![
            text_param("path", "base", true, "The asset that is paid."),
            text_param("path", "target", true, "The asset that is received."),
        ],
        body: None,
        answers: vec![ok(200, "The rate.", "RateAnswer")],
        errors: &[Code::InvalidPair, Code::NotFound, Code::InsufficientLiquidity],
    }
}

pub(crate) fn pairs() -> Operation {
    Operation {
        id: "listPairs",
        tag: "legacy",
        summary: "The pairs that are dealt in",
        description: "",
        params: vec![],
        body: None,
        answers: vec![ok(200, "The pairs.", "PairsAnswer")],
        errors: &[],
    }
}

pub(crate) fn intent_status() -> Operation {
    Operation {
        id: "getIntentStatus",
        tag: "intents",
        summary: "Where an accepted intent is",
        description: "Without its history. A rejected intent has no status.",
        params: vec![text_param("path", "intentId", true, "As it was submitted.")],
        body: None,
        answers: vec![ok(200, "The status.", "IntentStatus")],
        errors: &[Code::IntentNotFound, Code::NotFound],
    }
}

pub(crate) fn executions() -> Operation {
    // A text that cannot be a reference is reported as not found, like an unknown one.
    let schema = json!({"type": "array", "minItems": 1, "maxItems": 100, "items": {"type": "string"}});
    let reference = json!({
        "name": "reference", "in": "query", "required": true, "explode": true, "style": "form",
        "description": "Repeated, once for each.", "schema": schema,
    });
    Operation {
        id: "listExecutions",
        tag: "executions",
        summary: "Look up several executions at once",
        description: "In the requested order, each once. Unknown references, and those of other partners, are in `notFound`.",
        params: vec![reference, ref_type_param()],
        body: None,
        answers: vec![ok(200, "The executions found, and the references not found.", "ExecutionBatch")],
        errors: &[Code::InvalidParameter, Code::InvalidRefType],
    }
}

pub(crate) fn execution() -> Operation {
    Operation {
        id: "getExecution",
        tag: "executions",
        summary: "Status and history of an execution",
        description: "",
        params: reference_params(),
        body: None,
        answers: vec![ok(200, "The execution.", "Execution")],
        errors: &[Code::InvalidParameter, Code::InvalidRefType, Code::ExecutionNotFound, Code::NotFound],
    }
}

pub(crate) fn receipt() -> Operation {
    Operation {
        id: "getReceipt",
        tag: "executions",
        summary: "The receipt of a completed execution",
        description: "The hash of its canonical JSON without `txHash` and `finality` is anchored on the chain.",
        params: reference_params(),
        body: None,
        answers: vec![ok(200, "The receipt.", "Receipt")],
        errors: &[
            Code::InvalidParameter,
            Code::InvalidRefType,
            Code::ReceiptNotFound,
            Code::NotFound,
            Code::ReceiptNotIssued,
            Code::ReceiptCorrupt,
        ],
    }
}

pub(crate) fn reconciliation() -> Operation {
    Operation {
        id: "getReconciliation",
        tag: "reports",
        summary: "Executions accepted within a range of days",
        description: "The first page fixes a snapshot; rows of all pages add up to the totals of each. `Accept: \
            text/csv` gives the rows as CSV, with the cursor in `X-Next-Cursor`.",
        params: vec![
            date_param("from", "First day, UTC."),
            date_param("to", "Last day, UTC; at most 92 days."),
            cursor_param("cursor"),
            limit_param(100),
        ],
        body: None,
        answers: vec![Success { status: 200, description: "A page.", content: JsonOrCsv("Reconciliation") }],
        errors: &[Code::InvalidParameter, Code::InvalidCursor],
    }
}

pub(crate) fn daily() -> Operation {
    Operation {
        id: "getDailyReconciliation",
        tag: "reports",
        summary: "A day's executions as known at its end",
        description: "As the reconciliation of one day, read at the day's cutoff.",
        params: vec![date_param("date", "The day, UTC."), cursor_param("cursor"), limit_param(100)],
        body: None,
        answers: vec![Success {
            status: 200,
            description: "A page.",
            content: JsonOrCsv("DailyReconciliation"),
        }],
        errors: &[Code::InvalidParameter, Code::InvalidCursor],
    }
}

pub(crate) fn events() -> Operation {
    let kinds: Vec<&str> = dvp_domain::event::EventType::ALL
        .iter()
        .map(|kind| kind.as_str())
        .chain(std::iter::once("test.ping"))
        .collect();
    Operation {
        id: "listEvents",
        tag: "events",
        summary: "Events, oldest first",
        description: "Without `since` the listing starts at the oldest event kept.",
        params: vec![
            cursor_param("since"),
            json!({"name": "type", "in": "query", "schema": {"type": "string", "enum": kinds}}),
            text_param("query", "intentId", false, "Only this intent's."),
            limit_param(20),
            json!({
                "name": "wait", "in": "query", "description": "Seconds to wait for an event when there is none.",
                "schema": {"type": "integer", "minimum": 0, "maximum": 8, "default": 0},
            }),
        ],
        body: None,
        answers: vec![ok(200, "A page.", "EventPage")],
        errors: &[Code::InvalidParameter, Code::InvalidCursor, Code::InvalidType],
    }
}

pub(crate) fn event() -> Operation {
    Operation {
        id: "getEvent",
        tag: "events",
        summary: "One event",
        description: "Of the last 15 days.",
        params: vec![text_param("path", "eventId", true, "As in its envelope.")],
        body: None,
        answers: vec![ok(200, "The event.", "Event")],
        errors: &[Code::NotFound],
    }
}

pub(crate) fn health() -> Operation {
    Operation {
        id: "getHealth",
        tag: "service",
        summary: "Whether this process can answer",
        description: "",
        params: vec![],
        body: None,
        answers: vec![ok(200, "It can.", "Health")],
        errors: &[],
    }
}

pub(crate) fn openapi() -> Operation {
    Operation {
        id: "getOpenApi",
        tag: "service",
        summary: "This document",
        description: "",
        params: vec![],
        body: None,
        answers: vec![ok(200, "OpenAPI 3.1.", "AnyObject")],
        errors: &[],
    }
}

pub(crate) fn docs() -> Operation {
    Operation {
        id: "getDocs",
        tag: "service",
        summary: "This document, to be read",
        description: "",
        params: vec![],
        body: None,
        answers: vec![Success { status: 200, description: "A page without scripts.", content: Html }],
        errors: &[],
    }
}
