//! A payment ordered from a bank: its status, and what a bank's message refers to.
//!
//! What operators record as failed the bank has refused, or has promised not to make.
//!
//! Kept by
//! `core/tests/it/bank_words.rs::a_payment_that_the_bank_has_fails_only_when_it_is_refused_or_its_recall_accepted`.

use crate::names::names;

names! {
    pub enum PaymentStatus {
        /// The file is written, and may have been moved to the bank.
        Staged = "staged",
        Sent = "sent",
        Pending = "pending",
        Paid = "paid",
        Refused = "refused",
        Returned = "returned",
    }
}

names! {
    /// What the beneficiary's bank says of its account's holder (verification of payee), before the payment is made.
    pub enum PayeeCheck {
        Match = "match",
        /// The holder's name is nearly the beneficiary's: the bank tells it.
        CloseMatch = "close_match",
        NoMatch = "no_match",
        NotPossible = "not_possible",
    }
}

impl PaymentStatus {
    /// Whether the bank has, or may have, the payment's file.
    pub const fn is_with_bank(self) -> bool {
        match self {
            Self::Staged => false,
            Self::Sent | Self::Pending | Self::Paid | Self::Refused | Self::Returned => true,
        }
    }

    /// Why the payment cannot be recorded as paid.
    pub const fn against_paid(self) -> Option<&'static str> {
        match self {
            Self::Refused => Some("the bank has refused the payment"),
            Self::Returned => Some("the payment has come back"),
            Self::Staged | Self::Sent | Self::Pending | Self::Paid => None,
        }
    }

    /// How the bank's status contradicts a settlement that recorded the payment as paid, or as unpaid.
    pub const fn contradiction(self, taken_for_paid: bool) -> Option<&'static str> {
        match (self, taken_for_paid) {
            (Self::Paid, false) => Some("paid after the payout was given up"),
            (Self::Refused, true) => Some("refused after the payout was taken for paid"),
            (Self::Staged | Self::Sent | Self::Pending | Self::Returned, _)
            | (Self::Paid, true)
            | (Self::Refused, false) => None,
        }
    }

    /// Not decided yet.
    pub const fn is_open(self) -> bool {
        match self {
            Self::Staged | Self::Sent | Self::Pending => true,
            Self::Paid | Self::Refused | Self::Returned => false,
        }
    }
}

/// What is known of a payment when operators decide about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PaymentStanding {
    pub status: PaymentStatus,
    /// The bank's last word that contradicts an earlier one, or how the order ended.
    pub contradicting: Option<PaymentStatus>,
    /// Operators have put that right outside of the service.
    pub is_closed: bool,
    /// It came back, if it was ever booked, and the bank has not taken that back.
    pub came_back: bool,
    /// Its debt was recorded as paid by another payment.
    pub is_debt_paid: bool,
    /// The bank has accepted its recall.
    pub is_recalled: bool,
}

impl PaymentStanding {
    /// Why the payment cannot be recorded as paid.
    pub const fn against_paid(self) -> Option<&'static str> {
        self.status.against_paid()
    }

    /// Why the debt of a payment that has failed is not paid by another payment any more.
    pub fn against_paid_debt(self) -> Option<&'static str> {
        (self.is_debt_paid && self.is_booked())
            .then_some("the bank has made the payment since its debt was recorded as paid by another one")
    }

    /// Whether the payment itself cannot have paid its debt: it came back.
    pub const fn has_come_back(self) -> bool {
        self.came_back || matches!(self.status, PaymentStatus::Returned)
    }

    /// Why the payment cannot be recorded as unpaid, nor what was paid for it given back.
    pub fn against_unpaid(self) -> Option<&'static str> {
        self.is_booked().then_some("the bank has booked the payment")
    }

    /// Why the payout cannot be recorded as failed: the bank has made the payment, or may still make it.
    pub fn against_failed(self) -> Option<&'static str> {
        let may_be_made = match self.status {
            PaymentStatus::Sent | PaymentStatus::Pending => !self.is_recalled,
            PaymentStatus::Staged
            | PaymentStatus::Paid
            | PaymentStatus::Refused
            | PaymentStatus::Returned => false,
        };
        let why = "the bank has the payment and has not refused it: it fails when the bank refuses it, or accepts a recall";
        self.against_unpaid().or(may_be_made.then_some(why))
    }

    /// Why a payout that had failed cannot be recorded as paid.
    pub fn against_found(self) -> Option<&'static str> {
        let why = "the bank has not booked the payment, or it came back";
        self.against_unpaid().is_none().then_some(why)
    }

    /// Whether the bank has made a payment that it had refused, which stays refused, and has not given it back.
    pub fn is_booked_after_refusal(self) -> bool {
        let is_booked = self.contradicting == Some(PaymentStatus::Paid) && !self.came_back;
        self.status == PaymentStatus::Refused && is_booked
    }

    /// A payment that was booked after it was refused, or given up, is booked until it comes back or operators have put
    /// that right.
    fn is_booked(self) -> bool {
        match (self.status, self.contradicting) {
            (PaymentStatus::Returned, _) => false,
            _ if self.came_back => false,
            (_, Some(PaymentStatus::Paid)) => !self.is_closed,
            (status, _) => status == PaymentStatus::Paid,
        }
    }
}

/// The payments that a bank's message refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PaymentSubject {
    /// All of a message of ours.
    Message(String),
    /// All of a block of ours.
    Block(String),
    Payment(String),
    /// In lower-case digits without hyphens.
    Uetr(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(status: PaymentStatus, contradicting: Option<PaymentStatus>) -> PaymentStanding {
        let (is_closed, came_back, is_debt_paid, is_recalled) = (false, false, false, false);
        PaymentStanding { status, contradicting, is_closed, came_back, is_debt_paid, is_recalled }
    }

    #[test]
    fn a_bank_status_contradicts_only_the_opposite_outcome() {
        for status in PaymentStatus::ALL {
            let contradicts = [true, false].map(|paid| status.contradiction(paid).is_some());
            let expected = match status {
                PaymentStatus::Paid => [false, true],
                PaymentStatus::Refused => [true, false],
                _ => [false, false],
            };
            assert_eq!(contradicts, expected, "{status:?}");
            let standing = standing(status, None);
            assert_eq!(standing.against_unpaid().is_some(), status == PaymentStatus::Paid);
            assert_eq!(standing.against_found().is_none(), status == PaymentStatus::Paid);
            let may_be_made =
                matches!(status, PaymentStatus::Sent | PaymentStatus::Pending | PaymentStatus::Paid);
            assert_eq!(standing.against_failed().is_some(), may_be_made, "{status:?}");
            let recalled = PaymentStanding { is_recalled: true, ..standing };
            assert_eq!(recalled.against_failed().is_some(), status == PaymentStatus::Paid, "{status:?}");
            assert_eq!(standing.against_paid(), status.against_paid());
            let unpaid = matches!(status, PaymentStatus::Refused | PaymentStatus::Returned);
            assert_eq!(status.against_paid().is_some(), unpaid);
        }
    }

    #[test]
    fn a_payment_that_was_booked_against_its_orders_end_is_booked_until_that_is_closed() {
        for status in [PaymentStatus::Paid, PaymentStatus::Refused] {
            let contradicting = Some(PaymentStatus::Paid);
            let open = standing(status, contradicting);
            assert!(open.against_found().is_none());
            assert!(open.against_unpaid().is_some() && open.against_paid_debt().is_none(), "{status:?}");
            let twice = PaymentStanding { is_debt_paid: true, ..open };
            assert!(twice.against_paid_debt().is_some(), "{status:?}");
            let closed = PaymentStanding { is_closed: true, ..open };
            assert_eq!(closed.against_unpaid(), None, "{status:?}");
            assert!(closed.against_found().is_some(), "{status:?}");
            let returned = PaymentStanding { status: PaymentStatus::Returned, ..open };
            for returned in [returned, PaymentStanding { came_back: true, ..open }] {
                assert!(returned.against_unpaid().is_none() && returned.has_come_back());
                let twice = PaymentStanding { is_debt_paid: true, ..returned };
                assert_eq!(twice.against_paid_debt(), None, "the other payment stands");
            }
        }
    }
}
