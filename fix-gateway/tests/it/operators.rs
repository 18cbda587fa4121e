//! Operators' commands for sessions of a running service, and sessions that cannot be run.

use std::time::{Duration, Instant};

use dvp_core::operators::fix_sessions;
use dvp_core::secrets::Vault;
use dvp_fix_gateway::stale_types;
use dvp_store::{
    fix::{
        self, admin as fix_admin,
        commands::{self as fix_commands, NewSessionCommand, SessionAction},
    },
    orders::feed,
    partners::registry,
};

use dvp_testing::market::master_key;

use super::{
    client::Client,
    harness::{FIXT, FixHarness, LIMIT, LOGON, SESSION, logged_on, order, place},
    schedule::{HOUR, time_of_day},
};

/// The lease of the session's owner.
const HELD: &str =
    "select count(*) from lease where name = 'fix:FIX.4.4:DVP->ACME' and expires_at > clock_timestamp()";

/// Sends a command to the session's owner; returns the answer, and whether it failed.
async fn ask(harness: &FixHarness, action: SessionAction) -> (String, bool) {
    let mut conn = harness.pool().acquire().await.unwrap();
    let command = NewSessionCommand {
        session_id: SESSION.into(),
        action,
        operator: "ops".into(),
        reason: "a test".into(),
    };
    let id = fix_commands::insert_command(&mut conn, &command, None).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let answer = fix_commands::load_answer(&mut conn, id).await.unwrap();
        if let Some(outcome) = answer.outcome {
            return (outcome, answer.failed);
        }
        assert!(Instant::now() < deadline, "never answered");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn set_enabled(harness: &FixHarness, enabled: bool) {
    let mut conn = harness.pool().acquire().await.unwrap();
    assert!(fix_admin::set_enabled(&mut conn, SESSION, enabled).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disabling_a_session_logs_its_peer_out_until_it_is_enabled() {
    let (harness, gateway, mut client) = logged_on().await;
    set_enabled(&harness, false).await;
    assert_eq!(client.expect("5").await.text(58), Some("session disabled"));
    client.send("5", "").await;
    assert!(client.next().await.is_none());
    harness.wait_for_count(HELD, 0).await;
    client.reconnect(gateway.addr).await;
    assert!(client.is_refused(LOGON).await);
    set_enabled(&harness, true).await;
    client.log_on_when_let_in(gateway.addr, LOGON).await;
    gateway.stop().await;
}

/// Moves all events so far to the history, as the retention does when they are old.
async fn trim_feed(harness: &FixHarness) {
    let aged = "update event set occurred_at = occurred_at - interval '16 days', \
                                 observed_at = observed_at - interval '16 days'";
    harness.execute(aged).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    while feed::trim(&mut conn, 1000).await.unwrap() > 0 {}
    assert_eq!(harness.count("select count(*) from event").await, 0);
}

/// Logs on, and requests the reports that were stored before.
async fn log_on_for_reports(client: &mut Client, addr: std::net::SocketAddr) {
    let logon = client.log_on_when_let_in(addr, LOGON).await.seq().unwrap().0;
    client.request_missed(logon).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_was_disabled_reports_events_that_have_left_the_feed() {
    let (harness, gateway, mut client) = logged_on().await;
    place(&mut client, "a", "12345678", LIMIT).await;
    set_enabled(&harness, false).await;
    assert_eq!(client.expect("5").await.text(58), Some("session disabled"));
    client.send("5", "").await;
    assert!(client.next().await.is_none());
    harness.wait_for_count(HELD, 0).await;
    harness.settle_everything();
    harness.wait_for_count("select count(*) from execution where state_name = 'completed'", 1).await;
    let returned = r#"insert into effect (reference, kind, run_at, called, verdict)
        select reference, 'reversal', now(), true,
               '{"verdict": "payment_returned", "provider_reference": "R1", "occurred_at": "2026-01-01T00:00:00Z",
                 "code": "c", "message": "m"}' from execution"#;
    harness.execute(returned).await;
    harness.wait_for_count("select count(*) from execution where state_name = 'reversed'", 1).await;
    trim_feed(&harness).await;
    set_enabled(&harness, true).await;
    log_on_for_reports(&mut client, gateway.addr).await;
    assert_eq!(client.report("a", "2").await.text(150), Some("F"));
    assert_eq!(client.report("a", "4").await.text(150), Some("H"));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_copy_that_was_disabled_copies_events_that_have_left_the_feed() {
    let harness = FixHarness::new().await;
    harness.change_settings(|settings| settings.drop_copy = true).await;
    set_enabled(&harness, false).await;
    let gateway = harness.gateway().await;
    harness.settle_everything();
    harness.submit_otherwise("by rest").await;
    harness.wait_for_count("select count(*) from event where type = 'payout.completed'", 1).await;
    trim_feed(&harness).await;
    set_enabled(&harness, true).await;
    let mut copy = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    log_on_for_reports(&mut copy, gateway.addr).await;
    assert_eq!(copy.report("by rest", "2").await.text(150), Some("F"));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_under_an_earlier_master_key_is_accepted_and_reencrypted() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    let earlier = Vault::with_keys(vec![master_key("2025", 6)]).unwrap();
    let mut conn = harness.pool().acquire().await.unwrap();
    let hash = earlier.fix_password_hash(SESSION, "secret");
    fix::rehash_password(&mut conn, SESSION, &hash, "2025").await.unwrap();
    let _client = gateway.client().await;
    let current = "select count(*) from fix_session where password_key = '2026'";
    harness.wait_for_count(current, 3).await;
    let kept = fix::find_session(&mut conn, SESSION).await.unwrap().unwrap();
    assert_ne!(kept.password_hash, hash);
    gateway.stop().await;
}

async fn switch_partner(harness: &FixHarness, enabled: bool) {
    let mut tx = harness.pool().begin().await.unwrap();
    let partner: (String,) = sqlx::query_as("select partner_id from fix_session where session_id = $1")
        .bind(SESSION)
        .fetch_one(&mut *tx)
        .await
        .unwrap();
    assert!(registry::switch_partner(&mut tx, &partner.0, enabled, "ops", "a test").await.unwrap());
    tx.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disabling_a_partner_refuses_its_orders_and_logs_its_sessions_out() {
    let harness = FixHarness::new().await;
    // The owner reloads its sessions when it is notified of a change only.
    let gateway = harness.gateway_as(Vec::new(), |config| config.refresh = Duration::from_secs(3600)).await;
    let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    client.log_on_when_let_in(gateway.addr, LOGON).await;
    place(&mut client, "a", "00000008", LIMIT).await;
    // Before the session's owner is notified, the commit refuses the order.
    harness.execute("alter table partner disable trigger partner_switched").await;
    switch_partner(&harness, false).await;
    client.send("D", &order("b", "00000008", LIMIT)).await;
    let refused = client.report("b", "8").await;
    assert_eq!(refused.text(58), Some("partner disabled"));
    switch_partner(&harness, true).await;
    harness.execute("alter table partner enable trigger partner_switched").await;
    switch_partner(&harness, false).await;
    assert_eq!(client.expect("5").await.text(58), Some("session disabled"));
    client.send("5", "").await;
    assert!(client.next().await.is_none());
    client.reconnect(gateway.addr).await;
    assert!(client.is_refused(LOGON).await);
    switch_partner(&harness, true).await;
    client.log_on_when_let_in(gateway.addr, LOGON).await;
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_logs_a_peer_out_and_it_may_log_on_again() {
    let (harness, gateway, mut client) = logged_on().await;
    let (answer, logout) = tokio::join!(ask(&harness, SessionAction::Logout), async {
        let logout = client.expect("5").await;
        client.send("5", "").await;
        logout
    });
    assert_eq!(logout.text(58), Some("logged out by an operator"));
    assert_eq!(answer, ("logged out".to_owned(), false));
    client.log_on_when_let_in(gateway.addr, LOGON).await;
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operators_reset_keeps_reports_that_were_not_received() {
    let (harness, gateway, mut client) = logged_on().await;
    let report = place(&mut client, "a", "00000008", LIMIT).await;
    let (answer, ()) = tokio::join!(ask(&harness, SessionAction::Reset), async {
        client.expect("5").await;
        // The peer disconnects instead of answering: its received messages are unsure.
        client.reconnect(gateway.addr).await;
    });
    assert_eq!(answer, ("reset; 1 messages that the peer has not seen were kept".to_owned(), false));
    client.forget_numbers();
    assert_eq!(client.log_on_when_let_in(gateway.addr, LOGON).await.seq().unwrap().0, 2);
    let again = client.ask("2", "7=1|16=1", "8").await;
    assert_eq!((again.seq().unwrap().0, again.text(17)), (1, report.text(17)), "{again:?}");
    assert!(again.is_yes(97), "{again:?}");
    gateway.stop().await;
}

/// As after a restore: a process with the role `fix` is started once the numbers are those that the peer expects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_no_process_has_is_reset_and_numbers_no_report_until_one_has_it() {
    let (harness, gateway, mut client) = logged_on().await;
    place(&mut client, "a", "12345678", LIMIT).await;
    client.log_out().await;
    gateway.stop().await;

    let command = fix_sessions::command(SESSION, SessionAction::Reset, "ops", "restored").unwrap();
    let mut conn = harness.pool().acquire().await.unwrap();
    let outcome = fix_sessions::carry_out(&mut conn, &command, &stale_types()).await.unwrap();
    assert_eq!(outcome, "next in 1, next out 1");
    drop(conn);
    harness.settle_everything();
    harness.wait_for_count("select count(*) from execution where state_name = 'completed'", 1).await;
    let next_out = "select next_out from fix_session where session_id = 'FIX.4.4:DVP->ACME'";
    assert_eq!(harness.count(next_out).await, 1);

    let gateway = harness.gateway().await;
    client.forget_numbers();
    log_on_for_reports(&mut client, gateway.addr).await;
    client.report("a", "2").await;
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_are_set_forwards_and_never_reused() {
    let (harness, gateway, mut client) = logged_on().await;
    client.log_out().await;
    let set = |next_in, next_out, with_reset| SessionAction::SetSeq { next_in, next_out, with_reset };
    let (outcome, failed) = ask(&harness, set(10, 2, false)).await;
    assert!(failed && outcome.contains("next_out is 3"), "{outcome}");
    assert!(!ask(&harness, set(10, 20, false)).await.1);
    client.next_out = 10;
    assert_eq!(client.log_on_when_let_in(gateway.addr, LOGON).await.seq().unwrap().0, 20);
    client.log_out().await;
    assert!(!ask(&harness, set(5, 2, true)).await.1);
    client.next_out = 5;
    client.received.clear();
    assert_eq!(client.log_on_when_let_in(gateway.addr, LOGON).await.seq().unwrap().0, 2);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_settings_apply_from_the_next_connection_on() {
    let (harness, gateway, mut client) = logged_on().await;
    harness.change_settings(|settings| settings.last_msg_seq_num_processed = true).await;
    client.send("1", "112=undisturbed").await;
    assert_eq!(client.expect("0").await.text(369), None);
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        client.log_out().await;
        client.log_on_when_let_in(gateway.addr, LOGON).await;
        client.send("1", "112=changed").await;
        if client.expect("0").await.text(369).is_some() {
            break;
        }
        assert!(Instant::now() < deadline, "settings never held");
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_session_affects_no_other_and_runs_once_repaired() {
    let harness = FixHarness::new().await;
    harness.execute("update fix_session set schedule = 'always' where client_comp_id = 'ACME'").await;
    // An array with nothing in one of its places is no list of fingerprints.
    harness
        .execute(
            "update fix_session set client_cert_sha256 = array[null]::bytea[] where client_comp_id = 'ACME42'",
        )
        .await;
    let gateway = harness.gateway().await;
    let _other = gateway.client_of(FIXT).await;
    harness.execute("update fix_session set schedule = null where client_comp_id = 'ACME'").await;
    let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    client.log_on_when_let_in(gateway.addr, LOGON).await;
    harness.execute("update fix_session set client_cert_sha256 = null where client_comp_id = 'ACME42'").await;
    let mut client = Client::connect(gateway.addr, "FIX.4.2", "ACME42").await;
    client.log_on_when_let_in(gateway.addr, LOGON).await;
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_on_disconnect_works_outside_the_schedule() {
    let harness = FixHarness::new().await;
    harness.change_settings(|settings| settings.cancel_on_disconnect_secs = Some(600)).await;
    let (gateway, mut client) = harness.logged_on().await;
    place(&mut client, "a", "00000008", LIMIT).await;
    gateway.stop().await;
    let now = Client::utc().0;
    let closed = format!("daily {} UTC to {} UTC", time_of_day(now + 6 * HOUR), time_of_day(now + 7 * HOUR));
    harness
        .change_settings(|settings| {
            settings.schedule = Some(closed);
            settings.cancel_on_disconnect_secs = Some(0);
        })
        .await;
    let gateway = harness.gateway().await;
    harness.wait_for_count("select count(*) from event where type = 'intent.cancelled'", 1).await;
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_tests_a_peer_and_disconnects_it_without_a_logout() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    let nobody = ask(&harness, SessionAction::TestRequest).await;
    assert_eq!(nobody, ("the peer is not logged on".to_owned(), true));
    assert_eq!(ask(&harness, SessionAction::Disconnect).await, ("no peer is connected".to_owned(), true));
    let mut client = gateway.client().await;
    let (answer, test) =
        tokio::join!(ask(&harness, SessionAction::TestRequest), async { client.expect("1").await });
    assert_eq!(answer, ("TestRequest sent".to_owned(), false));
    client.send("0", &format!("112={}", test.text(112).unwrap())).await;
    // The session goes on.
    place(&mut client, "a", "00000008", LIMIT).await;
    assert_eq!(ask(&harness, SessionAction::Disconnect).await, ("disconnected".to_owned(), false));
    assert!(client.next().await.is_none(), "a connection that ends, and no Logout");
    client.log_on_when_let_in(gateway.addr, LOGON).await;
    gateway.stop().await;
}
