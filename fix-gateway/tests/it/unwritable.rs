//! An order that the database refuses because of its data: refused once, and the session goes on.

use alloy::signers::local::PrivateKeySigner;

use super::{
    client::Client,
    harness::{FixHarness, LIMIT, LOGON, order, order_by, place},
};

/// A database that refuses the order `bad`.
async fn harness() -> FixHarness {
    let harness = FixHarness::new().await;
    for statement in [
        "create function refuse() returns trigger language plpgsql as
         $$ begin raise exception 'broken' using errcode = 'character_not_in_repertoire'; end $$",
        "create trigger refuse before insert on fix_order for each row when (new.cl_ord_id = 'bad')
         execute function refuse()",
    ] {
        harness.execute(statement).await;
    }
    harness
}

/// Reads to the end of the connection.
async fn until_closed(client: &mut Client) {
    while client.next().await.is_some() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_cannot_be_stored_is_refused_when_it_is_resent() {
    let harness = harness().await;
    let (gateway, mut client) = harness.logged_on().await;
    // A wallet that is known when the others come.
    let wallet = PrivateKeySigner::random();
    let by_wallet = |n, id| order_by(&wallet, n, id, "00000008", LIMIT);
    client.send("D", &by_wallet(0, "first")).await;
    client.report("first", "0").await;
    let (bad, after) = (by_wallet(1, "bad"), by_wallet(1, "after"));
    client.try_send("D", &bad).await;
    client.try_send("D", &after).await;
    until_closed(&mut client).await;
    client.reconnect(gateway.addr).await;
    client.log_on(LOGON).await;
    let request = client.expect("2").await;
    assert_eq!(request.text(7), Some("3"), "what follows on the bad one is not stored either");
    let sent = Client::utc();
    client.send_as(3, Some(sent), "D", &bad).await;
    client.send_as(4, Some(sent), "D", &after).await;
    client.send_as(5, Some(sent), "4", &format!("123=Y|36={}", client.next_out)).await;
    let refused = client.expect("j").await;
    assert_eq!((refused.text(45), refused.text(372), refused.text(380)), (Some("3"), Some("D"), Some("0")));
    assert_eq!(refused.text(58), Some("the message cannot be stored"));
    client.report("after", "0").await;
    client.send("D", &by_wallet(2, "later")).await;
    client.report("later", "0").await;
    gateway.stop().await;
    assert_eq!(harness.count("select count(*) from execution").await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_order_that_cannot_be_stored_is_refused_alone() {
    let harness = harness().await;
    let (gateway, mut client) = harness.logged_on().await;
    // Of an uncached wallet: the message's number is durable before the order is decided.
    client.send("D", &order("bad", "00000008", LIMIT)).await;
    until_closed(&mut client).await;
    client.reconnect(gateway.addr).await;
    // The order may be refused before the client is back.
    client.resume(LOGON).await;
    let refused = client.expect("j").await;
    assert_eq!((refused.text(45), refused.text(379), refused.text(380)), (Some("2"), Some("bad"), Some("0")));
    assert_eq!(refused.text(58), Some("the message cannot be stored"));
    place(&mut client, "later", "00000008", LIMIT).await;
    gateway.stop().await;
    assert_eq!(harness.count("select count(*) from fix_parked").await, 0);
    assert_eq!(harness.count("select count(*) from execution").await, 1);
}
