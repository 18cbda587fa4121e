//! Whether an intent is accepted, and how it will be filled. The order of the checks is the contract's (section 7):
//! the first reason that applies is returned.

use serde::{Deserialize, Serialize};

use crate::asset::Asset;
use crate::intent::{Bounds, IntentRequest};
use crate::money::Minor;
use crate::pricing::{FeeItem, Priced};
use crate::quote::{FirmTerms, Market, Route};
use crate::time::Timestamp;

/// Why a structurally valid intent is rejected. The text is part of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    BeneficiaryRequiredForRemittance,
    PermitRequired,
    QuoteNotFound,
    QuoteExpired,
    QuoteAlreadyUsed,
    QuoteMismatch,
    NoLiquidity,
    BelowMinimumOutput,
    AboveMaximumInput,
    BeneficiaryAccountRequiredForFiatOutput,
    BeneficiaryIncompleteForJitPayout,
    BeneficiaryAddressRequiredForRail,
}

impl Reason {
    /// The reason's wire text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BeneficiaryRequiredForRemittance => "beneficiary_required_for_remittance",
            Self::PermitRequired => "permit_required",
            Self::QuoteNotFound => "quote_not_found",
            Self::QuoteExpired => "quote_expired",
            Self::QuoteAlreadyUsed => "quote_already_used",
            Self::QuoteMismatch => "quote_mismatch",
            Self::NoLiquidity => "no_liquidity",
            Self::BelowMinimumOutput => "below_minimum_output",
            Self::AboveMaximumInput => "above_maximum_input",
            Self::BeneficiaryAccountRequiredForFiatOutput => "beneficiary_account_required_for_fiat_output",
            Self::BeneficiaryIncompleteForJitPayout => "beneficiary_incomplete_for_jit_payout",
            Self::BeneficiaryAddressRequiredForRail => "beneficiary_address_required_for_rail",
        }
    }
}

/// A firm quote as the store knows it.
#[derive(Debug, Clone, PartialEq)]
pub enum QuoteLookup {
    /// The intent names no quote.
    NotAsked,
    /// No such quote of this partner.
    Unknown,
    Found {
        terms: Box<FirmTerms>,
        used: bool,
    },
}

/// What kind of asset is paid and what kind is received: it decides how the order settles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderKind {
    TokenToFiat,
    TokenToToken,
    FiatToFiat,
    FiatToToken,
}

impl OrderKind {
    pub const fn of(input: &Asset, output: &Asset) -> Self {
        match (input.is_fiat(), output.is_fiat()) {
            (false, true) => Self::TokenToFiat,
            (false, false) => Self::TokenToToken,
            (true, true) => Self::FiatToFiat,
            (true, false) => Self::FiatToToken,
        }
    }

    /// The input is locked on the chain; otherwise it is taken from the partner's prefunded balance.
    pub const fn locks_input(self) -> bool {
        match self {
            Self::TokenToFiat | Self::TokenToToken => true,
            Self::FiatToFiat | Self::FiatToToken => false,
        }
    }

    /// The output is a transfer on the chain; otherwise a payout rail delivers it.
    pub const fn pays_on_chain(self) -> bool {
        match self {
            Self::TokenToToken | Self::FiatToToken => true,
            Self::TokenToFiat | Self::FiatToFiat => false,
        }
    }
}

/// Where the input comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum InputFunding {
    /// Pulled into the escrow with the user's permit.
    Permit,
    /// `amount` of the partner's prefunded balance of `asset`, reserved at the commit.
    PartnerBalance { asset: String, amount: Minor },
}

/// What one provider contributes to a fill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// Whose balance of the output asset is reserved.
    pub provider_id: String,
    /// Where the slice was priced, as in a quote's leg (`LP:<id>`, `AMM-Pool`, ...).
    pub venue: String,
    /// The provider's wallet for released funds.
    pub wallet: String,
    /// The share of the input that it converts. The shares and the protocol fee sum up to the plan's input.
    pub input: Minor,
    /// What it delivers, before the payout fee: to be reserved. The slices sum up to the plan's gross output.
    pub output: Minor,
    /// What the floor of its conversion cut off, in 10^-18 minor units of the output asset.
    pub residual_e18: u64,
    /// The resting order that it fills, when the venue is the order book.
    pub level_id: Option<i64>,
}

/// How an accepted intent is filled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub kind: OrderKind,
    pub funding: InputFunding,
    /// The provider of the largest slice.
    pub solver_id: String,
    /// The wallet released funds go to.
    pub solver_wallet: String,
    /// At least one; more when the fill is split.
    pub slices: Vec<Slice>,
    pub priced: Priced,
    pub surplus: Minor,
    /// The firm quote this plan consumes.
    pub quote_id: Option<String>,
    pub path: SolvedPath,
}

/// Spec section 2.5, SolvedPath.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SolvedPath {
    pub intent_id: String,
    pub solver_id: String,
    pub output_amount_minor: Minor,
    pub surplus_amount_minor: Minor,
    /// Seconds.
    pub estimated_fill_time: u32,
    pub steps: Vec<PathStep>,
    pub score: u64,
    /// Unix milliseconds.
    pub expires_at: Timestamp,
}

/// The one step the solver emits for a fiat output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PathStep {
    #[serde(rename = "type")]
    pub kind: StepType,
    pub asset: String,
    pub amount_minor: Minor,
    pub provider: String,
    pub currency: String,
    pub beneficiary_account: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepType {
    FiatGateway,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    Accepted(Box<Plan>),
    Rejected(Reason),
    /// The permit covers less than the input computed for an exact output.
    PermitTooSmall,
}

/// How long an accepted path stands, in milliseconds.
const PATH_TTL_MS: i64 = 5 * 60 * 1000;
/// Expected seconds to a fiat delivery.
const FIAT_FILL_SECS: u32 = 3600;

/// Decides an intent against the market and the quote it names.
pub fn decide(
    request: &IntentRequest,
    market: &Market<'_>,
    quote: &QuoteLookup,
    provider_name: &str,
    now: Timestamp,
) -> Decision {
    match check(request, market, quote, now) {
        Err(reason) => Decision::Rejected(reason),
        Ok((_, priced)) if request.permit.as_ref().is_some_and(|p| p.amount_minor < priced.input) => {
            Decision::PermitTooSmall
        }
        Ok((route, priced)) => {
            Decision::Accepted(Box::new(plan(request, &route, priced, provider_name, now)))
        }
    }
}

fn check<'a>(
    request: &IntentRequest,
    market: &Market<'a>,
    quote: &QuoteLookup,
    now: Timestamp,
) -> Result<(Route<'a>, Priced), Reason> {
    remittance_has_beneficiary(request)?;
    let input = market.registry.resolve(&request.input_asset);
    let output = market.registry.resolve(&request.output_asset);
    if request.input_asset.kind == crate::asset::AssetType::Erc20 && request.permit.is_none() {
        return Err(Reason::PermitRequired);
    }
    let locked = match quote {
        QuoteLookup::NotAsked => None,
        QuoteLookup::Unknown => return Err(Reason::QuoteNotFound),
        QuoteLookup::Found { terms, used } => {
            quote_stands(request, terms, *used, now)?;
            Some(terms.priced.clone())
        }
    };
    let (input, output) = input.zip(output).ok_or(Reason::NoLiquidity)?;
    let route = market.route(input, output).ok_or(Reason::NoLiquidity)?;
    let priced = match locked {
        Some(priced) => priced,
        None => price(&route, request.bounds).ok_or(Reason::NoLiquidity)?,
    };
    if !route.covers(&priced) {
        return Err(Reason::NoLiquidity);
    }
    within_bounds(request.bounds, &priced)?;
    fiat_can_be_delivered(request, output)?;
    Ok((route, priced))
}

/// A third-party recipient needs a named account.
fn remittance_has_beneficiary(request: &IntentRequest) -> Result<(), Reason> {
    let is_remittance =
        request.output_recipient.as_ref().is_some_and(|to| !to.eq_ignore_ascii_case(&request.user));
    let known = request
        .beneficiary
        .as_ref()
        .is_some_and(|b| b.is_reference() || (b.account().is_some() && b.name().is_some()));
    if is_remittance && !known { Err(Reason::BeneficiaryRequiredForRemittance) } else { Ok(()) }
}

/// Pair, amount and time are checked here; a quote is never re-priced (spec section 2.4).
fn quote_stands(
    request: &IntentRequest,
    terms: &FirmTerms,
    used: bool,
    now: Timestamp,
) -> Result<(), Reason> {
    if used {
        return Err(Reason::QuoteAlreadyUsed);
    }
    if now >= terms.valid_until {
        return Err(Reason::QuoteExpired);
    }
    let fixed_amount_agrees = match request.bounds {
        Bounds::ExactInput { input, .. } => input == terms.priced.input,
        Bounds::ExactOutput { output, .. } => output == terms.priced.output,
    };
    let same = request.input_asset.symbol == terms.input_asset
        && request.output_asset.symbol == terms.output_asset
        && request.side == terms.side
        && fixed_amount_agrees;
    if same { Ok(()) } else { Err(Reason::QuoteMismatch) }
}

fn price(route: &Route<'_>, bounds: Bounds) -> Option<Priced> {
    match bounds {
        Bounds::ExactInput { input, .. } => route.price.forward(input),
        Bounds::ExactOutput { output, .. } => route.price.inverse(output),
    }
}

fn within_bounds(bounds: Bounds, priced: &Priced) -> Result<(), Reason> {
    match bounds {
        Bounds::ExactInput { min_output, .. } if priced.output < min_output => {
            Err(Reason::BelowMinimumOutput)
        }
        Bounds::ExactOutput { max_input, .. } if priced.input > max_input => Err(Reason::AboveMaximumInput),
        Bounds::ExactInput { .. } | Bounds::ExactOutput { .. } => Ok(()),
    }
}

fn fiat_can_be_delivered(request: &IntentRequest, output: &Asset) -> Result<(), Reason> {
    if !output.is_fiat() {
        return Ok(());
    }
    let beneficiary = request
        .beneficiary
        .as_ref()
        .filter(|b| b.account().is_some())
        .ok_or(Reason::BeneficiaryAccountRequiredForFiatOutput)?;
    if beneficiary.is_reference() {
        return Ok(());
    }
    if !beneficiary.has_rail_details() {
        return Err(Reason::BeneficiaryIncompleteForJitPayout);
    }
    if !beneficiary.has_address_for_rail() {
        return Err(Reason::BeneficiaryAddressRequiredForRail);
    }
    Ok(())
}

fn plan(
    request: &IntentRequest,
    route: &Route<'_>,
    priced: Priced,
    provider_name: &str,
    now: Timestamp,
) -> Plan {
    let surplus = match request.bounds {
        Bounds::ExactInput { min_output, .. } => priced.output.checked_sub(min_output),
        Bounds::ExactOutput { max_input, .. } => max_input.checked_sub(priced.input),
    }
    .unwrap_or_default();
    let solver_id = route.provider.id.clone();
    let account = request.beneficiary.as_ref().and_then(|b| b.account()).unwrap_or_default();
    let step = PathStep {
        kind: StepType::FiatGateway,
        asset: route.price.output.symbol.clone(),
        amount_minor: priced.output,
        provider: provider_name.to_owned(),
        currency: route.price.output.symbol.clone(),
        beneficiary_account: account.to_owned(),
    };
    let path = SolvedPath {
        intent_id: request.intent_id.clone(),
        solver_id: solver_id.clone(),
        output_amount_minor: priced.output,
        surplus_amount_minor: surplus,
        estimated_fill_time: FIAT_FILL_SECS,
        steps: vec![step],
        score: u64::from(route.provider.spread_bps.saturating_add(route.provider.fees.protocol_fee_bps)),
        expires_at: now.plus_millis(PATH_TTL_MS),
    };
    let kind = OrderKind::of(route.price.input, route.price.output);
    let slice = Slice {
        provider_id: solver_id.clone(),
        venue: format!("LP:{solver_id}"),
        wallet: route.provider.wallet.clone(),
        input: priced.input.checked_sub(priced.protocol_fee).unwrap_or_default(),
        output: priced.gross_output,
        residual_e18: priced.residual_e18,
        level_id: None,
    };
    Plan {
        kind,
        funding: funding(kind, route.price.input, priced.input),
        solver_id,
        solver_wallet: route.provider.wallet.clone(),
        slices: vec![slice],
        priced,
        surplus,
        quote_id: request.quote_id.clone(),
        path,
    }
}

fn funding(kind: OrderKind, asset: &Asset, amount: Minor) -> InputFunding {
    if kind.locks_input() {
        InputFunding::Permit
    } else {
        InputFunding::PartnerBalance { asset: asset.symbol.clone(), amount }
    }
}

/// Fees the accepted answer shows: only those locked by a firm quote.
pub fn shown_fees(plan: &Plan) -> Option<&[FeeItem]> {
    plan.quote_id.as_ref().map(|_| plan.priced.fees.as_slice())
}

/// `DVP-` and the first eight characters of the intent id, upper-cased (spec section 2.5).
pub fn plan_id(intent_id: &str) -> String {
    let head: String = intent_id.chars().take(8).collect();
    format!("DVP-{}", head.to_uppercase())
}

#[cfg(test)]
pub(crate) mod tests;
