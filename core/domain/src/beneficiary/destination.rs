//! A registered destination, as the order that names it reads it: the verified details, and whether it may be paid.

use crate::failure_code::FailureCode;
use crate::names::names;

use super::Beneficiary;

names! {
    pub enum DestinationStatus {
        /// Entered by one operator, and not verified by another yet.
        Unverified = "unverified",
        Verified = "verified",
        Disabled = "disabled",
    }
}

/// Why a registered destination is not paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DestinationRefusal {
    #[error("the destination is not verified yet")]
    Unverified,
    #[error("the destination is disabled")]
    Disabled,
    #[error("the destination takes another currency")]
    OtherCurrency,
}

impl DestinationRefusal {
    /// The stable code of the failure.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Unverified => FailureCode::BeneficiaryNotVerified.as_str(),
            Self::Disabled => FailureCode::BeneficiaryDisabled.as_str(),
            Self::OtherCurrency => FailureCode::BeneficiaryCurrencyMismatch.as_str(),
        }
    }

    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Unverified => "the destination is not verified yet",
            Self::Disabled => "the destination is disabled",
            Self::OtherCurrency => "the destination takes another currency",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// The recipient with the account itself in place of the reference.
    pub details: Beneficiary,
    pub currency: String,
    pub status: DestinationStatus,
}

impl Destination {
    /// The details to pay an amount of `currency` to.
    pub fn payee(&self, currency: &str) -> Result<&Beneficiary, DestinationRefusal> {
        match self.status {
            DestinationStatus::Unverified => Err(DestinationRefusal::Unverified),
            DestinationStatus::Disabled => Err(DestinationRefusal::Disabled),
            DestinationStatus::Verified if self.currency == currency => Ok(&self.details),
            DestinationStatus::Verified => Err(DestinationRefusal::OtherCurrency),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_verified_destination_of_the_currency_is_paid() {
        let of = |status| Destination { details: Beneficiary::default(), currency: "EUR".into(), status };
        assert!(of(DestinationStatus::Verified).payee("EUR").is_ok());
        let code = |status, currency| of(status).payee(currency).unwrap_err().code();
        assert_eq!(code(DestinationStatus::Verified, "USD"), "beneficiary_currency_mismatch");
        assert_eq!(code(DestinationStatus::Unverified, "EUR"), "beneficiary_not_verified");
        assert_eq!(code(DestinationStatus::Disabled, "EUR"), "beneficiary_disabled");
    }
}
