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

    use dvp_domain::decision::Reason;
    use dvp_domain::envelope::TEST_PING;
    use dvp_domain::event::EventType;
    use dvp_domain::failure_code::FailureCode;
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

    /// The codes that an operation's answers list, each with an example under its own status.
    fn listed(document: &Value, operation: &Value) -> BTreeSet<String> {
        let mut codes = BTreeSet::new();
        for (status, response) in operation["responses"].as_object().unwrap() {
            let examples = &resolve(document, response)["content"]["application/json"]["examples"];
            for (name, example) in examples.as_object().into_iter().flatten() {
                let Some(code) = example["value"]["error"]["code"].as_str() else { continue };
                assert_eq!(code, name);
                let code = Code::ALL.iter().find(|known| known.as_str() == code).unwrap();
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
            assert_eq!(
                lists(&BY_KEY),
                matches!(access, Access::Key(_) | Access::Signed(_)),
                "{method} {path}: {codes:?}"
            );
            let is_signed = matches!(access, Access::Signed(_));
            assert_eq!(lists(&[Code::InvalidSignature]), is_signed, "{method} {path}: {codes:?}");
            for header in ["X-Signature", "X-Timestamp", "X-Nonce"] {
                assert!(!names.iter().any(|name| *name == header), "{method} {path}: a security scheme");
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
            let signed = json!([{"apiKey": [], "signature": [], "timestamp": [], "nonce": []}]);
            let security = if is_signed { signed } else { json!([{"apiKey": []}]) };
            assert_eq!(operation["security"], security, "{method} {path}");
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
        for (schema, list) in [
            ("EventType", names(&lifecycle)),
            ("SubscribedType", names(&with_ping)),
            ("FailureCode", names(&FailureCode::ALL.map(FailureCode::as_str))),
            ("BreakKind", names(&BreakKind::ALL.map(BreakKind::as_str))),
            ("LegacyStatus", names(&wire::LEGACY_STATUSES)),
            ("AssetType", of(wire::ASSET_TYPES)),
            ("PayoutMethod", of(wire::PAYOUT_METHODS)),
            ("SettlementType", of(wire::SETTLEMENT_TYPES)),
            ("Side", of(wire::SIDES)),
            ("ActorType", of(wire::ACTOR_TYPES)),
        ] {
            assert_eq!(document["components"]["schemas"][schema]["enum"], list, "{schema}");
        }
        let codes: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(document["components"]["schemas"]["ErrorCode"]["enum"], json!(codes));
        let reasons: Vec<&str> = Reason::all().map(Reason::as_str).collect();
        assert_eq!(document["components"]["schemas"]["RejectionReason"]["enum"], json!(reasons));
        let parameter = |path: &str, name: &str| {
            let parameters = document["paths"][path]["get"]["parameters"].as_array().unwrap().iter();
            let mut parameters = parameters.map(|one| resolve(&document, one));
            let parameter = parameters.find(|one| one["name"] == name).unwrap();
            resolve(&document, &parameter["schema"])["enum"].clone()
        };
        assert_eq!(parameter("/v1/events", "type"), names(&with_ping));
        assert_eq!(parameter("/v1/intents", "status"), names(&wire::LEGACY_STATUSES));
    }

    #[test]
    fn the_document_names_the_fields_that_the_parsers_take() {
        let document = document();
        let schema = |name: &str| document["components"]["schemas"][name].clone();
        // An intent has one of two pairs of fields.
        let without = |others: [&str; 2]| -> Vec<&str> {
            wire::INTENT.iter().copied().filter(|field| !others.contains(field)).collect()
        };
        let by_amounts = without(["input", "output"]);
        let by_bounds = without(["inputAmountMinor", "minOutputAmountMinor"]);
        for (schema, fields) in [
            (schema("QuoteRequest"), wire::QUOTE),
            (schema("FirmQuoteRequest"), wire::FIRM_QUOTE),
            (schema("AmountsIntentRequest"), &by_amounts),
            (schema("BoundsIntentRequest"), &by_bounds),
            (schema("AssetDescriptor"), wire::ASSET),
            (schema("InputBounds"), wire::BOUNDS),
            (schema("OutputBounds"), wire::BOUNDS),
            (schema("Beneficiary"), wire::BENEFICIARY),
            (schema("BeneficiaryAddress"), wire::BENEFICIARY_ADDRESS),
            (schema("Permit"), wire::PERMIT),
            (schema("LegacyIntentRequest"), wire::LEGACY_ORDER),
            (schema("LegacyPairRequest"), wire::LEGACY_PAIR),
            (schema("LegacyConstraintsRequest"), wire::LEGACY_CONSTRAINTS),
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

    /// Every schema of the document that has properties, with the place where it is.
    fn objects<'a>(value: &'a Value, at: String, found: &mut Vec<(String, &'a Value)>) {
        if value["properties"].is_object() {
            found.push((at.clone(), value));
        }
        match value {
            Value::Object(fields) => {
                fields.iter().for_each(|(name, inner)| objects(inner, format!("{at}/{name}"), found));
            }
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(n, inner)| objects(inner, format!("{at}/{n}"), found));
            }
            _ => {}
        }
    }

    #[test]
    fn everything_in_the_document_is_described() {
        let document = document();
        let mut undescribed = Vec::new();
        let has =
            |value: &Value| value["description"].as_str().is_some_and(|text| text.ends_with(['.', '…']));
        let mut all = Vec::new();
        objects(&document["components"]["schemas"], String::new(), &mut all);
        for (at, schema) in all {
            let properties = schema["properties"].as_object().unwrap().iter();
            undescribed.extend(properties.filter(|one| !has(one.1)).map(|(name, _)| format!("{at}/{name}")));
        }
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            undescribed.extend((!has(schema)).then(|| name.clone()));
        }
        let operations = || {
            document["paths"]
                .as_object()
                .unwrap()
                .values()
                .flat_map(|path| path.as_object().unwrap().values())
        };
        for operation in operations() {
            let parameters = operation["parameters"].as_array().unwrap().iter();
            let bare = parameters.map(|one| resolve(&document, one)).filter(|one| !has(one));
            undescribed.extend(bare.map(|one| format!("{}: {}", operation["operationId"], one["name"])));
        }
        assert_eq!(undescribed, Vec::<String>::new());
    }
}
