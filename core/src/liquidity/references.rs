//! Reference prices: configured, from a feed contract, or over HTTP. A price older than its limit is not used.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dvp_domain::asset::{Pair, Registry};
use dvp_domain::liquidity::Reference;
use dvp_domain::time::Timestamp;
use parking_lot::RwLock;
use rust_decimal::Decimal;
use serde::Deserialize;

use super::http::HttpClient;
use super::{Boxed, ReferenceSource, SourceError};
use crate::chain::{FeedReader, FeedRound, PriceBlock};
use crate::clock::now;

/// The tolerated difference of another clock.
const CLOCK_SKEW_MS: i64 = 60_000;

/// The registry's configured prices. They never expire.
pub struct ConfiguredPrices {
    prices: HashMap<(String, String), Decimal>,
}

impl ConfiguredPrices {
    pub fn of(registry: &Registry) -> Self {
        let price = |pair: &Pair| Some(((pair.base.clone(), pair.quote.clone()), pair.reference_price?));
        Self { prices: registry.pairs.iter().filter_map(price).collect() }
    }

    /// With further prices, of a chain's coin for example.
    #[must_use]
    pub fn and(mut self, further: impl IntoIterator<Item = ((String, String), Decimal)>) -> Self {
        self.prices.extend(further);
        self
    }
}

impl ReferenceSource for ConfiguredPrices {
    fn id(&self) -> &str {
        "configured"
    }

    fn reference(&self, input: &str, output: &str) -> Option<Reference> {
        let price = *self.prices.get(&(input.to_owned(), output.to_owned()))?;
        Some(Reference { price, valid_until: Timestamp::from_millis(i64::MAX) })
    }
}

/// A feed contract's pair and limits.
#[derive(Debug, Clone)]
pub struct FeedConfig {
    pub id: String,
    /// The feed contract, `0x` and hex.
    pub address: String,
    /// The answer is `quote` units per one `base`; the pair the other way round takes its inverse.
    pub base: String,
    pub quote: String,
    pub refresh_every: Duration,
    /// From its `updatedAt` on.
    pub stale_after: Duration,
    /// How long what was read at a block stays valid, from the block's time on.
    pub good_for: Duration,
}

/// A feed contract in the aggregator's shape (`latestRoundData`).
pub struct OnChainFeed {
    config: FeedConfig,
    reader: Arc<dyn FeedReader>,
    read: RwLock<Option<Reference>>,
}

impl OnChainFeed {
    pub fn new(config: FeedConfig, reader: Arc<dyn FeedReader>) -> Self {
        Self { config, reader, read: RwLock::default() }
    }

    async fn read(&self) -> Result<(), SourceError> {
        let round = self.reader.latest_round(&self.config.address).await;
        let round = round.map_err(|error| SourceError::Unavailable(error.to_string()))?;
        let read = judged(round, &self.config, now());
        // An invalid answer withdraws the feed's last price.
        *self.read.write() = read.as_ref().ok().copied();
        read.map(|_| ())
    }
}

/// A round as a price, if it is valid.
fn judged(round: FeedRound, config: &FeedConfig, now: Timestamp) -> Result<Reference, SourceError> {
    let invalid = |what: &str| SourceError::InvalidResponse(what.to_owned());
    if round.answer <= 0 {
        return Err(invalid("an answer that is not positive"));
    }
    let price = Decimal::try_from_i128_with_scale(round.answer, u32::from(round.decimals))
        .map_err(|_| invalid("an answer out of range"))?;
    let seconds = i64::try_from(round.updated_at).map_err(|_| invalid("an update time out of range"))?;
    let answered = dated(price.normalize(), seconds.saturating_mul(1000), config.stale_after, now)?;
    let valid_until = read_until(round.block, config.good_for, now)?;
    Ok(Reference { valid_until: answered.valid_until.min(valid_until), ..answered })
}

/// Until when what was read at a block is valid. An endpoint that has stopped reports an old block.
pub(super) fn read_until(
    block: PriceBlock,
    good_for: Duration,
    now: Timestamp,
) -> Result<Timestamp, SourceError> {
    let seconds = i64::try_from(block.time)
        .map_err(|_| SourceError::InvalidResponse("a block time out of range".into()))?;
    until(seconds.saturating_mul(1000), good_for, now, "the newest block of the chain's endpoints")
}

/// A price with its time: refused when its time is in the future or beyond the age limit.
fn dated(
    price: Decimal,
    at_ms: i64,
    stale_after: Duration,
    now: Timestamp,
) -> Result<Reference, SourceError> {
    Ok(Reference { price, valid_until: until(at_ms, stale_after, now, "its price")? })
}

/// The end of what has its time and an age limit.
fn until(at_ms: i64, limit: Duration, now: Timestamp, what: &str) -> Result<Timestamp, SourceError> {
    let good_for = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
    let valid_until = Timestamp::from_millis(at_ms).plus_millis(good_for);
    if at_ms > now.millis().saturating_add(CLOCK_SKEW_MS) {
        return Err(SourceError::InvalidResponse(format!("{what} is from the future")));
    }
    if valid_until <= now {
        return Err(SourceError::Unavailable(format!("{what} is stale")));
    }
    Ok(valid_until)
}

impl ReferenceSource for OnChainFeed {
    fn id(&self) -> &str {
        &self.config.id
    }

    fn reference(&self, input: &str, output: &str) -> Option<Reference> {
        let read = (*self.read.read())?;
        let FeedConfig { base, quote, .. } = &self.config;
        if input == base && output == quote {
            return Some(read);
        }
        let inverse = || Decimal::ONE.checked_div(read.price).filter(|price| !price.is_zero());
        let turned = input == quote && output == base;
        turned.then(inverse).flatten().map(|price| Reference { price, ..read })
    }

    fn refresh_every(&self) -> Option<Duration> {
        Some(self.config.refresh_every)
    }

    fn refresh(&self) -> Boxed<'_, Result<(), SourceError>> {
        Box::pin(self.read())
    }
}

/// A price list over HTTP.
#[derive(Debug, Clone)]
pub struct HttpPricesConfig {
    pub id: String,
    /// Answers `{"prices": [{"base", "quote", "price": "1.08", "timestamp": <Unix ms>}]}`.
    pub url: String,
    pub refresh_every: Duration,
    /// From each price's `timestamp` on.
    pub stale_after: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
}

pub struct HttpPrices {
    config: HttpPricesConfig,
    client: HttpClient,
    read: RwLock<HashMap<(String, String), Reference>>,
}

#[derive(Deserialize)]
struct PriceList {
    prices: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    base: String,
    quote: String,
    /// A string: a float has no exact price.
    price: String,
    timestamp: i64,
}

impl HttpPrices {
    pub fn new(config: HttpPricesConfig) -> Result<Self, SourceError> {
        let client = HttpClient::new(config.timeout)?;
        Ok(Self { config, client, read: RwLock::default() })
    }

    async fn read(&self) -> Result<(), SourceError> {
        let list: PriceList = self.client.get(&self.config.url).await?;
        let now = now();
        let mut good = Vec::with_capacity(list.prices.len());
        for Listed { base, quote, price, timestamp } in list.prices {
            let price = super::positive_decimal(&price)?;
            if let Ok(reference) = dated(price, timestamp, self.config.stale_after, now) {
                good.push(((base, quote), reference));
            }
        }
        // A price that is no longer listed expires at its own time.
        self.read.write().extend(good);
        Ok(())
    }
}

impl ReferenceSource for HttpPrices {
    fn id(&self) -> &str {
        &self.config.id
    }

    fn reference(&self, input: &str, output: &str) -> Option<Reference> {
        let read = self.read.read();
        read.get(&(input.to_owned(), output.to_owned())).copied()
    }

    fn refresh_every(&self) -> Option<Duration> {
        Some(self.config.refresh_every)
    }

    fn refresh(&self) -> Boxed<'_, Result<(), SourceError>> {
        Box::pin(self.read())
    }
}

#[cfg(test)]
mod tests {
    use dvp_domain::chain::BlockNumber;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
    fn judge(answer: i128, updated_at: u64, block_time: u64) -> Result<Reference, SourceError> {
        let config = FeedConfig {
            id: "feed".into(),
            address: "0xfeed".into(),
            base: "WETH".into(),
            quote: "USDC".into(),
            refresh_every: Duration::from_secs(5),
            stale_after: Duration::from_secs(3600),
            good_for: Duration::from_secs(60),
        };
        let block = PriceBlock { number: BlockNumber(7), time: block_time };
        judged(FeedRound { block, answer, decimals: 8, updated_at }, &config, NOW)
    }

    fn round(answer: i128, updated_at: u64) -> Result<Reference, SourceError> {
        judge(answer, updated_at, 1_800_000_000)
    }

    #[test]
    fn a_feeds_answer_is_scaled_by_its_decimals_and_good_from_its_update_on() {
        let read = round(300_012_000_000, 1_799_996_430).unwrap();
        assert_eq!(read.price, "3000.12".parse().unwrap());
        assert_eq!(read.valid_until, Timestamp::from_millis(1_800_000_030_000));
    }

    #[test]
    fn an_answer_of_an_endpoint_that_has_stopped_is_not_fresh() {
        let until = |block| judge(1, 1_799_999_000, block).map(|read| read.valid_until.millis());
        assert_eq!(until(1_799_999_941).unwrap(), 1_800_000_001_000);
        assert!(until(1_799_999_940).is_err(), "a minute old, though the feed spoke within the hour");
        assert!(until(1_800_000_061).is_err(), "from the future");
    }

    #[test]
    fn a_feed_that_is_stale_not_positive_or_from_the_future_has_no_price() {
        for (answer, updated_at) in [
            (0, 1_799_999_000),
            (-1, 1_799_999_000),
            (1, 1_799_996_400),
            (1, 0),
            (1, 1_800_000_061),
            (i128::MAX, 1_799_999_000),
            (1, u64::MAX),
        ] {
            assert!(round(answer, updated_at).is_err(), "{answer} {updated_at}");
        }
    }
}
