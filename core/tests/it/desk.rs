//! Conversions by a desk over HTTP that is slow, down, wrong, forgetful, or changes its answer: each order is converted
//! once, and only a whole fill counts. It is asked to the end: what it fills for an order that has failed is a position.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use chrono::{SecondsFormat, Utc};
use dvp_core::operators::operations::{Action, ResolveError};
use dvp_domain::chain::ChainFact;
use dvp_domain::reconcile::BreakKind;
use dvp_rails::LegKind;
use dvp_rails::http_desk::{DeskConfig, HttpDesk};
use dvp_sandbox::rails::SimulatedRails;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::reversals::breaks_of;
use crate::scenes;
use dvp_testing::Harness;
use dvp_testing::orders::order;
use dvp_testing::wait::wait_for;

const TOKEN: &str = "desk-token";

/// The behaviour of a desk; `n` counts its answers to queries about one order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Fills,
    /// Takes the order without an answer; then answers that it is in progress, and fills it.
    SlowThenFills,
    Rejects,
    /// Fills a minor unit less, reports so twice, and then corrects itself.
    WrongAmount,
    /// Answers that the order is in progress, then that it is unknown, and fills it.
    Forgets,
    /// Answers that the order is in progress, then with another reference of its own, and fills it.
    ChangesItsReference,
    /// A proxy's pages as answers to the order and the first two queries.
    BehindAProxy,
    /// Fills the order, and reports later that it rejected it.
    FillsThenRejects,
    /// Answers that the order is in progress until it is told to fill it.
    Works,
    /// A proxy's pages, until it is told to fill it.
    IsSilent,
    /// The order never arrives.
    NeverSees,
}

#[derive(Debug, Default)]
struct Book {
    /// Orders by reference: the body, and the number of queries.
    orders: HashMap<String, (Value, usize)>,
    /// Every order that arrived.
    calls: usize,
    unauthorized: usize,
}

#[derive(Debug, Clone)]
struct Desk {
    manner: Manner,
    book: Arc<Mutex<Book>>,
    is_told: Arc<AtomicBool>,
}

impl Desk {
    fn new(manner: Manner) -> Self {
        Self { manner, book: Arc::default(), is_told: Arc::default() }
    }

    async fn serve(&self, listener: TcpListener) {
        let router = Router::new()
            .route("/v2/orders", post(take_order))
            .route("/v2/orders/{reference}", get(tell))
            .with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    }

    fn fill(&self) {
        self.is_told.store(true, Ordering::Relaxed);
    }

    fn calls(&self) -> usize {
        self.book.lock().unwrap().calls
    }

    fn questions(&self) -> usize {
        self.book.lock().unwrap().orders.values().map(|(_, requested)| requested).sum()
    }

    fn is_authorized(&self, headers: &HeaderMap) -> bool {
        let is =
            headers.get("authorization").is_some_and(|value| value == format!("Bearer {TOKEN}").as_str());
        self.book.lock().unwrap().unauthorized += usize::from(!is);
        is
    }
}

fn working(order: &Value, desk_reference: &str) -> Value {
    json!({ "reference": order["reference"], "status": "working", "deskReference": desk_reference })
}

fn filled(order: &Value) -> Value {
    json!({
        "reference": order["reference"], "status": "filled", "deskReference": "D-1",
        "sell": order["sell"], "buy": order["buy"],
        "filledAt": Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true),
    })
}

fn rejected(order: &Value) -> Value {
    let reason = json!({ "code": "price_gone", "message": "the price has moved" });
    json!({ "reference": order["reference"], "status": "rejected", "reason": reason })
}

async fn take_order(State(desk): State<Desk>, headers: HeaderMap, Json(order): Json<Value>) -> Response {
    if !desk.is_authorized(&headers) {
        return (StatusCode::UNAUTHORIZED, Json(json!({ "error": "unauthorized" }))).into_response();
    }
    let reference = order["reference"].as_str().unwrap().to_owned();
    assert_eq!(headers["idempotency-key"], reference.as_str());
    {
        let mut book = desk.book.lock().unwrap();
        book.calls += 1;
        if desk.manner != Manner::NeverSees {
            book.orders.entry(reference).or_insert((order.clone(), 0));
        }
    }
    match desk.manner {
        Manner::Fills | Manner::FillsThenRejects => Json(filled(&order)).into_response(),
        Manner::SlowThenFills => {
            tokio::time::sleep(Duration::from_secs(60)).await;
            StatusCode::OK.into_response()
        }
        Manner::Rejects => (StatusCode::UNPROCESSABLE_ENTITY, Json(rejected(&order))).into_response(),
        Manner::WrongAmount => Json(short(&order)).into_response(),
        Manner::Forgets | Manner::ChangesItsReference | Manner::Works => {
            Json(working(&order, "D-1")).into_response()
        }
        Manner::BehindAProxy | Manner::IsSilent | Manner::NeverSees => {
            (StatusCode::BAD_GATEWAY, Html("<h1>502</h1>")).into_response()
        }
    }
}

fn short(order: &Value) -> Value {
    let mut answer = filled(order);
    let bought: u128 = order["buy"]["amountMinor"].as_str().unwrap().parse().unwrap();
    answer["buy"]["amountMinor"] = json!((bought - 1).to_string());
    answer
}

async fn tell(State(desk): State<Desk>, Path(reference): Path<String>, headers: HeaderMap) -> Response {
    if !desk.is_authorized(&headers) {
        return (StatusCode::UNAUTHORIZED, Json(json!({ "error": "unauthorized" }))).into_response();
    }
    let unknown =
        (StatusCode::NOT_FOUND, Json(json!({ "error": "unknown_reference", "reference": reference })));
    let (order, requested) = {
        let mut book = desk.book.lock().unwrap();
        let Some((order, requested)) = book.orders.get_mut(&reference) else {
            return unknown.into_response();
        };
        *requested += 1;
        (order.clone(), *requested)
    };
    let is_told = desk.is_told.load(Ordering::Relaxed);
    match (desk.manner, requested) {
        (Manner::Works, _) if !is_told => Json(working(&order, "D-1")).into_response(),
        (Manner::IsSilent, _) if !is_told => (StatusCode::BAD_GATEWAY, Html("<h1>502</h1>")).into_response(),
        (Manner::SlowThenFills, 1) => Json(working(&order, "D-1")).into_response(),
        (Manner::WrongAmount, ..=2) => Json(short(&order)).into_response(),
        (Manner::Forgets, ..=2) => unknown.into_response(),
        (Manner::ChangesItsReference, ..=2) => Json(working(&order, "D-2")).into_response(),
        (Manner::BehindAProxy, ..=2) => (StatusCode::NOT_FOUND, Html("<h1>404</h1>")).into_response(),
        (Manner::Rejects | Manner::FillsThenRejects, _) => Json(rejected(&order)).into_response(),
        _ => Json(filled(&order)).into_response(),
    }
}

fn rail(port: u16) -> HttpDesk {
    let url = format!("http://127.0.0.1:{port}/v2/").parse().unwrap();
    HttpDesk::new(DeskConfig { url, token: TOKEN.into(), authorities: None }).unwrap()
}

/// One order that is locked, with a desk.
async fn begun(manner: Manner) -> (Harness, Desk, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (harness, desk) = (scenes::harness().await, Desk::new(manner));
    desk.serve(listener).await;
    harness.start_workers_over(Arc::new(rail(port)), Arc::new(SimulatedRails::new(harness.pool().clone())));
    let reference = harness.accept(order("000123450000")).await.reference;
    harness.play_until(&reference, |kind| kind == "create").await;
    (harness, desk, reference)
}

/// One order through a desk, to the state it ends in.
async fn run(manner: Manner, ends_as: &str) -> (Harness, Desk, String) {
    let (harness, desk, reference) = begun(manner).await;
    if ends_as == "completed" {
        harness.play_until(&reference, |kind| kind == "settle").await;
    }
    harness.wait_for_state(&reference, ends_as).await;
    (harness, desk, reference)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desk_of_any_behaviour_converts_an_order_once() {
    let manners = [
        Manner::Fills,
        Manner::SlowThenFills,
        Manner::WrongAmount,
        Manner::Forgets,
        Manner::ChangesItsReference,
        Manner::BehindAProxy,
        Manner::FillsThenRejects,
    ];
    let runs = manners.map(|manner| async move {
        let (harness, desk, _) = run(manner, "completed").await;
        assert_eq!(desk.calls(), 1, "{manner:?}: ordered once");
        assert_eq!(desk.book.lock().unwrap().unauthorized, 0, "{manner:?}");
        if !matches!(manner, Manner::Fills | Manner::FillsThenRejects) {
            assert!(desk.questions() >= 2, "{manner:?}: was believed at once");
        }
        harness.check_books().await;
    });
    futures_util::future::join_all(runs).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_conversion_fails_the_order_with_the_desks_reason() {
    let (harness, desk, reference) = run(Manner::Rejects, "conversion_failed").await;
    assert_eq!((desk.calls(), desk.questions()), (1, 0));
    let (failure,): (Option<String>,) = harness
        .row_of("select state #>> '{failure,code}' from execution where reference = $1", &reference)
        .await;
    assert_eq!(failure.as_deref(), Some("price_gone"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_to_a_desk_that_is_down_arrives_when_it_is_up() {
    // Bound and not listening: connections are refused, and no other process can take the port.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = socket.local_addr().unwrap().port();
    let (harness, desk) = (scenes::harness().await, Desk::new(Manner::Fills));
    harness.start_workers_over(Arc::new(rail(port)), Arc::new(SimulatedRails::new(harness.pool().clone())));
    let reference = harness.accept(order("000123450000")).await.reference;
    harness.play_until(&reference, |kind| kind == "create").await;
    wait_for("the desk to be found down", || async {
        let (last_result,): (Option<String>,) = harness
            .row_of(
                "select max(last_result) from effect where reference = $1 and kind = 'offramp'",
                &reference,
            )
            .await;
        last_result.filter(|last_result| last_result == "rail is unavailable")
    })
    .await;
    desk.serve(socket.listen(16).unwrap()).await;
    harness.play_until(&reference, |kind| kind == "settle").await;
    harness.wait_for_state(&reference, "completed").await;
    assert_eq!(desk.calls(), 1);
}

async fn positions(harness: &Harness) -> (String, String, Vec<BreakKind>) {
    let breaks = breaks_of(harness, &[BreakKind::ConvertedNotUsed]).await;
    (harness.account("position", "USD").await, harness.account("position", "USDC").await, breaks)
}

async fn is_kept(harness: &Harness) {
    let kept = "select count(*) from ledger_entry where reason = 'keep_conversion'";
    wait_for("the position", || async { (harness.count(kept).await > 0).then_some(()) }).await;
    let expected = ("9985".into(), "-99950000".into(), vec![BreakKind::ConvertedNotUsed]);
    assert_eq!(positions(harness).await, expected);
    harness.wait_for_count("select count(*) from effect", 0).await;
    harness.check_books().await;
}

async fn refund(harness: &Harness, reference: &str) {
    let (entity, _) = harness.command(reference, "create").await;
    harness.report_fact(&entity, &ChainFact::Cancelled).await;
    let refunded = "select count(*) from execution where state #>> '{lock,refunded}' = 'true'";
    harness.wait_for_count(refunded, 1).await;
}

/// Two operators fail the conversion, once no call can be in flight.
async fn fail(harness: &Harness, reference: &str) -> Result<(), ResolveError> {
    let action = Action::Fail { leg: LegKind::Offramp, code: "desk_silent".into() };
    for operator in ["jo", "mika"] {
        scenes::decide_in_time(harness, operator, reference, action.clone()).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_desk_fills_for_a_lock_that_is_gone_is_a_position() {
    let (harness, desk, reference) = begun(Manner::Works).await;
    refund(&harness, &reference).await;
    desk.fill();
    harness.wait_for_state(&reference, "conversion_failed").await;
    is_kept(&harness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversion_that_the_database_has_forgotten_is_asked_about_before_it_fails() {
    let (harness, desk, reference) = begun(Manner::Works).await;
    wait_for("the call", || async { (desk.calls() == 1).then_some(()) }).await;
    refund(&harness, &reference).await;
    let forget = "with forgotten as (update effect set called = false, called_at = null) \
                  update execution set state = jsonb_set(state, '{leg}', \
                      '{\"in_progress\": false, \"provider_reference\": null}')";
    harness.run(forget).await;
    let (asked, state) = (desk.questions(), "select count(*) from execution where state_name = 'converting'");
    wait_for("the question", || async { (desk.questions() > asked).then_some(()) }).await;
    assert_eq!(harness.count(state).await, 1, "the desk has it");
    desk.fill();
    is_kept(&harness).await;
    assert_eq!(desk.calls(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desk_whose_conversion_operators_have_failed_is_asked_until_it_has_said_what_became_of_it() {
    let (harness, desk, reference) = begun(Manner::IsSilent).await;
    wait_for("the call", || async { (desk.calls() == 1).then_some(()) }).await;
    fail(&harness, &reference).await.unwrap();
    harness.wait_for_state(&reference, "conversion_failed").await;
    assert_eq!(harness.events(&reference).await.last().unwrap(), "offramp.failed");
    assert_eq!(positions(&harness).await, ("0".into(), "0".into(), vec![]));
    assert_eq!(harness.count("select count(*) from effect where kind = 'offramp'").await, 1);
    desk.fill();
    is_kept(&harness).await;
    assert_eq!(desk.calls(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desk_that_has_never_seen_a_failed_conversion_is_asked_no_more() {
    let (harness, desk, reference) = begun(Manner::NeverSees).await;
    wait_for("the call", || async { (desk.calls() > 0).then_some(()) }).await;
    fail(&harness, &reference).await.unwrap();
    harness.wait_for_state(&reference, "conversion_failed").await;
    let calls = desk.calls();
    wait_for("the end of the questions", || async {
        let long_ago = "update effect set called_at = now() - interval '1 minute'";
        harness.run(long_ago).await;
        (harness.count("select count(*) from effect").await == 0).then_some(())
    })
    .await;
    assert_eq!(desk.calls(), calls, "and called no more");
    assert_eq!(positions(&harness).await, ("0".into(), "0".into(), vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_fail_no_conversion_that_the_desk_has_confirmed() {
    let (harness, desk, reference) = begun(Manner::Works).await;
    let confirmed = "select count(*) from execution where state #>> '{leg,provider_reference}' is not null";
    harness.wait_for_count(confirmed, 1).await;
    let refused = fail(&harness, &reference).await;
    assert!(matches!(refused, Err(ResolveError::Contradicted(_))), "{refused:?}");
    desk.fill();
    harness.play_until(&reference, |kind| kind == "settle").await;
    harness.wait_for_state(&reference, "completed").await;
    assert_eq!(positions(&harness).await, ("0".into(), "0".into(), vec![]), "it is used");
}
