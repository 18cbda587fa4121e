//! Maps a QuoteRequest(R) to a firm quote, and its outcome to Quote(S), QuoteRequestReject(AG), or on FIX 4.2 Quote
//! Acknowledgement(b).

use dvp_domain::{
    abandonment::CoolDown,
    asset::{Asset, Registry},
    intent::{ActorType, Side},
    money::Minor,
    quote::{AmountType, FirmRequest, FirmTerms},
};
use dvp_fix::{
    Stamp, UtcNanos,
    codec::{Body, MessageRef, MsgType},
};

use rust_decimal::Decimal;

use super::{
    Version,
    facts::NO_SYMBOL,
    fields::{self, IgnoreList},
    parse,
    price::{Amount, price_of},
    tags,
};

/// A quantity of the base asset of one symbol, on one side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuoteRequest<'a> {
    side: Side,
    quantity: Minor,
    base: &'a Asset,
    quote: &'a Asset,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoQuote {
    UnknownSymbol,
    NoLiquidity,
    /// The partner's unused quotes have held too much.
    CoolingDown(CoolDown),
    /// The request is invalid; the text is its fault.
    Unusable(String),
}

impl NoQuote {
    fn text(&self) -> String {
        match self {
            Self::UnknownSymbol => "unknown symbol".to_owned(),
            Self::NoLiquidity => "no_liquidity".to_owned(),
            Self::CoolingDown(cool_down) => cool_down.to_string(),
            Self::Unusable(text) => text.clone(),
        }
    }

    /// QuoteRequestRejectReason(658): unknown symbol, no inventory, other.
    const fn reason(&self) -> &'static str {
        match self {
            Self::UnknownSymbol => "1",
            Self::NoLiquidity => "9",
            Self::CoolingDown(_) | Self::Unusable(_) => "99",
        }
    }

    /// QuoteRejectReason(300) of FIX 4.2, which has no value for the others.
    const fn reason_42(&self) -> Option<&'static str> {
        match self {
            Self::UnknownSymbol => Some("1"),
            Self::NoLiquidity | Self::CoolingDown(_) | Self::Unusable(_) => None,
        }
    }
}

/// The price of an amount of the base asset, as both are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) value: Decimal,
    pub(crate) price: String,
    pub(crate) amount: String,
}

/// A parsed QuoteRequest(R).
#[derive(Debug, Clone, Copy)]
pub(crate) enum Requested<'a> {
    Firm(QuoteRequest<'a>),
    /// Both sides, with no promise.
    TwoWay([QuoteRequest<'a>; 2]),
}

impl<'a> QuoteRequest<'a> {
    pub(crate) const fn one(side: Side, quantity: Minor, base: &'a Asset, quote: &'a Asset) -> Self {
        Self { side, quantity, base, quote }
    }

    /// Reads a request that the dictionary has passed.
    pub(crate) fn of(
        message: MessageRef<'_>,
        version: Version,
        registry: &'a Registry,
        ignored: &IgnoreList,
    ) -> Result<Requested<'a>, NoQuote> {
        let unusable = |problem: &str| NoQuote::Unusable(problem.to_owned());
        if message.text(tags::NO_RELATED_SYM) != Some("1") {
            return Err(unusable("NoRelatedSym(146) must be 1"));
        }
        fields::check(message, ignored).map_err(|fault| NoQuote::Unusable(fault.to_string()))?;
        let kind = message.text(tags::QUOTE_TYPE);
        let (base, quote) = parse::pair(message, registry).ok_or(NoQuote::UnknownSymbol)?;
        parse::currency(message, base).map_err(NoQuote::Unusable)?;
        let quantity = parse::quantity(message, base)
            .ok_or_else(|| unusable("OrderQty(38) of the base asset required"))?;
        let one = |side| Self::one(side, quantity, base, quote);
        // FIX 4.2 cannot say that a quote is indicative.
        if matches!(kind, None | Some("0")) && message.get(tags::SIDE).is_none() && version != Version::Fix42
        {
            return Ok(Requested::TwoWay([one(Side::Sell), one(Side::Buy)]));
        }
        // Tradeable.
        if kind.is_some_and(|kind| kind != "1") {
            return Err(unusable("QuoteType(537) must be 1, or 0 without Side(54)"));
        }
        let side = parse::side(message).ok_or_else(|| unusable("Side(54) 1 or 2 required"))?;
        Ok(Requested::Firm(one(side)))
    }

    pub(crate) const fn side(&self) -> Side {
        self.side
    }

    pub(crate) fn level(&self, terms: &FirmTerms) -> Option<Level> {
        let price = self.price(terms)?;
        let amount = self.quantity.to_decimal_string(self.base.exponent);
        Some(Level { value: Decimal::from_str_exact(&price).ok()?, price, amount })
    }

    /// A sale's quantity is the input, a purchase's the output.
    pub(crate) const fn request(&self) -> FirmRequest<'a> {
        let (input, output, amount_type) = match self.side {
            Side::Sell => (self.base, self.quote, AmountType::Source),
            Side::Buy => (self.quote, self.base, AmountType::Target),
        };
        FirmRequest {
            input,
            output,
            amount: self.quantity,
            amount_type,
            side: self.side,
            actor: ActorType::Institution,
        }
    }

    /// Delivered ÷ paid after deducted fees: the LastPx of the order that uses the quote.
    fn price(&self, terms: &FirmTerms) -> Option<String> {
        let (base, quote) = match self.side {
            Side::Sell => (terms.priced.input, terms.priced.output),
            Side::Buy => (terms.priced.output, terms.priced.input),
        };
        price_of(
            Amount { minor: base, exponent: self.base.exponent },
            Amount { minor: quote, exponent: self.quote.exponent },
        )
    }

    /// A Quote's body, tags ascending. `None`: the price has too many digits.
    pub(crate) fn quoted(
        &self,
        version: Version,
        message: MessageRef<'_>,
        terms: &FirmTerms,
        at: Stamp,
    ) -> Option<Body> {
        let price = self.price(terms)?;
        let quantity = self.quantity.to_decimal_string(self.base.exponent);
        let (side, bid, offer) = match self.side {
            Side::Sell => ("2", Some((&price, &quantity)), None),
            Side::Buy => ("1", None, Some((&price, &quantity))),
        };
        // FIX 4.2's Quote has neither side nor quantity, and no type.
        let is_later = |text| Some(text).filter(|_| version == Version::Fix44);
        let until = u64::try_from(terms.valid_until.millis()).unwrap_or(0).saturating_mul(1_000_000);
        let body = Body::new()
            .maybe(tags::ORDER_QTY, is_later(quantity.as_str()))
            .maybe(tags::SIDE, is_later(side))
            .maybe(tags::SYMBOL, message.text(tags::SYMBOL))
            .field(tags::TRANSACT_TIME, at.text())
            .field(tags::VALID_UNTIL_TIME, UtcNanos(until).text(at.precision))
            .field(tags::QUOTE_ID, terms.quote_id.as_str())
            .maybe(tags::QUOTE_REQ_ID, message.text(tags::QUOTE_REQ_ID))
            .maybe(tags::BID_PX, bid.map(|bid| bid.0))
            .maybe(tags::OFFER_PX, offer.map(|offer| offer.0))
            .maybe(tags::BID_SIZE, bid.map(|bid| bid.1))
            .maybe(tags::OFFER_SIZE, offer.map(|offer| offer.1));
        // Tradeable.
        Some(body.maybe(tags::QUOTE_TYPE, is_later("1")))
    }
}

/// The body of an indicative Quote of both sides; one without a price is left out.
pub(crate) fn two_way(
    message: MessageRef<'_>,
    [bid, offer]: [Option<&Level>; 2],
    id: &str,
    at: Stamp,
) -> Body {
    let price = |level: &Level| level.price.clone();
    let amount = |level: &Level| level.amount.clone();
    Body::new()
        .maybe(tags::SYMBOL, message.text(tags::SYMBOL))
        .field(tags::TRANSACT_TIME, at.text())
        .field(tags::QUOTE_ID, id)
        .maybe(tags::QUOTE_REQ_ID, message.text(tags::QUOTE_REQ_ID))
        .maybe(tags::BID_PX, bid.map(price))
        .maybe(tags::OFFER_PX, offer.map(price))
        .maybe(tags::BID_SIZE, bid.map(amount))
        .maybe(tags::OFFER_SIZE, offer.map(amount))
        // Indicative.
        .field(tags::QUOTE_TYPE, "0")
}

/// What the rejection of a request repeats of it.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    version: Version,
    id: Option<String>,
    symbol: String,
}

impl Asked {
    pub(crate) fn of(version: Version, message: MessageRef<'_>) -> Self {
        let symbol = fields::repeatable(message, tags::SYMBOL).unwrap_or(NO_SYMBOL).to_owned();
        Self { version, id: message.text(tags::QUOTE_REQ_ID).map(str::to_owned), symbol }
    }

    pub(crate) fn refused(&self, refusal: &NoQuote) -> (MsgType, Body) {
        let body =
            Body::new().field(tags::TEXT, refusal.text()).maybe(tags::QUOTE_REQ_ID, self.id.as_deref());
        match self.version {
            Version::Fix42 => {
                // Rejected.
                let body = body.field(tags::QUOTE_ACK_STATUS, "5");
                (MsgType::QUOTE_ACKNOWLEDGEMENT, body.maybe(tags::QUOTE_REJECT_REASON, refusal.reason_42()))
            }
            Version::Fix44 => {
                let body = body
                    .field(tags::NO_RELATED_SYM, "1")
                    .field(tags::SYMBOL, &self.symbol)
                    .field(tags::QUOTE_REQUEST_REJECT_REASON, refusal.reason());
                (MsgType::QUOTE_REQUEST_REJECT, body)
            }
        }
    }
}
