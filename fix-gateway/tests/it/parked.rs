//! Orders that wait for the look-up of their wallet: other orders go on, and nothing is lost or reported twice.

use alloy::signers::local::PrivateKeySigner;
use dvp_core::liquidity::Liquidity;
use dvp_fix::codec::Message;
use dvp_testing::market::north;
use dvp_testing::wait::wait_until;

use super::harness::{FixHarness, Gateway, LIMIT, LOGON, cancel, order, order_by, purchase};

const PARKED: &str = "select count(*) from fix_parked";
const EXECUTIONS: &str = "select count(*) from execution";

#[track_caller]
fn assert_report(report: &Message, cl_ord_id: &str, exec_type: &str, ord_status: &str) {
    let said = (report.text(11), report.text(150), report.text(39));
    assert_eq!(said, (Some(cl_ord_id), Some(exec_type), Some(ord_status)), "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_session_continues_during_a_wallet_look_up() {
    let harness = FixHarness::new().await;
    let (gateway, mut client) = harness.logged_on().await;
    let known = PrivateKeySigner::random();
    client.send("D", &order_by(&known, 0, "rests", "00000008", LIMIT)).await;
    assert_report(&client.expect("8").await, "rests", "0", "0");
    harness.node.close();
    client.send("D", &order("unknown", "12345678", LIMIT)).await;
    client.send("1", "112=still here").await;
    assert_eq!(client.expect("0").await.text(112), Some("still here"));
    client.send("D", &order_by(&known, 1, "known", "12345678", LIMIT)).await;
    assert_report(&client.expect("8").await, "known", "0", "0");
    let fiat = client.ask("D", &purchase("fiat"), "8").await;
    assert_report(&fiat, "fiat", "8", "8");
    assert_eq!(fiat.text(58), Some("no_liquidity"), "decided, by the engine");
    client.send("F", &cancel("c1", "rests")).await;
    assert_report(&client.expect("8").await, "c1", "4", "4");
    let status = client.ask("H", "11=unknown|54=2|55=USDC/USD", "8").await;
    assert_report(&status, "unknown", "I", "A");
    assert_eq!((status.text(37), status.text(151)), (Some("NONE"), Some("100")), "{status:?}");
    client.send("AF", "584=all|585=7").await;
    let open = [client.expect("8").await, client.expect("8").await];
    assert_eq!(open.each_ref().map(|report| report.text(911)), [Some("2"); 2], "{open:?}");
    assert_eq!(open.each_ref().map(|report| report.text(912)), [Some("N"), Some("Y")], "{open:?}");
    assert!(open.iter().any(|report| (report.text(11), report.text(39)) == (Some("unknown"), Some("A"))));
    assert_eq!(harness.count(PARKED).await, 1);
    harness.node.open();
    let new = client.expect("8").await;
    assert_report(&new, "unknown", "0", "0");
    assert!(new.text(37).unwrap().starts_with("exe_"), "{new:?}");
    assert_eq!(harness.count(PARKED).await, 0);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_of_one_wallet_are_decided_in_order_by_one_look_up() {
    let harness = FixHarness::new().await;
    harness.node.close();
    let (gateway, mut client) = harness.logged_on().await;
    let wallet = PrivateKeySigner::random();
    for nonce in 0..5 {
        client.send("D", &order_by(&wallet, nonce, &format!("o{nonce}"), "12345678", LIMIT)).await;
    }
    harness.wait_for_count(PARKED, 5).await;
    harness.node.open();
    for nonce in 0..5 {
        assert_report(&client.expect("8").await, &format!("o{nonce}"), "0", "0");
    }
    assert_eq!(harness.node.reads(), 1);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_order_can_be_cancelled() {
    let harness = FixHarness::new().await;
    harness.node.close();
    let (gateway, mut client) = harness.logged_on().await;
    let body = order("waits", "12345678", LIMIT);
    client.send("D", &body).await;
    let canceled = client.ask("F", &cancel("c1", "waits"), "8").await;
    assert_report(&canceled, "c1", "4", "4");
    assert_eq!((canceled.text(41), canceled.text(37)), (Some("waits"), Some("NONE")), "{canceled:?}");
    let late = client.ask("F", &cancel("c2", "waits"), "9").await;
    assert_eq!((late.text(102), late.text(39)), (Some("0"), Some("4")), "{late:?}");
    client.send("H", "11=waits|54=2|55=USDC/USD").await;
    assert_report(&client.expect("8").await, "waits", "I", "4");
    harness.node.open();
    let again = client.ask("D", &body, "8").await;
    assert_report(&again, "waits", "8", "8");
    assert_eq!(again.text(103), Some("6"), "{again:?}");
    assert_eq!((harness.count(PARKED).await, harness.count(EXECUTIONS).await), (0, 0));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_order_consumes_its_cl_ord_id() {
    let harness = FixHarness::new().await;
    harness.node.close();
    let (gateway, mut client) = harness.logged_on().await;
    let body = order("waits", "12345678", LIMIT);
    client.send("D", &body).await;
    for other in
        [order("waits", "12345678", LIMIT), order("waits", "1", LIMIT).replace("USDC/USD", "GOLD/USD")]
    {
        let again = client.ask("D", &other, "8").await;
        assert_report(&again, "waits", "8", "8");
        assert_eq!(again.text(103), Some("6"), "{again:?}");
    }
    client.send("F", &cancel("waits", "waits")).await;
    assert_eq!(client.expect("9").await.text(102), Some("6"));
    client.send("D", &format!("97=Y|{body}")).await;
    assert_report(&client.expect("8").await, "waits", "A", "A");
    harness.node.open();
    assert_report(&client.expect("8").await, "waits", "0", "0");
    assert_eq!(harness.count(EXECUTIONS).await, 1);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_order_that_is_refused_has_another_exec_id_than_while_it_was_pending() {
    let harness = FixHarness::new().await;
    harness.node.close();
    let (gateway, mut client) = harness.logged_on().await;
    let body = order_by(&PrivateKeySigner::random(), 5, "gap", "12345678", LIMIT);
    client.send("D", &body).await;
    let mut exec_ids = Vec::new();
    for _ in 0..2 {
        let pending = client.ask("D", &format!("97=Y|{body}"), "8").await;
        assert_report(&pending, "gap", "A", "A");
        exec_ids.push(pending.text(17).unwrap().to_owned());
    }
    assert_eq!(exec_ids[0], exec_ids[1], "the same report");
    harness.node.open();
    let refused = client.expect("8").await;
    assert_report(&refused, "gap", "8", "8");
    assert_ne!(refused.text(17), Some(exec_ids[0].as_str()));
    client.send("D", &format!("97=Y|{body}")).await;
    assert_eq!(client.expect("8").await.text(17), refused.text(17), "repeated");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_whose_look_up_fails_may_be_sent_again() {
    let harness = FixHarness::new().await;
    harness.node.set_failing(true);
    let (gateway, mut client) = harness.logged_on().await;
    let body = order("again", "12345678", LIMIT);
    let refused = client.ask("D", &body, "j").await;
    assert_eq!((refused.text(380), refused.text(45)), (Some("4"), Some("2")), "{refused:?}");
    harness.node.set_failing(false);
    client.send("D", &body).await;
    assert_report(&client.expect("8").await, "again", "0", "0");
    assert_eq!(harness.count(PARKED).await, 0);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_order_is_decided_once_after_a_kill() {
    let mut harness = FixHarness::new().await;
    harness.node.close();
    let (gateway, mut client) = harness.logged_on().await;
    let body = order("waits", "12345678", LIMIT);
    client.send("D", &body).await;
    client.send("D", &order("cancelled", "12345678", LIMIT)).await;
    client.send("F", &cancel("c1", "cancelled")).await;
    assert_report(&client.expect("8").await, "c1", "4", "4");
    gateway.kill().await;
    assert_eq!((harness.count(PARKED).await, harness.count(EXECUTIONS).await), (1, 0));
    harness.forget();
    assert_eq!(harness.node.reads(), 2);
    let gateway = harness.gateway().await;
    // Once the lease of the killed one has run out, the order is taken up.
    wait_until("the wallet is looked up again", || harness.node.reads() == 3).await;
    client.reconnect(gateway.addr).await;
    client.log_on(LOGON).await;
    // The order still waits: another order with its ClOrdID is refused, and its own repetition gets its status.
    client.send("D", &order("waits", "12345678", LIMIT)).await;
    assert_report(&client.expect("8").await, "waits", "8", "8");
    client.send("D", &format!("97=Y|{body}")).await;
    assert_report(&client.expect("8").await, "waits", "A", "A");
    harness.node.open();
    assert_report(&client.expect("8").await, "waits", "0", "0");
    client.send("D", &format!("97=Y|{body}")).await;
    assert_report(&client.expect("8").await, "waits", "0", "0");
    assert_eq!((harness.count(PARKED).await, harness.count(EXECUTIONS).await), (0, 1));
    gateway.stop().await;
}

/// The gateway of another process, for which a USDC is worth this many USD.
async fn gateway_at(harness: &mut FixHarness, price: &str) -> Gateway {
    let mut registry = harness.engine.context().registry.clone();
    registry.pairs.iter_mut().for_each(|pair| pair.reference_price = price.parse().ok());
    harness.engine = harness.engine_with(Liquidity::configured(&registry, [north()]));
    harness.gateway().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_order_at_market_keeps_the_price_of_its_arrival_after_a_kill() {
    let mut harness = FixHarness::new().await;
    harness.node.close();
    let (gateway, mut client) = harness.logged_on().await;
    client.send("D", &order("waits", "12345678", "40=1")).await;
    harness.wait_for_count(PARKED, 1).await;
    gateway.kill().await;
    let gateway = gateway_at(&mut harness, "0.9").await;
    harness.node.open();
    // Once the lease of the killed one has run out.
    harness.wait_for_count(PARKED, 0).await;
    client.reconnect(gateway.addr).await;
    client.resume(LOGON).await;
    assert_report(&client.expect("8").await, "waits", "8", "8");
    // The same order is taken now.
    client.send("D", &order("now", "12345678", "40=1")).await;
    assert_report(&client.expect("8").await, "now", "0", "0");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_of_the_numbers_loses_no_parked_order() {
    let harness = FixHarness::new().await;
    harness.node.close();
    let (gateway, mut client) = harness.logged_on().await;
    client.send("D", &order("waits", "12345678", LIMIT)).await;
    harness.wait_for_count(PARKED, 1).await;
    client.reconnect(gateway.addr).await;
    client.forget_numbers();
    client.log_on(&format!("141=Y|{LOGON}")).await;
    harness.node.open();
    let new = client.expect("8").await;
    assert_report(&new, "waits", "0", "0");
    assert_eq!(new.seq().unwrap().0, 2, "{new:?}");
    assert_eq!((harness.count(PARKED).await, harness.count(EXECUTIONS).await), (0, 1));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_parked_orders_over_the_limit_are_refused() {
    const BOUND: usize = 4;
    let harness = FixHarness::new().await;
    harness.node.close();
    // A small bound: all orders are sent and decided well within the time that a look-up has.
    let gateway = harness.gateway_as(Vec::new(), |config| config.parked_orders_max = BOUND).await;
    let mut client = gateway.client().await;
    for n in 0..=BOUND {
        client.send("D", &order(&format!("o{n}"), "12345678", LIMIT)).await;
    }
    let refused = client.expect("j").await;
    assert_eq!((refused.text(380), refused.text(45)), (Some("4"), Some("6")), "{refused:?}");
    client.send("D", &purchase("fiat")).await;
    assert_report(&client.expect("8").await, "fiat", "8", "8");
    harness.node.open();
    for _ in 0..BOUND {
        let report = client.expect("8").await;
        assert_eq!(report.text(39), Some("0"), "{report:?}");
    }
    assert_eq!((harness.count(PARKED).await, harness.count(EXECUTIONS).await), (0, 4));
    gateway.stop().await;
}
