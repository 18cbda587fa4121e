//! A conversion desk that behaves badly on purpose. It stands for the world outside: it lives in the drill, so that its
//! books survive every kill, and it does not deduplicate: an order that is sent twice is converted twice, and the books
//! show it. How it treats an order is drawn from the seed and the order's amount, which says the order's number: a seed
//! gives the same manners again. Now and then it is down altogether.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::rest::FIRST;
use crate::dice::Dice;

/// What the first order sells: all but the protocol fee, five basis points of what it pays.
const FIRST_SOLD: u64 = FIRST - FIRST / 2_000;
const AUTHORIZATION: &str = "Bearer sandbox";
/// Longer than the service waits for an answer.
const SLOW: Duration = Duration::from_secs(11);

const SILENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Manner {
    Fills,
    /// Converts after two seconds and answers after eleven.
    Slow,
    /// Would convert after eleven seconds, when the call's time is over; converts at once when it is sent again.
    TooSlow,
    /// Refuses the order at first because it is busy, then hangs up without an answer, then converts.
    Busy,
    /// Converts, and says of a minor unit less that it is all, three times.
    WrongAmount,
    /// Says that it works on the order, then twice that it does not know it, although it has converted it. It converts
    /// an order once only: nobody could tell it from a desk that never got the order, had its first answer been lost.
    Forgets,
    /// Says another reference of its own each time.
    ChangesItsReference,
    /// Converts, and a proxy's pages stand in the way of three answers.
    BehindAProxy,
    /// Gives two answers at once, one of which is a rejection.
    AnswersTwice,
    /// Converts, and says of it later that it rejected it.
    FillsThenRejects,
    Rejects,
    /// Converts the first order of all, and answers neither the order nor a query, until the drill is about to end.
    Silent,
}

const MANNERS: [Manner; 13] = [
    Manner::Fills,
    Manner::Fills,
    Manner::Fills,
    Manner::Slow,
    Manner::TooSlow,
    Manner::Busy,
    Manner::WrongAmount,
    Manner::Forgets,
    Manner::ChangesItsReference,
    Manner::BehindAProxy,
    Manner::AnswersTwice,
    Manner::FillsThenRejects,
    Manner::Rejects,
];

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub manner: Manner,
    pub order: Value,
    pub calls: usize,
    pub filled: usize,
    questions: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Desk {
    seed: u64,
    books: Arc<Mutex<HashMap<String, Entry>>>,
    speaks: watch::Sender<bool>,
}

impl Desk {
    /// Opens for business on a port of its own until the handle is dropped. Returns its URL, too.
    pub(crate) async fn open(seed: u64) -> anyhow::Result<(Self, String, AbortOnDropHandle<()>)> {
        let desk = Self { seed, books: Arc::default(), speaks: watch::Sender::new(false) };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let at = listener.local_addr()?;
        let serving = AbortOnDropHandle::new(tokio::spawn({
            let desk = desk.clone();
            async move {
                let Err(error) = desk.work(listener).await;
                panic!("the desk cannot go on: {error}");
            }
        }));
        Ok((desk, format!("http://{at}/v2"), serving))
    }

    pub(crate) fn books(&self) -> HashMap<String, Entry> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn speak(&self) {
        self.speaks.send_replace(true);
    }

    async fn silence(&self) {
        let mut speaks = self.speaks.subscribe();
        let _ = tokio::time::timeout(SILENCE, speaks.wait_for(|speaks| *speaks)).await;
    }

    /// Up for a while, then down: connections are refused.
    async fn work(&self, mut listener: TcpListener) -> anyhow::Result<Infallible> {
        let at = listener.local_addr()?;
        let mut dice = Dice::new(self.seed);
        loop {
            let router = Router::new()
                .route("/v2/orders", post(take_order))
                .route("/v2/orders/{reference}", get(tell))
                .with_state(self.clone());
            let up = Duration::from_millis(2_000 + dice.roll(6_000));
            let _ = tokio::time::timeout(up, axum::serve(listener, router).into_future()).await;
            tokio::time::sleep(Duration::from_millis(200 + dice.roll(1_500))).await;
            // Another process may have the port for a moment.
            let mut attempts = 0;
            listener = loop {
                match TcpListener::bind(at).await {
                    Ok(listener) => break listener,
                    Err(error) if attempts == 100 => return Err(error).context("the desk's port"),
                    Err(_) => attempts += 1,
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            };
        }
    }

    fn manner(&self, order: &Value) -> Manner {
        let sold = order["sell"]["amountMinor"].as_str().and_then(|amount| amount.parse().ok());
        let sold: u64 = sold.unwrap_or_default();
        if sold == FIRST_SOLD {
            return Manner::Silent;
        }
        *Dice::new(self.seed ^ sold.rotate_left(32)).pick(&MANNERS)
    }

    /// Notes something about an order. `None`: it never got the order.
    fn note(&self, reference: &str, change: impl FnOnce(&mut Entry)) -> Option<Entry> {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = books.get_mut(reference)?;
        change(entry);
        Some(entry.clone())
    }

    fn fill(&self, reference: &str) {
        self.note(reference, |entry| entry.filled += 1);
    }

    fn receive(&self, reference: &str, order: &Value) -> Entry {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let manner = self.manner(order);
        let new = Entry { manner, order: order.clone(), calls: 0, filled: 0, questions: 0 };
        let entry = books.entry(reference.to_owned()).or_insert(new);
        entry.calls += 1;
        entry.clone()
    }
}

/// In a task of its own: the desk's work continues when the caller is killed.
async fn take_order(State(desk): State<Desk>, headers: HeaderMap, Json(order): Json<Value>) -> Response {
    if headers.get("authorization").is_none_or(|value| value != AUTHORIZATION) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let carried_out = tokio::spawn(async move { carry_out(&desk, &order).await });
    carried_out.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

async fn carry_out(desk: &Desk, order: &Value) -> Response {
    let Some(reference) = order["reference"].as_str() else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let entry = desk.receive(reference, order);
    match entry.manner {
        Manner::Rejects => (StatusCode::UNPROCESSABLE_ENTITY, Json(rejected(order))).into_response(),
        Manner::Busy if entry.calls == 1 => {
            (StatusCode::TOO_MANY_REQUESTS, Json(json!({"error": "busy"}))).into_response()
        }
        Manner::Busy if entry.calls == 2 => StatusCode::BAD_GATEWAY.into_response(),
        Manner::TooSlow if entry.calls == 1 => {
            tokio::time::sleep(SLOW).await;
            let not_after = order["notAfter"].as_str().and_then(|at| at.parse::<DateTime<Utc>>().ok());
            if not_after.is_some_and(|not_after| Utc::now() <= not_after) {
                desk.fill(reference);
            }
            Json(filled(order)).into_response()
        }
        Manner::Slow => {
            tokio::time::sleep(Duration::from_secs(2)).await;
            desk.fill(reference);
            tokio::time::sleep(SLOW).await;
            Json(filled(order)).into_response()
        }
        Manner::Fills | Manner::TooSlow | Manner::Busy | Manner::FillsThenRejects => {
            desk.fill(reference);
            Json(filled(order)).into_response()
        }
        Manner::Silent => {
            desk.fill(reference);
            desk.silence().await;
            Json(filled(order)).into_response()
        }
        Manner::WrongAmount => {
            desk.fill(reference);
            Json(short(order)).into_response()
        }
        Manner::Forgets | Manner::ChangesItsReference => {
            if entry.filled == 0 || entry.manner != Manner::Forgets {
                desk.fill(reference);
            }
            Json(working(order, "D-1")).into_response()
        }
        Manner::BehindAProxy => {
            desk.fill(reference);
            (StatusCode::BAD_GATEWAY, Html("<h1>502</h1>")).into_response()
        }
        Manner::AnswersTwice => {
            desk.fill(reference);
            let both = format!("{}{}", filled(order), rejected(order));
            ([("content-type", "application/json")], both).into_response()
        }
    }
}

async fn tell(State(desk): State<Desk>, Path(reference): Path<String>, headers: HeaderMap) -> Response {
    if headers.get("authorization").is_none_or(|value| value != AUTHORIZATION) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let unknown = || {
        let body = json!({"error": "unknown_reference", "reference": reference});
        (StatusCode::NOT_FOUND, Json(body)).into_response()
    };
    let Some(entry) = desk.note(&reference, |entry| entry.questions += 1) else { return unknown() };
    let order = &entry.order;
    if entry.manner == Manner::Silent {
        desk.silence().await;
    }
    match (entry.manner, entry.questions) {
        (Manner::Rejects | Manner::FillsThenRejects, _) => Json(rejected(order)).into_response(),
        // An order that it never received.
        (Manner::Busy | Manner::TooSlow, _) if entry.filled == 0 => unknown(),
        (Manner::Slow, _) if entry.filled == 0 => Json(working(order, "D-1")).into_response(),
        (Manner::WrongAmount, ..=2) => Json(short(order)).into_response(),
        (Manner::Forgets, 1) => Json(working(order, "D-1")).into_response(),
        (Manner::Forgets, ..=3) => unknown(),
        (Manner::ChangesItsReference, n) => {
            let mut answer = if n <= 3 { working(order, "D-1") } else { filled(order) };
            answer["deskReference"] = json!(format!("D-{}", n % 3 + 1));
            Json(answer).into_response()
        }
        (Manner::BehindAProxy, ..=2) => (StatusCode::NOT_FOUND, Html("<h1>404</h1>")).into_response(),
        _ => Json(filled(order)).into_response(),
    }
}

fn working(order: &Value, desk_reference: &str) -> Value {
    json!({"reference": order["reference"], "status": "working", "deskReference": desk_reference})
}

fn filled(order: &Value) -> Value {
    json!({
        "reference": order["reference"], "status": "filled", "deskReference": "D-1",
        "sell": order["sell"], "buy": order["buy"],
        "filledAt": Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true),
    })
}

fn rejected(order: &Value) -> Value {
    let reason = json!({"code": "price_gone", "message": "the price has moved"});
    json!({"reference": order["reference"], "status": "rejected", "reason": reason})
}

fn short(order: &Value) -> Value {
    let mut answer = filled(order);
    let bought = order["buy"]["amountMinor"].as_str().and_then(|amount| amount.parse::<u128>().ok());
    answer["buy"]["amountMinor"] = json!(bought.unwrap_or_default().saturating_sub(1).to_string());
    answer
}
