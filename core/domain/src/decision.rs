//! Whether an intent is accepted, and how it will be filled. The order of the checks is the contract's (section 7):
//! the first reason that applies is returned.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::asset::{Asset, AssetKind, AssetType};
use crate::intent::{Bounds, IntentRequest};
use crate::liquidity::route::{Fill, Want};
use crate::liquidity::{Ask, Market};
use crate::money::Minor;
use crate::pricing::{FeeItem, Priced};
use crate::quote::{FirmTerms, path_score};
use crate::time::Timestamp;
use crate::windows::PATH_SECS;

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

/// How an accepted intent is filled. One that is read back adds up, or it is not read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
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

/// How a plan's amounts contradict each other. Nothing may be posted by such a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PlanFault {
    #[error("the slices' inputs and the protocol fee are not the order's input")]
    Input,
    #[error("the slices' outputs are not the gross output")]
    GrossOutput,
    #[error("the output and the payout fee are not the gross output")]
    Output,
}

impl Plan {
    /// Whether its amounts add up. The postings of an order rely on it.
    pub fn check(&self) -> Result<(), PlanFault> {
        let Priced { input, protocol_fee, gross_output, payout_fee, output, .. } = self.priced;
        let sum = |of: fn(&Slice) -> Minor, first: Minor| {
            self.slices.iter().try_fold(first, |sum, slice| sum.checked_add(of(slice)))
        };
        if sum(|slice| slice.input, protocol_fee) != Some(input) {
            return Err(PlanFault::Input);
        }
        if sum(|slice| slice.output, Minor::ZERO) != Some(gross_output) {
            return Err(PlanFault::GrossOutput);
        }
        if output.checked_add(payout_fee) != Some(gross_output) {
            return Err(PlanFault::Output);
        }
        Ok(())
    }
}

impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let plan = Self::deserialize(deserializer)?;
        plan.check().map_err(D::Error::custom)?;
        Ok(plan)
    }
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

/// The one step the solver emits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum PathStep {
    /// A fiat output is paid out.
    FiatGateway {
        asset: String,
        amount_minor: Minor,
        provider: String,
        currency: String,
        beneficiary_account: String,
    },
    /// A token output is reserved from its source and transferred.
    Reserve { asset: String, amount_minor: Minor, chain: String, source: String },
}

impl SolvedPath {
    /// Who delivers the output to the recipient: the payout provider, or the source of a token.
    pub fn payout_provider(&self) -> &str {
        match self.steps.first() {
            Some(PathStep::FiatGateway { provider, .. }) => provider,
            Some(PathStep::Reserve { source, .. }) => source,
            None => "",
        }
    }
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
const _: () =
    assert!(PATH_TTL_MS.unsigned_abs() == PATH_SECS * 1000, "a path stands for as long as it may be locked");
/// Expected seconds to a fiat delivery, and to a token's.
const FIAT_FILL_SECS: u32 = 3600;
const TOKEN_FILL_SECS: u32 = 30;

/// Decides an intent against the market and the quote it names. The time of the decision is the market's.
pub fn decide(
    request: &IntentRequest,
    market: &Market<'_>,
    quote: &QuoteLookup,
    payout_provider: &str,
) -> Decision {
    match check(request, market, quote) {
        Err(reason) => Decision::Rejected(reason),
        Ok(agreed) if request.permit.as_ref().is_some_and(|p| p.amount_minor < agreed.fill.priced.input) => {
            Decision::PermitTooSmall
        }
        Ok(agreed) => match plan(request, agreed, payout_provider, market.now) {
            Some(plan) => Decision::Accepted(Box::new(plan)),
            None => Decision::Rejected(Reason::NoLiquidity),
        },
    }
}

/// What an order that passed the checks is filled with.
struct Agreed<'a> {
    input: &'a Asset,
    output: &'a Asset,
    /// The bounds in force now.
    bounds: Bounds,
    fill: Fill,
    score: u64,
}

fn check<'a>(
    request: &IntentRequest,
    market: &Market<'a>,
    quote: &QuoteLookup,
) -> Result<Agreed<'a>, Reason> {
    remittance_has_beneficiary(request)?;
    if request.input_asset.kind == AssetType::Erc20 && request.permit.is_none() {
        return Err(Reason::PermitRequired);
    }
    let bounds = request.bounds.at(market.now, request.deadline);
    let locked = match quote {
        QuoteLookup::NotAsked => None,
        QuoteLookup::Unknown => return Err(Reason::QuoteNotFound),
        QuoteLookup::Found { terms, used } => {
            quote_stands(request, terms, *used, market.now)?;
            Some(terms.as_ref())
        }
    };
    let known = |asset| market.registry.resolve(asset).ok_or(Reason::NoLiquidity);
    let (input, output) = (known(&request.input_asset)?, known(&request.output_asset)?);
    let ask = Ask { input, output, actor: request.actor_type, firm: false };
    if !output.is_fiat() && request.delivery_wallet().is_none() {
        // Nobody can deliver a token to what is no wallet; the doors say so before it comes to this.
        return Err(Reason::NoLiquidity);
    }
    let (fill, score) = match locked {
        Some(terms) => (committed(terms, market, output)?, terms.score),
        None => {
            let want = match bounds {
                Bounds::ExactInput { input, .. } => Want::Input(input),
                Bounds::ExactOutput { output, .. } | Bounds::Range { target_output: output, .. } => {
                    Want::Output(output)
                }
            };
            let (_, fill) = market.best(&ask, want).ok_or(Reason::NoLiquidity)?;
            let score = path_score(market, &ask, &fill.priced);
            (fill, score)
        }
    };
    if input.is_fiat() && market.holdings.prefunded(&input.symbol) < fill.priced.input {
        return Err(Reason::NoLiquidity);
    }
    within_bounds(bounds, &fill.priced)?;
    fiat_can_be_delivered(request, output)?;
    Ok(Agreed { input, output, bounds, fill, score })
}

/// A locked fill as it was locked, if its providers still hold what they committed to.
fn committed(terms: &FirmTerms, market: &Market<'_>, output: &Asset) -> Result<Fill, Reason> {
    let of_provider = |id: &str| {
        let theirs = terms.slices.iter().filter(|slice| slice.provider_id == id);
        theirs.map(|slice| slice.output).try_fold(Minor::ZERO, Minor::checked_add)
    };
    let covered = terms.slices.iter().all(|slice| {
        let id = slice.provider_id.as_str();
        of_provider(id).is_some_and(|sum| sum <= market.holdings.available(id, &output.symbol))
    });
    if !covered {
        return Err(Reason::NoLiquidity);
    }
    Ok(Fill { priced: terms.priced.clone(), slices: terms.slices.clone() })
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
    if now >= terms.valid_until {
        return Err(Reason::QuoteExpired);
    }
    if used {
        return Err(Reason::QuoteAlreadyUsed);
    }
    let fixed_amount_agrees = match request.bounds {
        Bounds::ExactInput { input, .. } => input == terms.priced.input,
        Bounds::ExactOutput { output, .. } => output == terms.priced.output,
        Bounds::Range { .. } => false,
    };
    let same = request.input_asset.symbol == terms.input_asset
        && request.output_asset.symbol == terms.output_asset
        && request.side == terms.side
        && fixed_amount_agrees;
    if same { Ok(()) } else { Err(Reason::QuoteMismatch) }
}

fn within_bounds(bounds: Bounds, priced: &Priced) -> Result<(), Reason> {
    match bounds {
        Bounds::ExactInput { min_output, .. } if priced.output < min_output => {
            Err(Reason::BelowMinimumOutput)
        }
        Bounds::ExactOutput { max_input, .. } if priced.input > max_input => Err(Reason::AboveMaximumInput),
        Bounds::ExactInput { .. } | Bounds::ExactOutput { .. } | Bounds::Range { .. } => Ok(()),
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

/// `None` when the fill has no slice or is out of its bounds: both were checked.
fn plan(request: &IntentRequest, agreed: Agreed<'_>, payout_provider: &str, now: Timestamp) -> Option<Plan> {
    let Agreed { input, output, bounds, fill, score } = agreed;
    let primary = fill.primary()?;
    let (solver_id, solver_wallet) = (primary.provider_id.clone(), primary.wallet.clone());
    let surplus = match bounds {
        Bounds::ExactInput { min_output, .. } => fill.priced.output.checked_sub(min_output),
        Bounds::ExactOutput { max_input, .. } | Bounds::Range { max_input, .. } => {
            max_input.checked_sub(fill.priced.input)
        }
    }?;
    let kind = OrderKind::of(input, output);
    let path = SolvedPath {
        intent_id: request.intent_id.clone(),
        solver_id: solver_id.clone(),
        output_amount_minor: fill.priced.output,
        surplus_amount_minor: surplus,
        estimated_fill_time: if output.is_fiat() { FIAT_FILL_SECS } else { TOKEN_FILL_SECS },
        steps: vec![step(request, output, fill.priced.output, payout_provider, &primary.venue)],
        score,
        expires_at: now.plus_millis(PATH_TTL_MS),
    };
    Some(Plan {
        kind,
        funding: funding(kind, input, fill.priced.input),
        solver_id,
        solver_wallet,
        slices: fill.slices,
        priced: fill.priced,
        surplus,
        quote_id: request.quote_id.clone(),
        path,
    })
}

fn step(
    request: &IntentRequest,
    output: &Asset,
    amount_minor: Minor,
    payout_provider: &str,
    venue: &str,
) -> PathStep {
    let asset = output.symbol.clone();
    match &output.kind {
        AssetKind::Fiat { currency } => PathStep::FiatGateway {
            asset,
            amount_minor,
            provider: payout_provider.to_owned(),
            currency: currency.clone(),
            beneficiary_account: request
                .beneficiary
                .as_ref()
                .and_then(|b| b.account())
                .unwrap_or_default()
                .to_owned(),
        },
        AssetKind::Erc20 { chain, .. } => {
            PathStep::Reserve { asset, amount_minor, chain: chain.clone(), source: venue.to_owned() }
        }
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
