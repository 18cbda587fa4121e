//! A faulty node for drills: a proxy between the service and the sandbox's chain that injects faults.
//!
//! Calls fail, with providers' error texts or without any; logs are lost, duplicated, shuffled, or marked as removed;
//! heads lag; ranges are refused; transactions are accepted and the answer is lost. All other answers are the chain's
//! own. A seed determines the choices in the order of the calls, which the operating system determines.

mod answers;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// Exchanges that fail as a whole, in a thousand.
const BROKEN: u64 = 40;
const LIMITED: u64 = 30;
const SLOW: u64 = 20;
const SILENT: u64 = 2;
/// Transactions whose answer is lost after they were taken, and those that never get there.
const ANSWER_LOST: u64 = 100;
const REQUEST_LOST: u64 = 50;
/// Longer than the service waits for an answer.
const SILENCE: Duration = Duration::from_secs(11);

/// Choices from a seed (SplitMix64).
struct Dice(Mutex<u64>);

impl Dice {
    fn next(&self) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// True `per_mille` times in a thousand.
    fn chance(&self, per_mille: u64) -> bool {
        self.next() % 1_000 < per_mille
    }

    /// Below `end`, which is not zero.
    fn below(&self, end: u64) -> u64 {
        self.next() % end
    }

    fn index(&self, len: usize) -> usize {
        let len = u64::try_from(len).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.below(len)).unwrap_or_default()
    }
}

struct BadNode {
    upstream: String,
    client: reqwest::Client,
    dice: Dice,
    exchanges: AtomicU64,
    spoiled: AtomicU64,
}

/// An HTTP failure in the place of an answer.
type HttpFailure = (StatusCode, String);

/// A bad node that answers until it is dropped.
pub(super) struct Faults {
    url: String,
    node: Arc<BadNode>,
    _serving: AbortOnDropHandle<()>,
}

impl Faults {
    /// Between a free port of this machine and the node at `upstream`.
    pub(super) async fn start(upstream: &str, seed: u64) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("the bad node's port")?;
        let url = format!("http://{}", listener.local_addr()?);
        let node = Arc::new(BadNode {
            upstream: upstream.to_owned(),
            client: reqwest::Client::builder().build()?,
            dice: Dice(Mutex::new(seed)),
            exchanges: AtomicU64::new(0),
            spoiled: AtomicU64::new(0),
        });
        let router = Router::new().fallback(exchange).with_state(Arc::clone(&node));
        let serving = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "faulty node ended");
            }
        });
        Ok(Self { url, node, _serving: AbortOnDropHandle::new(serving) })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        let (exchanges, spoiled) = (&self.node.exchanges, &self.node.spoiled);
        let (exchanges, spoiled) = (exchanges.load(Ordering::Relaxed), spoiled.load(Ordering::Relaxed));
        tracing::info!(exchanges, spoiled, "faults injected by the faulty node");
    }
}

async fn exchange(State(node): State<Arc<BadNode>>, body: Bytes) -> Response {
    node.exchanges.fetch_add(1, Ordering::Relaxed);
    match node.answer(&body).await {
        Ok(answer) => ([(header::CONTENT_TYPE, "application/json")], answer.to_string()).into_response(),
        Err(refusal) => {
            node.spoil();
            refusal.into_response()
        }
    }
}

impl BadNode {
    fn spoil(&self) {
        self.spoiled.fetch_add(1, Ordering::Relaxed);
    }

    /// The exchange's answer, or the HTTP failure that takes its place.
    async fn answer(&self, body: &[u8]) -> Result<Value, HttpFailure> {
        let request: Value = serde_json::from_slice(body)
            .map_err(|_| (StatusCode::BAD_REQUEST, "this is not JSON".to_owned()))?;
        if self.dice.chance(SILENT) {
            tokio::time::sleep(SILENCE).await;
        }
        if self.dice.chance(SLOW) {
            tokio::time::sleep(Duration::from_millis(self.dice.below(1_500))).await;
        }
        if self.dice.chance(BROKEN) {
            let statuses = [StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE];
            return Err((statuses[self.dice.index(2)], "upstream unavailable".to_owned()));
        }
        if self.dice.chance(LIMITED) {
            if self.dice.chance(500) {
                return Err((StatusCode::TOO_MANY_REQUESTS, "Too Many Requests".to_owned()));
            }
            let words = "Your app has exceeded its compute units per second capacity";
            self.spoil();
            return Ok(each(&request, |call| failure(call, 429, words)));
        }
        match request {
            Value::Array(calls) => {
                let mut answers = Vec::with_capacity(calls.len());
                for call in &calls {
                    answers.push(self.one(call).await?);
                }
                Ok(Value::Array(answers))
            }
            call => self.one(&call).await,
        }
    }

    async fn one(&self, call: &Value) -> Result<Value, HttpFailure> {
        let method = call["method"].as_str().unwrap_or_default();
        if method == "eth_sendRawTransaction" {
            if self.dice.chance(REQUEST_LOST) {
                return Err((StatusCode::BAD_GATEWAY, String::new()));
            }
            let answer = self.forward(call).await?;
            if self.dice.chance(ANSWER_LOST) {
                return Err((StatusCode::GATEWAY_TIMEOUT, String::new()));
            }
            return Ok(answer);
        }
        if let Some(refusal) = answers::refused(call, &self.dice) {
            self.spoil();
            return Ok(refusal);
        }
        let request = match answers::earlier(call, &self.dice) {
            Some(behind) => self.behind(call, behind).await?,
            None => call.clone(),
        };
        let mut answer = self.forward(&request).await?;
        if answer.get_mut("result").is_some_and(|result| answers::spoil(method, result, &self.dice)) {
            self.spoil();
        }
        Ok(answer)
    }

    /// The same call about an earlier head.
    async fn behind(&self, call: &Value, behind: u64) -> Result<Value, HttpFailure> {
        let tag = call["params"][0].clone();
        let question =
            json!({"jsonrpc": "2.0", "id": 0, "method": "eth_getBlockByNumber", "params": [tag, false]});
        let head = self.forward(&question).await?;
        let number = head["result"]["number"].as_str().and_then(answers::number);
        let Some(number) = number else { return Ok(call.clone()) };
        self.spoil();
        let mut request = call.clone();
        request["params"][0] = format!("{:#x}", number.saturating_sub(behind)).into();
        Ok(request)
    }

    async fn forward(&self, call: &Value) -> Result<Value, HttpFailure> {
        let sent = self.client.post(&self.upstream).json(call).send().await;
        let answer = match sent {
            Ok(response) => response.json().await,
            Err(error) => Err(error),
        };
        answer.map_err(|error| (StatusCode::BAD_GATEWAY, error.to_string()))
    }
}

fn each(request: &Value, answer: impl Fn(&Value) -> Value) -> Value {
    match request {
        Value::Array(calls) => Value::Array(calls.iter().map(answer).collect()),
        call => answer(call),
    }
}

fn failure(call: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": call["id"], "error": {"code": code, "message": message}})
}
