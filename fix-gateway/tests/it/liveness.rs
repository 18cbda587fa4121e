//! Connections that are dead, peers that do not read, and the end of a process.

use std::net::SocketAddr;

use tokio::net::TcpSocket;

use super::{
    client::Client,
    harness::{FixHarness, LIMIT, LOGON, logged_on, order},
};

/// A client whose side takes little before TCP makes the sender wait.
async fn narrow(addr: SocketAddr) -> Client {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    Client::over(socket.connect(addr).await.unwrap(), "FIX.4.4", "ACME")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_dead_connection_gives_way_to_a_new_one() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    let mut first = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    first.ask("A", &format!("98=0|108=4|{LOGON}"), "A").await;
    // The peer is silent until the TestRequest; then another connection logs on to its session.
    first.expect("1").await;
    let mut second = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    second.send_as(first.next_out, None, "A", &format!("98=0|108=4|{LOGON}")).await;
    // The first answers, and keeps its session.
    first.send("0", "112=TEST").await;
    assert!(second.next().await.is_none());
    first.send("1", "112=still").await;
    while first.expect("0").await.text(112) != Some("still") {}
    // Now it does not answer the TestRequest.
    first.expect("1").await;
    let mut third = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    third.send_as(first.next_out, None, "A", &format!("98=0|108=4|{LOGON}")).await;
    third.next_out = first.next_out + 1;
    third.expect("A").await;
    while first.next().await.is_some() {}
    third.send("1", "112=taken over").await;
    while third.expect("0").await.text(112) != Some("taken over") {}
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_reads_nothing_is_disconnected_and_may_log_on_again() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    let mut client = narrow(gateway.addr).await;
    client.log_on(LOGON).await;
    // Each is answered with as much; none of it is read.
    let text = "x".repeat(30_000);
    let flood = async {
        loop {
            client.try_send("1", &format!("112={text}")).await;
            if client.has_failed() {
                return;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), flood).await.expect("never cut off");
    let mut again = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    again.log_on(&format!("{LOGON}|141=Y")).await;
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resend_to_a_slow_reader_is_complete() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    let mut client = narrow(gateway.addr).await;
    client.log_on(LOGON).await;
    for n in 0..3000 {
        client.send("H", &format!("11=unknown{n}|55=USDC/USD|54=1")).await;
        if n % 100 == 99 {
            for _ in 0..100 {
                client.expect("8").await;
            }
        }
    }
    client.send("2", "7=1|16=0").await;
    client.send("D", &order("live", "12345678", LIMIT)).await;
    // Longer than a peer that takes nothing would be given, but it takes a little all the time.
    let mut expected = 2;
    loop {
        let message = client.expect_any(&["8", "4"]).await;
        if message.text(11) == Some("live") {
            assert!(!message.is_yes(43), "{message:?}");
            break;
        }
        assert!(message.is_yes(43), "{message:?}");
        if message.text(35) == Some("8") {
            assert_eq!(message.seq().unwrap().0, expected, "in order, and nothing in between");
            expected += 1;
        }
    }
    assert_eq!(expected, 3002);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_sends_a_logout_and_awaits_the_answer() {
    let (harness, gateway, mut client) = logged_on().await;
    for n in 0..50 {
        client.send("D", &order(&format!("o{n}"), "12345678", LIMIT)).await;
    }
    let stopping = tokio::spawn(gateway.stop());
    let mut reports = 0;
    let logout = loop {
        let message = client.next().await.unwrap();
        match message.text(35) {
            Some("8") => reports += 1,
            Some("5") => break message,
            _ => {}
        }
    };
    assert_eq!(logout.text(58), Some("server draining, please reconnect"));
    let answer = client.next_out;
    client.send("5", "").await;
    while let Some(message) = client.next().await {
        reports += usize::from(message.text(35) == Some("8"));
    }
    stopping.await.unwrap();
    // The answer to the Logout was counted, and every accepted order was reported or can be requested again.
    let next_in = harness.count("select next_in from fix_session where client_comp_id = 'ACME'").await;
    assert_eq!(next_in, i64::try_from(answer).unwrap() + 1);
    let taken = "select (select count(*) from execution) + (select count(*) from fix_parked)";
    assert_eq!(harness.count(taken).await, 50);
    assert!(reports <= 50);
    // The next process decides the orders that still wait for their wallets.
    let gateway = harness.gateway().await;
    harness.wait_for_count("select count(*) from execution", 50).await;
    gateway.stop().await;
    let stored =
        harness.count("select count(*) from fix_outbound where session_id = 'FIX.4.4:DVP->ACME'").await;
    assert_eq!(stored, 50);
}
