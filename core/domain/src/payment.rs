//! A payment ordered from a bank: its status, and what a bank's message refers to.

/// How a payment stands with the bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaymentStatus {
    /// Written down, and perhaps put where the bank looks.
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
