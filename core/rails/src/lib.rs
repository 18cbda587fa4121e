//! The outside systems that convert and pay, behind one trait, so that a bank and a simulated one have the same
//! interface.
//!
//! A call may be answered, refused before anything happened, or not answered. Only a refusal proves that nothing
//! happened; without an answer the rail is queried by reference before anything is repeated.

pub mod http_desk;
pub mod inventory;
pub mod iso20022;

use std::pin::Pin;
use std::time::Duration;

use chrono::{DateTime, Utc};
use dvp_domain::beneficiary::Beneficiary;
use dvp_domain::money::Minor;
use dvp_domain::settlement::RailAnswer;
pub use dvp_domain::settlement::leg::LegKind;
use dvp_domain::terms::AssetAmount;
use dvp_domain::trace::TraceContext;

/// A payout as its rail checks it before the order is accepted.
#[derive(Debug, Clone, Copy)]
pub struct PayoutOrder<'a> {
    pub beneficiary: Option<&'a Beneficiary>,
    pub amount: Minor,
    pub currency: &'a str,
    pub exponent: u8,
    /// The payer's reference, after the name of its field.
    pub reference: Option<(&'static str, &'a str)>,
}

/// The payment cannot be ordered on its rail, now or later; with the stable code of the failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct Unpayable {
    pub code: &'static str,
    /// What would have to be another one, as an intent names it.
    pub field: &'static str,
    pub message: &'static str,
}

/// Whether a rail could carry out a payout, from the order alone and the accounts that the rail pays from.
#[derive(Debug, Clone)]
pub struct CheckPayout {
    rule: fn(&PayoutOrder<'_>) -> Result<(), Unpayable>,
    /// The currencies of the accounts. `None`: it pays every currency.
    currencies: Option<Vec<String>>,
    /// Those of the accounts with the payer's full address. `None`: none is needed.
    addressed: Option<Vec<String>>,
}

impl CheckPayout {
    /// Of a rail that pays every currency.
    pub const fn new(rule: fn(&PayoutOrder<'_>) -> Result<(), Unpayable>) -> Self {
        Self { rule, currencies: None, addressed: None }
    }

    /// Of a rail with an account for each of these currencies.
    #[must_use]
    pub fn paying_from(self, currencies: impl IntoIterator<Item = String>) -> Self {
        Self { currencies: Some(currencies.into_iter().collect()), ..self }
    }

    /// Of a rail whose accounts of these currencies have the payer's full address.
    #[must_use]
    pub fn addressed(self, currencies: impl IntoIterator<Item = String>) -> Self {
        Self { addressed: Some(currencies.into_iter().collect()), ..self }
    }

    /// # Errors
    /// Why the payment cannot be ordered.
    pub fn check(&self, order: &PayoutOrder<'_>) -> Result<(), Unpayable> {
        let is_paid = |of: &Vec<String>| of.iter().any(|currency| currency == order.currency);
        if !self.currencies.as_ref().is_none_or(is_paid) {
            let message = "the bank has no account to pay this currency from";
            return Err(Unpayable { code: "currency_not_served_by_rail", field: "outputAsset", message });
        }
        let is_addressed = self.addressed.as_ref().is_none_or(is_paid);
        if !is_addressed && order.beneficiary.is_some_and(iso20022::instruction::needs_payer_address) {
            return Err(iso20022::instruction::PAYER_ADDRESS);
        }
        (self.rule)(order)
    }
}

/// A request to a rail. The reference is the same at every attempt.
#[derive(Debug, Clone)]
pub struct RailRequest {
    /// The span of the call, for rails that pass it on.
    pub trace: Option<TraceContext>,
    pub leg: LegKind,
    /// `H(execution, leg)`: committed before the call, so that the call can be found after a crash.
    pub reference: String,
    pub account: String,
    /// The recipient as in the order.
    pub beneficiary: Option<Beneficiary>,
    pub amount: Minor,
    pub currency: String,
    pub exponent: u8,
    /// The amount sold for the output by a conversion: the input without the protocol fee. `None` for a payout.
    pub sold: Option<AssetAmount>,
    /// The rail's reference for this leg, from its last answer.
    pub provider_reference: Option<String>,
    pub execution: String,
    /// The payer's own reference, for the recipient to read.
    pub payer_reference: Option<String>,
    /// The id of the partner whose order it is.
    pub partner: String,
    /// The rail does not act on the call after this time: a call that is unknown then will never take effect.
    pub not_after: DateTime<Utc>,
}

/// The rail gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RailError {
    /// The rail was not reached or refused at once: nothing happened, the call may be repeated.
    #[error("the rail is down: {0}")]
    Down(String),
    /// The call may or may not have taken effect: query the rail before anything is repeated.
    #[error("no answer from the rail")]
    Unconfirmed,
}

/// A rail's answer about a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RailStatus {
    Known(RailAnswer),
    /// Proof that the call never arrived, once it is past its [`not_after`](RailRequest::not_after).
    NeverSeen,
}

pub type RailFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, RailError>> + Send + 'a>>;

/// A provider of one or both legs.
pub trait Rail: Send + Sync {
    /// Requests the leg.
    fn submit<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailAnswer>;
    /// Queries the outcome of the leg.
    fn status<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailStatus>;
    /// The longest time between two queries of a leg in progress, unless it is configured.
    fn poll_max(&self) -> Duration {
        Duration::from_secs(30)
    }
}

#[cfg(test)]
mod tests {
    use dvp_domain::scheme::PayoutMethod;

    use super::*;

    #[test]
    fn a_currency_without_an_account_is_not_paid() {
        let order = |currency| PayoutOrder {
            beneficiary: None,
            amount: Minor::new(1),
            currency,
            exponent: 2,
            reference: None,
        };
        let all = CheckPayout::new(|_| Ok(()));
        assert_eq!(all.check(&order("USD")), Ok(()));
        let euros = all.paying_from(["EUR".to_owned()]);
        assert_eq!(euros.check(&order("EUR")), Ok(()));
        assert_eq!(euros.check(&order("USD")).unwrap_err().code, "currency_not_served_by_rail");
        for (account, method, is_paid) in [
            ("DE89370400440532013000", PayoutMethod::Sepa, true),
            ("NO9386011117947", PayoutMethod::SepaInstant, true),
            ("GB82 WEST 1234 5698 7654 32", PayoutMethod::Sepa, false),
            ("CH9300762011623852957", PayoutMethod::SepaInstant, false),
            ("GB82WEST12345698765432", PayoutMethod::Swift, true),
        ] {
            let (account, payout_method) = (Some(account.to_owned()), Some(method));
            let to = Beneficiary { account, payout_method, ..Beneficiary::default() };
            let order = PayoutOrder { beneficiary: Some(&to), ..order("EUR") };
            let without = euros.clone().addressed(["USD".to_owned()]).check(&order);
            let refused = without.err().map(|why| why.code);
            assert_eq!(refused, (!is_paid).then_some("payer_address_missing"), "{to:?}");
            assert_eq!(euros.clone().addressed(["EUR".to_owned()]).check(&order), Ok(()), "{to:?}");
        }
        let strict = CheckPayout::new(iso20022::instruction::check_payout);
        assert_eq!(strict.check(&order("EUR")).unwrap_err().code, "beneficiary_details_missing");
    }
}
