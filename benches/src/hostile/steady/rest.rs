//! Orders over REST: each is sent when it is due, whether or not the one before it was answered.

use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::task::JoinSet;

use super::{AGAIN_AFTER, PATIENCE, Terms};
use crate::crash::rest::{Placed, fiat_order};
use crate::hostile::latency::{Action, Due};

const REFUSED: &str = "an order of the well-behaved partner over REST is accepted";
const PATH: &str = "/v1/intents";
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(super) async fn run(terms: Terms) -> anyhow::Result<Vec<Placed>> {
    let client = reqwest::Client::builder().timeout(PATIENCE).build()?;
    let mut requests = JoinSet::new();
    let mut at = Instant::now();
    while !terms.stop.is_cancelled() {
        let order = Order::of(fiat_order(terms.euros())?);
        let request = order.signed(&terms, &client)?;
        at += terms.interval;
        tokio::time::sleep_until(at.into()).await;
        let due = terms.recorder.due(Action::Rest, at);
        requests.spawn(submit(terms.clone(), client.clone(), order, request, due));
    }
    Ok(requests.join_all().await.into_iter().flatten().collect())
}

/// An order and the idempotency key of all requests for it.
pub(super) struct Order {
    pub intent_id: String,
    body: String,
    idempotency_key: String,
}

impl Order {
    pub(super) fn of(order: Value) -> Self {
        Self {
            intent_id: order["intentId"].as_str().unwrap_or_default().to_owned(),
            body: order.to_string(),
            idempotency_key: uuid::Uuid::new_v4().to_string(),
        }
    }

    pub(super) fn signed(
        &self,
        terms: &Terms,
        client: &reqwest::Client,
    ) -> anyhow::Result<reqwest::RequestBuilder> {
        let place = (&*format!("http://{}", terms.target.http), PATH);
        terms.target.good.post(client, place, &self.idempotency_key, self.body.clone())
    }
}

/// Sends an order. `None`: it was not answered as it should be, which is noted.
pub(super) async fn submit(
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

/// How the order ended. `None`: it did not within the time limit, which is noted.
pub(super) async fn wait_for_end(terms: &Terms, client: &reqwest::Client, reference: &str) -> Option<String> {
    let url = format!("http://{}/v1/executions/{reference}?refType=executionId", terms.target.http);
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let request = client.get(&url).header("X-API-Key", &terms.target.good.api_key);
        let status = async { request.send().await?.error_for_status()?.json::<Value>().await };
        match status.await {
            Ok(execution) => {
                let status = execution["status"].as_str();
                if let Some(ended @ ("completed" | "failed")) = status {
                    return Some(ended.to_owned());
                }
            }
            Err(error) if error.status().is_some_and(|status| terms.promises.is_excused(status.as_u16())) => {
            }
            Err(error) => {
                let promise = "a read of the well-behaved partner over REST is answered";
                terms.promises.broken(promise, || error.to_string());
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let promise = "an order of the well-behaved partner over REST ends";
    terms.promises.broken(promise, || reference.to_owned());
    None
}
