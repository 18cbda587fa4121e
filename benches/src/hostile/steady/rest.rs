//! Orders over REST: each is sent when it is due, whether or not the one before it was answered.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::Value;
use tokio::task::JoinSet;

use super::{ACCOUNT, AGAIN_AFTER, PATIENCE, TOKEN_PAUSE, Terms};
use crate::crash::rest::{Placed, Wallet, fiat_order, pay_with_token, text, unix_secs};
use crate::hostile::latency::{Due, Interface};

const REFUSED: &str = "an order of the well-behaved partner over REST is accepted";
const PATH: &str = "/v1/intents";

pub(super) async fn run(terms: Terms) -> anyhow::Result<Vec<Placed>> {
    let client = reqwest::Client::builder().timeout(PATIENCE).build()?;
    let tokens = tokio::spawn(token_orders(terms.clone(), client.clone()));
    let mut requests = JoinSet::new();
    let mut at = Instant::now();
    while !terms.stop.is_cancelled() {
        let order = Order::of(fiat_order(ACCOUNT)?);
        let request = order.signed(&terms, &client)?;
        at += terms.interval;
        tokio::time::sleep_until(at.into()).await;
        let due = terms.recorder.due(Interface::Rest, at);
        requests.spawn(submit(terms.clone(), client.clone(), order, request, due));
    }
    let mut placed: Vec<Placed> = requests.join_all().await.into_iter().flatten().collect();
    placed.extend(tokens.await??);
    Ok(placed)
}

/// An order and the idempotency key of all requests for it.
struct Order {
    intent_id: String,
    body: String,
    idempotency_key: String,
}

impl Order {
    fn of(order: Value) -> Self {
        Self {
            intent_id: order["intentId"].as_str().unwrap_or_default().to_owned(),
            body: order.to_string(),
            idempotency_key: uuid::Uuid::new_v4().to_string(),
        }
    }

    /// A request for it, with a nonce of its own.
    fn signed(&self, terms: &Terms, client: &reqwest::Client) -> anyhow::Result<reqwest::RequestBuilder> {
        let (keys, body) = (&terms.target.good, self.body.as_bytes());
        let headers = crate::http::headers(keys.signing_secret.as_bytes(), PATH, body, unix_secs()?)?;
        Ok(client
            .post(format!("http://{}{PATH}", terms.target.http))
            .header("X-API-Key", &keys.api_key)
            .header("Content-Type", "application/json")
            .header("X-Idempotency-Key", &self.idempotency_key)
            .headers(headers)
            .body(self.body.clone()))
    }
}

/// Sends an order. `None`: it was not answered as it should be, which is noted.
async fn submit(
    terms: Terms,
    client: reqwest::Client,
    order: Order,
    mut request: reqwest::RequestBuilder,
    due: Due,
) -> Option<Placed> {
    let answered = async {
        loop {
            let response = request.send().await?;
            let status = response.status().as_u16();
            if !terms.promises.is_excused(status) {
                return anyhow::Ok((status, response.json::<Value>().await?));
            }
            tokio::time::sleep(AGAIN_AFTER).await;
            request = order.signed(&terms, &client)?;
        }
    };
    match answered.await {
        Ok((202, answer)) => {
            due.answered();
            let reference = answer["reference"].as_str().map(str::to_owned);
            terms.promises.check(reference.is_some(), REFUSED, || answer.to_string());
            Some(Placed { intent_id: order.intent_id, status: 202, reference })
        }
        Ok((status, answer)) => {
            due.answered();
            terms.promises.broken(REFUSED, || format!("{status} {answer}"));
            None
        }
        Err(error) => {
            let promise = "a request of the well-behaved partner over REST is answered";
            terms.promises.broken(promise, || format!("{error:#}"));
            None
        }
    }
}

/// Orders with a permit, one at a time: a wallet's next permit has its next nonce.
async fn token_orders(terms: Terms, client: reqwest::Client) -> anyhow::Result<Vec<Placed>> {
    let wallet = Wallet::of(&terms.target.ready, 0)?;
    let rpc = text(&terms.target.ready, "/chain/rpcUrl")?.to_owned();
    let mut placed = Vec::new();
    while !terms.stop.is_cancelled() {
        let permit = wallet.permit(&client, &rpc, 10_000_000).await.context("a permit")?;
        let mut order = fiat_order(ACCOUNT)?;
        pay_with_token(&mut order, &wallet, &permit)?;
        let order = Order::of(order);
        let request = order.signed(&terms, &client)?;
        let due = terms.recorder.due(Interface::RestToken, Instant::now());
        let pause = Instant::now() + TOKEN_PAUSE;
        if let Some(one) = submit(terms.clone(), client.clone(), order, request, due).await {
            let reference = one.reference.clone().unwrap_or_default();
            placed.push(one);
            wait_for_end(&terms, &client, &reference).await;
        }
        tokio::time::sleep_until(pause.into()).await;
    }
    Ok(placed)
}

async fn wait_for_end(terms: &Terms, client: &reqwest::Client, reference: &str) {
    let url = format!("http://{}/v1/executions/{reference}?refType=executionId", terms.target.http);
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let request = client.get(&url).header("X-API-Key", &terms.target.good.api_key);
        let status = async { request.send().await?.error_for_status()?.json::<Value>().await };
        match status.await {
            Ok(execution) if matches!(execution["status"].as_str(), Some("completed" | "failed")) => return,
            Ok(_) => {}
            Err(error) if error.status().is_some_and(|status| terms.promises.is_excused(status.as_u16())) => {
            }
            Err(error) => {
                let promise = "a read of the well-behaved partner over REST is answered";
                terms.promises.broken(promise, || error.to_string());
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let promise = "an order of the well-behaved partner over REST ends";
    terms.promises.broken(promise, || reference.to_owned());
}
