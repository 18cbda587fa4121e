//! Operators' decisions about orders that do not end by themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use chrono::Utc;
use dvp_core::operators::operations::{Action, OperatorDecision, Resolution, ResolveError, resolve};
use dvp_domain::chain::ChainFact;
use dvp_domain::settlement::{LegDone, RailAnswer};
use dvp_rails::{LegKind, Rail, RailError, RailFuture, RailRequest, RailStatus};
use dvp_sandbox::rails::SimulatedRails;
use dvp_store::orders::operations::{ExecutionFilter, list, load_history};

use crate::guard::entity_of;
use crate::scenes::{self, decide_in_time, is_near_its_timelock, is_settled};
use dvp_testing::Harness;
use dvp_testing::orders::order;

/// A rail that does not answer until the test makes it, and counts its calls.
#[derive(Default)]
pub(crate) struct Silent {
    calls: AtomicU32,
    speaks: AtomicBool,
}

impl Rail for Silent {
    fn submit<'a>(&'a self, _request: &'a RailRequest) -> RailFuture<'a, RailAnswer> {
        Box::pin(async {
            self.calls.fetch_add(1, Ordering::Relaxed);
            if !self.speaks.load(Ordering::Relaxed) {
                return Err(RailError::Unconfirmed);
            }
            let done = LegDone { provider_reference: "late".into(), occurred_at: Utc::now().into() };
            Ok(RailAnswer::Done(done))
        })
    }

    fn status<'a>(&'a self, _request: &'a RailRequest) -> RailFuture<'a, RailStatus> {
        Box::pin(async { Err(RailError::Unconfirmed) })
    }
}

/// A harness with an order whose payout was called long ago and not answered.
pub(crate) async fn stuck() -> (Harness, Arc<Silent>, String) {
    let (harness, rail) = (scenes::harness().await, Arc::new(Silent::default()));
    let offramp = SimulatedRails::new(harness.pool().clone());
    harness.start_workers_over(Arc::new(offramp), rail.clone());
    let reference = harness.accept(order("000123456789")).await.reference;
    harness.play_until(&reference, |kind| kind == "fill").await;
    harness.wait_for_state(&reference, "paying").await;
    let called = "select count(*) from effect where kind = 'payout' and last_result = 'unconfirmed'";
    harness.wait_for_count(called, 1).await;
    (harness, rail, reference)
}

pub(crate) async fn long_ago(harness: &Harness) {
    harness.run("update effect set called_at = now() - interval '1 minute'").await;
}

fn resolution(reference: &str, action: Action) -> Resolution<'_> {
    Resolution { reference, action, operator: "jo", reason: "the bank called", evidence: "statement 17" }
}

/// Decides, with a second operator where two are needed; waits while a worker has the claim.
async fn decide(harness: &Harness, reference: &str, action: Action) -> OperatorDecision {
    if action.takes_two() {
        assert!(decide_by(harness, "kim", reference, action.clone()).await.is_proposal);
    }
    decide_by(harness, "jo", reference, action).await
}

async fn decide_by(harness: &Harness, operator: &str, reference: &str, action: Action) -> OperatorDecision {
    decide_in_time(harness, operator, reference, action).await.unwrap()
}

fn fail() -> Action {
    Action::Fail { leg: LegKind::Payout, code: "stopped".into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_decision_is_made_while_a_call_may_be_in_flight() {
    let (harness, _, reference) = stuck().await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let retry = || resolution(&reference, Action::Retry { leg: LegKind::Payout });
    assert!(resolve(&mut conn, &retry()).await.unwrap().is_proposal, "a request makes no call");
    let refused = resolve(&mut conn, &Resolution { operator: "mika", ..retry() }).await;
    assert!(matches!(refused, Err(ResolveError::InFlight)), "{refused:?}");
    assert!(resolve(&mut conn, &resolution(&reference, Action::Ask)).await.is_ok(), "asking repeats nothing");
    let kept = "select count(*) from operator_action";
    assert_eq!(harness.count(kept).await, 2, "refused requests are not recorded as decisions");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_finding_replaces_the_rails_answer() {
    let (harness, rail, reference) = stuck().await;
    let at = Utc::now();
    let paid = Action::MarkPaid { leg: LegKind::Payout, provider_reference: "S17".into(), at };
    decide(&harness, &reference, paid).await;
    harness.play_chain(&reference).await;
    harness.wait_for_state(&reference, "completed").await;
    assert_eq!(rail.calls.load(Ordering::Relaxed), 1, "the rail was not called again");
    let view = harness.view(&reference).await;
    assert_eq!(view.provider_reference.as_deref(), Some("S17"));
    let mut conn = harness.pool().acquire().await.unwrap();
    let history = load_history(&mut conn, &reference).await.unwrap();
    assert_eq!(history["operators"][0]["evidence"]["evidence"], "statement 17");
    let calls: Vec<_> = history["calls"].as_array().unwrap().iter().collect();
    assert!(
        calls.iter().any(|call| call["leg"] == "payout"
            && call["call"] == "submit"
            && call["result"] == "unconfirmed"),
        "{calls:?}"
    );
    assert!(calls.iter().any(|call| call["leg"] == "offramp" && call["result"] == "done"), "{calls:?}");
    assert_eq!(history["operators"][0]["evidence"]["state"], "paying");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payout_found_unpaid_is_called_again_or_fails() {
    let (harness, rail, reference) = stuck().await;
    rail.speaks.store(true, Ordering::Relaxed);
    decide(&harness, &reference, Action::Retry { leg: LegKind::Payout }).await;
    harness.wait_for_state(&reference, "releasing").await;
    assert_eq!(rail.calls.load(Ordering::Relaxed), 2);

    let (harness, rail, reference) = stuck().await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let filter = ExecutionFilter { stuck_for_secs: Some(0), state: None, after: None, limit: 10 };
    let listed = list(&mut conn, &filter).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].waits_for.as_deref(), Some("payout"));
    for (operator, is_proposal) in [("jo", true), (" Jo ", true), ("mika", false)] {
        let decided = decide_by(&harness, operator, &reference, fail()).await;
        assert_eq!((decided.state, decided.is_proposal), ("paying", is_proposal), "{operator}");
    }
    harness.wait_for_state(&reference, "payout_failed").await;
    let history = load_history(&mut conn, &reference).await.unwrap();
    let actions: Vec<_> = history["operators"].as_array().unwrap().iter().map(|row| &row["action"]).collect();
    assert_eq!(actions, ["propose_fail", "fail"]);
    assert_eq!(rail.calls.load(Ordering::Relaxed), 1);
    assert!(list(&mut conn, &filter).await.unwrap().is_empty());
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resting_order_is_cancelled_and_unawaited_work_is_not_decided() {
    let (harness, reference) = scenes::begun("000123450008").await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let action = Action::Fail { leg: LegKind::Payout, code: "c".into() };
    let refused = resolve(&mut conn, &resolution(&reference, action)).await;
    assert!(
        matches!(refused, Err(ResolveError::NotWaiting { state: "accepted", what: "payout" })),
        "{refused:?}"
    );
    let unknown = resolve(&mut conn, &resolution("exe_none", Action::Ask)).await;
    assert!(matches!(unknown, Err(ResolveError::Unknown(_))));
    let silent = Resolution { reason: " ", ..resolution(&reference, Action::Cancel) };
    assert!(matches!(resolve(&mut conn, &silent).await, Err(ResolveError::NoReason)));
    decide(&harness, &reference, Action::Cancel).await;
    harness.wait_for_state(&reference, "cancelled").await;
    assert_eq!(harness.events(&reference).await, ["intent.accepted", "intent.cancelled"]);
    let changed = sqlx::query("update operator_action set reason = 'x'").execute(harness.pool()).await;
    assert!(changed.is_err(), "what operators did is never changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn committed_funds_of_a_failed_payout_are_returned_by_two_signatures() {
    let (harness, _, reference) = stuck().await;
    long_ago(&harness).await;
    let signatures = [format!("0x{}", "11".repeat(65)), format!("0x{}", "22".repeat(65))];
    let action = || Action::Return { deadline: 1_900_000_000, signatures: signatures.clone() };
    let mut conn = harness.pool().acquire().await.unwrap();
    let refused = resolve(&mut conn, &resolution(&reference, action())).await;
    assert!(matches!(refused, Err(ResolveError::NotWaiting { state: "paying", .. })), "{refused:?}");
    decide(&harness, &reference, fail()).await;
    harness.wait_for_state(&reference, "payout_failed").await;
    let decided = decide(&harness, &reference, action()).await;
    assert_eq!(decided, OperatorDecision { state: "payout_failed", is_proposal: false, approval: None });
    let requested = "select count(*) from chain_command where kind = 'return_filled' and chain_id = 31337 \
                 and (payload ->> 'deadline')::int8 = 1900000000";
    assert_eq!(harness.count(requested).await, 1);
    let under_way = resolve(&mut conn, &resolution(&reference, action())).await;
    assert!(matches!(under_way, Err(ResolveError::Returning)), "{under_way:?}");
    let [one, _] = &signatures;
    let twice = Action::Return { deadline: 1_900_000_000, signatures: [one.clone(), one.to_uppercase()] };
    let twice = resolve(&mut conn, &resolution(&reference, twice)).await;
    assert!(matches!(twice, Err(ResolveError::OneSigner)), "{twice:?}");
    let short = Action::Return { deadline: 1_900_000_000, signatures: [one.clone(), "0x22".into()] };
    let short = resolve(&mut conn, &resolution(&reference, short)).await;
    assert!(matches!(short, Err(ResolveError::Signature)), "{short:?}");
    // The contract refuses one of them: the right ones replace it.
    let refused = "update chain_command set trouble = 'NotTwoOperators' where kind = 'return_filled'";
    harness.run(refused).await;
    decide(&harness, &reference, action()).await;
    let waiting = "select count(*) from chain_command where kind = 'return_filled' and trouble is null";
    assert_eq!(harness.count(waiting).await, 1);
    // The signatures expired before a block included them.
    let failed = "update chain_command set state = 'failed', done_at = now() where kind = 'return_filled'";
    harness.run(failed).await;
    let later = Action::Return { deadline: 1_900_000_600, signatures: signatures.clone() };
    decide(&harness, &reference, later).await;
    let requested = "select count(*) from chain_command where kind = 'return_filled' and state = 'pending' \
                 and (payload ->> 'deadline')::int8 = 1900000600";
    assert_eq!(harness.count(requested).await, 1);
    harness.report_fact(&entity_of(&harness, &reference).await, &ChainFact::Cancelled).await;
    let returned = "select count(*) from execution where state #>> '{lock,refund_tx}' like '0x%'";
    harness.wait_for_count(returned, 1).await;
    assert_eq!(harness.account("escrow", "USDC").await, "0");
    let again = resolve(&mut conn, &resolution(&reference, action())).await;
    assert!(matches!(again, Err(ResolveError::NotWaiting { .. })), "{again:?}");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_payout_is_paid_another_way_only_once_its_funds_were_released() {
    let (harness, _, reference) = stuck().await;
    is_near_its_timelock(&harness, &reference).await;
    decide(&harness, &reference, fail()).await;
    let failed = "select count(*) from execution where state #>> '{failure,code}' = 'stopped'";
    harness.wait_for_count(failed, 1).await;
    // The release is not included: at the timelock anyone returns the lock to the user.
    let at = Utc::now();
    let paid = || Action::MarkPaid { leg: LegKind::Payout, provider_reference: "S17".into(), at };
    let mut conn = harness.pool().acquire().await.unwrap();
    let early = resolve(&mut conn, &resolution(&reference, paid())).await;
    assert!(matches!(early, Err(ResolveError::Contradicted(_))), "{early:?}");
    assert_eq!(harness.count("select count(*) from approval").await, 1, "the one of the failure");
    is_settled(&harness, &reference).await;
    decide(&harness, &reference, paid()).await;
    harness.wait_for_state(&reference, "completed").await;
    assert_eq!(harness.account("debt", "USD").await, "0");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unpaid_debt_ends_when_two_operators_have_returned_its_input() {
    let (harness, _, reference) = stuck().await;
    is_near_its_timelock(&harness, &reference).await;
    is_settled(&harness, &reference).await;
    let returned = || Action::ReturnDebt { provider_reference: "0xback".into(), at: Utc::now() };
    let mut conn = harness.pool().acquire().await.unwrap();
    let early = resolve(&mut conn, &resolution(&reference, returned())).await;
    assert!(matches!(early, Err(ResolveError::NotWaiting { state: "owing", .. })), "{early:?}");
    decide(&harness, &reference, fail()).await;
    let unpaid = "select count(*) from execution where state #>> '{failure,code}' = 'stopped'";
    harness.wait_for_count(unpaid, 1).await;
    for (operator, is_proposal) in [("mika", true), ("jo", false)] {
        let decided = decide_by(&harness, operator, &reference, returned()).await;
        assert_eq!((decided.state, decided.is_proposal), ("owing", is_proposal));
    }
    harness.wait_for_state(&reference, "payout_failed").await;
    assert_eq!(harness.events(&reference).await.last().unwrap(), "payout.failed");
    assert_eq!(harness.account("debt", "USD").await, "0");
    let owed = "select count(*) from ledger_entry where owner_kind = 'provider' and part = 'owed' \
                and asset = 'USDC' and amount < 0";
    assert_eq!(harness.count(owed).await, 1);
    harness.check_books().await;
}
