//! The settlement workflow with simulated rails that misbehave, and chain facts.

use dvp_core::engine::ReceiptLookup;
use dvp_store::orders::effects::{self, EffectKind};
use dvp_store::orders::executions::RefType;

use crate::scenes;
use dvp_testing::Harness;
use dvp_testing::orders::order;
use dvp_testing::wait::wait_for;

pub(crate) const STRAIGHT: [&str; 5] =
    ["intent.accepted", "offramp.initiated", "offramp.completed", "payout.initiated", "payout.completed"];

async fn executed(harness: &Harness, leg: &'static str) -> (i64, i64) {
    let sums = "select coalesce(max(executed), 0)::int8, coalesce(max(calls), 0)::int8 from simulated_rail where leg = $1";
    harness.row_of(sums, leg).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_goes_through_every_phase_to_an_anchored_receipt() {
    let harness = scenes::harness().await;
    harness.start_workers();
    let request = order("000123456789");
    let client_reference = request.client_reference.clone().unwrap();
    let accepted = harness.accept(request).await;
    let early =
        harness.engine.receipt(&harness.tenant, RefType::ClientReference, &client_reference).await.unwrap();
    assert_eq!(early, ReceiptLookup::NotIssued);
    harness.play_chain(&accepted.reference).await;
    harness.wait_for_state(&accepted.reference, "completed").await;
    assert_eq!(harness.events(&accepted.reference).await, STRAIGHT);
    let receipt = wait_for("finality", || async {
        let found =
            harness.engine.receipt(&harness.tenant, RefType::ExecutionId, &accepted.reference).await.unwrap();
        match found {
            ReceiptLookup::Found(body) if body.get("txHash").is_some() => Some(body),
            _ => None,
        }
    })
    .await;
    let stored: (Vec<u8>,) = harness.row("select content_hash from receipt").await;
    assert_eq!(dvp_domain::receipt::hash(&receipt), format!("0x{}", hex::encode(stored.0)));
    let view = harness
        .engine
        .execution(&harness.tenant, RefType::ClientReference, &client_reference)
        .await
        .unwrap()
        .unwrap();
    let view = serde_json::to_value(view).unwrap();
    assert_eq!(view["status"], "completed");
    assert_eq!(view["phase"], "payout");
    assert_eq!(view["events"].as_array().unwrap().len(), 5);
    assert_eq!(view["finality"]["txHash"], receipt["txHash"]);
    harness.check_books().await;
    assert_eq!(harness.count("select count(*) from ledger_entry where reference like 'exe_%'").await, 20);
    assert_eq!(harness.count("select sum(reserved)::int8 from account_balance").await, 0);
    assert_eq!(harness.count("select count(*) from effect").await, 0);
}

/// Runs an order to its end, with the chain's part simulated.
async fn run(account: &str, state: &str) -> (Harness, String) {
    let last = match state {
        "conversion_failed" => "create",
        "payout_failed" => "fill",
        _ => "settle",
    };
    scenes::played(account, last, state).await
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_legs_are_reported_in_progress_once() {
    let ((slow_pay, pay), (slow_fx, fx)) =
        tokio::join!(run("000123450001", "completed"), run("000123450006", "completed"));
    let events = slow_pay.events(&pay).await;
    assert_eq!(events[3..], ["payout.initiated", "payout.in_progress", "payout.completed"]);
    let events = slow_fx.events(&fx).await;
    assert_eq!(events[1..4], ["offramp.initiated", "offramp.in_progress", "offramp.completed"]);
    assert_eq!(executed(&slow_pay, "payout").await, (1, 1));
    assert_eq!(executed(&slow_fx, "offramp").await, (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_leg_ends_the_intent_with_the_funds_locked() {
    let ((payout, pay), (offramp, fx)) =
        tokio::join!(run("000123450002", "payout_failed"), run("000123450003", "conversion_failed"));
    assert_eq!(payout.events(&pay).await.last().unwrap(), "payout.failed");
    assert_eq!(offramp.events(&fx).await.last().unwrap(), "offramp.failed");
    let view = payout.view(&pay).await;
    let view = serde_json::to_value(view).unwrap();
    assert_eq!(view["status"], "failed");
    assert_eq!(view["failure"]["code"], "beneficiary_account_closed");
    let object: (serde_json::Value,) =
        payout.row("select object from event order by position desc limit 1").await;
    assert_eq!(object.0["fundsState"]["location"], "locked");
    assert_eq!(payout.count("select sum(reserved)::int8 from account_balance").await, 0);
    let lookup = payout.engine.receipt(&payout.tenant, RefType::ExecutionId, &pay).await.unwrap();
    assert_eq!(lookup, ReceiptLookup::NotIssued);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payout_that_times_out_or_finds_the_bank_down_is_paid_once() {
    let ((timed_out, _), (down, _)) =
        tokio::join!(run("000123450004", "completed"), run("000123450005", "completed"));
    assert_eq!(executed(&timed_out, "payout").await, (1, 1));
    assert_eq!(executed(&down, "payout").await, (1, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_call_is_queried_before_it_is_repeated() {
    let harness = scenes::harness().await;
    let reference = harness.accept(order("000123456789")).await.reference;
    // A process that claimed the lock, then the conversion, and was killed right after its call reached the rail.
    harness.start_workers();
    harness.play_until(&reference, |kind| kind == "fill").await;
    harness.wait_for_state(&reference, "releasing").await;
    let before = executed(&harness, "payout").await;
    assert_eq!(before, (1, 1));
    // The same effect again, as if its end had never been written.
    let sql = "insert into effect (reference, kind, run_at, called) values ($1, 'payout', now(), true)";
    harness.run_of(sql, &reference).await;
    harness.wait_for_count("select count(*) from effect where kind = 'payout'", 0).await;
    assert_eq!(executed(&harness, "payout").await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_a_dead_process_is_free_after_its_end() {
    let harness = scenes::harness().await;
    harness.accept(order("000123456789")).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let claimed = effects::claim(&mut conn, 30, 12, effects::Rooms::of_each(10)).await.unwrap();
    assert_eq!(claimed.iter().map(|c| c.kind).collect::<Vec<_>>(), [EffectKind::Lock]);
    assert!(effects::claim(&mut conn, 30, 12, effects::Rooms::of_each(10)).await.unwrap().is_empty());
    let sql = "update effect set claimed_until = now() - interval '1 second' where kind = 'lock'";
    harness.run(sql).await;
    let again = effects::claim(&mut conn, 30, 12, effects::Rooms::of_each(10)).await.unwrap();
    assert!(again[0].called_before && again[0].fence > claimed[0].fence);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refund_is_requested_once_the_order_ended_and_no_payment_is_possible() {
    let (harness, reference) = scenes::begun("000123450006").await;
    harness.wait_for_state(&reference, "locking").await;
    let times = "select lock_by::int8, fill_deadline::int8, timelock::int8, \
                 floor((terms::jsonb #>> '{plan,path,expiresAt}')::int8 / 1000)::int8, \
                 extract(epoch from command.created_at)::int8 \
                 from execution, chain_command command, \
                 jsonb_to_record(payload) as create_command (lock_by text, fill_deadline text, timelock text)";
    let (lock_by, fill_deadline, timelock, path_ends, sent): (i64, i64, i64, i64, i64) =
        harness.row(times).await;
    assert_eq!(lock_by, path_ends);
    assert!((fill_deadline - sent - 3600).abs() <= 2, "{fill_deadline} {sent}");
    assert_eq!(timelock - fill_deadline, 60 + 3600, "a minute of the simulated rail, and the margin");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_may_be_in_flight_is_not_repeated() {
    let harness = scenes::harness().await;
    let reference = harness.accept(order("000123456789")).await.reference;
    harness.run("update effect set kind = 'payout', run_at = now()").await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let first = effects::claim(&mut conn, 0, 12, effects::Rooms::of_each(10)).await.unwrap().remove(0);
    assert!(!first.called_before && !first.in_flight, "{reference}");
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    let second = effects::claim(&mut conn, 0, 12, effects::Rooms::of_each(10)).await.unwrap().remove(0);
    assert!(second.called_before && second.in_flight);
    assert!(
        effects::mark_called(&mut conn, first.id, first.fence).await.unwrap().is_none(),
        "another's claim now"
    );
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    let third = effects::claim(&mut conn, 0, 0, effects::Rooms::of_each(10)).await.unwrap().remove(0);
    assert!(third.called_before && !third.in_flight, "long enough ago");
}
