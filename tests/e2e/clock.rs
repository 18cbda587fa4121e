//! The sandbox's one clock as a partner tests with it: a weekend, a return after three days, an expiry.

use chrono::{DateTime, Datelike as _, Days, TimeDelta, Utc, Weekday};
use dvp_domain::calendar::Calendar;
use serde_json::{Value, json};

use crate::partner::Partner;
use crate::sandbox::{Sandbox, said};

const CLOCK: &str = "/v1/sandbox/clock";

fn time(value: &Value) -> DateTime<Utc> {
    value.as_str().unwrap().parse().unwrap()
}

async fn now(partner: &Partner) -> DateTime<Utc> {
    time(&partner.get(CLOCK).await.1["now"])
}

async fn advance(partner: &Partner, to: DateTime<Utc>) {
    let (status, clock) = partner.post(CLOCK, &json!({"advanceTo": to.to_rfc3339()})).await;
    assert_eq!(status, 200, "{clock}");
    assert!(time(&clock["now"]) >= to, "{clock}");
}

/// Euros for dollars to an account of a bank, good for an hour.
async fn order(partner: &Partner, account: &str) -> Value {
    let id = uuid::Uuid::new_v4().to_string();
    json!({
        "intentId": id, "clientReference": format!("ref-{id}"), "user": "acme",
        "inputAsset": {"type": "fiat", "symbol": "EUR", "currency": "EUR"},
        "outputAsset": {"type": "fiat", "symbol": "USD", "currency": "USD"},
        "inputAmountMinor": "10000", "minOutputAmountMinor": "1", "settlementType": "offchain",
        "deadline": (now(partner).await + TimeDelta::hours(1)).timestamp_millis(),
        "beneficiary": {
            "account": account, "name": "Jane Doe", "country": "US", "payoutMethod": "ach",
            "bank": "USABA021000021",
        },
    })
}

fn reference(order: &Value) -> &str {
    order["clientReference"].as_str().unwrap()
}

async fn events_of(partner: &Partner, order: &Value) -> Vec<Value> {
    let (_, page) =
        partner.get(&format!("/v1/events?intentId={}", order["intentId"].as_str().unwrap())).await;
    page["data"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_weekend_a_late_return_and_an_expiry_pass_as_fast_as_a_test_wants() {
    let mut sandbox = Sandbox::start_with(&["--bank-files"]).await;
    let partner = Partner::of(&sandbox);

    // On a Friday evening, before a Monday that is no holiday.
    let mut friday = now(&partner).await.date_naive().succ_opt().unwrap();
    while friday.weekday() != Weekday::Fri || !Calendar::Both.is_business_day(friday + Days::new(3)) {
        friday = friday.succ_opt().unwrap();
    }
    let monday = friday + Days::new(3);
    advance(&partner, friday.and_hms_opt(19, 0, 0).unwrap().and_utc()).await;
    let paid_on_monday = order(&partner, "000123450041").await;
    partner.submit_accepted(&paid_on_monday).await;
    let is_with_the_bank = |execution: &Value| {
        execution["events"].as_array().unwrap().iter().any(|event| event["state"] == "in_progress")
    };
    partner.wait_until(reference(&paid_on_monday), is_with_the_bank).await;
    advance(&partner, monday.and_hms_opt(7, 30, 0).unwrap().and_utc()).await;
    let execution = partner.get(&format!("/v1/executions/{}", reference(&paid_on_monday))).await.1;
    assert_eq!(execution["status"], "in_progress", "{execution}");
    advance(&partner, monday.and_hms_opt(8, 30, 0).unwrap().and_utc()).await;
    let execution = partner.wait_until(reference(&paid_on_monday), |one| one["status"] == "completed").await;
    let last = execution["events"].as_array().unwrap().last().unwrap();
    assert_eq!(time(&last["occurredAt"]).date_naive(), monday, "{execution}");

    // It comes back when it has long been completed.
    let comes_back = order(&partner, "000123450042").await;
    partner.settled(&comes_back).await;
    let since = now(&partner).await;
    advance(&partner, since + TimeDelta::hours(71)).await;
    let kinds = |events: Vec<Value>| -> Vec<String> {
        events.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    };
    let reversed = "payout.reversed".to_owned();
    assert!(!kinds(events_of(&partner, &comes_back).await).contains(&reversed));
    advance(&partner, since + TimeDelta::hours(73)).await;
    let path = format!("/v1/events?intentId={}", comes_back["intentId"].as_str().unwrap());
    partner.wait_for(&path, |page| kinds(page["data"].as_array().unwrap().clone()).contains(&reversed)).await;

    // What was valid for an hour is not any more; the clock goes on from there when the sandbox is started again, and
    // the chain with it.
    let old = order(&partner, "000123456789").await;
    let before = now(&partner).await;
    advance(&partner, before + TimeDelta::hours(2)).await;
    assert_eq!(partner.submit(&old).await.0, 400, "its deadline has passed");
    sandbox.kill_and_start_again().await;
    let partner = Partner::of(&sandbox);
    assert!(now(&partner).await >= before + TimeDelta::hours(2));
    let new = order(&partner, "000123456789").await;
    partner.settled(&new).await;
    partner.wait_for("/v1/rates/WETH/USD", |rate| rate["success"] == true).await;

    // The clock never goes back, and neither does a book.
    let (status, clock) = partner.post(CLOCK, &json!({"advanceTo": before.to_rfc3339()})).await;
    assert!(status == 200 && time(&clock["now"]) > before, "{clock}");
    let far = before + Days::new(61);
    let (status, refusal) = partner.post(CLOCK, &json!({"advanceTo": far.to_rfc3339()})).await;
    assert_eq!((status, &refusal["error"]["param"]), (400, &json!("advanceTo")));
    said(&sandbox, &["ledger", "check"]);
    said(&sandbox, &["audit", "verify"]);
    sandbox.stop().await;
}
