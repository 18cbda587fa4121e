//! A COMMIT without an acknowledgement: each kind of unit is retried and finds its own keys. Nothing is lost, nothing
//! happens twice.

use std::sync::Arc;

use chrono::Utc;
use dvp_core::engine::{CancelOutcome, Engine, EngineError, SubmitCommand};
use dvp_core::legacy::{self, Strategy};
use dvp_core::workflow::{self, RailUse};
use dvp_core::writer::FixChain;
use dvp_core::writer::{IdempotencyPart, Outcome, Refusal, UsedKey, WriterLimits};
use dvp_sandbox::rails::SimulatedRails;
use dvp_store::orders::legacy::NewLegacyIntent;
use dvp_store::orders::quotes::{NewFirmQuote, QuoteContext};
use serde_json::json;
use tokio::sync::watch;
use uuid::Uuid;

use crate::proxy::{Mode, Proxy};
use crate::quote_holds::firm_terms;
use crate::scenes::{self, engine_behind_proxy};
use crate::scenes::{fix_session, key_of, part_of};
use dvp_testing::Harness;
use dvp_testing::orders::{Terms, order, order_for, submit};
use dvp_testing::wait::wait_for;

struct Cut {
    harness: Harness,
    engine: Engine,
    proxy: Proxy,
}

impl Cut {
    /// An engine whose next COMMIT reaches the server, but whose acknowledgement is lost.
    async fn next_commit() -> Self {
        let harness = scenes::harness().await;
        let (engine, proxy) = engine_behind_proxy(&harness, WriterLimits::default()).await;
        proxy.set(Mode::CutAtCommit);
        Self { harness, engine, proxy }
    }

    fn key(&self) -> IdempotencyPart {
        key_of(&self.harness.tenant, Uuid::new_v4(), "/v1/x")
    }

    async fn check(&self, sql: &'static str, expected: i64) {
        self.proxy.has_cut().await;
        assert_eq!(self.harness.count(sql).await, expected, "{sql}");
    }

    async fn firm_quote(&self) -> NewFirmQuote {
        let terms = firm_terms(&self.engine, "USDC", 100_000_000).await.unwrap();
        NewFirmQuote { tenant: self.harness.tenant.clone(), request_id: "r".into(), terms }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_with_a_key_gets_the_decided_answer() {
    let cut = Cut::next_commit().await;
    let (tenant, request) = (cut.harness.tenant.clone(), order("000123456789"));
    let command = SubmitCommand { tenant, request, idempotency: Some(cut.key()), fix: None };
    let done = cut.engine.submit(command).await.unwrap();
    assert!(matches!(done.outcome, Outcome::KeyUsed(UsedKey::Replayed(_))), "{:?}", done.outcome);
    assert!(done.response.unwrap().body.starts_with("Accepted"));
    cut.check("select count(*) from execution", 1).await;
    cut.check("select sum(reserved)::int8 from account_balance", 9_985).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_without_a_key_finds_its_intent_id_used() {
    let cut = Cut::next_commit().await;
    let outcome = submit(&cut.engine, &cut.harness.tenant, order("000123456789")).await.unwrap();
    assert!(matches!(outcome, Outcome::Refused(Refusal::DuplicateIntent)));
    cut.check("select count(*) from execution", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_over_fix_stores_its_report_under_its_number() {
    let cut = Cut::next_commit().await;
    let session = fix_session(cut.harness.pool(), &cut.harness.tenant, "ACME").await;
    let chain = FixChain::from_loaded(1);
    let reporting = |before| SubmitCommand {
        tenant: cut.harness.tenant.clone(),
        request: order("000123456789"),
        idempotency: None,
        fix: Some(part_of(&session, &chain, before, b"report")),
    };
    let lost = cut.engine.submit(reporting(1)).await;
    assert!(matches!(lost, Err(EngineError::Unavailable(_))), "the session loads its numbers again");
    cut.check("select count(*) from execution", 1).await;
    cut.check("select next_out from fix_session", 2).await;
    cut.check("select count(*) from fix_outbound where seq = 1", 1).await;
    let done = cut.engine.submit(reporting(2)).await.unwrap();
    assert!(matches!(done.outcome, Outcome::Accepted(_)));
    cut.check("select count(*) from execution", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quotes_are_stored_once() {
    let cut = Cut::next_commit().await;
    let context = QuoteContext {
        tenant: cut.harness.tenant.clone(),
        request_id: "r".into(),
        request: json!({}),
        response: json!({}),
    };
    let done = cut.engine.keep_quote(context, cut.key()).await.unwrap();
    assert!(matches!(done.outcome, Outcome::KeyUsed(UsedKey::Replayed(_))));
    cut.check("select count(*) from quote_request", 1).await;
    cut.check("select count(*) from idempotency", 1).await;

    cut.proxy.set(Mode::CutAtCommit);
    let quote = cut.firm_quote().await;
    let done = cut.engine.keep_firm_quote(quote, cut.key()).await.unwrap();
    assert!(matches!(done.outcome, Outcome::KeyUsed(UsedKey::Replayed(_))));
    cut.check("select count(*) from firm_quote", 1).await;

    cut.proxy.set(Mode::CutAtCommit);
    let session = fix_session(cut.harness.pool(), &cut.harness.tenant, "ACME").await;
    let part = part_of(&session, &FixChain::from_loaded(1), 1, b"quote");
    let quote = cut.firm_quote().await;
    let pending = cut.engine.begin_firm_quote(quote, part).await.unwrap();
    assert!(pending.await.unwrap().is_err(), "the session loads its numbers again");
    cut.check("select count(*) from firm_quote", 2).await;
    cut.check("select count(*) from fix_outbound", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_order_is_stored_once() {
    let cut = Cut::next_commit().await;
    let (stage, run_at, expires_at) = legacy::beginning(Strategy::Scheduled, Utc::now(), 3_600_000);
    let new = NewLegacyIntent {
        tenant: cut.harness.tenant.clone(),
        intent_id: "i".into(),
        request: json!({}),
        source: "USD".into(),
        target: "EUR".into(),
        strategy: "scheduled",
        client_ref: None,
        account: "a".into(),
        stage,
        created_at: Utc::now(),
        expires_at,
        run_at,
    };
    let done = cut.engine.keep_legacy_intent(new, cut.key()).await.unwrap();
    assert!(matches!(done.outcome, Outcome::KeyUsed(UsedKey::Replayed(_))));
    cut.check("select count(*) from legacy_intent", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_and_a_sessions_own_numbers_are_stored_once() {
    let cut = Cut::next_commit().await;
    let done = cut.engine.keep_refusal(cut.key()).await.unwrap();
    assert!(matches!(done.outcome, Outcome::KeyUsed(UsedKey::Replayed(_))));
    cut.check("select count(*) from idempotency", 1).await;

    cut.proxy.set(Mode::CutAtCommit);
    let session = fix_session(cut.harness.pool(), &cut.harness.tenant, "ACME").await;
    let chain = FixChain::from_loaded(1);
    let lost = cut.engine.commit_fix(&cut.harness.tenant, part_of(&session, &chain, 1, b"a")).await;
    assert!(lost.is_err(), "the session loads its numbers again");
    cut.check("select next_out from fix_session", 2).await;
    // Units queued behind it follow the written numbers.
    cut.engine.commit_fix(&cut.harness.tenant, part_of(&session, &chain, 2, b"b")).await.unwrap();
    cut.check("select count(*) from fix_outbound", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_is_reported_as_cancelled() {
    let cut = Cut::next_commit().await;
    let accepted = cut.harness.accept(order("000123450008")).await;
    let outcome = cut.engine.cancel(&cut.harness.tenant, &accepted.reference, None).await.unwrap();
    assert_eq!(outcome, CancelOutcome::Cancelled);
    cut.check("select count(*) from event where type = 'intent.cancelled'", 1).await;
    cut.check("select sum(reserved)::int8 from account_balance", 0).await;
    let again = cut.engine.cancel(&cut.harness.tenant, &accepted.reference, None).await.unwrap();
    assert_eq!(again, CancelOutcome::TooLate);
}

#[tokio::test(flavor = "multi_thread")]
async fn settlement_survives_a_lost_acknowledgement_of_each_commit() {
    let cut = Cut::next_commit().await;
    let harness = &cut.harness;
    cut.proxy.set(Mode::CutEverySecondCommit);
    let stop = watch::Sender::new(false);
    let rails = RailUse::of(Arc::new(SimulatedRails::new(harness.pool().clone())));
    tokio::spawn(workflow::run(cut.engine.clone(), rails.clone(), rails, stop.subscribe()));
    // Passes through `in_progress` in its conversion.
    let reference = harness.accept(order("000123450006")).await.reference;
    harness.play_chain(&reference).await;
    harness.wait_for_state(&reference, "completed").await;
    let anchored = "select count(*) from execution where state ->> 'finality' is not null";
    harness.wait_for_count(anchored, 1).await;
    cut.proxy.set(Mode::Pass);
    assert!(cut.proxy.connections() > 5, "{} connections", cut.proxy.connections());
    let reported = harness.events(&reference).await;
    assert_eq!(
        reported[..4],
        ["intent.accepted", "offramp.initiated", "offramp.in_progress", "offramp.completed"]
    );
    assert_eq!(reported[4..], ["payout.initiated", "payout.completed"]);
    assert_eq!(harness.count("select count(*) from effect").await, 0);
    assert_eq!(harness.count("select count(*) from chain_fact where consumed_at is null").await, 0);
    assert_eq!(harness.count("select max(executed)::int8 from simulated_rail").await, 1);
    harness.check_books().await;
    stop.send_replace(true);
}

/// The work of a committed step has this process's only place for payouts; its connection ends before it is handed over.
#[tokio::test(flavor = "multi_thread")]
async fn work_not_handed_over_is_handed_over_while_nothing_is_written() {
    let harness = scenes::harness().await;
    let (engine, proxy) = engine_behind_proxy(&harness, WriterLimits::default()).await;
    let rails = Arc::new(SimulatedRails::new(harness.pool().clone()));
    let one = RailUse { concurrency: 1, ..RailUse::of(rails.clone()) };
    let stop = watch::Sender::new(false);
    tokio::spawn(workflow::run(engine, RailUse::of(rails), one, stop.subscribe()));
    let reference = harness.accept(order("000123450000")).await.reference;
    harness.play_until(&reference, |kind| kind == "create").await;
    harness.wait_for_state(&reference, "committing").await;
    proxy.set(Mode::CutAfterCommit);
    harness.play_until(&reference, |kind| kind == "fill").await;
    proxy.has_cut().await;
    harness.wait_for_state(&reference, "releasing").await;
    assert_eq!(harness.count("select max(executed)::int8 from simulated_rail").await, 1);
    stop.send_replace(true);
}

/// A fail-over loses a COMMIT and what its sequences have given out: the id of the lost work is given to other work before
/// the writer asks for it.
#[tokio::test(flavor = "multi_thread")]
async fn work_of_a_lost_commit_is_not_handed_over_when_other_work_has_its_id() {
    let harness = scenes::prefunded().await;
    let (engine, proxy) = engine_behind_proxy(&harness, WriterLimits::default()).await;
    let rails = Arc::new(SimulatedRails::new(harness.pool().clone()));
    let stop = watch::Sender::new(false);
    let used = RailUse::of(rails);
    tokio::spawn(workflow::run(engine.clone(), used.clone(), used, stop.subscribe()));
    let euros = || order_for(&Terms { input: ("USD", 10_000), output: "EUR", account: "000123456789" });
    // The workers are ready: work is handed over to them.
    let outcome = submit(&engine, &harness.tenant, euros()).await.unwrap();
    let Outcome::Accepted(first) = outcome else { panic!("{outcome:?}") };
    harness.wait_for_state(&first.reference, "completed").await;
    proxy.set(Mode::LoseCommit);
    let lost = euros();
    let id = lost.intent_id.clone();
    let answer = submit(&engine, &harness.tenant, lost).await;
    assert!(matches!(answer, Err(EngineError::Unavailable(_))), "{answer:?}");
    proxy.has_lost().await;
    assert_eq!(harness.count("select count(*) from execution").await, 1, "{id} was lost");
    let other = "insert into effect (id, reference, kind, run_at, called, called_at, fence, claimed_until) \
                 overriding system value \
                 select last_value, $1, 'reversal', now(), true, now(), 1, now() + interval '1 h' from effect_id_seq";
    harness.run_of(other, &first.reference).await;
    proxy.set(Mode::Pass);
    let again = || async { submit(&engine, &harness.tenant, euros()).await.ok() };
    let outcome = wait_for("the database", again).await;
    let Outcome::Accepted(next) = outcome else { panic!("{outcome:?}") };
    harness.wait_for_state(&next.reference, "completed").await;
    let paid = "select count(*) from simulated_rail where leg = 'payout'";
    assert_eq!(harness.count(paid).await, 2, "the bank was given a payment of no order");
    harness.check_books().await;
    stop.send_replace(true);
}
