//! What the bank says of a payment. Pure.

use chrono::{DateTime, Utc};
use dvp_domain::payment::{PayeeCheck, PaymentSubject};

/// The content of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// Received, not decided yet.
    Pending { status: String },
    /// The name of the account's holder was compared with the beneficiary's. Nothing is decided by it.
    Checked { payee: PayeeCheck, name: Option<String> },
    /// The money has left the service's account, or reached the beneficiary's.
    Paid { at: DateTime<Utc>, bank_reference: Option<String>, amount: Option<Booked> },
    /// It is not and will not be paid.
    Refused { reason: String, text: String },
    /// The bank considers it a duplicate of an earlier one: this says nothing about the earlier one.
    TakenForDuplicate,
    /// It was paid and has been returned.
    Returned { reason: String, at: DateTime<Utc>, amount: Option<Booked>, by: GivenBack },
    /// The bank takes a return back.
    TakenBack { at: DateTime<Utc>, amount: Option<Booked> },
}

/// A booked amount in its shortest form, and its currency.
pub type Booked = (String, String);

/// How the bank gives a debit back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenBack {
    /// The payment has come back. The bank may have deducted its charge.
    Return,
    /// The bank takes an entry of its own back.
    Reversal,
}

/// Whether a refusal's reason is that the payment is taken for a duplicate.
pub fn is_duplicate(reason: &str) -> bool {
    matches!(reason, "AM05" | "DUPL" | "DU01" | "DU02" | "DU03" | "DU04" | "DU05")
}

impl Word {
    /// Its name for operators.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Pending { .. } => "not decided yet",
            Self::Checked { payee: PayeeCheck::Match, .. } => "payee matches",
            Self::Checked { payee: PayeeCheck::CloseMatch, .. } => "payee nearly matches",
            Self::Checked { payee: PayeeCheck::NoMatch, .. } => "payee does not match",
            Self::Checked { payee: PayeeCheck::NotPossible, .. } => "payee was not checked",
            Self::Paid { .. } => "paid",
            Self::Refused { .. } => "refused",
            Self::TakenForDuplicate => "taken for a duplicate",
            Self::Returned { .. } => "returned",
            Self::TakenBack { .. } => "return taken back",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaymentReport {
    pub of: PaymentSubject,
    pub word: Word,
}
