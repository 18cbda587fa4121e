//! A payment that was returned after it was paid: the one edge from completed to reversed.

use chrono::{DateTime, Utc};
use dvp_core::operators::operations::{Action, ResolveError};
use dvp_domain::chain::ChainFact;
use dvp_domain::reconcile::{BreakKind, Moment, Patience, judge};
use dvp_domain::settlement::Remedy;
use dvp_domain::status::ExecutionStatus;
use dvp_store::reconcile::{Scope, list_booked};

use crate::scenes::{self, both_decide};
use dvp_testing::Harness;
use dvp_testing::wait::wait_for;

/// A completed order.
async fn completed() -> (Harness, String) {
    let (harness, reference) = scenes::begun("000123456789").await;
    harness.play_chain(&reference).await;
    // The anchor also changes the order's version, which ends a request.
    let final_ones = "select count(*) from execution where state_name = 'completed' \
                      and jsonb_typeof(state -> 'finality') = 'object'";
    harness.wait_for_count(final_ones, 1).await;
    (harness, reference)
}

fn returned() -> Action {
    Action::MarkReturned {
        provider_reference: "R1".into(),
        at: Utc::now(),
        came: None,
        code: "beneficiary_account_closed".into(),
    }
}

fn resolved(remedy: Remedy) -> Action {
    Action::ResolveReturn { remedy, provider_reference: "W2".into(), at: Utc::now() }
}

async fn breaks(harness: &Harness) -> Vec<BreakKind> {
    breaks_of(harness, &[BreakKind::PaymentReturned]).await
}

/// The breaks of some kinds of the only order, whenever it ended.
pub(crate) async fn breaks_of(harness: &Harness, kinds: &[BreakKind]) -> Vec<BreakKind> {
    let ended_since = DateTime::<Utc>::MAX_UTC;
    let scope = Scope { chain_id: 31337, facts_number: 0, block_number: 0, since: None, ended_since };
    let mut conn = harness.pool().acquire().await.unwrap();
    let subjects = list_booked(&mut conn, &scope, &[], "", 10).await.unwrap().subjects;
    let moment = Moment { now: Utc::now().into(), block_secs: 0, patience: Patience::default() };
    let breaks = subjects.iter().flat_map(|subject| judge(subject, &moment));
    breaks.map(|found| found.kind).filter(|kind| kinds.contains(kind)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_returned_payment_is_owed_and_a_break_until_two_operators_resolve_it() {
    for remedy in [Remedy::PaidAgain, Remedy::GivenBack] {
        let (harness, reference) = completed().await;
        let early = harness.decide("jo", &reference, resolved(remedy)).await;
        assert!(matches!(early, Err(ResolveError::NotWaiting { .. })), "{early:?}");
        both_decide(&harness, &reference, returned()).await;
        harness.wait_for_state(&reference, "reversed").await;
        assert_eq!(harness.events(&reference).await.last().unwrap(), "payout.reversed");
        let view = harness.view(&reference).await;
        assert_eq!(view.status, ExecutionStatus::Failed);
        assert_eq!(view.failure.unwrap().exact_code(), "beneficiary_account_closed");
        let last = serde_json::to_value(view.events.last().unwrap()).unwrap();
        assert_eq!(
            (&last["state"], &last["isTerminal"], &last["isReversible"]),
            (&"reversed".into(), &true.into(), &false.into())
        );
        assert_eq!(harness.account("debt", "USD").await, "9935");
        assert_eq!(breaks(&harness).await, [BreakKind::PaymentReturned]);
        harness.check_books().await;
        let again = harness.decide("jo", &reference, returned()).await;
        assert!(matches!(again, Err(ResolveError::NotWaiting { .. })), "it came back once: {again:?}");

        assert!(harness.decide("jo", &reference, resolved(remedy)).await.unwrap().is_proposal);
        assert_eq!(breaks(&harness).await, [BreakKind::PaymentReturned], "one operator resolves nothing");
        assert!(!harness.decide("mika", &reference, resolved(remedy)).await.unwrap().is_proposal);
        wait_for("the remedy", || async { breaks(&harness).await.is_empty().then_some(()) }).await;
        assert_eq!(harness.account("debt", "USD").await, "0");
        let owed = "select count(*) from ledger_entry where owner_kind = 'provider' and part = 'owed' and asset = 'USDC'";
        assert_eq!(harness.count(owed).await, i64::from(remedy == Remedy::GivenBack));
        assert_eq!(
            harness.events(&reference).await.iter().filter(|kind| *kind == "payout.reversed").count(),
            1
        );
        let done = harness.decide("jo", &reference, resolved(remedy)).await;
        assert!(matches!(done, Err(ResolveError::NotWaiting { .. })), "{done:?}");
        harness.check_books().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_whose_lock_was_refunded_is_not_made_again_when_it_comes_back() {
    let (harness, reference) = scenes::played("000123456789", "fill", "releasing").await;
    let (entity, _) = harness.command(&reference, "fill").await;
    harness.report_fact(&entity, &ChainFact::Refunded).await;
    harness.play_until(&reference, |kind| kind == "anchor").await;
    let anchored = "select count(*) from execution where jsonb_typeof(state -> 'finality') = 'object'";
    harness.wait_for_count(anchored, 1).await;
    both_decide(&harness, &reference, returned()).await;
    harness.wait_for_state(&reference, "reversed").await;
    let both = harness.decide("jo", &reference, resolved(Remedy::PaidAgain)).await;
    assert!(matches!(both, Err(ResolveError::Contradicted(_))), "{both:?}");
    both_decide(&harness, &reference, resolved(Remedy::GivenBack)).await;
    wait_for("the remedy", || async { breaks(&harness).await.is_empty().then_some(()) }).await;
    // Given back once, by the escrow.
    let user = "select sum(amount)::int8 from ledger_entry where owner_kind = 'external' and asset = 'USDC' \
                and owner like '0x%'";
    assert_eq!(harness.count(user).await, 0);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_return_reported_before_completion_waits_for_it() {
    let (harness, reference) = scenes::begun("000123456789").await;
    let reported = r#"insert into effect (reference, kind, run_at, called, verdict) select reference, 'reversal', now(), true,
        '{"verdict": "payment_returned", "provider_reference": "R1", "occurred_at": "2026-01-01T00:00:00Z",
          "code": "c", "message": "m"}' from execution"#;
    harness.run(reported).await;
    let last_result =
        "select count(*) from effect where kind = 'reversal' and last_result = 'not completed yet'";
    harness.wait_for_count(last_result, 1).await;
    harness.play_chain(&reference).await;
    harness.wait_for_state(&reference, "completed").await;
    harness.run("update effect set run_at = now()").await;
    harness.wait_for_state(&reference, "reversed").await;
    let kinds = harness.events(&reference).await;
    assert_eq!(kinds[kinds.len() - 2..], ["payout.completed", "payout.reversed"]);
    harness.check_books().await;
}
