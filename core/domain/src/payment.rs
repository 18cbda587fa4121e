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

    /// Why the payment cannot be recorded as unpaid.
    pub const fn against_unpaid(self) -> Option<&'static str> {
        match self {
            Self::Paid => Some("the bank has booked the payment"),
            Self::Staged | Self::Sent | Self::Pending | Self::Refused | Self::Returned => None,
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
            assert_eq!(status.against_unpaid().is_some(), status == PaymentStatus::Paid);
            let unpaid = matches!(status, PaymentStatus::Refused | PaymentStatus::Returned);
            assert_eq!(status.against_paid().is_some(), unpaid);
        }
    }
}
