//! Orders are screened before any funds move: they pass, are held for a decision, or are refused.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use dvp_core::context::now;
use dvp_core::engine::Engine;
use dvp_core::operators::approvals::approve;
use dvp_core::operators::operations::{Action, ResolveError};
use dvp_core::screening::{HookConfig, ListConfig, Screening};
use dvp_core::workflow::{self, RailUse};
use dvp_core::writer::Outcome;
use dvp_domain::intent::IntentRequest;
use dvp_domain::screening::ScreeningResult;
use dvp_sandbox::rails::SimulatedRails;
use dvp_testing::Harness;
use dvp_testing::orders::{Terms, order, order_for, submit};
use dvp_testing::wait::wait_for;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::liquidity::{ExternalServer, Manner};
use crate::scenes;

/// A screening service with a given answer. `None`: no answer.
pub(crate) struct Service(ExternalServer);

fn manner(says: Option<Value>) -> Manner {
    says.map_or(Manner::NeverAnswers, Manner::Answers)
}

impl Service {
    pub(crate) async fn saying(says: Option<Value>) -> Self {
        Self(ExternalServer::with(manner(says)).await)
    }

    fn requested(&self) -> usize {
        self.0.requested()
    }

    pub(crate) fn say(&self, says: Option<Value>) {
        self.0.set(manner(says));
    }

    /// A service that answers is waited for as long as may be, one that does not only briefly.
    fn hook(&self, on_error: ScreeningResult) -> HookConfig {
        let is_silent = matches!(self.0.manner(), Manner::NeverAnswers);
        let timeout = if is_silent { Duration::from_millis(300) } else { Duration::from_secs(10) };
        HookConfig { url: self.0.url.clone(), token: Some("secret".into()), timeout, on_error }
    }

    pub(crate) fn screening(&self, on_error: ScreeningResult, ask_again: Duration) -> Screening {
        Screening::new(None, Some(self.hook(on_error)), ask_again).unwrap()
    }
}

pub(crate) const SOON: Duration = Duration::from_millis(100);
pub(crate) const NEVER: Duration = Duration::from_secs(3600);

pub(crate) fn work(harness: &Harness, engine: &Engine) -> JoinHandle<()> {
    let rails = Arc::new(SimulatedRails::new(harness.pool().clone()));
    let rails = RailUse::of(rails);
    tokio::spawn(workflow::run(engine.clone(), rails.clone(), rails, harness.stopped()))
}

async fn last_result(harness: &Harness, reference: &str) -> String {
    let row: Option<(Option<String>,)> =
        sqlx::query_as("select last_result from effect where reference = $1 and kind = 'lock'")
            .bind(reference)
            .fetch_optional(harness.pool())
            .await
            .unwrap();
    row.and_then(|(last_result,)| last_result).unwrap_or_default()
}

pub(crate) async fn held(harness: &Harness, reference: &str) {
    wait_for("a held order", || async {
        (last_result(harness, reference).await == "held by screening").then_some(())
    })
    .await;
}

/// The recorded verdicts of an order, in order.
async fn verdicts(harness: &Harness, reference: &str) -> Vec<String> {
    let rows: Vec<(String,)> = harness.rows_of("select verdict || ' ' || source || ' ' || detail from screening where reference = $1 order by id", reference).await;
    rows.into_iter().map(|(row,)| row.trim().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_passes_screening_settles() {
    let harness = scenes::harness().await;
    let service = Service::saying(Some(json!({"verdict": "pass", "case": "C-1"}))).await;
    let engine = harness.engine_under(service.screening(ScreeningResult::Hold, NEVER));
    work(&harness, &engine);
    let reference = harness.accept(order("000123450000")).await.reference;
    harness.play_until(&reference, |kind| kind == "settle").await;
    harness.wait_for_state(&reference, "completed").await;
    assert_eq!(
        (service.requested(), verdicts(&harness, &reference).await),
        (1, vec!["pass hook C-1".to_owned()])
    );
    let request = service.0.last();
    let lower = request.to_ascii_lowercase();
    assert!(lower.contains(&format!("idempotency-key: {reference}").to_ascii_lowercase()), "{request}");
    assert!(lower.contains("authorization: bearer secret"), "{request}");
    let body: Value = serde_json::from_str(request.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!((&body["reference"], &body["input"]["amountMinor"]), (&json!(reference), &json!("100000000")));
    assert_eq!(body["beneficiary"]["account"], "000123450000");
    assert!(sqlx::query("update screening set verdict = 'hold'").execute(harness.pool()).await.is_err());
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_order_does_not_begin_until_the_service_passes_it() {
    let harness = scenes::harness().await;
    let service = Service::saying(Some(json!({"verdict": "hold", "case": "C-2"}))).await;
    let engine = harness.engine_under(service.screening(ScreeningResult::Pass, SOON));
    work(&harness, &engine);
    let reference = harness.accept(order("000123450000")).await.reference;
    held(&harness, &reference).await;
    wait_for("another question", || async { (service.requested() > 2).then_some(()) }).await;
    assert_eq!(harness.events(&reference).await, ["intent.accepted"]);
    assert_eq!(harness.count("select count(*) from chain_command").await, 0);
    assert_eq!(verdicts(&harness, &reference).await, ["hold hook C-2"], "the same verdict is recorded once");
    service.say(Some(json!({"verdict": "pass"})));
    harness.wait_for_state(&reference, "locking").await;
    assert_eq!(verdicts(&harness, &reference).await, ["hold hook C-2", "pass hook"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_of_money_whose_payout_is_due_is_screened_before_it_begins() {
    let harness = scenes::prefunded().await;
    let service = Service::saying(Some(json!({"verdict": "pass"}))).await;
    let engine = harness.engine_under(service.screening(ScreeningResult::Hold, NEVER));
    work(&harness, &engine);
    let accept = async || {
        let request = order_for(&Terms { input: ("USD", 10_000), output: "EUR", account: "000123456789" });
        match submit(&engine, &harness.tenant, request).await.unwrap() {
            Outcome::Accepted(accepted) => accepted.reference,
            other => panic!("not accepted: {other:?}"),
        }
    };
    // The workers run from here on.
    let passed = accept().await;
    harness.wait_for_state(&passed, "completed").await;
    service.say(Some(json!({"verdict": "hold"})));
    let reference = accept().await;
    held(&harness, &reference).await;
    assert_eq!(harness.events(&reference).await, ["intent.accepted"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_says_nothing_of_use_is_no_answer() {
    for says in [json!({"verdict": "perhaps"}), json!({"verdict": "pass", "case": "a\nb"})] {
        let harness = scenes::harness().await;
        let service = Service::saying(Some(says)).await;
        let engine = harness.engine_under(service.screening(ScreeningResult::Hold, NEVER));
        work(&harness, &engine);
        let reference = harness.accept(order("000123450000")).await.reference;
        held(&harness, &reference).await;
        assert_eq!(verdicts(&harness, &reference).await, ["hold no_answer"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_service_does_not_delay_orders_that_need_no_answer() {
    let harness = scenes::harness().await;
    let service = Service::saying(Some(json!({"verdict": "pass"}))).await;
    let engine = harness.engine_under(service.screening(ScreeningResult::Hold, NEVER));
    work(&harness, &engine);
    let begun = harness.accept(order("000123450000")).await.reference;
    harness.wait_for_state(&begun, "locking").await;
    service.say(None);
    let stuck: Vec<String> = futures_util::future::join_all((0..100).map(|_| async {
        harness.accept(dvp_testing::orders::order_of(2_000_000, "000123450000")).await.reference
    }))
    .await;
    harness.play_until(&begun, |kind| kind == "settle").await;
    harness.wait_for_state(&begun, "completed").await;
    let waiting = "select count(*) from effect where kind = 'lock'";
    assert_eq!(harness.count(waiting).await, i64::try_from(stuck.len()).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_operators_release_or_refuse_only_a_held_order() {
    let harness = scenes::harness().await;
    let service = Service::saying(Some(json!({"verdict": "hold"}))).await;
    let engine = harness.engine_under(service.screening(ScreeningResult::Hold, NEVER));
    let refuse = || Action::Refuse { code: "screening_refused".into() };
    // It was never screened.
    let resting = harness.accept(order("000123450008")).await.reference;
    let early = harness.decide("jo", &resting, Action::Release).await;
    assert!(matches!(early, Err(ResolveError::NotWaiting { .. })), "{early:?}");
    work(&harness, &engine);
    for (action, state, events) in [
        (Action::Release, "locking", vec!["intent.accepted"]),
        (refuse(), "failed", vec!["intent.accepted", "intent.failed"]),
    ] {
        let reference = harness.accept(order("000123450000")).await.reference;
        held(&harness, &reference).await;
        let proposed = harness.decide("jo", &reference, action.clone()).await.unwrap();
        assert!(proposed.is_proposal);
        let mut conn = harness.pool().acquire().await.unwrap();
        let id = proposed.approval.unwrap();
        assert!(approve(&mut conn, &id, "JO", "mine").await.is_err());
        assert_eq!(last_result(&harness, &reference).await, "held by screening");
        approve(&mut conn, &id, "mika", "seen").await.unwrap();
        harness.wait_for_state(&reference, state).await;
        assert_eq!(harness.events(&reference).await, events);
        let again = harness.decide("jo", &reference, action).await;
        assert!(matches!(again, Err(ResolveError::NotWaiting { .. })), "{again:?}");
    }
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_passes_after_its_price_has_lapsed_is_refused_by_name() {
    let market = scenes::market().with_funds("north", "USD", 100_000_000_000);
    let harness = Harness::in_virtual_time(market, now().plus_millis(1_000)).await;
    harness.fund("north", "EUR", 1_000_000).await;
    harness.deposit("USD", 1_000_000).await;
    let service = Service::saying(Some(json!({"verdict": "hold"}))).await;
    let engine = harness.engine_under(service.screening(ScreeningResult::Hold, NEVER));
    work(&harness, &engine);
    let money = order_for(&Terms { input: ("USD", 10_000), output: "EUR", account: "000123456789" });
    let mut references = Vec::new();
    for request in [order("000123450000"), money] {
        let reference = harness.accept(request).await.reference;
        held(&harness, &reference).await;
        references.push(reference);
    }
    // A path stands for five minutes, and these orders for ten.
    harness.advance(Duration::from_secs(301)).await;
    for reference in &references {
        for operator in ["jo", "mika"] {
            harness.decide(operator, reference, Action::Release).await.unwrap();
        }
        harness.wait_for_state(reference, "failed").await;
        assert_eq!(harness.events(reference).await, ["intent.accepted", "intent.failed"]);
    }
    let lapsed = "select count(*) from event where object->'failure'->>'detail' = 'price_lapsed'";
    assert_eq!(harness.count(lapsed).await, 2);
    assert_eq!(harness.count("select count(*) from chain_command").await, 0);
    assert_eq!(harness.count("select sum(reserved)::bigint from account_balance").await, 0);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_permit_of_a_refused_order_was_not_made_public() {
    let harness = scenes::harness().await;
    let service = Service::saying(Some(json!({"verdict": "fail"}))).await;
    let engine = harness.engine_under(service.screening(ScreeningResult::Hold, NEVER));
    work(&harness, &engine);
    let refused = order("000123450000");
    let reference = harness.accept(refused.clone()).await.reference;
    harness.wait_for_state(&reference, "failed").await;
    assert_eq!(harness.count("select count(*) from permit_published").await, 0);
    // So it may be used for another payee.
    let id = uuid::Uuid::new_v4().to_string();
    let mut again = IntentRequest { client_reference: Some(format!("ref-{id}")), intent_id: id, ..refused };
    again.beneficiary.as_mut().unwrap().account = Some("000123456789".into());
    harness.accept(again).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_screens_again_and_the_order_begins_once() {
    let harness = scenes::harness().await;
    let service = Service::saying(None).await;
    // Killed before it stops waiting.
    let screening = || {
        let hook = HookConfig { timeout: Duration::from_secs(10), ..service.hook(ScreeningResult::Hold) };
        Screening::new(None, Some(hook), NEVER).unwrap()
    };
    let engine = harness.engine_under(screening());
    let worker = work(&harness, &engine);
    let reference = harness.accept(order("000123450000")).await.reference;
    wait_for("the question", || async { (service.requested() == 1).then_some(()) }).await;
    worker.abort();
    assert!(verdicts(&harness, &reference).await.is_empty(), "nothing was said");
    service.say(Some(json!({"verdict": "pass"})));
    // Its claim expires.
    harness.run("update effect set claimed_until = now() - interval '1 s'").await;
    for _ in 0..2 {
        work(&harness, &harness.engine_under(screening()));
    }
    harness.play_until(&reference, |kind| kind == "settle").await;
    harness.wait_for_state(&reference, "completed").await;
    assert_eq!(verdicts(&harness, &reference).await, ["pass hook"]);
    assert_eq!(harness.count("select count(*) from chain_command where kind = 'create'").await, 1);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_party_on_the_list_is_held_and_the_list_is_reloaded() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "# nobody yet").unwrap();
    let config = |on_match| ListConfig { file: file.path().to_owned(), on_match };
    let harness = scenes::harness().await;
    let open = |on_match| Screening::new(Some(config(on_match)), None, NEVER).unwrap();
    let reference = {
        let engine = harness.engine_under(open(ScreeningResult::Hold));
        let worker = work(&harness, &engine);
        let reference = harness.accept(order("000123450000")).await.reference;
        harness.wait_for_state(&reference, "locking").await;
        worker.abort();
        reference
    };
    assert_eq!(verdicts(&harness, &reference).await, ["pass list"]);
    std::fs::write(file.path(), "account: 000123450000\n").unwrap();
    let engine = harness.engine_under(open(ScreeningResult::Hold));
    let worker = work(&harness, &engine);
    let reference = harness.accept(order("000123450000")).await.reference;
    held(&harness, &reference).await;
    assert_eq!(verdicts(&harness, &reference).await, ["hold list account"]);
    worker.abort();
    let engine = harness.engine_under(open(ScreeningResult::Fail));
    work(&harness, &engine);
    let reference = harness.accept(order("000123450000")).await.reference;
    harness.wait_for_state(&reference, "failed").await;
    std::fs::write(file.path(), "anything\n").unwrap();
    assert!(Screening::new(Some(config(ScreeningResult::Hold)), None, NEVER).is_err());
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_who_refuse_an_order_overrule_a_worker_that_comes_back_with_a_pass() {
    let harness = scenes::harness().await;
    let service = Service::saying(Some(json!({"verdict": "hold"}))).await;
    // Without an answer it would pass, after five seconds.
    let timeout = Duration::from_secs(5);
    let hook = HookConfig { timeout, ..service.hook(ScreeningResult::Pass) };
    let engine = harness.engine_under(Screening::new(None, Some(hook), SOON).unwrap());
    work(&harness, &engine);
    let reference = harness.accept(order("000123450000")).await.reference;
    held(&harness, &reference).await;
    let refuse = Action::Refuse { code: "screening_refused".into() };
    let id = harness.decide("jo", &reference, refuse).await.unwrap().approval.unwrap();
    service.say(None);
    let before = service.requested();
    wait_for("a worker that waits", || async { (service.requested() > before).then_some(()) }).await;
    // Its claim expires as if it had stalled, and nobody else claims the work before it comes back.
    let mut tx = harness.pool().begin().await.unwrap();
    let expire =
        "update effect set claimed_until = now() - interval '1 s', called_at = now() - interval '1 min'";
    sqlx::query(expire).execute(&mut *tx).await.unwrap();
    approve(&mut tx, &id, "mika", "seen").await.unwrap();
    sqlx::query("update effect set run_at = now() + interval '1 h'").execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    wait_for("the worker's pass", || async {
        verdicts(&harness, &reference).await.iter().any(|one| one.starts_with("pass no_answer")).then_some(())
    })
    .await;
    // By the time that another order has passed in the same way, the first one's step was written or refused.
    let other = harness.accept(order("000123450000")).await.reference;
    harness.wait_for_state(&other, "locking").await;
    harness.run_of("update effect set run_at = now() where reference = $1", &reference).await;
    harness.wait_for_state(&reference, "failed").await;
    assert_eq!(harness.events(&reference).await, ["intent.accepted", "intent.failed"]);
    harness.check_books().await;
}
