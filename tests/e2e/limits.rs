//! A limit that two operators have set is refused over REST and over FIX by the same code.

use serde_json::json;

use crate::cli::{refused, said};
use crate::fix::FixClient;
use crate::partner::Partner;
use crate::sandbox::Sandbox;

const WHY: [&str; 6] = ["--operator", "jo", "--reason", "new partner", "--evidence", "risk memo 7"];

fn change<'a>(action: &'a str, words: &[&'a str]) -> Vec<&'a str> {
    [&["limit", action][..], words, &WHY].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_applies_over_both_interfaces_until_it_is_raised() {
    let sandbox = Sandbox::start().await;
    let limit = ["--scope", "partner", "--target", "acme", "--asset", "USDC", "--per", "day"];
    let set = change("set", &[&limit[..], &["--amount-minor", "1"]].concat());
    let requested = said(&sandbox, &set);
    assert_eq!((&requested["state"], &requested["repeated"]), (&json!("pending"), &json!(false)));
    assert_eq!(said(&sandbox, &set)["repeated"], true);
    assert_eq!(said(&sandbox, &["limit", "list"])["limits"], json!([]));
    let id = requested["id"].as_str().unwrap();
    let approve = |id, operator| ["approval", "approve", "--id", id, "--operator", operator];
    assert!(refused(&sandbox, &approve(id, "jo")).contains("another operator"));
    assert_eq!(said(&sandbox, &approve(id, "mika"))["state"], "approved");
    let listed = said(&sandbox, &["limit", "list"]);
    assert_eq!(
        (&listed["limits"][0]["amountMinor"], &listed["limits"][0]["per"]),
        (&json!("1"), &json!("day"))
    );

    let partner = Partner::of(&sandbox);
    let order = partner.order(&sandbox, 0, "000123450000").await;
    let (status, rejected) = partner.submit(&order).await;
    assert_eq!((status, &rejected["reason"]), (422, &json!("partner_day_limit_exceeded")), "{rejected}");
    let mut fix = FixClient::log_on(&sandbox).await;
    fix.new_order("ORD-1", "bene_a:dest_10000000", &order["permit"]).await;
    let report = fix.report(|report| report.get(11) == "ORD-1").await;
    assert_eq!((report.get(150), report.get(58)), ("8", "partner_day_limit_exceeded"));
    drop(fix);

    let lifted = said(&sandbox, &change("remove", &limit));
    assert_eq!(said(&sandbox, &approve(lifted["id"].as_str().unwrap(), "mika"))["state"], "approved");
    let open = ["--scope", "rail", "--target", "payout", "--asset", "USD", "--per", "open"];
    let set = said(&sandbox, &change("set", &[&open[..], &["--amount-minor", "15000"]].concat()));
    assert_eq!(said(&sandbox, &approve(set["id"].as_str().unwrap(), "mika"))["state"], "approved");
    // It never ends by itself: about a hundred dollars are in flight.
    let (status, accepted) = partner.submit(&partner.order(&sandbox, 0, "000123450007").await).await;
    assert_eq!(status, 202, "{accepted}");
    let order = partner.order(&sandbox, 1, "000123450000").await;
    let (status, rejected) = partner.submit(&order).await;
    assert_eq!((status, &rejected["reason"]), (422, &json!("rail_open_limit_exceeded")), "{rejected}");
    let mut fix = FixClient::log_on(&sandbox).await;
    fix.new_order("ORD-2", "bene_a:dest_10000000", &order["permit"]).await;
    let report = fix.report(|report| report.get(11) == "ORD-2").await;
    assert_eq!((report.get(150), report.get(58)), ("8", "rail_open_limit_exceeded"));
    let listed = said(&sandbox, &["limit", "list"]);
    assert_eq!(
        listed["limits"][0]["openMinor"], accepted["path"]["outputAmountMinor"],
        "{listed} {accepted}"
    );
    assert_eq!(said(&sandbox, &["audit", "verify"])["ok"], true);
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_must_name_an_existing_subject() {
    let sandbox = Sandbox::start().await;
    for (scope, target, asset, per, said) in [
        ("partner", "nobody", "USDC", "day", "nobody"),
        ("pair", "USDC", "USDC", "day", "INPUT/OUTPUT"),
        ("pair", "USDC/USD", "USD", "day", "INPUT/OUTPUT"),
        ("everything", "x", "USDC", "day", "nothing for everything"),
        ("provider", "nobody", "USD", "order", "no provider is called nobody"),
        ("rail", "wire", "USD", "order", "offramp or payout"),
        ("desk", "payout", "USD", "order", "the scopes are everything, partner"),
        ("chain", "anvil", "XYZ", "open", "no asset is called XYZ"),
        ("provider", "northwind", "USD", "week", "a limit is per one of order, day, open"),
    ] {
        let words =
            ["--scope", scope, "--target", target, "--asset", asset, "--per", per, "--amount-minor", "1"];
        let complaint = refused(&sandbox, &change("set", &words));
        assert!(complaint.contains(said), "{scope} {target}: {complaint}");
    }
    sandbox.stop().await;
}
