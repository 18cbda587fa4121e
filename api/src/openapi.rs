//! The OpenAPI 3.1 document, made from the list of endpoints, the codes and the tables the parsers use.
//!
//! The requests and answers of each route are described in [`operations`] and [`schemas`], in JSON Schema. The tests
//! validate every answer against this document, so that it agrees with the handlers.

mod deliveries;
pub(crate) mod operations;
pub(crate) mod page;
mod schemas;
mod shared;
pub(crate) mod webhooks;

use serde_json::{Map, Value, json};

pub use self::shared::resolve;
use crate::access::scope::Access;
use crate::http::error::Code;

/// A method of a path, and its requirements.
pub(crate) struct Endpoint {
    /// In lower case, as OpenAPI has it.
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    pub(crate) operation: fn() -> Operation,
}

/// The requests and responses of an endpoint.
pub(crate) struct Operation {
    pub(crate) id: &'static str,
    pub(crate) tag: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) description: &'static str,
    pub(crate) params: Vec<Value>,
    /// The name of a schema.
    pub(crate) body: Option<&'static str>,
    pub(crate) answers: Vec<Success>,
    /// In addition to those of every route of its kind.
    pub(crate) errors: &'static [Code],
}

/// An answer that is no error.
pub(crate) struct Success {
    pub(crate) status: u16,
    pub(crate) description: &'static str,
    pub(crate) content: Content,
}

#[derive(Clone, Copy)]
pub(crate) enum Content {
    /// The name of a schema.
    Json(&'static str),
    JsonOrCsv(&'static str),
    Html,
}

const BY_KEY: [Code; 7] = [
    Code::MissingApiKey,
    Code::InvalidApiKey,
    Code::ApiKeyDisabled,
    Code::InsufficientScope,
    Code::RateLimitExceeded,
    Code::InternalError,
    Code::ServiceUnavailable,
];
const OF_POSTS: [Code; 7] = [
    Code::IdempotencyKeyRequired,
    Code::IdempotencyKeyInvalid,
    Code::IdempotencyKeyConflict,
    Code::IdempotencyKeyProcessing,
    Code::PayloadTooLarge,
    Code::UnsupportedMediaType,
    Code::InvalidParameter,
];

/// Webhook management takes an `Idempotency-Key` or none.
const OF_MANAGEMENT: [Code; 5] = [
    Code::IdempotencyKeyInvalid,
    Code::IdempotencyConflict,
    Code::PayloadTooLarge,
    Code::UnsupportedMediaType,
    Code::InvalidParameter,
];

/// The idempotency of a route.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeats {
    /// It changes nothing, or may be repeated.
    Freely,
    ByRequiredKey,
    ByOptionalKey,
}

fn repeats(route: &Endpoint, tag: &str) -> Repeats {
    match (route.method, tag) {
        ("post" | "patch", webhooks::TAG) => Repeats::ByOptionalKey,
        // The maker's own id of the order makes it repeatable.
        ("post", operations::RESTING) => Repeats::Freely,
        ("post", _) => Repeats::ByRequiredKey,
        _ => Repeats::Freely,
    }
}

/// The whole document.
pub(crate) fn document(endpoints: impl IntoIterator<Item = Endpoint>) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in endpoints {
        let entry = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        entry[endpoint.method] = operation(&endpoint);
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "dvp",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Quotes, intents and their settlement. Amounts are decimal strings; minor units are integers. \
                Every error is the envelope `{success: false, error: {code, message}}`. Unknown fields are ignored on \
                both sides.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": operations::tags(),
        "paths": paths,
        "webhooks": deliveries::webhooks(),
        "components": {
            "securitySchemes": {
                "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
            "headers": headers(),
            "schemas": schemas::all(),
        },
    });
    shared::share(&mut document);
    document
}

/// The document's text as it is committed: pretty, with a line break at the end.
pub(crate) fn text(document: &Value) -> String {
    let mut text = serde_json::to_string_pretty(document).unwrap_or_default();
    text.push('\n');
    text
}

fn operation(route: &Endpoint) -> Value {
    let described = (route.operation)();
    let repeats = repeats(route, described.tag);
    let mut parameters = described.params;
    if let Access::Signed(_) = route.access {
        parameters.extend(operations::signature_headers());
    }
    match repeats {
        Repeats::Freely => {}
        Repeats::ByRequiredKey => parameters.push(operations::idempotency_header()),
        Repeats::ByOptionalKey => parameters.push(webhooks::idempotency_header()),
    }
    parameters.push(operations::request_id_header());
    let mut operation = json!({
        "operationId": described.id,
        "tags": [described.tag],
        "summary": described.summary,
        "description": description(described.description, route.access),
        "parameters": parameters,
        "responses": responses(route.access, repeats, described.answers, described.errors),
        "security": match route.access {
            Access::Open => json!([]),
            Access::Key(_) | Access::Signed(_) => json!([{"apiKey": []}]),
        },
    });
    if let Some(schema) = described.body {
        let schema = json!({"$ref": format!("#/components/schemas/{schema}")});
        operation["requestBody"] = json!({"required": !webhooks::body_is_optional(described.id), "content": {"application/json": {"schema": schema}}});
    }
    operation
}

fn description(text: &str, access: Access) -> String {
    let scopes = match access {
        Access::Open => return text.to_owned(),
        Access::Key(scopes) | Access::Signed(scopes) => scopes,
    };
    let names: Vec<String> = scopes.iter().map(|scope| format!("`{}`", scope.as_str())).collect();
    format!("{text}\n\nScope: {}.", names.join(" or ")).trim_start().to_owned()
}

fn responses(access: Access, repeats: Repeats, answers: Vec<Success>, errors: &[Code]) -> Value {
    let mut codes: Vec<Code> = errors.to_vec();
    match access {
        Access::Open => codes.extend([Code::InternalError, Code::ServiceUnavailable]),
        Access::Key(_) => codes.extend(BY_KEY),
        Access::Signed(_) => {
            codes.extend(BY_KEY);
            codes.push(Code::InvalidSignature);
        }
    }
    match repeats {
        Repeats::Freely => {}
        Repeats::ByRequiredKey => codes.extend(OF_POSTS),
        Repeats::ByOptionalKey => codes.extend(OF_MANAGEMENT),
    }
    let mut responses = Map::new();
    for Success { status, description, content } in answers {
        let mut schemas = vec![success_schema(content)];
        // A status may have an answer and errors.
        schemas.extend(error_schema(&codes, status));
        let schema = if schemas.len() == 1 { schemas.remove(0) } else { json!({"anyOf": schemas}) };
        let content = match content {
            Content::Json(_) => json!({"application/json": {"schema": schema}}),
            Content::JsonOrCsv(_) => {
                json!({"application/json": {"schema": schema}, "text/csv": {"schema": {"type": "string"}}})
            }
            Content::Html => json!({"text/html": {"schema": {"type": "string"}}}),
        };
        responses.insert(status.to_string(), response(description, &content, access));
    }
    for status in codes.iter().map(|code| code.status().as_u16()).collect::<std::collections::BTreeSet<_>>() {
        let Some(schema) =
            error_schema(&codes, status).filter(|_| !responses.contains_key(&status.to_string()))
        else {
            continue;
        };
        let listed = schema.pointer("/properties/error/properties/code/enum").cloned().unwrap_or_default();
        let names: Vec<&str> = listed.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let content = json!({"application/json": {"schema": schema}});
        responses.insert(status.to_string(), response(&names.join(", "), &content, access));
    }
    Value::Object(responses)
}

fn success_schema(content: Content) -> Value {
    match content {
        Content::Json(name) | Content::JsonOrCsv(name) => {
            json!({"$ref": format!("#/components/schemas/{name}")})
        }
        Content::Html => json!({"type": "string"}),
    }
}

/// The envelope with the codes of one status.
fn error_schema(codes: &[Code], status: u16) -> Option<Value> {
    let mut names: Vec<&str> =
        codes.iter().filter(|code| code.status().as_u16() == status).map(|code| code.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return None;
    }
    Some(json!({
        "type": "object",
        "required": ["success", "error"],
        "properties": {
            "success": {"const": false},
            "error": {
                "type": "object",
                "required": ["code", "message"],
                "properties": {"code": {"type": "string", "enum": names}, "message": {"type": "string"}},
            },
        },
    }))
}

fn response(description: &str, content: &Value, access: Access) -> Value {
    let names: &[&str] = match access {
        Access::Open => &["X-Request-Id"],
        Access::Key(_) | Access::Signed(_) => &["X-Request-Id", "RateLimit", "RateLimit-Policy"],
    };
    let reference = |name: &&str| json!({"$ref": format!("#/components/headers/{name}")});
    let headers: Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), reference(name))).collect();
    json!({"description": description, "headers": headers, "content": content})
}

/// The headers that answers have.
fn headers() -> Value {
    let header = |description: &str| json!({"description": description, "schema": {"type": "string"}});
    json!({
        "X-Request-Id": header("The request's id, in the service's logs too."),
        "RateLimit": header("`\"minute\";r=<requests left>;t=<seconds until the window ends>`"),
        "RateLimit-Policy": header("`\"minute\";q=<requests a minute>;w=60`"),
    })
}
