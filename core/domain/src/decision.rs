//! Whether an intent is accepted, and how it will be filled. The order of the checks is the contract's (section 7):
//! the first reason that applies is returned.

use serde::{Deserialize, Serialize};

use crate::asset::{Asset, AssetKind, AssetType};
use crate::intent::{Bounds, IntentRequest, is_address};
use crate::limit::Exceeded;
use crate::liquidity::route::{Fill, Want};
use crate::liquidity::{Ask, Market};
use crate::money::Minor;
use crate::plan::{InputFunding, OrderKind, PathStep, Plan, SolvedPath};
use crate::pricing::Priced;
use crate::quote::{FirmTerms, path_score};
use crate::range::{Meeting, Range, ask};
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
    QuoteMismatch(QuoteTerm),
    NoLiquidity,
    BelowMinimumOutput,
    AboveMaximumInput,
    BeneficiaryAccountRequiredForFiatOutput,
    BeneficiaryIncompleteForJitPayout,
    BeneficiaryAddressRequiredForRail,
    /// The indexer has halted the chain of one of the tokens.
    ChainHalted,
    /// The order would exceed a limit that operators have set.
    Limit(Exceeded),
}

/// What an intent and its quote differ in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuoteTerm {
    InputAsset,
    OutputAsset,
    Side,
    ActorType,
    /// The amount that the intent fixes.
    Amount,
}

impl Reason {
    /// Every reason, in the order in which they are checked; a limit with each of its names.
    pub fn all() -> impl Iterator<Item = Self> {
        let plain = [
            Self::BeneficiaryRequiredForRemittance,
            Self::PermitRequired,
            Self::QuoteNotFound,
            Self::QuoteExpired,
            Self::QuoteAlreadyUsed,
            Self::QuoteMismatch(QuoteTerm::InputAsset),
            Self::NoLiquidity,
            Self::BelowMinimumOutput,
            Self::AboveMaximumInput,
            Self::BeneficiaryAccountRequiredForFiatOutput,
            Self::BeneficiaryIncompleteForJitPayout,
            Self::BeneficiaryAddressRequiredForRail,
            Self::ChainHalted,
        ];
        plain.into_iter().chain(Exceeded::all().map(Self::Limit))
    }

    /// The reason's wire text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BeneficiaryRequiredForRemittance => "beneficiary_required_for_remittance",
            Self::PermitRequired => "permit_required",
            Self::QuoteNotFound => "quote_not_found",
            Self::QuoteExpired => "quote_expired",
            Self::QuoteAlreadyUsed => "quote_already_used",
            Self::QuoteMismatch(_) => "quote_mismatch",
            Self::NoLiquidity => "no_liquidity",
            Self::BelowMinimumOutput => "below_minimum_output",
            Self::AboveMaximumInput => "above_maximum_input",
            Self::BeneficiaryAccountRequiredForFiatOutput => "beneficiary_account_required_for_fiat_output",
            Self::BeneficiaryIncompleteForJitPayout => "beneficiary_incomplete_for_jit_payout",
            Self::BeneficiaryAddressRequiredForRail => "beneficiary_address_required_for_rail",
            Self::ChainHalted => "chain_halted",
            Self::Limit(exceeded) => exceeded.as_str(),
        }
    }
}

/// A firm quote as the store knows it.
#[derive(Debug, Clone, PartialEq)]
pub enum QuoteLookup {
    /// The intent names no quote.
    NotRequested,
    /// No such quote of this partner.
    Unknown,
    Found {
        terms: Box<FirmTerms>,
        used: bool,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    Accepted(Box<Plan>),
    /// A range order whose output has not fallen to the market yet. The plan is how it would be filled at these prices.
    Rests(Box<Plan>),
    Rejected(Reason),
    /// The permit covers less than the input computed for an exact output.
    PermitTooSmall,
}

/// How long an accepted path is valid, in milliseconds.
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
        Ok(agreed) if request.permit.as_ref().is_some_and(|p| p.amount_minor < agreed.input_max(request)) => {
            Decision::PermitTooSmall
        }
        Ok(agreed) => {
            let rests = agreed.rests_until.is_some();
            match plan(request, agreed, payout_provider, market.now) {
                Some(plan) if rests => Decision::Rests(Box::new(plan)),
                Some(plan) => Decision::Accepted(Box::new(plan)),
                None => Decision::Rejected(Reason::NoLiquidity),
            }
        }
    }
}

/// The terms under which an order that passed the checks is filled.
struct Agreed<'a> {
    input: &'a Asset,
    output: &'a Asset,
    fill: Fill,
    score: u64,
    /// A range order that is not filled now: when it would be, at these prices.
    rests_until: Option<Timestamp>,
}

impl Agreed<'_> {
    /// The most that the order may come to take. What a resting order takes is known when it is filled.
    const fn input_max(&self, request: &IntentRequest) -> Minor {
        if self.rests_until.is_some() { request.bounds.max_input() } else { self.fill.priced.input }
    }
}

/// A fill of the order's own price, or of its firm quote.
struct Found {
    fill: Fill,
    score: u64,
    rests_until: Option<Timestamp>,
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
    let locked = match quote {
        QuoteLookup::NotRequested => None,
        QuoteLookup::Unknown => return Err(Reason::QuoteNotFound),
        QuoteLookup::Found { terms, used } => {
            quote_stands(request, terms, *used, market.now)?;
            Some(terms.as_ref())
        }
    };
    let known = |asset| market.registry.resolve(asset).ok_or(Reason::NoLiquidity);
    let (input, output) = (known(&request.input_asset)?, known(&request.output_asset)?);
    if !output.is_fiat() && request.delivery_wallet().is_none() {
        // The interfaces reject a recipient that is not a wallet address before the order is decided.
        return Err(Reason::NoLiquidity);
    }
    if input.is_native() && !is_address(&request.user) {
        // Likewise a user that could not deposit.
        return Err(Reason::NoLiquidity);
    }
    let found = match locked {
        Some(terms) => {
            Found { fill: committed(terms, market, output)?, score: terms.score, rests_until: None }
        }
        None => at_market(request, market, &ask(request, input, output))?,
    };
    let Found { fill, score, rests_until } = found;
    if input.is_fiat() && market.holdings.prefunded(&input.symbol) < fill.priced.input {
        return Err(Reason::NoLiquidity);
    }
    within_bounds(request.bounds, &fill.priced)?;
    fiat_can_be_delivered(request, output)?;
    Ok(Agreed { input, output, fill, score, rests_until })
}

/// What the market gives for an order now, or for a range order when its output has fallen to the market.
fn at_market(request: &IntentRequest, market: &Market<'_>, ask: &Ask<'_>) -> Result<Found, Reason> {
    let best = |want| market.best(ask, want).map(|(_, fill)| fill).ok_or(Reason::NoLiquidity);
    let (fill, rests_until) = match request.bounds {
        Bounds::ExactInput { input, .. } => (best(Want::Input(input))?, None),
        Bounds::ExactOutput { output, .. } => (best(Want::Output(output))?, None),
        Bounds::Range { .. } => {
            let range = Range::of(request).ok_or(Reason::NoLiquidity)?;
            match range.meet(market, ask) {
                Meeting::Now(fill) => (fill, None),
                Meeting::Later { at, fill } => (fill, Some(at)),
                Meeting::Never => return Err(Reason::BelowMinimumOutput),
                Meeting::NoLiquidity => return Err(Reason::NoLiquidity),
            }
        }
    };
    if !fill.priced.is_exact(ask.input.exponent, ask.output.exponent) {
        return Err(Reason::NoLiquidity);
    }
    let score = path_score(market, ask, &fill.priced);
    Ok(Found { fill, score, rests_until })
}

/// The fill that a firm quote locked, if its providers still hold what they committed.
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

/// Pair, amount, actor and time are checked here; a quote is never re-priced (spec section 2.4).
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
    let same = [
        (QuoteTerm::InputAsset, request.input_asset.symbol == terms.input_asset),
        (QuoteTerm::OutputAsset, request.output_asset.symbol == terms.output_asset),
        (QuoteTerm::Side, request.side == terms.side),
        (QuoteTerm::ActorType, request.actor_type == terms.actor),
        (QuoteTerm::Amount, fixed_amount_agrees),
    ];
    let different = same.into_iter().find(|(_, is_same)| !is_same);
    different.map_or(Ok(()), |(term, _)| Err(Reason::QuoteMismatch(term)))
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
    let Agreed { input, output, fill, score, rests_until } = agreed;
    let primary = fill.primary()?;
    let (solver_id, solver_wallet) = (primary.provider_id.clone(), primary.wallet.clone());
    let surplus = match request.bounds {
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
        estimated_fill_time: match rests_until {
            Some(at) => whole_seconds(now, at),
            None if output.is_fiat() => FIAT_FILL_SECS,
            None => TOKEN_FILL_SECS,
        },
        steps: vec![step(request, output, fill.priced.output, payout_provider, &primary.venue)],
        score,
        // A resting order gets a path of its own when it is filled.
        expires_at: rests_until.map_or(now.plus_millis(PATH_TTL_MS), |_| request.deadline),
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

/// From one moment to another, rounded up.
fn whole_seconds(from: Timestamp, to: Timestamp) -> u32 {
    let millis = u64::try_from(to.millis().saturating_sub(from.millis())).unwrap_or(0);
    u32::try_from(millis.div_ceil(1000)).unwrap_or(u32::MAX)
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
        AssetKind::Erc20 { chain, .. } | AssetKind::Native { chain, .. } => {
            PathStep::Reserve { asset, amount_minor, chain: chain.clone(), source: venue.to_owned() }
        }
    }
}

fn funding(kind: OrderKind, asset: &Asset, amount: Minor) -> InputFunding {
    if kind.locks_input() && asset.is_native() {
        InputFunding::Deposit
    } else if kind.locks_input() {
        InputFunding::Permit
    } else {
        InputFunding::PartnerBalance { asset: asset.symbol.clone(), amount }
    }
}

#[cfg(test)]
pub(crate) mod tests;
