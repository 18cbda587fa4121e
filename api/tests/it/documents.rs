//! The published documents match the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use dvp_api::{Code, document, resolve};
use dvp_domain::envelope::Envelope;
use dvp_domain::event::EventType;
use dvp_domain::sample;
use dvp_domain::time::Timestamp;
use serde_json::json;

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
    let holds = |kind: &str, body: &serde_json::Value| {
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
    let page = harness.send(&Call::new("GET", "/docs")).await;
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
    for part in ["<script", "http://", "https://", "@import"] {
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
