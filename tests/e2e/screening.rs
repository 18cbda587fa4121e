//! An order of a party on a list is held at both doors: two operators release it or fail it, or it expires.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli::{refused, said};
use crate::fix::FixClient;
use crate::partner::Partner;
use crate::sandbox::Sandbox;

fn decide(sandbox: &Sandbox, reference: &str, action: &str, operator: &str) -> Value {
    let words =
        ["execution", "resolve", "--reference", reference, "--confirm", reference, "--action", action];
    let why = ["--operator", operator, "--reason", "looked into", "--evidence", "case 17"];
    said(sandbox, &[&words[..], &why].concat())
}

/// The last result of an order's pending work, after its first attempt.
fn held(sandbox: &Sandbox, reference: &str) -> Value {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let shown = said(sandbox, &["execution", "show", "--reference", reference]);
        if shown["work"][0]["lastResult"] == "held by screening" {
            return shown;
        }
        assert!(Instant::now() < deadline, "{shown}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listed_beneficiary_is_held_released_failed_and_expires() {
    let list = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(list.path(), "name: Jane Doe\naccount: bene_a:dest_10000000\n").unwrap();
    let file = list.path().to_str().unwrap().to_owned();
    let sandbox = Sandbox::start_with(&["--screening-list", &file]).await;
    let partner = Partner::of(&sandbox);
    let order = partner.order(&sandbox, 0, "000123450000").await;
    let (status, accepted) = partner.submit(&order).await;
    assert_eq!(status, 202, "{accepted}");
    let reference = accepted["reference"].as_str().unwrap();
    let client = order["clientReference"].as_str().unwrap();
    let shown = held(&sandbox, reference);
    assert_eq!(
        (&shown["screening"][0]["verdict"], &shown["screening"][0]["detail"]),
        (&json!("hold"), &json!("name"))
    );
    let seen = partner.wait_until(client, |e| e["events"].is_array()).await;
    assert_eq!(
        (&seen["status"], seen["events"].as_array().unwrap().len()),
        (&json!("in_progress"), 1),
        "{seen}"
    );
    assert_eq!(decide(&sandbox, reference, "release", "jo")["isProposal"], true);
    assert_eq!(decide(&sandbox, reference, "release", "mika")["isProposal"], false);
    partner.wait_until(client, |e| e["status"] == "completed").await;
    let late =
        ["execution", "resolve", "--reference", reference, "--confirm", reference, "--action", "refuse"];
    let why = ["--operator", "jo", "--reason", "r", "--evidence", "e"];
    assert!(refused(&sandbox, &[&late[..], &why].concat()).contains("screening holds"));

    // Over FIX: New, then nothing until two operators refuse it.
    let permit = partner.order(&sandbox, 0, "000123450000").await["permit"].clone();
    let mut fix = FixClient::log_on(&sandbox).await;
    fix.new_order("ORD-1", "bene_a:dest_10000000", &permit).await;
    let report = fix.report(|report| report.get(11) == "ORD-1").await;
    assert_eq!((report.get(150), report.get(39)), ("0", "0"));
    let reference = report.get(37).to_owned();
    held(&sandbox, &reference);
    decide(&sandbox, &reference, "refuse", "jo");
    decide(&sandbox, &reference, "refuse", "mika");
    let report = fix.report(|report| report.get(11) == "ORD-1" && report.get(39) != "0").await;
    assert_eq!((report.get(150), report.get(39)), ("4", "4"));
    assert_eq!((report.get(20103), report.get(20104)), ("intent", "screening_refused"));

    // An undecided case expires at its deadline.
    let mut expiring = partner.order(&sandbox, 0, "000123450000").await;
    expiring["deadline"] = json!(chrono::Utc::now().timestamp_millis() + 6_000);
    let (status, accepted) = partner.submit(&expiring).await;
    assert_eq!(status, 202, "{accepted}");
    let client = expiring["clientReference"].as_str().unwrap();
    let ended = partner.wait_until(client, |e| e["events"].as_array().unwrap().len() > 1).await;
    assert_eq!(ended["failure"]["code"], "expired", "{ended}");
    assert_eq!(said(&sandbox, &["audit", "verify"])["ok"], true);
    sandbox.stop().await;
}
