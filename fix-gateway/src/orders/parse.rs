//! NewOrderSingle(D) to an intent.

use std::str::FromStr as _;

use dvp_core::{chain::permit::Signer, context::Chains};
use dvp_domain::{
    address::{AddressFault, OwnContracts},
    asset::{Asset, AssetDescriptor, AssetKind, AssetType, Registry},
    beneficiary::{Beneficiary, BeneficiaryAddress, BeneficiaryFault, BeneficiaryField, PayoutMethod},
    decision::Reason,
    intent::{
        ActorType, Bounds, IntentRequest, LIFETIME_DAYS_MAX, Permit, SettlementType, Side, latest_deadline,
    },
    liquidity::{Ask, Market, route::Want},
    money::Minor,
    quote::FirmTerms,
    text::check_id,
    time::Timestamp,
};
use dvp_fix::{UtcNanos, codec::MessageRef, tag::Tag};
use dvp_store::fix::{FixSessionRow, rows::ClOrdId};

use super::{
    Version,
    facts::{Rejection, client_reference, intent_id},
    fields::{self, FieldFault, IgnoreList},
    price, tags,
};

/// The lifetime of a day order: the service never closes.
const DAY_MILLIS: i64 = 24 * 60 * 60 * 1000;
/// An immediate order may take this long to start settling.
const IMMEDIATE_MILLIS: i64 = 5 * 60 * 1000;

pub(crate) struct Order {
    pub(crate) cl_ord_id: ClOrdId,
    pub(crate) request: IntentRequest,
    pub(crate) signer: Option<Signer>,
    pub(crate) received_at: Timestamp,
}

/// The quote that alone bounds an order: previously quoted, without a price.
pub(crate) fn bounding_quote(message: MessageRef<'_>) -> Option<&str> {
    let is_bound = message.text(tags::ORD_TYPE) == Some("D") && message.get(tags::PRICE).is_none();
    fields::repeatable(message, tags::QUOTE_ID).filter(|_| is_bound)
}

/// The bounds of an order without a price.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AtMarket {
    /// By the current prices.
    Now,
    /// As of its arrival.
    Arrived(Bounds),
}

/// The inputs of [`order`] besides the message.
pub(crate) struct OrderContext<'a> {
    pub(crate) session: &'a FixSessionRow,
    pub(crate) chains: &'a Chains,
    /// The pairs and their current prices.
    pub(crate) market: Market<'a>,
    /// The terms of the order's [`bounding_quote`].
    pub(crate) quoted: Option<&'a FirmTerms>,
    pub(crate) received_at: Timestamp,
    pub(crate) at_market: AtMarket,
    pub(crate) ignored: &'a IgnoreList,
    /// The day on which its ClOrdID is used; 0: for ever.
    pub(crate) trading_day: i32,
}

/// Reads an order that the dictionary has passed.
pub(crate) fn order(message: MessageRef<'_>, context: &OrderContext<'_>) -> Result<Order, Rejection> {
    let OrderContext { session, chains, received_at, .. } = *context;
    let refuse = Refuse { version: Version::of(&session.begin_string) };
    fields::check(message, context.ignored).map_err(|fault| refuse.field(&fault))?;
    let id = fields::id(message, tags::CL_ORD_ID).map_err(|fault| refuse.field(&fault))?;
    let cl_ord_id = ClOrdId { id: id.to_owned(), trading_day: context.trading_day };
    let client_reference = client_reference(&cl_ord_id);
    check_id(&client_reference)
        .map_err(|_| refuse.other("ClOrdID(11) must leave 9 of 128 characters for the trading day"))?;
    let (base, quote) = pair(message, context.market.registry).ok_or_else(|| refuse.unknown_symbol())?;
    currency(message, base).map_err(|problem| refuse.not_taken(problem))?;
    let side = side(message).ok_or_else(|| refuse.unsupported("Side"))?;
    let quantity = quantity(message, base).ok_or_else(|| refuse.quantity())?;
    let (input, output) = match side {
        Side::Sell => (base, quote),
        Side::Buy => (quote, base),
    };
    let bounds = OrderBounds { message, side, quantity, base, quote }.bounds(context, &refuse)?;
    let chain = chains.of(input.chain()).unwrap_or_else(|| chains.home());
    let permit =
        permit(message, input, bounds, &chain.taking.escrow).map_err(|problem| refuse.other(&problem))?;
    let signer = permit.as_ref().and_then(|permit| chain.permit.signer(permit));
    let said = |tag| message.text(tag).map(str::to_owned);
    let user = said(tags::USER_WALLET)
        .or(signer.as_ref().map(|signer| signer.as_str().to_owned()))
        .unwrap_or_else(|| session.client_comp_id.clone());
    let output_recipient = wallets(message, chains.contracts(), (input, output), &user)
        .map_err(|problem| refuse.other(&problem))?;
    let request = IntentRequest {
        intent_id: intent_id(&session.session_id, &cl_ord_id),
        client_reference: Some(client_reference),
        user,
        input_asset: descriptor(input),
        output_asset: descriptor(output),
        bounds,
        quote_id: said(tags::QUOTE_ID),
        deadline: deadline(message, received_at, &refuse)?,
        settlement_type: SettlementType::Hybrid,
        output_recipient,
        beneficiary: beneficiary(message).map_err(|problem| refuse.other(&problem))?,
        permit,
        actor_type: ActorType::Institution,
        side,
        metadata: None,
    };
    Ok(Order { cl_ord_id, request, signer, received_at })
}

/// Rejection reasons; their values differ by version.
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

    fn unsupported(&self, what: &str) -> Rejection {
        self.not_taken(format!("{what} not supported"))
    }

    /// An unsupported characteristic of the order. FIX 4.2 has no value for it, nor for a wrong quantity.
    fn not_taken(&self, text: String) -> Rejection {
        match self.version {
            Version::Fix42 => self.other(&text),
            Version::Fix44 => Rejection { ord_rej_reason: 11, text },
        }
    }

    fn field(&self, fault: &FieldFault) -> Rejection {
        match fault {
            FieldFault::NotTaken(_) => self.not_taken(fault.to_string()),
            FieldFault::Text { .. } | FieldFault::Ignored { .. } | FieldFault::Missing { .. } => {
                self.other(&fault.to_string())
            }
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
pub(crate) fn pair<'a>(message: MessageRef<'_>, registry: &'a Registry) -> Option<(&'a Asset, &'a Asset)> {
    let (base, quote) = message.text(tags::SYMBOL)?.split_once('/')?;
    Some((registry.find(base)?, registry.find(quote)?))
}

/// Currency(15) may repeat the base asset: quantities are of the base asset.
pub(super) fn currency(message: MessageRef<'_>, base: &Asset) -> Result<(), String> {
    let is_base = message.get(tags::CURRENCY).is_none_or(|currency| currency == base.symbol.as_bytes());
    if is_base { Ok(()) } else { Err(format!("Currency(15) must be {}, the base asset", base.symbol)) }
}

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
        AssetKind::Native { chain, .. } => AssetDescriptor {
            kind: AssetType::Native,
            symbol,
            address: None,
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

struct OrderBounds<'a> {
    message: MessageRef<'a>,
    side: Side,
    quantity: Minor,
    base: &'a Asset,
    quote: &'a Asset,
}

impl OrderBounds<'_> {
    fn bounds(&self, context: &OrderContext<'_>, refuse: &Refuse) -> Result<Bounds, Rejection> {
        let ord_type = self.message.text(tags::ORD_TYPE);
        let price = self.message.text(tags::PRICE);
        if let Some(target) = self.message.text(tags::TARGET_PRICE) {
            return self
                .falling(target, ord_type, price, context.received_at)
                .map_err(|problem| refuse.other(problem));
        }
        match (ord_type, price) {
            (Some("2" | "D"), Some(price)) => {
                let value = price::value_at(price, self.quantity, self.base, self.quote);
                value.map(|value| self.bounded_by(value)).ok_or_else(|| refuse.other("Price out of range"))
            }
            (Some("2"), None) => Err(refuse.other("Price required")),
            // The quote itself is the bound: it is never priced again.
            (Some("D"), None) if self.message.get(tags::QUOTE_ID).is_some() => {
                context.quoted.map(|terms| self.bounded_by(self.quote_side(terms))).ok_or_else(|| {
                    let not_found = Reason::QuoteNotFound;
                    refuse.other(not_found.as_str())
                })
            }
            (Some("D"), None) => Err(refuse.other("QuoteID(117) required")),
            (Some("1"), Some(_)) => Err(refuse.other("Price(44) is not for OrdType(40) 1")),
            (Some("1"), None) => match context.at_market {
                AtMarket::Now => {
                    let bps = u32::try_from(context.session.max_slippage_bps).unwrap_or(0);
                    // Without a price there is nothing to slip from, and an order without a bound is not taken.
                    let now = self.at_market(&context.market);
                    now.map(|now| price::slipped(now, bps))
                        .ok_or_else(|| refuse.other(Reason::NoLiquidity.as_str()))
                }
                AtMarket::Arrived(bounds) => Ok(bounds),
            },
            _ => Err(refuse.unsupported("OrdType")),
        }
    }

    /// A range: the output falls from what the target price gives for the quantity to what the price gives.
    fn falling(
        &self,
        target: &str,
        ord_type: Option<&str>,
        price: Option<&str>,
        received_at: Timestamp,
    ) -> Result<Bounds, &'static str> {
        if self.side == Side::Buy {
            return Err("TargetPrice(20030) is for Side(54) 2");
        }
        let (Some("2"), Some(limit)) = (ord_type, price) else {
            return Err("TargetPrice(20030) is for OrdType(40) 2 with Price(44)");
        };
        let value = |price| price::value_at(price, self.quantity, self.base, self.quote);
        let limit = value(limit).ok_or("Price out of range")?;
        let target = value(target).ok_or("TargetPrice out of range")?;
        if target <= limit {
            return Err("TargetPrice(20030) must be above Price(44)");
        }
        let max_input = self.quantity;
        Ok(Bounds::Range { max_input, target_output: target, min_output: limit, received_at })
    }

    fn bounded_by(&self, value: Minor) -> Bounds {
        match self.side {
            Side::Sell => Bounds::ExactInput { input: self.quantity, min_output: value },
            Side::Buy => Bounds::ExactOutput { output: self.quantity, max_input: value },
        }
    }

    /// The quote's amount of the quote asset.
    const fn quote_side(&self, terms: &FirmTerms) -> Minor {
        match self.side {
            Side::Sell => terms.priced.output,
            Side::Buy => terms.priced.input,
        }
    }

    /// The output at the best current price, net of fees, assuming unlimited liquidity.
    fn at_market(&self, market: &Market<'_>) -> Option<Bounds> {
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

/// TimeInForce(59): 0 day, 1 till cancel, 3 immediate, 4 fill or kill, 6 until ExpireTime(126) or the end of
/// ExpireDate(432) in UTC.
fn deadline(message: MessageRef<'_>, now: Timestamp, refuse: &Refuse) -> Result<Timestamp, Rejection> {
    let time_in_force = message.text(tags::TIME_IN_FORCE);
    let ends = [(tags::EXPIRE_TIME, "ExpireTime(126)"), (tags::EXPIRE_DATE, "ExpireDate(432)")];
    let mut given = ends.iter().filter_map(|(tag, name)| Some((*tag, *name, message.text(*tag)?)));
    let (end, second) = (given.next(), given.next());
    match (time_in_force, end, second) {
        (_, _, Some(_)) => Err(refuse.other("ExpireTime(126) and ExpireDate(432) exclude each other")),
        (Some("6"), Some((tag, name, text)), None) => {
            let at = if tag == tags::EXPIRE_TIME { parse_time(text) } else { end_of_day(text) };
            let at = at
                .filter(|at| *at > now)
                .ok_or_else(|| refuse.other(&format!("{name} in the future required")))?;
            let most = format!("{name} is more than {LIFETIME_DAYS_MAX} days ahead");
            if at > latest_deadline(now) { Err(refuse.other(&most)) } else { Ok(at) }
        }
        (Some("6"), None, None) => Err(refuse.other("ExpireTime in the future required")),
        (_, Some((_, name, _)), None) => Err(refuse.other(&format!("{name} is for TimeInForce(59) 6"))),
        (None | Some("0"), None, None) => Ok(now.plus_millis(DAY_MILLIS)),
        (Some("1"), None, None) => Ok(latest_deadline(now)),
        (Some("3" | "4"), None, None) => Ok(now.plus_millis(IMMEDIATE_MILLIS)),
        (Some(_), None, None) => Err(refuse.unsupported("TimeInForce")),
    }
}

fn parse_time(text: &str) -> Option<Timestamp> {
    let at = UtcNanos::parse(text.as_bytes())?;
    i64::try_from(at.0 / 1_000_000).ok().map(Timestamp::from_millis)
}

/// The last millisecond of a date (YYYYMMDD) in UTC.
fn end_of_day(date: &str) -> Option<Timestamp> {
    parse_time(&format!("{date}-00:00:00")).map(|at| at.plus_millis(DAY_MILLIS - 1))
}

/// The wallets of an order can own what they pay, get back or receive. The recipient, if it names one: a token goes to a
/// wallet.
fn wallets(
    message: MessageRef<'_>,
    contracts: &OwnContracts,
    (input, output): (&Asset, &Asset),
    user: &str,
) -> Result<Option<String>, String> {
    let check = |name: &str, meant: &str, wallet: &str| match contracts.check_wallet(wallet) {
        Ok(_) => Ok(()),
        Err(AddressFault::Form) => Err(format!("{name} must be the address of {meant}")),
        Err(fault) => Err(format!("{name} {fault}")),
    };
    let user_wallet = message.text(tags::USER_WALLET);
    if input.is_native() && user_wallet.is_none() {
        return Err("UserWallet(20021) must be the address of the wallet that deposits".to_owned());
    }
    if let Some(wallet) = user_wallet.filter(|_| !input.is_fiat()) {
        let meant = if input.is_native() { "the wallet that deposits" } else { "the wallet that signed" };
        check("UserWallet(20021)", meant, wallet)?;
    }
    let recipient = message.text(tags::OUTPUT_RECIPIENT);
    if !output.is_fiat() {
        match recipient {
            Some(wallet) => check("OutputRecipient(20020)", "a wallet", wallet)?,
            // What is no wallet at all finds nobody to deliver to.
            None if user_wallet.is_some() => check("UserWallet(20021)", "a wallet", user)?,
            None => {}
        }
    }
    Ok(recipient.map(str::to_owned))
}

/// Account(1) with a pre-provisioned reference, or the details in our own tags.
fn beneficiary(message: MessageRef<'_>) -> Result<Option<Beneficiary>, String> {
    let (account, own) = (message.get(tags::ACCOUNT), message.get(tags::BENEFICIARY_ACCOUNT));
    if account.is_some() && own.is_some() && account != own {
        return Err("Account(1) and BeneficiaryAccount(20011) differ".to_owned());
    }
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
        payout_method: message.text(tags::PAYOUT_METHOD).and_then(PayoutMethod::parse),
        swift_code: said(tags::SWIFT_CODE),
        bank: said(tags::BENEFICIARY_BANK),
        address: Some(address).filter(|address| *address != BeneficiaryAddress::default()),
        travel_rule_data: None,
    };
    if let Err(BeneficiaryFault { field, problem }) = beneficiary.check() {
        let name = match field {
            BeneficiaryField::Account if own.is_none() => "Account(1)",
            BeneficiaryField::Account => "BeneficiaryAccount(20011)",
            BeneficiaryField::Country => "BeneficiaryCountry(20012)",
            BeneficiaryField::SwiftCode => "SwiftCode(20014)",
        };
        return Err(format!("{name} {problem}"));
    }
    Ok(Some(beneficiary).filter(|beneficiary| *beneficiary != Beneficiary::default()))
}

/// Token and spender follow from the symbol and the environment. An order with one field of a permit must have all of
/// them: missing or invalid fields are not guessed.
fn permit(
    message: MessageRef<'_>,
    input: &Asset,
    bounds: Bounds,
    escrow: &str,
) -> Result<Option<Permit>, String> {
    const PARTS: [Tag; 4] =
        [tags::PERMIT_NONCE, tags::PERMIT_DEADLINE, tags::PERMIT_SIGNATURE, tags::PERMIT_AMOUNT];
    if PARTS.iter().all(|tag| message.get(*tag).is_none()) {
        return Ok(None);
    }
    let signature =
        message.text(tags::PERMIT_SIGNATURE).ok_or("PermitSignature(20003) required with a permit")?;
    let AssetKind::Erc20 { address, .. } = &input.kind else {
        return Err("PermitSignature(20003) is for a token that is paid in".to_owned());
    };
    let required = |name: &str| format!("{name} required with a permit, a whole number");
    let number = |tag: Tag| message.text(tag).and_then(|text| Minor::parse(text).ok());
    let amount_minor = match message.get(tags::PERMIT_AMOUNT) {
        Some(_) => number(tags::PERMIT_AMOUNT).ok_or("PermitAmount(20004) must be a whole number")?,
        None => bounds.max_input(),
    };
    let deadline = message.text(tags::PERMIT_DEADLINE).and_then(|text| u64::from_str(text).ok());
    Ok(Some(Permit {
        token: address.clone(),
        amount_minor,
        spender: escrow.to_owned(),
        nonce: number(tags::PERMIT_NONCE).ok_or_else(|| required("PermitNonce(20001)"))?,
        deadline: deadline.ok_or_else(|| required("PermitDeadline(20002)"))?,
        signature: signature.to_owned(),
    }))
}
