//! The status of a payment at the bank, and how reports change it, in any order and with repetitions. Pure.
//!
//! ```text
//! staged -> sent -> pending -> paid -> returned
//!                      └─────> refused
//! ```
//!
//! Invariants: `paid`, `refused` and `returned` were reported to the settlement and are not revoked: a contradicting
//! report changes nothing and raises an alarm. An amount that differs from the ordered one is neither a payment of the
//! order nor its return: the bank corrects a wrong entry of its own in the same way. Only the return of a payment that
//! was made may be of less, by what the bank deducts.

use dvp_domain::money::Minor;
use dvp_domain::payment::PaymentStatus;

use super::answers::{GivenBack, Word};
use super::text::minor;

/// The ordered payment.
#[derive(Debug, Clone, Copy)]
pub struct Ordered<'a> {
    pub amount: Minor,
    pub currency: &'a str,
    pub exponent: u8,
}

/// The effect of a report. An alarm is for operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct After {
    pub status: PaymentStatus,
    pub alarm: Option<&'static str>,
}

/// Alarms about contradictory reports.
pub const PAID_AFTER_REFUSED: &str = "paid after it was refused";
pub const REFUSED_AFTER_PAID: &str = "refused after it was paid";

/// Applies a report.
pub fn apply(status: PaymentStatus, word: &Word, ordered: Ordered<'_>) -> After {
    let quiet = |status| After { status, alarm: None };
    let alarm = |status, alarm| After { status, alarm: Some(alarm) };
    match word {
        Word::Pending { .. } if status.is_open() => quiet(PaymentStatus::Pending),
        Word::Pending { .. } => quiet(status),
        Word::TakenForDuplicate if status.is_open() => {
            alarm(PaymentStatus::Pending, "the bank takes it for a duplicate")
        }
        Word::TakenForDuplicate => quiet(status),
        Word::Paid { amount: Some((amount, currency)), .. } if !ordered.is(amount, currency) => {
            alarm(status, "another amount was booked than was ordered")
        }
        Word::Paid { .. } => match status {
            PaymentStatus::Staged | PaymentStatus::Sent | PaymentStatus::Pending | PaymentStatus::Paid => {
                quiet(PaymentStatus::Paid)
            }
            PaymentStatus::Refused => alarm(status, PAID_AFTER_REFUSED),
            PaymentStatus::Returned => quiet(status),
        },
        Word::Refused { .. } => match status {
            PaymentStatus::Staged | PaymentStatus::Sent | PaymentStatus::Pending | PaymentStatus::Refused => {
                quiet(PaymentStatus::Refused)
            }
            PaymentStatus::Paid => alarm(status, REFUSED_AFTER_PAID),
            PaymentStatus::Returned => quiet(status),
        },
        Word::Returned { amount: Some((amount, currency)), by, .. }
            if !ordered.comes_back(status, *by, amount, currency) =>
        {
            alarm(status, "another amount was given back than was ordered")
        }
        Word::Returned { .. } => match status {
            // It was returned before its payment was reported: it is not paid, and will not be.
            PaymentStatus::Staged | PaymentStatus::Sent | PaymentStatus::Pending => {
                quiet(PaymentStatus::Refused)
            }
            PaymentStatus::Refused | PaymentStatus::Returned => quiet(status),
            PaymentStatus::Paid => alarm(PaymentStatus::Returned, "returned after it was paid"),
        },
    }
}

impl Ordered<'_> {
    fn is(&self, amount: &str, currency: &str) -> bool {
        currency == self.currency && minor(amount, self.exponent) == Some(self.amount)
    }

    /// Whether a credit gives the payment back.
    fn comes_back(&self, status: PaymentStatus, by: GivenBack, amount: &str, currency: &str) -> bool {
        use PaymentStatus::{Paid, Pending, Refused, Returned, Sent, Staged};
        let is_deducted = match (by, status) {
            (GivenBack::Return, Paid | Returned) => {
                currency == self.currency
                    && minor(amount, self.exponent).is_some_and(|amount| amount < self.amount)
            }
            (GivenBack::Return, Staged | Sent | Pending | Refused) | (GivenBack::Reversal, _) => false,
        };
        is_deducted || self.is(amount, currency)
    }
}

/// The stable code of a reason given by a bank (ISO's external status reasons), and whether a new order may try the
/// same payment again.
pub fn failure_code(reason: &str) -> (&'static str, bool) {
    match reason {
        "AC01" | "AC02" | "AC03" | "BE23" => ("beneficiary_account_invalid", false),
        "AC04" | "AC05" | "AC07" => ("beneficiary_account_closed", false),
        "AC06" => ("beneficiary_account_blocked", false),
        "AM04" => ("rail_funds_insufficient", true),
        "AM02" | "AM13" | "AM14" | "AM21" => ("amount_over_rail_limit", false),
        "AM01" | "AM06" | "AM09" | "AM12" => ("amount_not_accepted", false),
        "AM03" | "AM11" | "CURR" => ("currency_not_served_by_rail", false),
        "AG01" | "AG02" | "AG03" => ("payment_type_not_accepted", false),
        "BE01" | "BE04" | "BE05" | "BE06" | "BE07" => ("beneficiary_details_rejected", false),
        "RC01" | "RC03" | "RC04" | "AGNT" => ("beneficiary_bank_invalid", false),
        "RR01" | "RR02" | "RR03" | "RR04" => ("regulatory_details_missing", false),
        "FOCR" => ("payment_recalled", false),
        "TM01" | "CUTA" | "CUST" => ("rail_closed", true),
        "FF01" | "FF03" | "FF05" | "CH03" | "CH04" | "CH11" | "CH13" | "CH17" | "CH19" | "CH20" | "CH21" => {
            ("order_rejected_by_bank", false)
        }
        _ => ("payment_rejected_by_bank", false),
    }
}
