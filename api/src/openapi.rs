//! The OpenAPI 3.1 document, which is `openapi.json`.
//!
//! The tests hold it against the table of routes, the codes and the tables that the parsers use, and every answer of
//! every test against it, so that it agrees with the handlers.

pub(crate) mod page;

use serde_json::Value;

pub(crate) const TEXT: &str = include_str!("../../openapi.json");

pub fn document() -> Value {
    serde_json::from_str(TEXT).unwrap_or_default()
}

/// The component that a reference leads to; a value without a reference is itself.
pub fn resolve<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let target = value["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
    target.and_then(|pointer| document.pointer(pointer)).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use dvp_domain::envelope::TEST_PING;
    use dvp_domain::event::EventType;
    use dvp_domain::reconcile::BreakKind;
    use serde_json::json;

    use super::*;
    use crate::access::scope::Access;
    use crate::http::error::Code;
    use crate::routes::{Route, all};
    use crate::wire;

    const ALWAYS: [Code; 2] = [Code::InternalError, Code::ServiceUnavailable];
    const BY_KEY: [Code; 5] = [
        Code::MissingApiKey,
        Code::InvalidApiKey,
        Code::ApiKeyDisabled,
        Code::InsufficientScope,
        Code::RateLimitExceeded,
    ];
    const OF_BODIES: [Code; 4] = [
        Code::IdempotencyKeyInvalid,
        Code::PayloadTooLarge,
        Code::UnsupportedMediaType,
        Code::InvalidParameter,
    ];

    /// The codes that an operation's answers list. Each is listed under its own status.
    fn listed(document: &Value, operation: &Value) -> BTreeSet<String> {
        let mut codes = BTreeSet::new();
        for (status, response) in operation["responses"].as_object().unwrap() {
            let schema = &resolve(document, response)["content"]["application/json"]["schema"];
            let several = schema["anyOf"].as_array().map_or_else(|| vec![schema], |all| all.iter().collect());
            let enums = several.into_iter().map(|one| one.pointer("/properties/error/properties/code/enum"));
            for name in enums.flatten().flat_map(|names| names.as_array().unwrap()) {
                let code = Code::ALL.iter().find(|code| *name == code.as_str()).unwrap();
                assert_eq!(code.status().as_str(), status, "{name}");
                codes.insert(code.as_str().to_owned());
            }
        }
        codes
    }

    #[test]
    fn the_document_has_the_routes_of_the_table_and_no_other() {
        let document = document();
        let operations = document["paths"].as_object().unwrap().values();
        assert_eq!(operations.map(|path| path.as_object().unwrap().len()).sum::<usize>(), all().len());
        for Route { method, path, access, .. } in all() {
            let operation = &document["paths"][path][method];
            let parameters = operation["parameters"].as_array().unwrap().iter();
            let names: Vec<&Value> = parameters.map(|one| &resolve(&document, one)["name"]).collect();
            assert!(names.iter().any(|name| *name == "X-Request-Id"), "{method} {path}");
            let codes = listed(&document, operation);
            let lists = |all: &[Code]| all.iter().all(|code| codes.contains(code.as_str()));
            assert!(lists(&ALWAYS), "{method} {path}: {codes:?}");
            assert_eq!(lists(&BY_KEY), !matches!(access, Access::Open), "{method} {path}: {codes:?}");
            let is_signed = matches!(access, Access::Signed(_));
            assert_eq!(lists(&[Code::InvalidSignature]), is_signed, "{method} {path}: {codes:?}");
            for header in ["X-Signature", "X-Timestamp", "X-Nonce"] {
                assert_eq!(names.iter().any(|name| *name == header), is_signed, "{method} {path}");
            }
            if matches!(method, "post" | "patch") {
                assert!(lists(&OF_BODIES), "{method} {path}: {codes:?}");
            }
            // Section 4: every POST for partners. A maker's order has an id of the maker's in the key's place.
            let has_key =
                ["/v1/quotes", "/v1/quotes/firm", "/v1/intents"].contains(&path) && method == "post";
            let is_managing = operation["tags"][0] == "webhooks" && !matches!(method, "get" | "delete");
            for (header, is_taken) in [("X-Idempotency-Key", has_key), ("Idempotency-Key", is_managing)] {
                let parameter = operation["parameters"].as_array().unwrap().iter();
                let mut parameter =
                    parameter.map(|one| resolve(&document, one)).filter(|one| one["name"] == header);
                let expected = is_taken.then_some(has_key);
                assert_eq!(parameter.next().map(|one| one["required"] == true), expected, "{method} {path}");
            }
            let (Access::Key(scopes) | Access::Signed(scopes)) = access else {
                assert_eq!(operation["security"], json!([]), "{method} {path}");
                continue;
            };
            assert_eq!(operation["security"], json!([{"apiKey": []}]), "{method} {path}");
            let scopes: Vec<String> = scopes.iter().map(|scope| format!("`{}`", scope.as_str())).collect();
            let said = format!("Scope: {}.", scopes.join(" or "));
            assert!(operation["description"].as_str().unwrap().ends_with(&said), "{method} {path}: {said}");
        }
    }

    /// The names of a parser's table.
    fn of<T>(table: &[(&'static str, T)]) -> Value {
        table.iter().map(|(name, _)| *name).collect()
    }

    #[test]
    fn the_document_is_of_this_version_and_its_lists_are_the_programs() {
        let document = document();
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
        let names = |all: &[&str]| json!(all);
        let lifecycle: Vec<&str> = EventType::ALL.iter().map(|kind| kind.as_str()).collect();
        let with_ping: Vec<&str> = lifecycle.iter().copied().chain([TEST_PING]).collect();
        for (schema, at, list) in [
            ("Event", "type", names(&lifecycle)),
            ("Intent", "status", names(&lifecycle)),
            ("WebhookEndpoint", "subscribedTypes/items", names(&with_ping)),
            ("WebhookRegistration", "subscribedTypes/items", names(&with_ping)),
            ("WebhookUpdate", "subscribedTypes/anyOf/0/items", names(&with_ping)),
            ("WebhookReplay", "types/anyOf/0/items", names(&with_ping)),
            ("ReconciliationRow", "breaks/items", names(&BreakKind::ALL.map(BreakKind::as_str))),
            ("LegacyIntent", "status", names(&wire::LEGACY_STATUSES)),
            ("AssetDescriptor", "type", of(wire::ASSET_TYPES)),
            ("Beneficiary", "payoutMethod/anyOf/0", of(wire::PAYOUT_METHODS)),
            ("CurrentIntentRequest", "settlementType", of(wire::SETTLEMENT_TYPES)),
            ("CurrentIntentRequest", "side/anyOf/0", of(wire::SIDES)),
            ("CurrentIntentRequest", "actorType/anyOf/0", of(wire::ACTOR_TYPES)),
        ] {
            let pointer = format!("/components/schemas/{schema}/properties/{at}/enum");
            assert_eq!(document.pointer(&pointer), Some(&list), "{pointer}");
        }
        let parameter = |path: &str, name: &str| {
            let parameters = document["paths"][path]["get"]["parameters"].as_array().unwrap().iter();
            let mut parameters = parameters.map(|one| resolve(&document, one));
            parameters.find(|one| one["name"] == name).unwrap()["schema"]["enum"].clone()
        };
        assert_eq!(parameter("/v1/events", "type"), names(&with_ping));
        assert_eq!(parameter("/v1/intents", "status"), names(&wire::LEGACY_STATUSES));
    }

    #[test]
    fn the_document_names_the_fields_that_the_parsers_take() {
        let document = document();
        let schema = |name: &str| document["components"]["schemas"][name].clone();
        let older = schema("LegacyIntentRequest");
        for (schema, fields) in [
            (schema("QuoteRequest"), wire::QUOTE),
            (schema("FirmQuoteRequest"), wire::FIRM_QUOTE),
            (schema("CurrentIntentRequest"), wire::INTENT),
            (schema("AssetDescriptor"), wire::ASSET),
            (schema("InputBounds"), wire::BOUNDS),
            (schema("OutputBounds"), wire::BOUNDS),
            (schema("Beneficiary"), wire::BENEFICIARY),
            (schema("BeneficiaryAddress"), wire::BENEFICIARY_ADDRESS),
            (schema("Permit"), wire::PERMIT),
            (older.clone(), wire::LEGACY_ORDER),
            (older["properties"]["pair"].clone(), wire::LEGACY_PAIR),
            (older["properties"]["constraints"]["anyOf"][0].clone(), wire::LEGACY_CONSTRAINTS),
            (schema("WebhookRegistration"), wire::WEBHOOK_REGISTER),
            (schema("WebhookUpdate"), wire::WEBHOOK_UPDATE),
            (schema("WebhookTest"), wire::WEBHOOK_TEST),
            (schema("WebhookReplay"), wire::WEBHOOK_REPLAY),
            (schema("RestingOrderRequest"), wire::RESTING_ORDER),
        ] {
            let documented: BTreeSet<&str> =
                schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(documented, fields.iter().copied().collect(), "{schema}");
            assert_eq!(schema["additionalProperties"], json!(false), "{schema}");
        }
    }
}
