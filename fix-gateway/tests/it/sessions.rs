use std::net::SocketAddr;

use dvp_testing::wait::wait_for;

use super::{
    client::Client,
    harness::{FixHarness, LIMIT, LOGON, logged_on, order, place},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_continue_after_a_kill_and_nothing_is_lost_or_repeated() {
    let harness = FixHarness::new().await;
    let mut gateway = harness.gateway().await;
    let mut client = gateway.client().await;
    let mut sent = Vec::new();
    for round in 0..4 {
        for n in 0..30 {
            let body = order(&format!("r{round}n{n}"), "12345678", LIMIT);
            sent.push((client.next_out, body.clone()));
            client.send("D", &body).await;
        }
        // Killed with orders on every stage of their way.
        for _ in 0..round * 5 {
            client.expect("8").await;
        }
        gateway.kill().await;
        let next_out = harness.count("select next_out from fix_session where client_comp_id = 'ACME'").await;
        let received = client.received.keys().map(|seq| i64::try_from(*seq).unwrap());
        assert!(received.max() < Some(next_out), "sent before it was durable");
        gateway = harness.gateway().await;
        client = log_on_again(client, gateway.addr, &sent).await;
    }
    harness.wait_for_count("select count(*) from execution", 120).await;
    // Every message ever sent can be requested again, unchanged.
    client.send("2", "7=1|16=0").await;
    client.send("1", "112=end").await;
    let mut reported = std::collections::BTreeSet::new();
    loop {
        let message = client.next().await.unwrap();
        match message.text(35) {
            Some("8") => {
                reported.insert(message.text(11).unwrap().to_owned());
            }
            Some("0") if message.text(112) == Some("end") => break,
            _ => {}
        }
    }
    assert_eq!(reported.len(), 120);
    gateway.stop().await;
}

/// Logs on with the earlier numbers, and answers resend requests until both sides agree.
async fn log_on_again(mut client: Client, addr: SocketAddr, sent: &[(u64, String)]) -> Client {
    client.log_on_when_let_in(addr, LOGON).await;
    client.send("1", "112=agreed").await;
    loop {
        let message = client.next().await.expect("the session goes on");
        match message.text(35) {
            Some("2") => {
                let begin: u64 = message.text(7).unwrap().parse().unwrap();
                let orig = Some(Client::utc());
                let mut next = begin;
                for (seq, body) in sent.iter().filter(|(seq, _)| *seq >= begin) {
                    if *seq > next {
                        client.send_as(next, orig, "4", &format!("36={seq}|123=Y")).await;
                    }
                    client.send_as(*seq, orig, "D", body).await;
                    next = seq + 1;
                }
                let end = client.next_out;
                client.send_as(next, orig, "4", &format!("36={end}|123=Y")).await;
                client.send("1", "112=agreed").await;
            }
            Some("0") if message.text(112) == Some("agreed") => return client,
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_for_a_disconnected_peer_come_by_resend() {
    let (harness, gateway, mut client) = logged_on().await;
    place(&mut client, "away", "12345678", LIMIT).await;
    let logout = client.log_out().await.seq().unwrap().0;
    harness.settle_everything();
    harness.wait_for_count("select count(*) from fix_outbound where msg_type = '8'", 5).await;
    client.reconnect(gateway.addr).await;
    let logon = client.log_on(LOGON).await.seq().unwrap().0;
    assert_eq!(logon, logout + 5, "four reports were numbered meanwhile");
    client.send("2", &format!("7={}|16={}", logout + 1, logon - 1)).await;
    let mut reported = Vec::new();
    for _ in 0..4 {
        let report = client.expect("8").await;
        assert!(report.is_yes(43), "{report:?}");
        reported.push(report.text(39).unwrap().to_owned());
    }
    assert_eq!(reported, ["0", "0", "0", "2"]);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_releases_each_session_once() {
    let harness = FixHarness::new().await;
    for starts in 1..=5_i64 {
        let gateway = harness.gateway().await;
        let leases = || async {
            let held =
                "select count(*) from lease where name like 'fix:%' and expires_at > clock_timestamp()";
            let held: i64 = sqlx::query_scalar(held).fetch_one(harness.pool()).await.unwrap();
            (held == 3).then_some(())
        };
        wait_for("the leases of all sessions", leases).await;
        gateway.stop().await;
        let sql = "select fence, expires_at <= clock_timestamp() from lease where name like 'fix:%'";
        let released: Vec<(i64, bool)> = harness.rows(sql).await;
        assert_eq!(released, [(starts, true); 3]);
    }
}
