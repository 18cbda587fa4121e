//! NewOrderSingle(D) to an intent.

use std::str::FromStr as _;

use dvp_core::{context::Context, store::fix::FixSessionRow};
use dvp_domain::{
    asset::{Asset, AssetDescriptor, AssetKind, AssetType},
    beneficiary::{Beneficiary, BeneficiaryAddress, PayoutMethod},
    intent::{ActorType, Bounds, IntentRequest, Permit, SettlementType, Side},
    liquidity::{Ask, Market, Unlimited, route::Want},
    money::Minor,
    time::Timestamp,
};
use dvp_fix::{UtcNanos, codec::MessageRef, tag::Tag};

use super::{
    Version,
    facts::{Rejection, intent_id},
    price, tags,
};

/// A day order ends after this long: the service never closes.
const DAY_MILLIS: i64 = 24 * 60 * 60 * 1000;
/// An immediate order may take this long to start settling.
const IMMEDIATE_MILLIS: i64 = 5 * 60 * 1000;

/// Reads an order that the dictionary has passed.
pub(crate) fn order(
    message: MessageRef<'_>,
    session: &FixSessionRow,
    context: &Context,
    now: Timestamp,
) -> Result<IntentRequest, Rejection> {
    let refuse = Refuse { version: Version::of(&session.begin_string) };
    let cl_ord_id = message.text(tags::CL_ORD_ID).ok_or_else(|| refuse.other("ClOrdID required"))?;
    let (base, quote) = pair(message, context).ok_or_else(|| refuse.unknown_symbol())?;
    let side = side(message).ok_or_else(|| refuse.unsupported("Side"))?;
    let quantity = quantity(message, base).ok_or_else(|| refuse.quantity())?;
    let (input, output) = match side {
        Side::Sell => (base, quote),
        Side::Buy => (quote, base),
    };
    let bounds = Asked { message, side, quantity, base, quote }.bounds(context, session, &refuse)?;
    let permit = permit(message, input, bounds, context);
    let signer = permit.as_ref().and_then(|permit| context.chain.permit.signer(permit));
    let said = |tag| message.text(tag).map(str::to_owned);
    Ok(IntentRequest {
        intent_id: intent_id(&session.session_id, cl_ord_id),
        client_reference: Some(cl_ord_id.to_owned()),
        user: said(tags::USER_WALLET).or(signer).unwrap_or_else(|| session.client_comp_id.clone()),
        input_asset: descriptor(input),
        output_asset: descriptor(output),
        bounds,
        quote_id: said(tags::QUOTE_ID),
        deadline: deadline(message, now, &refuse)?,
        settlement_type: SettlementType::Hybrid,
        output_recipient: said(tags::OUTPUT_RECIPIENT),
        beneficiary: beneficiary(message),
        permit,
        actor_type: ActorType::Institution,
        side,
        metadata: None,
    })
}

/// Words for refusals; the numbers differ by version.
struct Refuse {
    version: Version,
}

impl Refuse {
    fn other(&self, text: &str) -> Rejection {
        Rejection { ord_rej_reason: other_reason(self.version), text: text.to_owned() }
    }

    fn unknown_symbol(&self) -> Rejection {
        Rejection { ord_rej_reason: 1, text: "unknown symbol".to_owned() }
    }

    /// FIX 4.2 has no reason for an unsupported characteristic or a wrong quantity.
    fn unsupported(&self, what: &str) -> Rejection {
        let text = format!("{what} not supported");
        match self.version {
            Version::Fix42 => self.other(&text),
            Version::Fix44 => Rejection { ord_rej_reason: 11, text },
        }
    }

    fn quantity(&self) -> Rejection {
        match self.version {
            Version::Fix42 => self.other("incorrect quantity"),
            Version::Fix44 => Rejection { ord_rej_reason: 13, text: "incorrect quantity".to_owned() },
        }
    }
}

/// OrdRejReason(103) "other"; FIX 4.2's nearest is "broker option".
pub(crate) const fn other_reason(version: Version) -> u8 {
    match version {
        Version::Fix42 => 0,
        Version::Fix44 => 99,
    }
}

/// Base and quote asset of Symbol(55).
pub(super) fn pair<'a>(message: MessageRef<'_>, context: &'a Context) -> Option<(&'a Asset, &'a Asset)> {
    let (base, quote) = message.text(tags::SYMBOL)?.split_once('/')?;
    Some((context.registry.find(base)?, context.registry.find(quote)?))
}

/// Side(54), as far as it is taken.
pub(super) fn side(message: MessageRef<'_>) -> Option<Side> {
    match message.text(tags::SIDE) {
        Some("2") => Some(Side::Sell),
        Some("1") => Some(Side::Buy),
        _ => None,
    }
}

/// OrderQty(38), in minor units of the base asset.
pub(super) fn quantity(message: MessageRef<'_>, base: &Asset) -> Option<Minor> {
    let quantity =
        message.text(tags::ORDER_QTY).and_then(|text| Minor::parse_decimal(text, base.exponent).ok());
    quantity.filter(|quantity| !quantity.is_zero())
}

fn descriptor(asset: &Asset) -> AssetDescriptor {
    let symbol = asset.symbol.clone();
    match &asset.kind {
        AssetKind::Erc20 { chain, address } => AssetDescriptor {
            kind: AssetType::Erc20,
            symbol,
            address: Some(address.clone()),
            chain: Some(chain.clone()),
            currency: None,
        },
        AssetKind::Fiat { currency } => AssetDescriptor {
            kind: AssetType::Fiat,
            symbol,
            address: None,
            chain: None,
            currency: Some(currency.clone()),
        },
    }
}

/// What bounds an order.
struct Asked<'a> {
    message: MessageRef<'a>,
    side: Side,
    quantity: Minor,
    base: &'a Asset,
    quote: &'a Asset,
}

impl Asked<'_> {
    fn bounds(
        &self,
        context: &Context,
        session: &FixSessionRow,
        refuse: &Refuse,
    ) -> Result<Bounds, Rejection> {
        let ord_type = self.message.text(tags::ORD_TYPE);
        let price = self.message.text(tags::PRICE);
        match (ord_type, price) {
            (Some("2" | "D"), Some(price)) => {
                let value = price::value_at(price, self.quantity, self.base, self.quote);
                value.map(|value| self.bounded_by(value)).ok_or_else(|| refuse.other("Price out of range"))
            }
            (Some("2"), None) => Err(refuse.other("Price required")),
            // The quote itself is the bound: it is never priced anew.
            (Some("D"), None) if self.message.get(tags::QUOTE_ID).is_some() => Ok(self.unbounded()),
            (Some("D"), None) => Err(refuse.other("QuoteID required")),
            (Some("1"), _) => {
                let bps = u32::try_from(session.max_slippage_bps).unwrap_or(0);
                // Without a price there is nothing to slip from, and nothing to fill with: the engine says so.
                Ok(self.at_market(context).map_or_else(|| self.unbounded(), |now| price::slipped(now, bps)))
            }
            _ => Err(refuse.unsupported("OrdType")),
        }
    }

    fn bounded_by(&self, value: Minor) -> Bounds {
        match self.side {
            Side::Sell => Bounds::ExactInput { input: self.quantity, min_output: value },
            Side::Buy => Bounds::ExactOutput { output: self.quantity, max_input: value },
        }
    }

    fn unbounded(&self) -> Bounds {
        match self.side {
            Side::Sell => Bounds::ExactInput { input: self.quantity, min_output: Minor::ZERO },
            Side::Buy => Bounds::ExactOutput { output: self.quantity, max_input: Minor::new(u128::MAX) },
        }
    }

    /// What the best price gives now, net of fees, were there liquidity without end.
    fn at_market(&self, context: &Context) -> Option<Bounds> {
        let snapshot = context.liquidity.snapshot();
        let market = Market {
            registry: &context.registry,
            snapshot: &snapshot,
            holdings: &Unlimited,
            now: dvp_core::context::now(),
        };
        let (input, output, want) = match self.side {
            Side::Sell => (self.base, self.quote, Want::Input(self.quantity)),
            Side::Buy => (self.quote, self.base, Want::Output(self.quantity)),
        };
        let ask = Ask { input, output, actor: ActorType::Institution, firm: false };
        let (_, fill) = market.best(&ask, want)?;
        Some(self.bounded_by(match self.side {
            Side::Sell => fill.priced.output,
            Side::Buy => fill.priced.input,
        }))
    }
}

/// TimeInForce(59): 0 day, 3 immediate, 4 fill or kill, 6 until ExpireTime(126).
fn deadline(message: MessageRef<'_>, now: Timestamp, refuse: &Refuse) -> Result<Timestamp, Rejection> {
    match message.text(tags::TIME_IN_FORCE) {
        None | Some("0") => Ok(now.plus_millis(DAY_MILLIS)),
        Some("3" | "4") => Ok(now.plus_millis(IMMEDIATE_MILLIS)),
        Some("6") => message
            .get(tags::EXPIRE_TIME)
            .and_then(UtcNanos::parse)
            .and_then(|at| i64::try_from(at.0 / 1_000_000).ok())
            .map(Timestamp::from_millis)
            .filter(|at| *at > now)
            .ok_or_else(|| refuse.other("ExpireTime in the future required")),
        Some(_) => Err(refuse.unsupported("TimeInForce")),
    }
}

/// Account(1) with a pre-provisioned reference, or the details in our own tags.
fn beneficiary(message: MessageRef<'_>) -> Option<Beneficiary> {
    let said = |tag: Tag| message.text(tag).map(str::to_owned);
    let part = |tag: Tag| said(tag).unwrap_or_default();
    let address = BeneficiaryAddress {
        line1: part(tags::ADDRESS_LINE1),
        city: part(tags::ADDRESS_CITY),
        state: part(tags::ADDRESS_STATE),
        postal_code: part(tags::ADDRESS_POSTAL_CODE),
    };
    let beneficiary = Beneficiary {
        account: said(tags::BENEFICIARY_ACCOUNT).or_else(|| said(tags::ACCOUNT)),
        name: said(tags::BENEFICIARY_NAME),
        country: said(tags::BENEFICIARY_COUNTRY),
        payout_method: message.text(tags::PAYOUT_METHOD).and_then(payout_method),
        swift_code: said(tags::SWIFT_CODE),
        bank: said(tags::BENEFICIARY_BANK),
        address: Some(address).filter(|address| *address != BeneficiaryAddress::default()),
        travel_rule_data: None,
    };
    Some(beneficiary).filter(|beneficiary| *beneficiary != Beneficiary::default())
}

fn payout_method(text: &str) -> Option<PayoutMethod> {
    Some(match text {
        "wire" => PayoutMethod::Wire,
        "swift" => PayoutMethod::Swift,
        "ach" => PayoutMethod::Ach,
        "sepa" => PayoutMethod::Sepa,
        _ => return None,
    })
}

/// Token and spender follow from the symbol and the environment. A permit without a signature is no permit.
fn permit(message: MessageRef<'_>, input: &Asset, bounds: Bounds, context: &Context) -> Option<Permit> {
    let signature = message.text(tags::PERMIT_SIGNATURE)?.to_owned();
    let AssetKind::Erc20 { address, .. } = &input.kind else { return None };
    let number = |tag: Tag| message.text(tag).and_then(|text| Minor::parse(text).ok());
    Some(Permit {
        token: address.clone(),
        amount_minor: number(tags::PERMIT_AMOUNT).unwrap_or(bounds.max_input()),
        spender: context.chain.escrow.clone(),
        nonce: number(tags::PERMIT_NONCE).unwrap_or(Minor::ZERO),
        deadline: message.text(tags::PERMIT_DEADLINE).and_then(|text| u64::from_str(text).ok()).unwrap_or(0),
        signature,
    })
}
