//! The status of a payment at the bank, and how reports change it, in any order and with repetitions. Pure.
//!
//! ```text
//! staged -> sent -> pending -> paid -> returned
//!                      └─────> refused
//! ```
//!
//! Invariants: `paid`, `refused` and `returned` were reported to the settlement and are not revoked: a contradicting
//! report changes nothing and raises an alarm. A refused payment may be booked and come back all the same, in either
//! order: together that is no payment. Its return is reported when its booking was, or may have been, the reason to
//! record its order as paid. An amount that differs from the ordered one is neither a payment of the order nor its
//! return: the bank corrects a wrong entry of its own in the same way. Only the return of a payment that was made may be
//! of less, by what the bank deducts. A return that the bank takes back contradicts the return: the payment stands. Which
//! of the two was last their times say: a return is new only when it was booked after the bank took one back.

use dvp_domain::failure_code::FailureCode;
use dvp_domain::money::Minor;
use dvp_domain::payment::PaymentStatus;

use super::text::minor;
use super::word::{GivenBack, Word};

#[derive(Debug, Clone, Copy)]
pub struct Ordered<'a> {
    pub amount: Minor,
    pub currency: &'a str,
    pub exponent: u8,
}

/// What earlier reports have said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    pub status: PaymentStatus,
    /// It was booked after it had been refused, and before its order was recorded as paid.
    pub booked_late: bool,
    /// It came back, if it was ever booked.
    pub came_back: bool,
    /// The bank has taken the last return back.
    pub taken_back: bool,
    /// Its debt was recorded as paid before it was booked.
    pub debt_paid: bool,
}

/// The effect of a report. An alarm is for operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct After {
    pub now: Known,
    pub alarm: Option<&'static str>,
}

/// Alarms about contradictory reports.
pub const PAID_AFTER_REFUSED: &str = "paid after it was refused";
pub const REFUSED_AFTER_PAID: &str = "refused after it was paid";
/// The return is reported to the settlement.
pub const RETURNED_AFTER_PAID: &str = "returned after it was paid";
/// The payout was recorded as paid without a booking of this payment. It may have been paid another way: operators
/// decide.
pub const RETURNED_AFTER_REFUSED: &str = "returned after it was refused, and the payout is recorded as paid";

/// The debt of the failed payout was recorded as paid, by this payment or another one: operators find out.
pub const PAID_AFTER_DEBT: &str =
    "booked after its debt was recorded as paid: the beneficiary may have it twice";
pub const RETURNED_AFTER_DEBT: &str = "returned, and its debt was recorded as paid before it was booked";

/// The bank pays only once it is told to, or may have paid.
pub const PAYEE_DIFFERS: &str =
    "the account's holder has another name (verification of payee): release the payment, or recall it";

pub const TAKEN_BACK: &str = "its return was taken back by the bank: the payment stands";
pub const TAKEN_BACK_UNKNOWN: &str = "a return was taken back by the bank, and none is known";
pub const RETURNED_AGAIN: &str = "returned again, after the bank had taken its return back";

/// Applies a report, which is no repetition of an earlier one. `taken_for_paid`: the settlement has recorded the payout as paid.
pub fn apply(known: Known, taken_for_paid: bool, word: &Word, ordered: Ordered<'_>) -> After {
    let status = known.status;
    let quiet = |status| After { now: Known { status, ..known }, alarm: None };
    let alarm = |status, alarm| After { now: Known { status, ..known }, alarm: Some(alarm) };
    match word {
        Word::Pending { .. } if status.is_open() => quiet(PaymentStatus::Pending),
        Word::Checked { .. } if status.is_open() => quiet(PaymentStatus::Pending),
        Word::Pending { .. } | Word::Checked { .. } => quiet(status),
        Word::TakenForDuplicate if status.is_open() => {
            alarm(PaymentStatus::Pending, "the bank takes it for a duplicate")
        }
        Word::TakenForDuplicate => quiet(status),
        Word::Paid { amount: Some((amount, currency)), .. } if !ordered.is(amount, currency) => {
            alarm(status, "another amount was booked than was ordered")
        }
        Word::Paid { .. } => match status {
            PaymentStatus::Staged | PaymentStatus::Sent | PaymentStatus::Pending
                if known.debt_paid && taken_for_paid =>
            {
                alarm(PaymentStatus::Paid, PAID_AFTER_DEBT)
            }
            PaymentStatus::Staged | PaymentStatus::Sent | PaymentStatus::Pending | PaymentStatus::Paid => {
                quiet(PaymentStatus::Paid)
            }
            PaymentStatus::Refused if known.came_back => quiet(status),
            PaymentStatus::Refused => {
                let booked_late = known.booked_late || !taken_for_paid;
                After { now: Known { booked_late, ..known }, alarm: Some(PAID_AFTER_REFUSED) }
            }
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
            if !ordered.comes_back(known, *by, amount, currency) =>
        {
            alarm(status, "another amount was given back than was ordered")
        }
        Word::Returned { .. } if known.taken_back => {
            let now = Known { came_back: true, taken_back: false, ..known };
            After { now, alarm: Some(RETURNED_AGAIN) }
        }
        Word::Returned { .. } => returned(known, taken_for_paid),
        Word::TakenBack { amount: Some((amount, currency)), .. }
            if !ordered.is_taken_back(known, amount, currency) =>
        {
            alarm(status, "another amount was taken back than was ordered")
        }
        Word::TakenBack { .. } if known.taken_back => quiet(status),
        Word::TakenBack { .. } => {
            let why = if known.came_back { TAKEN_BACK } else { TAKEN_BACK_UNKNOWN };
            After { now: Known { taken_back: true, ..known }, alarm: Some(why) }
        }
    }
}

fn returned(known: Known, taken_for_paid: bool) -> After {
    use PaymentStatus::{Paid, Pending, Refused, Returned, Sent, Staged};
    let after = |status, alarm| After { now: Known { status, came_back: true, ..known }, alarm };
    match known.status {
        Returned => After { now: known, alarm: None },
        Refused if known.came_back => After { now: known, alarm: None },
        Staged | Sent | Pending | Paid if known.debt_paid && taken_for_paid => {
            after(Returned, Some(RETURNED_AFTER_DEBT))
        }
        Paid => after(Returned, Some(RETURNED_AFTER_PAID)),
        Refused => match (known.booked_late, taken_for_paid) {
            (false, false) => after(Refused, None),
            (false, true) => after(Refused, Some(RETURNED_AFTER_REFUSED)),
            // An approval that was given before may be carried out at this moment: the settlement is told.
            (true, false) => after(Refused, Some(RETURNED_AFTER_PAID)),
            (true, true) => after(Returned, Some(RETURNED_AFTER_PAID)),
        },
        Staged | Sent | Pending if taken_for_paid => after(Returned, Some(RETURNED_AFTER_PAID)),
        // It was returned before its payment was reported: it is not paid, and will not be.
        Staged | Sent | Pending => after(Refused, None),
    }
}

impl Ordered<'_> {
    fn is(&self, amount: &str, currency: &str) -> bool {
        currency == self.currency && minor(amount, self.exponent) == Some(self.amount)
    }

    /// Whether a debit takes the return back: all of it, or what had come of it.
    fn is_taken_back(&self, known: Known, amount: &str, currency: &str) -> bool {
        let is_less = currency == self.currency
            && minor(amount, self.exponent).is_some_and(|amount| amount < self.amount);
        known.came_back && is_less || self.is(amount, currency)
    }

    /// Whether a credit gives the payment back.
    fn comes_back(&self, known: Known, by: GivenBack, amount: &str, currency: &str) -> bool {
        use PaymentStatus::{Paid, Pending, Refused, Returned, Sent, Staged};
        let was_made = match known.status {
            Paid | Returned => true,
            Refused => known.booked_late,
            Staged | Sent | Pending => false,
        };
        let is_deducted = match by {
            GivenBack::Return if was_made => {
                currency == self.currency
                    && minor(amount, self.exponent).is_some_and(|amount| amount < self.amount)
            }
            GivenBack::Return | GivenBack::Reversal => false,
        };
        is_deducted || self.is(amount, currency)
    }
}

/// The stable code of a reason given by a bank (ISO's external status reasons), and whether a new order may try the
/// same payment again.
pub fn failure_code(reason: &str) -> (FailureCode, bool) {
    match reason {
        "AC01" | "AC02" | "AC03" | "BE23" => (FailureCode::BeneficiaryAccountInvalid, false),
        "AC04" | "AC05" | "AC07" => (FailureCode::BeneficiaryAccountClosed, false),
        "AC06" => (FailureCode::BeneficiaryAccountBlocked, false),
        "AM04" => (FailureCode::RailFundsInsufficient, true),
        "AM02" | "AM13" | "AM14" | "AM21" => (FailureCode::AmountOverRailLimit, false),
        "AM01" | "AM06" | "AM09" | "AM12" => (FailureCode::AmountNotAccepted, false),
        "AM03" | "AM11" | "CURR" => (FailureCode::CurrencyNotServedByRail, false),
        "AG01" | "AG02" | "AG03" => (FailureCode::PaymentTypeNotAccepted, false),
        "BE01" | "BE04" | "BE05" | "BE06" | "BE07" => (FailureCode::BeneficiaryDetailsRejected, false),
        "RC01" | "RC03" | "RC04" | "AGNT" => (FailureCode::BeneficiaryBankInvalid, false),
        "RR01" | "RR02" | "RR03" | "RR04" => (FailureCode::RegulatoryDetailsMissing, false),
        "FOCR" => (FailureCode::PaymentRecalled, false),
        "TM01" | "CUTA" | "CUST" => (FailureCode::RailClosed, true),
        "FF01" | "FF03" | "FF05" | "CH03" | "CH04" | "CH11" | "CH13" | "CH17" | "CH19" | "CH20" | "CH21" => {
            (FailureCode::OrderRejectedByBank, false)
        }
        _ => (FailureCode::PaymentRejectedByBank, false),
    }
}
