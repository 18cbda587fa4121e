//! MarketDataRequest(V): indicative prices of one symbol, once, or again whenever they have changed until the peer
//! unsubscribes or disconnects. Each snapshot (W) has all levels: the price of each of some amounts of the base asset.

use std::time::Duration;

use dvp_domain::{
    asset::{Asset, Registry},
    intent::Side,
    money::Minor,
};
use dvp_fix::codec::{Body, MessageRef, MsgType};
use dvp_store::fix::rows::{FixOutbound, FixRows};
use tokio::time::Instant;
use tracing::warn;

use super::{OrderEntry, quotes::NOT_AVAILABLE, rows::Slot};
use crate::{
    application::{Commit, Turn, Unavailable},
    orders::{
        Version,
        fields::{self, IgnoreList},
        parse,
        quote::{Level, QuoteRequest},
        tags,
    },
};

/// The subscriptions of a session.
const SUBSCRIPTIONS_MAX: usize = 20;
/// A subscription's snapshots are so far apart at least.
const EVERY: Duration = Duration::from_secs(1);
/// The amounts that are priced, in thousandths of a unit of the base asset.
const SIZES: [u128; 10] =
    [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];
/// QuoteCondition(276) of a side that has no price: closed.
const CLOSED: &str = "B";

/// What is asked for: a symbol, one side or both, and how many levels.
#[derive(Debug, Clone)]
struct Wanted {
    id: String,
    symbol: String,
    base: Asset,
    quote: Asset,
    sides: Vec<Side>,
    depth: usize,
}

#[derive(Debug)]
struct Subscription {
    wanted: Wanted,
    /// The last snapshot.
    sent: Vec<Vec<Level>>,
    due: Instant,
}

/// The subscriptions of a connection.
#[derive(Debug, Default)]
pub(super) struct MarketData {
    subscriptions: Vec<Subscription>,
}

impl MarketData {
    pub(super) fn end(&mut self) {
        self.subscriptions.clear();
    }

    /// Every snapshot is shown again: what was on its way is not sent after a reset of the numbers.
    pub(super) fn renew(&mut self) {
        for one in &mut self.subscriptions {
            (one.sent, one.due) = (Vec::new(), Instant::now());
        }
    }

    pub(super) fn is_due(&self) -> bool {
        self.next().is_some_and(|due| due <= Instant::now())
    }

    fn next(&self) -> Option<Instant> {
        self.subscriptions.iter().map(|one| one.due).min()
    }

    /// Waits until a snapshot is due.
    pub(super) async fn wait(&self) {
        match self.next() {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    }
}

/// What a request asks to be done.
#[derive(Debug)]
enum Asked {
    Once(Wanted),
    Subscribe(Wanted),
    Unsubscribe,
}

/// MDReqRejReason(281), and why.
type Refusal = (&'static str, String);

fn read(
    message: MessageRef<'_>,
    registry: &Registry,
    ignored: &IgnoreList,
    id: &str,
) -> Result<Asked, Refusal> {
    fields::check(message, ignored).map_err(|fault| ("8", fault.to_string()))?;
    let refuse = |reason, text: &str| Err((reason, text.to_owned()));
    let text = |tag| message.text(tag);
    let kind = text(tags::SUBSCRIPTION_REQUEST_TYPE);
    if kind == Some("2") {
        return Ok(Asked::Unsubscribe);
    }
    let Some("0" | "1") = kind else {
        return refuse("4", "SubscriptionRequestType(263) must be 0, 1 or 2");
    };
    if kind == Some("1") && text(tags::MD_UPDATE_TYPE) != Some("0") {
        return refuse("6", "MDUpdateType(265) must be 0: every snapshot is whole");
    }
    let Some(depth) = text(tags::MARKET_DEPTH).and_then(|depth| depth.parse::<usize>().ok()) else {
        return refuse("5", "MarketDepth(264) must be 0 for every level, or the number of levels");
    };
    let mut sides = Vec::new();
    for field in message.fields().iter().filter(|field| field.tag == tags::MD_ENTRY_TYPE) {
        let side = match message.value(field) {
            b"0" => Side::Sell,
            b"1" => Side::Buy,
            _ => return refuse("8", "MDEntryType(269) must be 0 (bid) or 1 (offer)"),
        };
        if !sides.contains(&side) {
            sides.push(side);
        }
    }
    if text(tags::NO_RELATED_SYM) != Some("1") {
        return refuse("0", "NoRelatedSym(146) must be 1");
    }
    let traded = |(base, quote): &(&Asset, &Asset)| {
        let is_pair = |one: &Asset, other: &Asset| registry.pair(&one.symbol, &other.symbol).is_some();
        is_pair(base, quote) || is_pair(quote, base)
    };
    let Some((base, quote)) = parse::pair(message, registry).filter(traded) else {
        return refuse("0", "unknown symbol");
    };
    let wanted = Wanted {
        id: id.to_owned(),
        symbol: text(tags::SYMBOL).unwrap_or_default().to_owned(),
        base: base.clone(),
        quote: quote.clone(),
        sides,
        depth: if depth == 0 { SIZES.len() } else { depth },
    };
    Ok(if kind == Some("0") { Asked::Once(wanted) } else { Asked::Subscribe(wanted) })
}

impl OrderEntry {
    pub(super) async fn market_data(
        &mut self,
        message: MessageRef<'_>,
        turn: &mut Turn<'_>,
    ) -> Result<Commit, Unavailable> {
        let id = match fields::id(message, tags::MD_REQ_ID) {
            Ok(id) => id.to_owned(),
            Err(fault) => return self.refuse_fields(message, Slot::take(turn), &fault).await,
        };
        let known = self.market_data.subscriptions.iter().position(|one| one.wanted.id == id);
        let asked = read(message, &self.engine.context().registry, &self.ignored, &id);
        let (wanted, is_subscription) = match (asked, known) {
            (Ok(Asked::Unsubscribe), Some(at)) => {
                self.market_data.subscriptions.remove(at);
                return self.write(turn.numbers(), FixRows::default()).await;
            }
            (Ok(Asked::Unsubscribe), None) => {
                return self.refuse_market_data(&id, ("1", "no such subscription".to_owned()), turn).await;
            }
            (Ok(Asked::Once(_) | Asked::Subscribe(_)), Some(_)) => {
                return self.refuse_market_data(&id, ("1", "duplicate MDReqID".to_owned()), turn).await;
            }
            (Ok(Asked::Subscribe(_)), None) if self.market_data.subscriptions.len() >= SUBSCRIPTIONS_MAX => {
                let text = format!("a session has {SUBSCRIPTIONS_MAX} subscriptions at most");
                return self.refuse_market_data(&id, ("2", text), turn).await;
            }
            (Ok(Asked::Once(wanted)), None) => (wanted, false),
            (Ok(Asked::Subscribe(wanted)), None) => (wanted, true),
            (Err(refusal), _) => return self.refuse_market_data(&id, refusal, turn).await,
        };
        let snapshot = match self.snapshot(&wanted).await {
            Ok(snapshot) => snapshot,
            Err(error) => {
                warn!(%error, "market data request rejected");
                return self.refuse_message(message, Slot::take(turn), 4, NOT_AVAILABLE).await;
            }
        };
        let (slot, numbers) = Slot::take(turn);
        let outbound = vec![shown(self.version, &wanted, &snapshot, slot)];
        if is_subscription {
            let due = Instant::now() + EVERY;
            self.market_data.subscriptions.push(Subscription { wanted, sent: snapshot, due });
        }
        self.write(numbers, FixRows { outbound, ..FixRows::default() }).await
    }

    async fn refuse_market_data(
        &self,
        id: &str,
        (reason, text): Refusal,
        turn: &mut Turn<'_>,
    ) -> Result<Commit, Unavailable> {
        let (slot, numbers) = Slot::take(turn);
        let body = Body::new()
            .field(tags::TEXT, text)
            .field(tags::MD_REQ_ID, id)
            .field(tags::MD_REQ_REJ_REASON, reason);
        let outbound = vec![slot.holds(MsgType::MARKET_DATA_REQUEST_REJECT, body)];
        self.write(numbers, FixRows { outbound, ..FixRows::default() }).await
    }

    /// The snapshots that are due and have changed. What cannot be priced now is looked at the next time.
    pub(super) async fn changed_market_data(&mut self, turn: &mut Turn<'_>) -> Vec<FixOutbound> {
        let now = Instant::now();
        let mut outbound = Vec::new();
        let mut subscriptions = std::mem::take(&mut self.market_data.subscriptions);
        let mut is_priced = true;
        for one in subscriptions.iter_mut().filter(|one| one.due <= now) {
            one.due = now + EVERY;
            if !is_priced {
                continue;
            }
            let snapshot = match self.snapshot(&one.wanted).await {
                Ok(snapshot) => snapshot,
                Err(error) => {
                    warn!(session = self.session.session_id, %error, "no prices for subscriptions, will retry");
                    is_priced = false;
                    continue;
                }
            };
            if snapshot != one.sent {
                outbound.push(shown(self.version, &one.wanted, &snapshot, Slot::next(turn)));
                one.sent = snapshot;
            }
        }
        self.market_data.subscriptions = subscriptions;
        outbound
    }

    /// The levels of each side, the best price first. Of amounts with one price the largest counts.
    async fn snapshot(&self, wanted: &Wanted) -> Result<Vec<Vec<Level>>, Unavailable> {
        let unit = 10_u128.checked_pow(u32::from(wanted.base.exponent)).unwrap_or(u128::MAX);
        let minor = |size: &u128| Some(size.checked_mul(unit)? / 1_000).filter(|amount| *amount > 0);
        let amounts = SIZES.iter().filter_map(minor).map(Minor::new);
        let asked = |side: Side| {
            amounts
                .clone()
                .map(move |quantity| QuoteRequest::one(side, quantity, &wanted.base, &wanted.quote))
        };
        let asked: Vec<QuoteRequest<'_>> = wanted.sides.iter().copied().flat_map(asked).collect();
        let requests: Vec<_> = asked.iter().map(QuoteRequest::request).collect();
        let terms = self.engine.prices(&requests).await?;
        let priced: Vec<_> = asked.iter().zip(&terms).collect();
        let levels = wanted.sides.iter().map(|side| {
            let mut all: Vec<_> = priced
                .iter()
                .filter(|(request, _)| request.side() == *side)
                .filter_map(|(request, terms)| request.level(terms.as_ref()?))
                .collect();
            all.reverse();
            all.sort_by(|one, other| match side {
                Side::Sell => other.value.cmp(&one.value),
                Side::Buy => one.value.cmp(&other.value),
            });
            all.dedup_by(|later, first| later.value == first.value);
            all.truncate(wanted.depth);
            all
        });
        Ok(levels.collect())
    }
}

fn shown(version: Version, wanted: &Wanted, snapshot: &[Vec<Level>], slot: Slot) -> FixOutbound {
    let count: usize = snapshot.iter().map(|levels| levels.len().max(1)).sum();
    let mut body = Body::new()
        .field(tags::MD_REQ_ID, &wanted.id)
        .field(tags::SYMBOL, &wanted.symbol)
        .number(tags::NO_MD_ENTRIES, u64::try_from(count).unwrap_or(u64::MAX));
    for (side, levels) in wanted.sides.iter().zip(snapshot) {
        let kind = match side {
            Side::Sell => "0",
            Side::Buy => "1",
        };
        for (at, Level { price, amount, .. }) in (1_u64..).zip(levels) {
            body = body
                .field(tags::MD_ENTRY_TYPE, kind)
                .field(tags::MD_ENTRY_PX, price)
                .field(tags::MD_ENTRY_SIZE, amount)
                .number(tags::MD_ENTRY_POSITION_NO, at);
        }
        if levels.is_empty() {
            // FIX 4.2 wants a price.
            let none = (version == Version::Fix42).then_some("0");
            body = body
                .field(tags::MD_ENTRY_TYPE, kind)
                .maybe(tags::MD_ENTRY_PX, none)
                .field(tags::QUOTE_CONDITION, CLOSED);
        }
    }
    slot.holds(MsgType::MARKET_DATA_SNAPSHOT, body)
}
