//! A payment ordered from a bank: its status, and what a bank's message refers to.

/// The status of a payment at the bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaymentStatus {
    /// The file is written, and may have been moved to the bank.
    Staged,
    Sent,
    Pending,
    Paid,
    Refused,
    Returned,
}

impl PaymentStatus {
    pub const ALL: [Self; 6] =
        [Self::Staged, Self::Sent, Self::Pending, Self::Paid, Self::Refused, Self::Returned];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::Sent => "sent",
            Self::Pending => "pending",
            Self::Paid => "paid",
            Self::Refused => "refused",
            Self::Returned => "returned",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaymentStanding {
    pub status: PaymentStatus,
    /// The bank's last word that contradicts an earlier one, or how the order ended.
    pub contradicting: Option<PaymentStatus>,
    /// Operators have put that right outside of the service.
    pub is_closed: bool,
    /// It came back, if it was ever booked.
    pub came_back: bool,
}

impl PaymentStanding {
    /// Why the payment cannot be recorded as paid.
    pub const fn against_paid(self) -> Option<&'static str> {
        self.status.against_paid()
    }

    /// Why the debt of a payment that has failed cannot be recorded as paid. One that the bank has refused was booked
    /// later, or paid another way; one that came back was not paid.
    pub const fn against_paid_debt(self) -> Option<&'static str> {
        match self.status {
            PaymentStatus::Returned => self.status.against_paid(),
            _ if self.came_back => PaymentStatus::Returned.against_paid(),
            PaymentStatus::Staged
            | PaymentStatus::Sent
            | PaymentStatus::Pending
            | PaymentStatus::Paid
            | PaymentStatus::Refused => None,
        }
    }

    /// Why the payment cannot be recorded as unpaid, nor what was paid for it given back.
    pub fn against_unpaid(self) -> Option<&'static str> {
        self.is_booked().then_some("the bank has booked the payment")
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let standing =
                PaymentStanding { status, contradicting: None, is_closed: false, came_back: false };
            assert_eq!(standing.against_unpaid().is_some(), status == PaymentStatus::Paid);
            assert_eq!(standing.against_paid(), status.against_paid());
            let unpaid = matches!(status, PaymentStatus::Refused | PaymentStatus::Returned);
            assert_eq!(status.against_paid().is_some(), unpaid);
        }
    }

    #[test]
    fn a_payment_that_was_booked_against_its_orders_end_is_booked_until_that_is_closed() {
        for status in [PaymentStatus::Paid, PaymentStatus::Refused] {
            let contradicting = Some(PaymentStatus::Paid);
            let open = PaymentStanding { status, contradicting, is_closed: false, came_back: false };
            assert!(open.against_unpaid().is_some() && open.against_paid_debt().is_none(), "{status:?}");
            let closed = PaymentStanding { is_closed: true, ..open };
            assert_eq!(closed.against_unpaid(), None, "{status:?}");
            let returned = PaymentStanding { status: PaymentStatus::Returned, ..open };
            for returned in [returned, PaymentStanding { came_back: true, ..open }] {
                assert!(returned.against_unpaid().is_none() && returned.against_paid_debt().is_some());
            }
        }
    }
}
