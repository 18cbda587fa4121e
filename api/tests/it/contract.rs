//! Every answer of every test is held against the OpenAPI document: its status is documented, its body is as
//! described, and nothing is in it that is not.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

use dvp_api::{document, resolve};
use jsonschema::Validator;
use serde_json::{Value, json};

use crate::harness::Answer;

/// The document with `additionalProperties: false` in every object that does not set it: answers must match it exactly.
fn closed() -> &'static Value {
    static CLOSED: OnceLock<Value> = OnceLock::new();
    CLOSED.get_or_init(|| {
        let mut document = document();
        close(&mut document);
        document
    })
}

fn close(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.contains_key("properties") && !fields.contains_key("additionalProperties") {
                fields.insert("additionalProperties".into(), json!(false));
            }
            fields.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// The path of the document that a request's path is one of.
fn template<'a>(document: &'a Value, path: &str) -> Option<&'a str> {
    let requested: Vec<&str> = path.split('?').next().unwrap_or_default().split('/').collect();
    let fits = |template: &str| {
        let parts: Vec<&str> = template.split('/').collect();
        let same = |(part, requested): (&&str, &&str)| {
            part == requested || (part.starts_with('{') && !requested.is_empty())
        };
        parts.len() == requested.len() && parts.iter().zip(&requested).all(same)
    };
    let mut found: Vec<&String> = document["paths"].as_object()?.keys().filter(|path| fits(path)).collect();
    // A literal part goes before a named one.
    found.sort_by_key(|path| path.matches('{').count());
    found.first().map(|path| path.as_str())
}

pub(crate) fn hold(method: &str, path: &str, answer: &Answer) {
    let document = closed();
    let Some(template) = template(document, path) else {
        answer.refused(404, "NOT_FOUND");
        return;
    };
    let operation = &document["paths"][template][method.to_lowercase()];
    if operation.is_null() {
        answer.refused(405, "METHOD_NOT_ALLOWED");
        return;
    }
    let status = answer.status.as_u16().to_string();
    let response = resolve(document, &operation["responses"][&status]);
    assert!(!response.is_null(), "{method} {template}: {status} is not documented: {}", answer.text);
    hold_headers(response, answer);
    if response["content"].is_null() {
        assert_eq!(answer.text, "", "{method} {template} {status} has no body");
        return;
    }
    let kind = answer.header("content-type").unwrap().split(';').next().unwrap();
    let schema = &response["content"][kind]["schema"];
    assert!(!schema.is_null(), "{method} {template} {status}: {kind} is not documented");
    if kind == "application/json" {
        let body = answer.json();
        validate(&format!("{method} {template} {status}"), schema, document, &body);
        if let Some(code) = body["error"]["code"].as_str() {
            let examples = &response["content"][kind]["examples"];
            assert!(examples[code].is_object(), "{method} {template} {status}: {code} is not documented");
        }
    }
}

/// Every answer has a request id, and every answer to a known key tells where its partner stands.
fn hold_headers(response: &Value, answer: &Answer) {
    assert!(answer.header("x-request-id").is_some(), "no request id: {}", answer.text);
    let error = serde_json::from_str::<Value>(&answer.text).unwrap_or_default()["error"]["code"].clone();
    let unknown = ["MISSING_API_KEY", "INVALID_API_KEY", "API_KEY_DISABLED", "SERVICE_UNAVAILABLE"];
    if response["headers"]["RateLimit"].is_null() || unknown.iter().any(|code| error == *code) {
        return;
    }
    let number = |text: Option<&str>| text.is_some_and(|text| text.parse::<u64>().is_ok());
    let policy = answer.header("ratelimit-policy").unwrap_or_default();
    let quota = policy.strip_prefix("\"minute\";q=").and_then(|rest| rest.strip_suffix(";w=60"));
    assert!(number(quota), "RateLimit-Policy {policy}");
    let rate_limit = answer.header("ratelimit").unwrap_or_default();
    let parts = rate_limit.strip_prefix("\"minute\";r=").and_then(|rest| rest.split_once(";t="));
    assert!(
        number(parts.map(|parts| parts.0)) && number(parts.map(|parts| parts.1)),
        "RateLimit {rate_limit}"
    );
}

fn validate(what: &str, schema: &Value, document: &Value, body: &Value) {
    static VALIDATORS: OnceLock<Mutex<HashMap<String, &'static Validator>>> = OnceLock::new();
    let mut known = VALIDATORS.get_or_init(Mutex::default).lock().unwrap();
    let new = || -> &'static Validator { Box::leak(Box::new(validator(document, schema))) };
    let validator = *known.entry(what.to_owned()).or_insert_with(new);
    let faults: Vec<String> =
        validator.iter_errors(body).map(|fault| format!("{}: {fault}", fault.instance_path())).collect();
    drop(known);
    assert!(faults.is_empty(), "{what}: {}\n{body}", faults.join("\n"));
}

/// Of a schema in the document.
pub(crate) fn validator(document: &Value, schema: &Value) -> Validator {
    let root = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "allOf": [schema],
        "components": document["components"],
    });
    jsonschema::validator_for(&root).unwrap()
}

/// Whether a request's body is as the document describes it.
pub(crate) fn takes(component: &str, body: &Value) -> bool {
    let document = document();
    validator(&document, &document["components"]["schemas"][component]).is_valid(body)
}

#[test]
#[should_panic(expected = "getHealth is open")]
fn an_undocumented_field_fails_the_check() {
    let schema = &closed()["components"]["schemas"]["Health"];
    validate("getHealth is open", schema, closed(), &json!({"status": "ok", "more": 1}));
}
