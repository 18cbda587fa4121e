//! Orders by FIX while the service is killed: none is lost or duplicated, and every report is sent once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::fix::{FixClient, sending_time};
use crate::sandbox::Sandbox;

const ROUNDS: usize = 3;
const ORDERS: usize = 8;

/// The received reports and the sent orders, by number.
struct Book {
    client: FixClient,
    sent: BTreeMap<u64, String>,
    received: BTreeMap<u64, BTreeMap<u32, String>>,
}

impl Book {
    /// Money for money, from the prefunded balance: it passes through some states for a while.
    async fn order(&mut self, cl_ord_id: String) {
        let seq = self.client.next_out();
        self.sent.insert(seq, cl_ord_id);
        self.send(seq, false).await;
    }

    async fn send(&mut self, seq: u64, again: bool) {
        let now = sending_time();
        let cl_ord_id = self.sent[&seq].as_str();
        let fields = [
            (11, cl_ord_id),
            (1, "bene_a:dest_10000001"),
            (55, "USD/EUR"),
            (54, "2"),
            (60, now.as_str()),
            (38, "10"),
            (40, "1"),
        ];
        if again {
            self.client.send_as(seq, true, "D", &fields).await;
        } else {
            self.client.send_raw("D", &fields).await;
        }
    }

    /// Reads until the answer to a TestRequest of this name; answers resend requests.
    async fn read_until(&mut self, until: &str) {
        self.client.send_raw("1", &[(112, until)]).await;
        loop {
            let message = self.client.receive().await;
            match message.get(35) {
                "8" => {
                    let seq: u64 = message.get(34).parse().unwrap();
                    let report = [11, 17, 37, 39, 150].map(|tag| (tag, message.get(tag).to_owned()));
                    let report = BTreeMap::from(report);
                    let before = self.received.entry(seq).or_insert_with(|| report.clone());
                    assert_eq!(*before, report, "number {seq} stands for two reports");
                }
                "2" => {
                    let from: u64 = message.get(7).parse().unwrap();
                    self.again(from).await;
                    self.client.send_raw("1", &[(112, until)]).await;
                }
                // A TestRequest: this machine was too busy to send in time.
                "1" => self.client.send_raw("0", &[(112, message.get(112))]).await,
                "0" if message.get(112) == until => return,
                "0" | "4" => {}
                _ => panic!("{} {}", message.get(35), message.get(58)),
            }
        }
    }

    /// Everything from a number on: orders as they were, the rest as a gap.
    async fn again(&mut self, from: u64) {
        let end = self.client.next_out();
        let mut next = from;
        for seq in self.sent.range(from..).map(|(seq, _)| *seq).collect::<Vec<_>>() {
            if seq > next {
                let to = seq.to_string();
                self.client.send_as(next, true, "4", &[(123, "Y"), (36, &to)]).await;
            }
            self.send(seq, true).await;
            next = seq + 1;
        }
        if next < end {
            let to = end.to_string();
            self.client.send_as(next, true, "4", &[(123, "Y"), (36, &to)]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_by_fix_survive_kills_and_reports_match_the_database() {
    let mut sandbox = Sandbox::start().await;
    let client = FixClient::log_on(&sandbox).await;
    let mut book = Book { client, sent: BTreeMap::new(), received: BTreeMap::new() };
    for round in 0..ROUNDS {
        for n in 0..ORDERS {
            book.order(format!("O-{round}-{n}")).await;
        }
        // Killed with orders on every stage of their way.
        for _ in 0..round * 3 {
            book.client.report(|message| message.get(35) == "8").await;
        }
        sandbox.kill_and_start_again().await;
        book.client.log_on_again(&sandbox).await;
        book.read_until(&format!("round {round}")).await;
    }
    let mut conn = sandbox.database().await;
    let expected = i64::try_from(ROUNDS * ORDERS).unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let done: (i64,) = sqlx::query_as(
            "select count(*) from fix_outbound \
             where msg_type = '8' and position('\\x0133393d3201'::bytea in body) > 0",
        )
        .fetch_one(&mut conn)
        .await
        .unwrap();
        if done.0 == expected {
            break;
        }
        assert!(Instant::now() < deadline, "{} of {expected} fills", done.0);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Every message ever sent can be requested again, unchanged.
    book.client.send_raw("2", &[(7, "1"), (16, "0")]).await;
    book.read_until("the end").await;
    let stored: Vec<(i64,)> =
        sqlx::query_as("select seq from fix_outbound where msg_type = '8' order by seq")
            .fetch_all(&mut conn)
            .await
            .unwrap();
    let stored: Vec<u64> = stored.into_iter().map(|(seq,)| u64::try_from(seq).unwrap()).collect();
    assert_eq!(book.received.keys().copied().collect::<Vec<_>>(), stored);
    for cl_ord_id in book.sent.values() {
        for (exec_type, name) in [("0", "new"), ("F", "filled")] {
            let report = book
                .received
                .values()
                .filter(|report| report[&11] == *cl_ord_id && report[&150] == exec_type);
            assert_eq!(report.count(), 1, "{cl_ord_id} {name}");
        }
    }
    let exec_ids: std::collections::BTreeSet<&String> =
        book.received.values().map(|report| &report[&17]).collect();
    assert_eq!(exec_ids.len(), book.received.len());
    let paid: (i64, i64) = sqlx::query_as(
        "select count(*), count(*) filter (where executed = 1) from simulated_rail where leg = 'payout'",
    )
    .fetch_one(&mut conn)
    .await
    .unwrap();
    assert_eq!(paid, (expected, expected));
    sandbox.stop().await;
}
