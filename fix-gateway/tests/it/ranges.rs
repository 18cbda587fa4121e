//! Range orders over FIX: a falling price between TargetPrice(20030) and Price(44).

use dvp_core::{context::now, ranges};
use dvp_fix::{UtcNanos, codec::Message};

use super::harness::{FixHarness, logged_on, order};
use super::terms::adds_up;

/// Sells 100 USDC, which give 99.35, for an output that falls over a time.
fn falling(id: &str, target: &str, limit: &str, lifetime_ms: i64) -> String {
    let ends = u64::try_from(now().plus_millis(lifetime_ms).millis()).unwrap() * 1_000_000;
    let ends = UtcNanos(ends).to_millis_text();
    order(id, "12345678", &format!("40=2|44={limit}|20030={target}|59=6|126={ends}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_rests_as_new_and_is_cancelled() {
    let (harness, gateway, mut client) = logged_on().await;
    let new = client.ask("D", &falling("rests", "1", "0.95", 600_000), "8").await;
    assert_eq!((new.text(150), new.text(39), new.text(151)), (Some("0"), Some("0"), Some("100")), "{new:?}");
    assert_eq!(harness.count("select count(*) from execution where state_name = 'resting'").await, 1);
    let status = client.ask("H", "11=rests|54=2|55=USDC/USD", "8").await;
    assert_eq!((status.text(150), status.text(39), status.text(14)), (Some("I"), Some("0"), Some("0")));
    let cancelled =
        client.ask("F", "11=cancel|41=rests|54=2|55=USDC/USD|60=20270101-00:00:00|38=100", "8").await;
    assert_eq!((cancelled.text(150), cancelled.text(39)), (Some("4"), Some("4")), "{cancelled:?}");
    assert_eq!((cancelled.text(11), cancelled.text(41)), (Some("cancel"), Some("rests")));
    assert_eq!(harness.count("select count(*) from resting_range").await, 0);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_is_filled_when_it_has_fallen_to_the_market_and_one_at_the_market_at_once() {
    let harness = FixHarness::new().await;
    tokio::spawn(ranges::run(harness.engine.clone(), harness.stopped()));
    harness.settle_everything();
    let (gateway, mut client) = harness.logged_on().await;
    client.send("D", &falling("falls", "1", "0.98", 3_000)).await;
    assert_eq!(client.expect("8").await.text(39), Some("0"));
    let filled = client.report("falls", "1").await;
    let number = |tag| filled.text(tag).unwrap().parse::<rust_decimal::Decimal>().unwrap();
    assert_eq!(filled.text(150), Some("F"), "{filled:?}");
    assert!(number(14) < 100.into() && number(14) > 98.into(), "{filled:?}");
    assert_eq!(number(14) + number(151), 100.into(), "{filled:?}");
    assert!(number(118) >= 98.into() && number(118) < "99.37".parse().unwrap(), "{filled:?}");
    adds_up(&filled, false);
    // The rest is not sold, and a status says so.
    let rest = client.report("falls", "4").await;
    let words = |report: &Message| [150, 39, 151, 58].map(|tag| report.text(tag).unwrap_or("-").to_owned());
    assert_eq!(words(&rest), ["4", "4", "0", "the rest is not traded"], "{rest:?}");
    assert_eq!((rest.text(14), rest.text(32), rest.text(118)), (filled.text(14), None, None), "{rest:?}");
    let status = client.ask("H", "11=falls|54=2|55=USDC/USD", "8").await;
    assert_eq!((status.text(39), status.text(14)), (Some("4"), filled.text(14)), "{status:?}");
    // The protocol fee of what was sold, and not of all that might have been.
    let sql = "select ((object #>> '{input,amountMinor}')::numeric - (object #>> '{offramp,fromAmountMinor}')::numeric)::text \
         from event where type = 'payout.completed'";
    let (fee,): (String,) = harness.row(sql).await;
    let fee: rust_decimal::Decimal = fee.parse().unwrap();
    assert_eq!(number(20109) * rust_decimal::Decimal::from(1_000_000), fee);
    client.send("D", &falling("met", "0.99", "0.9", 600_000)).await;
    assert_eq!(client.report("met", "0").await.text(150), Some("0"));
    let met = client.report("met", "1").await;
    let sold: rust_decimal::Decimal = met.text(14).unwrap().parse().unwrap();
    assert!(sold < 100.into(), "the input not needed stays with the user: {met:?}");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_that_nobody_fills_expires() {
    let harness = FixHarness::new().await;
    harness.settle_everything();
    let (gateway, mut client) = harness.logged_on().await;
    client.send("D", &falling("waits", "1", "0.99", 1_500)).await;
    assert_eq!(client.expect("8").await.text(39), Some("0"));
    let expired = client.report("waits", "C").await;
    assert_eq!((expired.text(150), expired.text(14), expired.text(151)), (Some("C"), Some("0"), Some("0")));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_that_is_none_is_rejected() {
    let (_harness, gateway, mut client) = logged_on().await;
    let of = |id: &str, fields: &str| order(id, "12345678", fields);
    for (body, text) in [
        (of("buy", "40=2|44=0.9|20030=1").replace("|54=2", "|54=1"), "TargetPrice(20030) is for Side(54) 2"),
        (of("market", "40=1|20030=1"), "TargetPrice(20030) is for OrdType(40) 2 with Price(44)"),
        (of("rises", "40=2|44=1|20030=0.9"), "TargetPrice(20030) must be above Price(44)"),
        (of("dear", "40=2|44=1.1|20030=1.2"), "below_minimum_output"),
    ] {
        let report = client.ask("D", &body, "8").await;
        assert_eq!((report.text(39), report.text(58)), (Some("8"), Some(text)), "{report:?}");
    }
    gateway.stop().await;
}
