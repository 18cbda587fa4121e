//! A chain that is read again beside the running service.

use serde_json::{Value, json};

use crate::alert_faults::call_node;
use crate::partner::Partner;
use crate::sandbox::{Sandbox, dvp, ran, refused, said};
use crate::wait::until;

#[tokio::test(flavor = "multi_thread")]
async fn a_rescan_finds_a_lost_event_and_agrees_otherwise() {
    let sandbox = Sandbox::start().await;
    let partner = Partner::of(&sandbox);
    let order = partner.order(&sandbox, 0, "000123456789").await;
    let reference = partner.settled(&order).await;
    let head = call_node(&sandbox, "eth_blockNumber", json!([])).await;
    let head = u64::from_str_radix(head.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
    call_node(&sandbox, "anvil_mine", json!(["0x60"])).await;
    until("the order's final blocks", async || {
        said(&sandbox, &["chain", "status"])["chains"][0]["indexedFinal"].as_u64().unwrap() >= head
    })
    .await;

    let found = said(&sandbox, &["chain", "rescan"]);
    assert_eq!((&found["ok"], &found["differences"]), (&json!(true), &json!([])), "{found}");
    assert!(found["events"].as_u64().unwrap() > 4 && found["toBlock"].as_u64().unwrap() >= head, "{found}");

    let entity = "select entity from execution where reference = $1";
    let lost = format!(
        "delete from chain_log where event = 'Filled' and entity = ({entity}) returning block_number"
    );
    let block: i64 = sandbox.one_of(sqlx::AssertSqlSafe(lost), &reference).await;
    let output = dvp(&sandbox, &["chain", "rescan"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &found["differenceCount"]), (Some(1), &json!(1)), "{found}");
    let missing = &found["differences"][0];
    assert_eq!((&missing["kind"], missing["block"].as_i64()), (&json!("missing"), Some(block)), "{found}");
    assert!(missing["detail"].as_str().unwrap().starts_with("Filled of 0x"), "{found}");
    let before = (block - 1).to_string();
    let text = ran(&sandbox, &["chain", "rescan", "--to-block", &before]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains(", 0 differences"), "{text}");
    the_event_is_restored_and_nothing_is_paid_twice(&sandbox, &partner, &reference).await;
    sandbox.stop().await;
}

/// What an order has led to: its state and version, and the numbers of its events, entries, payments, calls of rails,
/// commands, and signed transactions.
const LED_TO: &str = "select jsonb_build_object( \
     'state', e.state_name, 'version', e.version, 'state_data', e.state, \
     'events', (select count(*) from event_record v where v.reference = e.reference), \
     'entries', (select count(*) from ledger_entry l where l.reference = e.reference), \
     'payments', (select jsonb_agg(s.executed order by s.leg) from simulated_rail s \
                  where s.reference = e.reference), \
     'calls', (select count(*) from rail_call r where r.reference = e.reference), \
     'work', (select count(*) from effect w where w.reference = e.reference), \
     'commands', (select jsonb_agg(c.kind || ' ' || c.state order by c.id) from chain_command c \
                  where c.reference = e.reference), \
     'transactions', (select count(*) from chain_command c join slot_command s on s.command_id = c.id \
                          join tx_attempt a on (a.chain_id, a.signer, a.nonce) = (s.chain_id, s.signer, s.nonce) \
                      where c.reference = e.reference)) \
     from execution e where e.reference = $1";

async fn led_to(sandbox: &Sandbox, reference: &str) -> Value {
    sandbox.one_of(LED_TO, reference).await
}

/// Not only the stored event is lost, but also that it was acted upon.
async fn the_event_is_restored_and_nothing_is_paid_twice(
    sandbox: &Sandbox,
    partner: &Partner,
    reference: &str,
) {
    let fact =
        "chain_fact where kind = 'filled' and entity = (select entity from execution where reference = $1)";
    let lost = sqlx::AssertSqlSafe(format!("delete from {fact}"));
    sandbox.change(lost, reference).await;
    let before = led_to(sandbox, reference).await;
    assert_eq!(before["state"], "completed", "{before}");
    assert!(refused(sandbox, &["chain", "rescan", "--restore"]).contains("--reason"));

    let restore = ["chain", "rescan", "--restore", "--reason", "rows were deleted"];
    let found = said(sandbox, &restore);
    assert_eq!((&found["ok"], &found["restoredCount"]), (&json!(true), &json!(1)), "{found}");
    assert_eq!(found["differences"][0]["restored"], true);
    let consumed =
        format!("select count(*) filter (where consumed_at is not null) = 1 and count(*) = 1 from {fact}");
    until("the restored event's consumed fact", async || {
        sandbox.one_of(sqlx::AssertSqlSafe(consumed.clone()), reference).await
    })
    .await;
    // Whatever follows from it comes before what follows from a later order.
    let order = partner.order(sandbox, 1, "000123456789").await;
    partner.settled(&order).await;
    assert_eq!(led_to(sandbox, reference).await, before);
    let found = said(sandbox, &restore);
    assert_eq!((&found["restoredCount"], &found["differences"]), (&json!(0), &json!([])), "{found}");
    assert_eq!(said(sandbox, &["ledger", "check"])["ok"], true);
    assert!(dvp(sandbox, &["reconcile", "--full"]).status.success());
    assert!(dvp(sandbox, &["audit", "verify"]).status.success());
    let actions = "select count(*) from operator_action where action = 'restore_events' and operator like '% at this machine'";
    assert_eq!(sandbox.one::<i64>(actions).await, 1);
}
