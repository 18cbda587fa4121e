//! A maker's resting order, placed over REST, fills orders of both interfaces.

use serde_json::{Value, json};

use crate::fix::FixClient;
use crate::partner::Partner;
use crate::sandbox::{Sandbox, approve, refused, said};
use crate::wait::until;

const WHY: [&str; 6] = ["--as", "jo", "--reason", "agreement", "--evidence", "contract 4"];

fn remaining(sandbox: &Sandbox) -> Value {
    said(sandbox, &["maker", "orders", "--partner", "globex"])["orders"][0]["remainingMinor"].clone()
}

/// Whether a candidate of a quote has this rate: processes read the book four times a second.
async fn is_offered(partner: &Partner, rate: &str) -> bool {
    let body = json!({"requestId": uuid::Uuid::new_v4(), "actorId": "a", "source": "USDC", "target": "USD",
                      "amount": "100", "side": "sell"});
    let (status, quoted) = partner.post("/v1/quotes", &body).await;
    assert_eq!(status, 200, "{quoted}");
    quoted["candidates"].to_string().contains(rate)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_makers_order_fills_takers_over_both_interfaces() {
    let sandbox = Sandbox::start().await;
    let maker = ["maker", "set", "--partner", "globex", "--provider", "northwind", "--wallet"];
    let wallet = sandbox.text("/chain/wallets/0/address");
    assert!(refused(&sandbox, &[&maker[..], &["0xno"], &WHY].concat()).contains("0xno"));
    // The wallet that the sandbox's resting orders are released to.
    let solver: String = sandbox.one("select wallet from resting_order limit 1").await;
    let requested = said(&sandbox, &[&maker[..], &[solver.as_str()], &WHY].concat());
    assert_ne!(solver, wallet);
    approve(&sandbox, &requested["id"]);

    // Better than anybody else's price.
    let place = ["maker", "place", "--partner", "globex", "--pair", "USDC/USD", "--rate", "0.9999"];
    let placed = said(
        &sandbox,
        &[&place[..], &["--id", "R-1", "--amount-minor", "20000", "--reason", "by phone"]].concat(),
    );
    assert_eq!((&placed["repeated"], &placed["remainingMinor"]), (&json!(false), &json!("20000")));
    let partner = Partner::of(&sandbox);
    until("the order in the book", async || is_offered(&partner, "0.9999").await).await;

    let order = partner.order(&sandbox, 0, "000123450000").await;
    partner.settled(&order).await;
    assert_eq!(remaining(&sandbox), "10006");
    let permit = partner.order(&sandbox, 1, "000123450000").await["permit"].clone();
    let mut fix = FixClient::log_on(&sandbox).await;
    fix.new_order("ORD-1", "bene_a:dest_10000000", &permit).await;
    fix.report(|report| report.get(11) == "ORD-1" && report.get(150) == "F").await;
    assert_eq!(remaining(&sandbox), "12");
    let number = placed["order"].as_str().unwrap().to_owned();
    let cancelled = said(
        &sandbox,
        &["maker", "cancel", "--partner", "globex", "--order", &number, "--reason", "by phone"],
    );
    assert_eq!(cancelled["cancelledMinor"], "12");
    assert!(refused(&sandbox, &["maker", "orders", "--partner", "acme"]).contains("no maker"));
    assert_eq!(said(&sandbox, &["ledger", "check"])["ok"], true);
    assert_eq!(said(&sandbox, &["audit", "verify"])["ok"], true);
    sandbox.stop().await;
}
