//! An external provider whose prices are requested over HTTP.
//!
//! `POST <url>` with `{requestId, source, target, amountMinor, actorType}`; the answer is `{price, maxOutputMinor,
//! validUntil, lpId, lpName, policyBps, confidence, isDynamic}`. Prices and amounts are strings; a number in place of a
//! price is refused. An answer is valid until its `validUntil`, and never longer than the configured limit.
//!
//! For an indicative quote the provider is called directly, under a deadline; orders and firm quotes use its last
//! answer, which a background task refreshes for every pair of the provider.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use dvp_domain::asset::Asset;
use dvp_domain::intent::ActorType;
use dvp_domain::liquidity::{Curve, Deliverer, Offer, Policy, Reference, Rung, Venue};
use dvp_domain::money::Minor;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tracing::debug;

use super::breaker::Breaker;
use super::http::HttpClient;
use super::taken::new_answer;
use super::{Boxed, LiquiditySource, PairAssets, PriceRequest, SourceError};
use crate::clock::now;

/// How to call an external provider, and the account that delivers for it.
#[derive(Debug, Clone)]
pub struct ExternalConfig {
    pub id: String,
    pub url: String,
    /// The provider's account, and its wallet.
    pub deliverer: Deliverer,
    pub policy: Policy,
    /// The provider's pairs, each with the input of background requests.
    pub pairs: Vec<(Asset, Asset, Minor)>,
    /// The time limit of one answer; a quote waits no longer.
    pub timeout: Duration,
    pub refresh_every: Duration,
    /// The longest validity of an answer.
    pub good_for: Duration,
    /// How long the provider is not called after repeated failures.
    pub pause: Duration,
    pub candidate_ttl_sec: u32,
    pub firm_ttl_sec: u32,
}

/// A liquidity provider behind an HTTP request for quotes.
pub struct ExternalProvider {
    config: ExternalConfig,
    client: HttpClient,
    breaker: Breaker,
    answers: RwLock<HashMap<(String, String), Offer>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestBody<'a> {
    request_id: String,
    source: &'a str,
    target: &'a str,
    amount_minor: Minor,
    actor_type: ActorType,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResponseBody {
    /// Output per one input.
    price: String,
    max_output_minor: Minor,
    /// Unix milliseconds.
    valid_until: i64,
    lp_id: String,
    lp_name: String,
    policy_bps: u32,
    confidence: serde_json::Number,
    is_dynamic: bool,
}

impl ExternalProvider {
    pub fn new(config: ExternalConfig) -> Result<Self, SourceError> {
        let client = HttpClient::new(config.timeout)?;
        let breaker = Breaker::new(config.pause);
        Ok(Self { config, client, breaker, answers: RwLock::default() })
    }

    /// Sends the request, unless the circuit is open.
    async fn ask(&self, request: PriceRequest<'_>) -> Result<Offer, SourceError> {
        let started = Instant::now();
        if !self.breaker.allows(started) {
            return Err(SourceError::Unavailable("paused after failures".into()));
        }
        let PairAssets { input, output } = request.pair;
        let requested = RequestBody {
            request_id: uuid::Uuid::new_v4().to_string(),
            source: &input.symbol,
            target: &output.symbol,
            amount_minor: request.amount,
            actor_type: request.actor,
        };
        let answered = self.client.post::<ResponseBody>(&self.config.url, &requested).await;
        let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let offer = answered.and_then(|answer| self.judge(answer, request.pair, latency_ms));
        self.breaker.done(offer.is_ok(), Instant::now());
        offer
    }

    fn judge(
        &self,
        answer: ResponseBody,
        pair: PairAssets<'_>,
        latency_ms: u64,
    ) -> Result<Offer, SourceError> {
        let invalid = |what: &str| SourceError::InvalidResponse(what.to_owned());
        let now = now();
        let limit = i64::try_from(self.config.good_for.as_millis()).unwrap_or(i64::MAX);
        let valid_until =
            dvp_domain::time::Timestamp::from_millis(answer.valid_until).min(now.plus_millis(limit));
        if valid_until <= now {
            return Err(invalid("an answer that is stale already"));
        }
        let rate = super::positive_decimal(&answer.price)?;
        let deliverer = self.config.deliverer.clone();
        let rung = Rung::new(deliverer, rate, answer.max_output_minor, (pair.input, pair.output))
            .ok_or_else(|| invalid("a price that is not positive"))?;
        let Value::Object(metadata) = json!({
            "venue": Venue::External.to_string(),
            "lpId": answer.lp_id,
            "lpName": answer.lp_name,
            "policyBps": answer.policy_bps,
            "confidence": answer.confidence,
            "isDynamic": answer.is_dynamic,
        }) else {
            return Err(invalid("no object"));
        };
        Ok(Offer {
            source: self.config.id.clone(),
            venue: Venue::External,
            curve: Curve::Ladder(vec![rung]),
            policy: self.config.policy,
            full_depth_bps: 0,
            valid_until,
            ttl_sec: self.config.candidate_ttl_sec,
            firm_ttl_sec: Some(self.config.firm_ttl_sec),
            latency_ms: Some(latency_ms),
            answer: None,
            metadata: Map::from_iter(metadata),
        })
    }

    async fn renew(&self) -> Result<(), SourceError> {
        let mut outcome = Ok(());
        for (input, output, amount) in &self.config.pairs {
            let pair = PairAssets { input, output };
            let request = PriceRequest { pair, amount: *amount, actor: ActorType::Institution };
            match self.ask(request).await {
                Ok(offer) => self.keep(pair, Offer { latency_ms: None, ..offer }),
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    fn keep(&self, pair: PairAssets<'_>, offer: Offer) {
        let key = (pair.input.symbol.clone(), pair.output.symbol.clone());
        let offer = Offer { answer: Some(new_answer()), ..offer };
        self.answers.write().insert(key, offer);
    }

    fn pair_of(&self, input: &str, output: &str) -> Option<PairAssets<'_>> {
        let mut pairs = self.config.pairs.iter().map(|(input, output, _)| PairAssets { input, output });
        pairs.find(|pair| pair.input.symbol == input && pair.output.symbol == output)
    }
}

impl LiquiditySource for ExternalProvider {
    fn id(&self) -> &str {
        &self.config.id
    }

    fn offer(&self, pair: PairAssets<'_>, _reference: Option<&Reference>) -> Option<Offer> {
        let key = (pair.input.symbol.clone(), pair.output.symbol.clone());
        self.answers.read().get(&key).cloned()
    }

    fn refresh_every(&self) -> Option<Duration> {
        Some(self.config.refresh_every)
    }

    fn refresh(&self) -> Boxed<'_, Result<(), SourceError>> {
        Box::pin(self.renew())
    }

    fn request<'a>(&'a self, request: PriceRequest<'a>) -> Option<Boxed<'a, Option<Offer>>> {
        self.pair_of(&request.pair.input.symbol, &request.pair.output.symbol)?;
        Some(Box::pin(async move {
            self.ask(request)
                .await
                .inspect_err(|error| debug!(source = %self.config.id, %error, "no price for a quote"))
                .ok()
        }))
    }
}
