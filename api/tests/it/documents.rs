//! The published documents match the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use dvp_api::{Code, document, resolve};
use dvp_domain::canonical::canonical_json;
use dvp_domain::decision::Reason;
use dvp_domain::envelope::Envelope;
use dvp_domain::event::EventType;
use dvp_domain::failure_code::FailureCode;
use dvp_domain::receipt;
use dvp_domain::sample;
use dvp_domain::time::Timestamp;
use serde_json::{Value, json};

use crate::contract::validator;
use crate::harness::{ApiHarness, Call};

#[test]
fn error_codes_and_error_pages_match() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/errors");
    let pages: BTreeSet<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let codes: BTreeSet<String> = Code::ALL.iter().map(|code| format!("{}.md", code.as_str())).collect();
    assert_eq!(pages, codes);
    for code in Code::ALL {
        let page = fs::read_to_string(folder.join(format!("{}.md", code.as_str()))).unwrap();
        let head = format!("# {}\n\nHTTP {}\n", code.as_str(), code.status().as_u16());
        assert!(page.starts_with(&head), "{}", code.as_str());
    }
}

/// The names in the first column of the table under a heading of the page of reasons.
fn listed(heading: &str) -> Vec<String> {
    let page = include_str!("../../../docs/reasons.md");
    let section = page.split_once(&format!("\n## {heading}\n")).unwrap().1.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn the_page_of_reasons_has_every_reason_and_failure_code() {
    assert_eq!(
        listed("Rejections"),
        Reason::all().map(|reason| reason.as_str().to_owned()).collect::<Vec<_>>()
    );
    assert_eq!(listed("Failures"), FailureCode::ALL.map(|code| code.as_str().to_owned()));
}

#[tokio::test]
async fn an_errors_doc_url_leads_to_its_page() {
    let harness = ApiHarness::new().await;
    let refused = harness.send(&Call::new("GET", "/v1/pairs")).await;
    refused.refused(401, "MISSING_API_KEY");
    let error = &refused.json()["error"];
    assert_eq!(error["param"], "X-API-Key");
    for code in Code::ALL {
        let page = harness.send(&Call::new("GET", &format!("/docs/errors/{}", code.as_str()))).await;
        assert_eq!(page.status, 200, "{}", code.as_str());
        assert!(page.text.contains(&format!("<code>{}</code>", code.as_str())), "{}", page.text);
    }
    harness.send(&Call::new("GET", "/docs/errors/NO_SUCH_CODE")).await.refused(404, "NOT_FOUND");
}

/// The examples of a body, by their names.
fn examples(content: &Value) -> Vec<(String, Value)> {
    let several = content["examples"].as_object().into_iter().flatten();
    let several = several.map(|(name, example)| (name.clone(), example["value"].clone()));
    let one = content.get("example").map(|example| ("example".to_owned(), example.clone()));
    several.chain(one).collect()
}

#[test]
fn every_body_has_an_example_that_its_schema_takes() {
    let document = document();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let responses = operation["responses"].as_object().unwrap().values();
            let bodies =
                responses.map(|response| resolve(&document, response)).chain([&operation["requestBody"]]);
            for content in bodies.filter_map(|body| body["content"].get("application/json")) {
                let examples = examples(content);
                assert!(!examples.is_empty(), "{method} {path}: {content}");
                let taken = validator(&document, &content["schema"]);
                for (name, example) in examples {
                    let faults: Vec<String> =
                        taken.iter_errors(&example).map(|fault| fault.to_string()).collect();
                    assert!(faults.is_empty(), "{method} {path} {name}: {faults:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn the_examples_of_requests_are_taken() {
    let harness = ApiHarness::new().await;
    harness.prefund().await;
    let document = document();
    let mut sent = 0;
    // The endpoint is registered before it is changed.
    for (method, path) in [
        ("POST", "/v1/quotes"),
        ("POST", "/v1/quotes/firm"),
        ("POST", "/v1/intents"),
        ("POST", "/v1/webhook_endpoints"),
        ("PATCH", "/v1/webhook_endpoints"),
        ("POST", "/v1/webhook_endpoints/test"),
        ("POST", "/v1/webhook_endpoints/replay"),
    ] {
        let body = &document["paths"][path][method.to_lowercase()]["requestBody"];
        for (name, mut example) in examples(&body["content"]["application/json"]) {
            // The time goes on, and a permit is a wallet's own: docs/api.md has one that is checked.
            if example["permit"].is_object() {
                continue;
            }
            if example["deadline"].is_number() {
                example["deadline"] = json!(harness.now.plus_millis(3_600_000));
            }
            let answer = match path {
                "/v1/intents" => harness.submit(&harness.acme, &example).await,
                _ if path.starts_with("/v1/webhook") => {
                    harness.manage(&harness.acme, method, path, &example).await
                }
                _ => harness.post(&harness.acme, path, &example).await,
            };
            assert!(answer.status.is_success(), "{method} {path} {name}: {}", answer.text);
            sent += 1;
        }
    }
    assert_eq!(sent, 9);
}

#[test]
fn the_guides_receipt_has_the_hash_that_it_says() {
    let guide = include_str!("../../../docs/api.md");
    let section = guide.split_once("\n## Verifying a receipt\n").unwrap().1.split("\n## ").next().unwrap();
    let blocks: Vec<&str> = section.split("```").skip(1).step_by(2).collect();
    let [whole, text, hash] = blocks.as_slice() else { panic!("three blocks: {blocks:?}") };
    let whole: Value = serde_json::from_str(whole.strip_prefix("json").unwrap()).unwrap();
    assert_eq!(receipt::hash(&whole), hash.trim());
    let mut hashed = whole.clone();
    for dropped in ["txHash", "finality"] {
        hashed.as_object_mut().unwrap().remove(dropped).unwrap();
    }
    assert_eq!(canonical_json(&hashed), text.trim());
    let document = document();
    assert!(validator(&document, &document["components"]["schemas"]["Receipt"]).is_valid(&whole));
}

#[test]
fn references_and_components_of_the_document_match() {
    let document = document();
    let text = document.to_string();
    let used: BTreeSet<&str> =
        text.split("#/components/").skip(1).map(|piece| piece.split('"').next().unwrap()).collect();
    let kinds = document["components"].as_object().unwrap().iter();
    let referred = kinds.filter(|(kind, _)| *kind != "securitySchemes");
    let defined: BTreeSet<String> = referred
        .flat_map(|(kind, all)| all.as_object().unwrap().keys().map(move |name| format!("{kind}/{name}")))
        .collect();
    assert_eq!(used, defined.iter().map(String::as_str).collect());
    assert!(defined.iter().any(|name| name == "parameters/X-Request-Id"), "{defined:?}");
    assert!(defined.iter().any(|name| name == "responses/RATE_LIMIT_EXCEEDED"), "{defined:?}");
}

#[test]
fn every_event_type_is_described_as_a_webhook() {
    let document = document();
    let holds = |kind: &str, body: &Value| {
        let schema =
            &document["webhooks"][kind]["post"]["requestBody"]["content"]["application/json"]["schema"];
        validator(&document, schema).is_valid(body)
    };
    let at = Timestamp::from_millis(0);
    for kind in EventType::ALL {
        let object = serde_json::to_value(sample::snapshot("intent", kind, at)).unwrap();
        let ping = json!({"ping": true});
        let mut event =
            serde_json::to_value(Envelope::ping("evt_1", at, false, "2026-11-01", &ping)).unwrap();
        assert!(holds("test.ping", &event));
        event["type"] = json!(kind.as_str());
        event["intentId"] = json!("intent");
        event["sequence"] = json!(1);
        assert!(!holds(kind.as_str(), &event), "{event}");
        event["data"]["object"] = object;
        assert!(holds(kind.as_str(), &event), "{event}");
        assert!(!holds("test.ping", &event));
    }
    assert_eq!(document["webhooks"].as_object().unwrap().len(), EventType::ALL.len() + 1);
}

#[tokio::test]
async fn the_document_and_its_page_need_no_key_and_no_other_host() {
    let harness = ApiHarness::new().await;
    let served = harness.send(&Call::new("GET", "/v1/openapi.json")).await.ok(200);
    assert_eq!(served, document());
    let first = harness.send(&Call::new("GET", "/v1/openapi.json")).await;
    let again = Call::new("GET", "/v1/openapi.json").with("If-None-Match", first.header("etag").unwrap());
    assert_eq!(harness.send(&again).await.status, 304);
    let other = Call::new("GET", "/v1/openapi.json").with("If-None-Match", "\"other\"");
    assert_eq!(harness.send(&other).await.status, 200);
    let page = harness.send(&Call::new("GET", "/docs")).await;
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
    for part in ["<script", "<form", "src=", "href='http", "url(", "@import"] {
        assert!(!page.text.contains(part), "{part}");
    }
    for path in document()["paths"].as_object().unwrap().keys() {
        assert!(page.text.contains(&format!("<code>{path}</code>")), "{path}");
    }
    for code in Code::ALL.iter().map(|code| code.as_str()) {
        assert!(page.text.contains(&format!("<h3 id='error-{code}'>")), "{code}");
    }
    let links: Vec<&str> =
        page.text.split("href='#").skip(1).filter_map(|rest| rest.split('\'').next()).collect();
    let document = document();
    let operations =
        document["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap().values());
    let answers = operations.flat_map(|operation| operation["responses"].as_object().unwrap().values());
    let codes = answers
        .flat_map(|answer| resolve(&document, answer)["description"].as_str().unwrap().split(", "))
        .filter(|part| Code::ALL.iter().any(|code| code.as_str() == *part));
    assert_eq!(links.iter().filter(|link| link.starts_with("error-")).count(), codes.count());
    for link in links {
        assert!(page.text.contains(&format!("id='{link}'")), "{link} leads nowhere");
    }
}

#[tokio::test]
async fn long_answers_are_compressed_for_those_who_ask() {
    let harness = ApiHarness::new().await;
    let call = Call::get(&harness.acme, "/v1/openapi.json");
    let plain = harness.send(&call).await;
    assert_eq!(plain.header("content-encoding"), None);
    let request = axum::http::Request::get("/v1/openapi.json").header("accept-encoding", "gzip");
    let request = request.body(axum::body::Body::empty()).unwrap();
    let answer = tower::ServiceExt::oneshot(harness.router(), request).await.unwrap();
    assert_eq!(answer.headers()["content-encoding"], "gzip");
    let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    assert!(bytes.len() * 5 < plain.text.len(), "{} of {}", bytes.len(), plain.text.len());
}
