//! A paused subject is refused over REST and over FIX, and accepted again when it is resumed.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::cli::{refused, said};
use crate::fix::FixClient;
use crate::partner::Partner;
use crate::sandbox::Sandbox;

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_pair_is_refused_over_both_interfaces() {
    let sandbox = Sandbox::start().await;
    let by = ["--operator", "jo", "--reason", "the price feed is wrong"];
    let change =
        |action: &'static str, scope: &'static [&'static str]| [&["pause", action], scope, &by].concat();
    let pair = &["--scope", "pair", "--target", "USDC/USD"];
    assert_eq!(said(&sandbox, &change("add", pair))["changed"], true);
    assert_eq!(said(&sandbox, &change("add", pair))["changed"], false);
    let listed = said(&sandbox, &["pause", "list"]);
    assert_eq!(listed["pauses"][0]["target"], "USDC/USD");
    assert_eq!(listed["pauses"][0]["operator"], "jo");

    let partner = Partner::of(&sandbox);
    let order = partner.order(&sandbox, 0, "000123450000").await;
    let (status, rejected) = partner.submit(&order).await;
    assert_eq!((status, &rejected["reason"]), (422, &json!("no_liquidity")), "{rejected}");
    let mut fix = FixClient::log_on(&sandbox).await;
    fix.new_order("ORD-1", "000123450000", &order["permit"]).await;
    let report = fix.report(|report| report.get(11) == "ORD-1").await;
    assert_eq!((report.get(150), report.get(58)), ("8", "no_liquidity"));

    assert_eq!(said(&sandbox, &change("remove", pair))["changed"], true);
    // Prices in memory are put together without the pause a moment later.
    let deadline = Instant::now() + Duration::from_secs(120);
    let answer = loop {
        let again = partner.order(&sandbox, 0, "000123450000").await;
        let answer = partner.submit(&again).await;
        if answer.0 != 422 || Instant::now() > deadline {
            break answer;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(answer.0, 202, "{}", answer.1);
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_must_name_an_existing_subject() {
    let sandbox = Sandbox::start().await;
    let by = ["--operator", "jo", "--reason", "to be sure"];
    for (scope, target, said) in [
        ("everything", "USDC/USD", "has no target"),
        ("pair", "USDC", "INPUT/OUTPUT"),
        ("rail", "anchor", "offramp or payout"),
        ("provider", "", "needs a target"),
        ("partner", "nobody", "nobody"),
        ("nothing", "", "the scopes are everything, partner"),
    ] {
        let words = [&["pause", "add", "--scope", scope, "--target", target][..], &by].concat();
        let complaint = refused(&sandbox, &words);
        assert!(complaint.contains(said), "{scope} {target}: {complaint}");
    }
    sandbox.stop().await;
}
