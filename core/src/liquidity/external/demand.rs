//! A provider that subscribes to the demand of resting orders, and answers it with quotes.
//!
//! `POST <demand url>` with `{requestId, demand: [{source, target, orders, amountMinor}]}`, the whole demand of the
//! provider's pairs; the answer is `{quotes: [{source, target, …}]}`, each with the fields of an answer to a price
//! request. A quote replaces the provider's last answer for its pair. An answer is taken as a whole or not at all.
//!
//! One request is under way at a time. After each of them, and after the interval, the demand of that moment is sent,
//! unless the provider has answered the same demand before.

use std::time::{Duration, Instant};

use dvp_domain::liquidity::Offer;
use dvp_domain::money::Minor;
use dvp_domain::range::demand::Demand;
use metrics::counter;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;
use tracing::{info, warn};

use super::{ExternalProvider, PairAssets, ResponseBody, SourceError};
use crate::liquidity::breaker::Breaker;

/// Where demand is sent.
#[derive(Debug, Clone)]
pub struct DemandConfig {
    pub url: String,
    /// The shortest pause between two requests.
    pub interval: Duration,
}

/// A subscription. Its circuit is its own: prices are requested while demand cannot be sent.
pub(super) struct Subscription {
    config: DemandConfig,
    breaker: Breaker,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DemandBody<'a> {
    request_id: String,
    demand: Vec<PairBody<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PairBody<'a> {
    source: &'a str,
    target: &'a str,
    orders: u64,
    amount_minor: Minor,
}

#[derive(Deserialize)]
struct QuotesBody {
    quotes: Vec<Value>,
}

#[derive(Deserialize)]
struct QuotedPair<'a> {
    source: &'a str,
    target: &'a str,
}

impl<'a> DemandBody<'a> {
    fn of(demand: &'a Demand) -> Self {
        let pairs = demand.pairs().map(|(source, target, of_pair)| PairBody {
            source,
            target,
            orders: of_pair.orders,
            amount_minor: of_pair.input(),
        });
        Self { request_id: uuid::Uuid::new_v4().to_string(), demand: pairs.collect() }
    }
}

impl Subscription {
    pub(super) const fn new(config: DemandConfig, pause: Duration) -> Self {
        Self { config, breaker: Breaker::new(pause) }
    }
}

impl ExternalProvider {
    /// Sends the demand of the provider's pairs whenever it has changed. `quoted` is called after new quotes.
    pub(super) async fn follow(
        &self,
        subscription: &Subscription,
        mut demand: watch::Receiver<Demand>,
        quoted: &(dyn Fn() + Send + Sync),
    ) {
        let mut answered: Option<Demand> = None;
        let mut failed = false;
        loop {
            let current =
                demand.borrow_and_update().only(|input, output| self.pair_of(input, output).is_some());
            if answered.as_ref() == Some(&current) {
                if demand.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let quotes = self.send(subscription, &current).await;
            let source = &*self.config.id;
            match &quotes {
                Ok(quotes) if failed => info!(source, quotes, "demand is answered again"),
                Err(error) if !failed => warn!(source, %error, "demand not answered, will retry"),
                Ok(_) | Err(_) => {}
            }
            failed = quotes.is_err();
            if let Ok(quotes) = quotes {
                answered = Some(current);
                if quotes > 0 {
                    quoted();
                }
            }
            tokio::time::sleep(subscription.config.interval).await;
        }
    }

    /// Sends the demand, unless the circuit is open, and keeps the quotes of the answer. Returns their number.
    async fn send(&self, subscription: &Subscription, demand: &Demand) -> Result<usize, SourceError> {
        if !subscription.breaker.allows(Instant::now()) {
            return Err(SourceError::Unavailable("paused after failures".into()));
        }
        let sent = DemandBody::of(demand);
        let response = self.client.post::<QuotesBody>(&subscription.config.url, &sent).await;
        let offers = response.and_then(|response| self.offers(response, demand));
        subscription.breaker.done(offers.is_ok(), Instant::now());
        let result = if offers.is_ok() { "answered" } else { "failed" };
        counter!("dvp_demand_requests_total", "source" => self.config.id.clone(), "result" => result)
            .increment(1);
        let offers = offers?;
        let quotes = offers.len();
        for (pair, offer) in offers {
            self.keep(pair, offer);
        }
        Ok(quotes)
    }

    /// The offers of an answer: at most one for each pair with demand.
    fn offers(
        &self,
        response: QuotesBody,
        demand: &Demand,
    ) -> Result<Vec<(PairAssets<'_>, Offer)>, SourceError> {
        let invalid = |error: serde_json::Error| SourceError::InvalidResponse(error.to_string());
        let mut wanted: Vec<(&str, &str)> =
            demand.pairs().map(|(source, target, _)| (source, target)).collect();
        let mut offers = Vec::new();
        for quote in response.quotes {
            let QuotedPair { source, target } = QuotedPair::deserialize(&quote).map_err(invalid)?;
            let at = wanted.iter().position(|pair| *pair == (source, target));
            let found = at.map(|at| wanted.swap_remove(at)).and_then(|_| self.pair_of(source, target));
            let Some(pair) = found else {
                return Err(SourceError::InvalidResponse("a quote that was not requested".into()));
            };
            let answer = ResponseBody::deserialize(&quote).map_err(invalid)?;
            offers.push((pair, Offer { latency_ms: None, ..self.judge(answer, pair, 0)? }));
        }
        Ok(offers)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Every field is listed: nothing else of an order leaves the service.
    #[test]
    fn the_body_has_pairs_counts_and_sizes_only() {
        let mut demand = Demand::default();
        for (input, output, cap) in [("USDC", "USD", 100), ("USD", "EUR", 7), ("USDC", "USD", 20)] {
            demand.add(&(input.into(), output.into()), Minor::new(cap));
        }
        let mut body = serde_json::to_value(DemandBody::of(&demand)).unwrap();
        let id = body.as_object_mut().unwrap().remove("requestId").unwrap();
        assert!(id.as_str().unwrap().parse::<uuid::Uuid>().is_ok(), "{id}");
        let expected = json!({"demand": [
            {"source": "USD", "target": "EUR", "orders": 1, "amountMinor": "7"},
            {"source": "USDC", "target": "USD", "orders": 2, "amountMinor": "120"},
        ]});
        assert_eq!(body, expected);
    }

    #[test]
    fn no_demand_is_an_empty_list() {
        let body = serde_json::to_value(DemandBody::of(&Demand::default())).unwrap();
        assert_eq!(body["demand"], json!([]));
    }
}
