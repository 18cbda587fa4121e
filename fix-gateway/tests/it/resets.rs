//! Reports that a peer has not seen survive every reset of the numbers.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use dvp_core::workflow::retention::{Ages, round};
use dvp_fix::codec::Message;

use super::{
    client::Client,
    harness::{FixHarness, Gateway, LIMIT, LOGON, SESSION, logged_on, order, place},
    schedule::{HOUR, time_of_day},
};

const STORED: &str =
    "select count(*) from fix_outbound where session_id = 'FIX.4.4:DVP->ACME' and msg_type = '8'";

/// An order whose four reports after the first are numbered while its peer is away, logged out in good order.
async fn away(harness: &FixHarness, gateway: &Gateway) {
    let mut client = gateway.client().await;
    place(&mut client, "away", "12345678", LIMIT).await;
    client.log_out().await;
    harness.settle_everything();
    harness.wait_for_count(STORED, 5).await;
}

/// The states of the reports that follow, each under the number after the one before, and their ExecIDs.
async fn next_reports(client: &mut Client, first: u64, count: u64) -> (Vec<String>, BTreeSet<String>) {
    let (mut states, mut ids) = (Vec::new(), BTreeSet::new());
    for seq in first..first + count {
        let report = client.expect("8").await;
        assert_eq!(report.seq().unwrap().0, seq, "{report:?}");
        states.push(report.text(39).unwrap().to_owned());
        assert!(ids.insert(report.text(17).unwrap().to_owned()), "{report:?}");
    }
    (states, ids)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_on_logon_is_followed_by_the_reports_not_yet_received() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    away(&harness, &gateway).await;
    let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    assert_eq!(client.log_on(&format!("{LOGON}|141=Y")).await.seq().unwrap().0, 1);
    let (states, ids) = next_reports(&mut client, 2, 4).await;
    assert_eq!(states, ["0", "0", "0", "2"]);
    // They can be requested again under their new numbers, and later messages follow them.
    client.send("2", "7=2|16=0").await;
    let mut again = BTreeSet::new();
    for _ in 0..4 {
        let report = client.expect("8").await;
        assert!(report.is_yes(43) && !report.is_yes(97), "never written before: {report:?}");
        again.insert(report.text(17).unwrap().to_owned());
    }
    assert_eq!(again, ids);
    client.send("1", "112=next").await;
    assert_eq!(client.expect("0").await.seq().unwrap().0, 6);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_reset_after_a_cut_marks_the_kept_reports() {
    let harness = FixHarness::new().await;
    let update = "update fix_session set reset_on_logon = true where session_id = $1";
    sqlx::query(update).bind(SESSION).execute(harness.pool()).await.unwrap();
    let gateway = harness.gateway().await;
    away(&harness, &gateway).await;
    let mut client = gateway.client().await;
    let (_, ids) = next_reports(&mut client, 2, 4).await;
    // Cut off: whether they were read is not known here.
    drop(client);
    harness
        .wait_for_count(
            "select count(*) from fix_session where session_id = 'FIX.4.4:DVP->ACME' and written_out = 5",
            1,
        )
        .await;
    let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    client.log_on_when_let_in(gateway.addr, LOGON).await;
    for seq in 2..6 {
        let report = client.expect("8").await;
        assert_eq!(report.seq().unwrap().0, seq, "{report:?}");
        assert!(report.is_yes(97) && !report.is_yes(43), "{report:?}");
        assert!(ids.contains(report.text(17).unwrap()), "{report:?}");
    }
    client.log_out().await;
    // Logged out in good order: seen, and forgotten by the next reset.
    let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    client.log_on_when_let_in(gateway.addr, LOGON).await;
    client.send("1", "112=nothing more").await;
    assert_eq!(client.expect("0").await.seq().unwrap().0, 2);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_duplicates_of_a_waiting_order_under_one_number_have_different_exec_ids() {
    let harness = FixHarness::new().await;
    harness.node.close();
    let (gateway, mut client) = harness.logged_on().await;
    client.send("D", &order("waits", "12345678", LIMIT)).await;
    let before = client.ask("D", &order("waits", "12345678", LIMIT), "8").await;
    client.log_out().await;
    let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    client.log_on_when_let_in(gateway.addr, &format!("{LOGON}|141=Y")).await;
    let after = client.ask("D", &order("waits", "12345678", LIMIT), "8").await;
    let said = |report: &Message| (report.seq().unwrap().0, report.text(11).map(str::to_owned));
    assert_eq!(said(&before), (2, Some("waits".to_owned())));
    assert_eq!(said(&after), said(&before));
    assert_ne!(after.text(17), before.text(17), "{after:?}");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_window_begins_with_the_reports_not_yet_received() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    away(&harness, &gateway).await;
    gateway.stop().await;
    let update = "update fix_session set schedule = $2, epoch = 20000 where session_id = $1";
    let schedule = format!("daily reset {} UTC", time_of_day(Client::utc().0 - HOUR));
    sqlx::query(update).bind(SESSION).bind(schedule).execute(harness.pool()).await.unwrap();
    let gateway = harness.gateway().await;
    let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    let logon = client.log_on(LOGON).await;
    assert_eq!(logon.seq().unwrap().0, 5, "four were kept before it");
    client.send("2", "7=1|16=4").await;
    assert_eq!(next_reports(&mut client, 1, 4).await.0, ["0", "0", "0", "2"]);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_inside_a_session_resends_unsure_reports_with_poss_resend() {
    let (_harness, gateway, mut client) = logged_on().await;
    let report = place(&mut client, "a", "00000008", LIMIT).await;
    client.forget_numbers();
    let answer = client.log_on(&format!("{LOGON}|141=Y")).await;
    assert_eq!((answer.seq().unwrap().0, answer.text(141)), (1, Some("Y")));
    let again = client.expect("8").await;
    assert_eq!((again.seq().unwrap().0, again.text(17)), (2, report.text(17)), "{again:?}");
    assert!(again.is_yes(97) && !again.is_yes(43), "{again:?}");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejection_kept_by_a_reset_names_no_old_number() {
    let (_harness, gateway, mut client) = logged_on().await;
    let unknown =
        format!("115=DESK|11=c|41={}|54=2|55=USD/EUR|60={}", "x".repeat(129), Client::utc().to_millis_text());
    let reject = client.ask("F", &unknown, "j").await;
    assert_eq!((reject.text(45), reject.text(379)), (Some("2"), Some("c")), "{reject:?}");
    client.forget_numbers();
    client.log_on(&format!("{LOGON}|141=Y")).await;
    let again = client.expect("j").await;
    assert!(again.is_yes(97) && again.get(45).is_none(), "{again:?}");
    assert_eq!(again.text(128), Some("DESK"), "{again:?}");
    for tag in [58, 128, 372, 379, 380] {
        assert_eq!(again.text(tag), reject.text(tag), "{again:?}");
    }
    gateway.stop().await;
}

/// A peer that counts the messages it receives, and requests missing ones.
struct Peer {
    client: Client,
    next_in: u64,
    /// The number of unmarked reports by ExecID.
    unmarked: BTreeMap<String, usize>,
}

impl Peer {
    async fn log_on(&mut self, addr: SocketAddr, resets: bool) {
        if resets {
            self.forget_numbers();
        }
        let extra = if resets { "|141=Y" } else { "" };
        let answer = self.client.log_on_when_let_in(addr, &format!("{LOGON}{extra}")).await;
        self.take(&answer).await;
    }

    fn forget_numbers(&mut self) {
        self.next_in = 1;
        self.client.forget_numbers();
    }

    async fn take(&mut self, message: &Message) {
        let seq = message.seq().unwrap().0;
        if seq > self.next_in {
            let begin = self.next_in;
            return self.client.try_send("2", &format!("7={begin}|16=0")).await;
        }
        if seq < self.next_in {
            assert!(message.is_yes(43), "{message:?}");
            return;
        }
        match message.text(35) {
            Some("4") => return self.next_in = message.text(36).unwrap().parse().unwrap(),
            Some("8") => {
                let marked = message.is_yes(43) || message.is_yes(97);
                *self.unmarked.entry(message.text(17).unwrap().to_owned()).or_default() +=
                    usize::from(!marked);
            }
            Some("2") => {
                // It misses our session messages.
                let begin = message.text(7).unwrap().parse().unwrap();
                let end = self.client.next_out;
                self.client.send_as(begin, Some(Client::utc()), "4", &format!("36={end}|123=Y")).await;
            }
            _ => {}
        }
        self.next_in += 1;
    }

    /// Reads up to `count` messages, or until none arrives for a while.
    async fn read(&mut self, count: usize) {
        for _ in 0..count {
            let next = tokio::time::timeout(Duration::from_millis(150), self.client.next()).await;
            let Ok(Some(message)) = next else { return };
            self.take(&message).await;
        }
    }
}

/// A few numbers that look random, and are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_report_survives_random_resets_and_disconnects() {
    let harness = FixHarness::new().await;
    harness.change_settings(|settings| settings.drop_copy = true).await;
    let gateway = harness.gateway().await;
    harness.settle_everything();
    for seed in 1..4 {
        let mut dice = Dice(seed);
        let client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
        let mut peer = Peer { client, next_in: 1, unmarked: BTreeMap::new() };
        peer.log_on(gateway.addr, true).await;
        for round in 0..12 {
            harness.submit_otherwise(&format!("s{seed}r{round}")).await;
            let count = usize::try_from(dice.roll(8)).unwrap();
            peer.read(count).await;
            match dice.roll(4) {
                // Cut off, with messages on their way.
                0 => peer.log_on(gateway.addr, true).await,
                1 => peer.log_on(gateway.addr, false).await,
                2 => {
                    peer.client.try_send("5", "").await;
                    peer.read(100).await;
                    let resets = dice.roll(2) == 0;
                    peer.log_on(gateway.addr, resets).await;
                }
                _ => {
                    peer.forget_numbers();
                    peer.client.try_send("A", &format!("98=0|108=30|{LOGON}|141=Y")).await;
                    // Messages in flight have earlier numbers.
                    while let Ok(Some(message)) =
                        tokio::time::timeout(Duration::from_secs(5), peer.client.next()).await
                    {
                        if message.text(35) == Some("A") {
                            peer.take(&message).await;
                            break;
                        }
                        peer.client.received.clear();
                    }
                }
            }
        }
        let completed = "select count(*) from event where type = 'payout.completed'";
        harness.wait_for_count(completed, 12 * i64::try_from(seed).unwrap()).await;
        check_all_reported(&harness, &mut peer, gateway.addr, seed).await;
    }
    gateway.stop().await;
}

/// Every event of the seed's orders was reported once, or was marked.
async fn check_all_reported(harness: &FixHarness, peer: &mut Peer, addr: SocketAddr, seed: u64) {
    let events = "select reference || '.' || sequence from event where client_reference like $1";
    let all: Vec<(String,)> =
        sqlx::query_as(events).bind(format!("s{seed}r%")).fetch_all(harness.pool()).await.unwrap();
    assert!(all.len() >= 12 * 5, "{all:?}");
    for _ in 0..50 {
        if all.iter().all(|(id,)| peer.unmarked.contains_key(id)) {
            break;
        }
        peer.read(200).await;
        peer.log_on(addr, false).await;
    }
    let missing: Vec<_> = all.iter().filter(|(id,)| !peer.unmarked.contains_key(id)).collect();
    assert!(missing.is_empty(), "never reported: {missing:?}");
    let twice: Vec<_> = peer.unmarked.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "reported twice without a mark: {twice:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_deletes_received_messages_only() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    away(&harness, &gateway).await;
    harness.execute("update fix_outbound set sending_time = 0").await;
    assert!(round(harness.pool(), &Ages::default()).await.failed.is_empty());
    assert_eq!(harness.count("select count(*) from fix_outbound where msg_type = '8'").await, 4);
    let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    client.next_out = 4;
    client.log_on(LOGON).await;
    let fill = client.ask("2", "7=1|16=0", "4").await;
    assert!(fill.is_yes(123), "{fill:?}");
    let first: u64 = fill.text(36).unwrap().parse().unwrap();
    for seq in first..first + 4 {
        let report = client.expect("8").await;
        assert_eq!(report.seq().unwrap().0, seq, "{report:?}");
        assert!(report.is_yes(43), "{report:?}");
    }
    gateway.stop().await;
}
