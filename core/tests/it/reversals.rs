//! A payment that was returned after it was paid: the one edge from completed to reversed.

use chrono::{DateTime, Utc};
use dvp_core::operations::{Action, Resolution, ResolveError, resolve};
use dvp_domain::chain::ChainFact;
use dvp_domain::reconcile::{BreakKind, Moment, Patience, judge};
use dvp_domain::settlement::Remedy;
use dvp_domain::status::ExecutionStatus;
use dvp_store::orders::executions::RefType;
use dvp_store::reconcile::{Scope, list_booked};

use crate::scenes;
use dvp_testing::Harness;
use dvp_testing::orders::order;
use dvp_testing::wait::wait_for;

/// A completed order.
async fn completed() -> (Harness, String) {
    let harness = scenes::harness().await;
    harness.start_workers();
    let reference = harness.accept(order("000123456789")).await.reference;
    harness.play_chain(&reference).await;
    // The anchor also changes the order's version, which ends a request.
    let final_ones = "select count(*) from execution where state_name = 'completed' \
                      and jsonb_typeof(state -> 'finality') = 'object'";
    harness.wait_for_count(final_ones, 1).await;
    (harness, reference)
}

async fn decide_by(
    harness: &Harness,
    operator: &str,
    reference: &str,
    action: &Action,
) -> Result<bool, ResolveError> {
    let mut conn = harness.pool().acquire().await.unwrap();
    let (reason, evidence) = ("the bank sent it back", "statement 18");
    let resolution = Resolution { reference, action: action.clone(), operator, reason, evidence };
    resolve(&mut conn, &resolution).await.map(|decided| decided.is_proposal)
}

async fn decide(harness: &Harness, reference: &str, action: &Action) {
    assert!(decide_by(harness, "jo", reference, action).await.unwrap(), "a request");
    assert!(!decide_by(harness, "mika", reference, action).await.unwrap());
}

fn returned() -> Action {
    Action::MarkReturned {
        provider_reference: "R1".into(),
        at: Utc::now(),
        code: "beneficiary_account_closed".into(),
    }
}

fn resolved(remedy: Remedy) -> Action {
    Action::ResolveReturn { remedy, provider_reference: "W2".into(), at: Utc::now() }
}

/// The breaks of the only order, whenever it ended.
async fn breaks(harness: &Harness) -> Vec<BreakKind> {
    let ended_since = DateTime::<Utc>::MAX_UTC;
    let scope = Scope { chain_id: 31337, facts_number: 0, block_number: 0, since: None, ended_since };
    let mut conn = harness.pool().acquire().await.unwrap();
    let (subjects, _) = list_booked(&mut conn, &scope, &[], "", 10).await.unwrap();
    let moment = Moment { now: Utc::now().into(), block_secs: 0, patience: Patience::default() };
    let breaks = subjects.iter().flat_map(|subject| judge(subject, &moment));
    breaks.map(|found| found.kind).filter(|kind| *kind == BreakKind::PaymentReturned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_returned_payment_is_owed_and_a_break_until_two_operators_resolve_it() {
    for remedy in [Remedy::PaidAgain, Remedy::GivenBack] {
        let (harness, reference) = completed().await;
        let early = decide_by(&harness, "jo", &reference, &resolved(remedy)).await;
        assert!(matches!(early, Err(ResolveError::NotWaiting { .. })), "{early:?}");
        decide(&harness, &reference, &returned()).await;
        harness.wait_for_state(&reference, "reversed").await;
        assert_eq!(harness.events(&reference).await.last().unwrap(), "payout.reversed");
        let view = harness
            .engine
            .execution(&harness.tenant, RefType::ExecutionId, &reference)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(view.status, ExecutionStatus::Failed);
        assert_eq!(view.failure.unwrap().code, "beneficiary_account_closed");
        let last = serde_json::to_value(view.events.last().unwrap()).unwrap();
        assert_eq!(
            (&last["state"], &last["isTerminal"], &last["isReversible"]),
            (&"reversed".into(), &true.into(), &false.into())
        );
        assert_eq!(harness.account("debt", "USD").await, "9935");
        assert_eq!(breaks(&harness).await, [BreakKind::PaymentReturned]);
        harness.check_books().await;
        let again = decide_by(&harness, "jo", &reference, &returned()).await;
        assert!(matches!(again, Err(ResolveError::NotWaiting { .. })), "it came back once: {again:?}");

        assert!(decide_by(&harness, "jo", &reference, &resolved(remedy)).await.unwrap());
        assert_eq!(breaks(&harness).await, [BreakKind::PaymentReturned], "one operator resolves nothing");
        assert!(!decide_by(&harness, "mika", &reference, &resolved(remedy)).await.unwrap());
        wait_for("the remedy", || async { breaks(&harness).await.is_empty().then_some(()) }).await;
        assert_eq!(harness.account("debt", "USD").await, "0");
        let owed = "select count(*) from ledger_entry where owner_kind = 'provider' and part = 'owed' and asset = 'USDC'";
        assert_eq!(harness.count(owed).await, i64::from(remedy == Remedy::GivenBack));
        assert_eq!(
            harness.events(&reference).await.iter().filter(|kind| *kind == "payout.reversed").count(),
            1
        );
        let done = decide_by(&harness, "jo", &reference, &resolved(remedy)).await;
        assert!(matches!(done, Err(ResolveError::NotWaiting { .. })), "{done:?}");
        harness.check_books().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_whose_lock_was_refunded_is_not_made_again_when_it_comes_back() {
    let harness = scenes::harness().await;
    harness.start_workers();
    let reference = harness.accept(order("000123456789")).await.reference;
    harness.play_until(&reference, |kind| kind == "fill").await;
    harness.wait_for_state(&reference, "releasing").await;
    let (entity, _) = harness.command(&reference, "fill").await;
    harness.report_fact(&entity, &ChainFact::Refunded).await;
    harness.play_until(&reference, |kind| kind == "anchor").await;
    let anchored = "select count(*) from execution where jsonb_typeof(state -> 'finality') = 'object'";
    harness.wait_for_count(anchored, 1).await;
    decide(&harness, &reference, &returned()).await;
    harness.wait_for_state(&reference, "reversed").await;
    let both = decide_by(&harness, "jo", &reference, &resolved(Remedy::PaidAgain)).await;
    assert!(matches!(both, Err(ResolveError::Contradicted(_))), "{both:?}");
    decide(&harness, &reference, &resolved(Remedy::GivenBack)).await;
    wait_for("the remedy", || async { breaks(&harness).await.is_empty().then_some(()) }).await;
    // Given back once, by the escrow.
    let user = "select sum(amount)::int8 from ledger_entry where owner_kind = 'external' and asset = 'USDC' \
                and owner like '0x%'";
    assert_eq!(harness.count(user).await, 0);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_return_reported_before_completion_waits_for_it() {
    let harness = scenes::harness().await;
    harness.start_workers();
    let reference = harness.accept(order("000123456789")).await.reference;
    let reported = r#"insert into effect (reference, kind, run_at, called, verdict) select reference, 'reversal', now(), true,
        '{"verdict": "payment_returned", "provider_reference": "R1", "occurred_at": "2026-01-01T00:00:00Z",
          "code": "c", "message": "m"}' from execution"#;
    sqlx::query(reported).execute(harness.pool()).await.unwrap();
    let last_result =
        "select count(*) from effect where kind = 'reversal' and last_result = 'not completed yet'";
    wait_for("the wait", || async { (harness.count(last_result).await == 1).then_some(()) }).await;
    harness.play_chain(&reference).await;
    harness.wait_for_state(&reference, "completed").await;
    sqlx::query("update effect set run_at = now()").execute(harness.pool()).await.unwrap();
    harness.wait_for_state(&reference, "reversed").await;
    let kinds = harness.events(&reference).await;
    assert_eq!(kinds[kinds.len() - 2..], ["payout.completed", "payout.reversed"]);
    harness.check_books().await;
}
