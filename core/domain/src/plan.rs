//! How an accepted intent is filled: the providers, the price, and the source of the funds.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::asset::Asset;
use crate::fees::FeeItem;
use crate::money::{Minor, Residual};
use crate::pricing::Priced;
use crate::time::Timestamp;

/// The kinds of the input and output assets, which decide how the order settles.
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum InputFunding {
    /// Pulled into the escrow with the user's permit.
    Permit,
    /// Claimed for the escrow from the user's own deposit of the chain's coin, for which the order waits.
    Deposit,
    /// `amount` of the partner's prefunded balance of `asset`, reserved at the commit.
    PartnerBalance { asset: String, amount: Minor },
}

/// One provider's part of a fill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// The provider whose balance of the output asset is reserved.
    pub provider_id: String,
    /// Where the slice was priced, as in a quote's leg (`LP:<id>`, `AMM-Pool`, ...).
    pub venue: String,
    /// The provider's wallet for released funds.
    pub wallet: String,
    /// The part of the input that it converts. The parts and the protocol fee sum to the plan's input.
    pub input: Minor,
    /// Its output before the payout fee, to be reserved. The slices sum to the plan's gross output.
    pub output: Minor,
    /// The fractions cut off by its conversion's roundings, in 10^-18 minor units of the output asset: more than one
    /// unit is possible when several levels of the venue were used.
    pub residual_e18: Residual,
    /// The resting order that it fills, when the venue is the order book.
    pub level_id: Option<i64>,
}

/// How an accepted intent is filled. A plan read from the database is checked; one that does not add up is an error.
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

/// How a plan's amounts contradict each other. Such a plan must not be posted.
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
    /// Checks that the amounts add up. The postings of an order rely on it.
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

impl Plan {
    /// The same output for another input, delivered by one provider as a whole. What the input is more or less than this
    /// plan's is the provider's. `None`: it does not cover the protocol fee.
    #[must_use]
    pub fn filled_as(self, input: Minor, provider_id: &str, wallet: &str, max_input: Minor) -> Option<Self> {
        let Priced { protocol_fee, gross_output, .. } = self.priced;
        let slice = Slice {
            provider_id: provider_id.to_owned(),
            venue: format!("LP:{provider_id}"),
            wallet: wallet.to_owned(),
            input: input.checked_sub(protocol_fee)?,
            output: gross_output,
            residual_e18: Residual::ZERO,
            level_id: None,
        };
        let surplus = max_input.checked_sub(input).unwrap_or_default();
        let (solver_id, solver_wallet) = (slice.provider_id.clone(), slice.wallet.clone());
        let path = SolvedPath { solver_id: solver_id.clone(), surplus_amount_minor: surplus, ..self.path };
        let priced = Priced { input, ..self.priced };
        let funding = match self.funding {
            InputFunding::PartnerBalance { asset, .. } => {
                InputFunding::PartnerBalance { asset, amount: input }
            }
            other @ (InputFunding::Permit | InputFunding::Deposit) => other,
        };
        Some(Self { solver_id, solver_wallet, slices: vec![slice], priced, surplus, path, funding, ..self })
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
    /// The source of the delivery to the recipient: the payout provider, or the source of a token.
    pub fn payout_provider(&self) -> &str {
        match self.steps.first() {
            Some(PathStep::FiatGateway { provider, .. }) => provider,
            Some(PathStep::Reserve { source, .. }) => source,
            None => "",
        }
    }
}

impl Plan {
    /// Replaces the account that the order is paid out to.
    pub fn forget_account(&mut self) {
        for step in &mut self.path.steps {
            match step {
                PathStep::FiatGateway { beneficiary_account, .. } => {
                    *beneficiary_account = "[erased]".to_owned()
                }
                PathStep::Reserve { .. } => {}
            }
        }
    }
}

/// Fees the accepted answer shows: only those locked by a firm quote.
pub fn shown_fees(plan: &Plan) -> Option<&[FeeItem]> {
    plan.quote_id.as_ref().map(|_| plan.priced.fees.as_slice())
}

/// `DVP-` and the first eight characters of the intent id, upper-cased (spec section 2.5).
pub fn plan_id(intent_id: &str) -> String {
    // A letter whose capital is two (ß) stays, so that there are eight.
    let capital = |letter: char| {
        let mut capitals = letter.to_uppercase();
        match (capitals.next(), capitals.next()) {
            (Some(capital), None) => capital,
            _ => letter,
        }
    };
    let head: String = intent_id.chars().take(8).map(capital).collect();
    format!("DVP-{head}")
}
