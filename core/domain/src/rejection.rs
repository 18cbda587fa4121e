//! What would be right, in words, for an order that was rejected. The reason is the contract's; the words are not.

use std::fmt;

use crate::asset::{AssetDescriptor, Registry};
use crate::beneficiary::{Beneficiary, BeneficiaryAddress};
use crate::decision::{QuoteTerm, Reason};
use crate::intent::{Bounds, IntentRequest};
use crate::money::Minor;
use crate::names::suggestion;

/// The field that a rejection is about, if it is one, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detail {
    pub param: Option<&'static str>,
    pub text: String,
}

impl fmt::Display for Detail {
    /// As faults of fields are written: `field: what would be right`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.param {
            Some(param) => write!(f, "{param}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

fn about(param: &'static str, text: impl Into<String>) -> Detail {
    Detail { param: Some(param), text: text.into() }
}

fn general(text: &str) -> Detail {
    Detail { param: None, text: text.to_owned() }
}

/// Why an exchange is never filled, whatever the market: an asset that is not known, two that are the same, a pair that is
/// not dealt in, or an amount outside of the pair's sizes. `amount`: of the input, with the field that holds it.
pub fn not_offered(
    (input, output): (&AssetDescriptor, &AssetDescriptor),
    amount: Option<(&'static str, Minor)>,
    registry: &Registry,
) -> Option<Detail> {
    let unknown = |param, descriptor: &AssetDescriptor| {
        let symbol = &descriptor.symbol;
        if registry.find(symbol).is_some() {
            return about(param, format!("type, chain, address or currency is not that of {symbol}"));
        }
        let near = suggestion(symbol, registry.assets.iter().map(|asset| asset.symbol.as_str()));
        about(param, format!("{symbol} is not dealt in{near}"))
    };
    let Some(from) = registry.resolve(input) else { return Some(unknown("inputAsset", input)) };
    let Some(to) = registry.resolve(output) else { return Some(unknown("outputAsset", output)) };
    if from.symbol == to.symbol {
        return Some(about("outputAsset", "must be another asset than inputAsset"));
    }
    let Some(pair) = registry.pair(&from.symbol, &to.symbol) else {
        let text = format!("{}/{} is not dealt in; GET /v1/pairs lists the pairs", from.symbol, to.symbol);
        return Some(about("outputAsset", text));
    };
    let sizes = pair.sizes();
    let (param, amount) = amount?;
    if amount < sizes.min {
        return Some(about(param, format!("must be at least {} minor units of {}", sizes.min, from.symbol)));
    }
    let max = sizes.max.filter(|max| amount > *max)?;
    Some(about(param, format!("must be at most {max} minor units of {}", from.symbol)))
}

/// The words for a rejected order.
pub fn detail(reason: Reason, request: &IntentRequest, registry: &Registry) -> Detail {
    match reason {
        Reason::BeneficiaryRequiredForRemittance => {
            let has_account = request.beneficiary.as_ref().is_some_and(|given| given.account().is_some());
            let missing = match (&request.beneficiary, has_account) {
                (None, _) => "beneficiary",
                (Some(_), false) => "beneficiary.account",
                (Some(_), true) => "beneficiary.name",
            };
            about(missing, "is required: outputRecipient is not user")
        }
        Reason::PermitRequired => about("permit", "is required for an erc20 input: one of user's wallet"),
        Reason::QuoteNotFound => about("quoteId", "is no firm quote of yours"),
        Reason::QuoteExpired => about("quoteId", "has passed its validUntil: request another one"),
        Reason::QuoteAlreadyUsed => about("quoteId", "was used by another intent: request another one"),
        Reason::QuoteMismatch(QuoteTerm::Amount) => match request.bounds {
            Bounds::ExactInput { .. } => unlike_quote("inputAmountMinor"),
            Bounds::ExactOutput { .. } => unlike_quote("output.targetAmountMinor"),
            Bounds::Range { .. } => about("quoteId", "cannot be given with a range"),
        },
        Reason::QuoteMismatch(term) => unlike_quote(quoted(term)),
        Reason::NoLiquidity => {
            let amount = match request.bounds {
                Bounds::ExactInput { input, .. } => Some(("inputAmountMinor", input)),
                Bounds::Range { max_input, .. } => Some(("input.limitAmountMinor", max_input)),
                Bounds::ExactOutput { .. } => None,
            };
            not_offered((&request.input_asset, &request.output_asset), amount, registry).unwrap_or_else(
                || general("no provider can fill this order now: try a smaller amount, or again later"),
            )
        }
        Reason::BelowMinimumOutput => about(
            minimum(request),
            "is more than the market gives for the input now: ask for a quote, and allow for a change of the price",
        ),
        Reason::AboveMaximumInput => about(
            "input.limitAmountMinor",
            "is less than the market asks for the output now: ask for a quote, and allow for a change of the price",
        ),
        Reason::BeneficiaryAccountRequiredForFiatOutput => {
            about("beneficiary.account", "is required for an output in money")
        }
        Reason::BeneficiaryIncompleteForJitPayout => incomplete(request.beneficiary.as_ref()),
        Reason::BeneficiaryAddressRequiredForRail => {
            address(request.beneficiary.as_ref().and_then(|beneficiary| beneficiary.address.as_ref()))
        }
        Reason::ChainHalted => general("the chain of one of the tokens is halted: send a new intent later"),
        Reason::Limit(_) => general("the order would exceed a limit that the service's operators have set"),
    }
}

/// The words for a field that is not the quote's.
fn unlike_quote(param: &'static str) -> Detail {
    about(param, "must be that of the quote: send the quote's, or request another one")
}

/// The field of a term that has the same one in every intent.
const fn quoted(term: QuoteTerm) -> &'static str {
    match term {
        QuoteTerm::InputAsset => "inputAsset",
        QuoteTerm::OutputAsset => "outputAsset",
        QuoteTerm::Side => "side",
        QuoteTerm::ActorType => "actorType",
        QuoteTerm::Amount => "quoteId",
    }
}

/// The field that has the least output.
const fn minimum(request: &IntentRequest) -> &'static str {
    match request.bounds {
        Bounds::ExactInput { .. } => "minOutputAmountMinor",
        Bounds::ExactOutput { .. } | Bounds::Range { .. } => "output.limitAmountMinor",
    }
}

fn incomplete(beneficiary: Option<&Beneficiary>) -> Detail {
    let missing = |text: &Option<String>| text.as_ref().is_none_or(|text| text.trim().is_empty());
    match beneficiary {
        Some(one) if missing(&one.name) => about("beneficiary.name", "is required with inline details"),
        Some(one) if missing(&one.country) => about(
            "beneficiary.country",
            "is required with inline details: the account's country, ISO 3166-1 alpha-2",
        ),
        _ => about("beneficiary.payoutMethod", "is required with inline details, unless swiftCode is given"),
    }
}

fn address(address: Option<&BeneficiaryAddress>) -> Detail {
    let Some(BeneficiaryAddress { line1, city, state, postal_code }) = address else {
        let text = "is required for wire and swift, with line1, city, state and postalCode";
        return about("beneficiary.address", text);
    };
    let lines = [
        ("beneficiary.address.line1", line1),
        ("beneficiary.address.city", city),
        ("beneficiary.address.state", state),
        ("beneficiary.address.postalCode", postal_code),
    ];
    let missing = lines.into_iter().find(|(_, text)| text.trim().is_empty()).map(|(param, _)| param);
    about(missing.unwrap_or("beneficiary.address"), "is required for wire and swift")
}
