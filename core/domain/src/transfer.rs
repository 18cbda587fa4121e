//! Inventory of a provider, or prefunded money of a partner, on its way from one cell to another. Pure.
//!
//! Each cell posts its own side once, and learns of the other by a signed message ([`message`]):
//!
//! ```text
//! the sender's side                          the receiver's side
//!
//!            sent --receipt--> confirmed     announced --receive--> received
//!             '------refusal--> taken_back       '-----refuse-----> refused
//!
//! sent        owner available -> transit     received   transit -> owner available
//! taken_back  transit -> owner available
//! ```
//!
//! Invariants: a transfer is received or refused, never both, so it is confirmed or taken back, never both; an end is
//! final, and what led to it changes nothing when it comes again. The account `transit` of another cell holds what was
//! sent there less what came from there; of both cells together that is what is on its way.

pub mod compare;
pub mod message;

use serde::{Deserialize, Serialize};

use crate::cell::CellId;
use crate::ids::TransferId;
use crate::ledger::{Account, Owner, Part, Posting, PostingReason};
use crate::money::Minor;
use crate::text::is_id;
use crate::time::{Timestamp, iso};

/// What is transferred. Both cells have the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Transfer {
    pub id: TransferId,
    pub from: CellId,
    pub to: CellId,
    /// Whose it is in both cells: a field `provider` or `partner`.
    #[serde(flatten)]
    pub owner: Owner,
    pub asset: String,
    pub amount_minor: Minor,
    #[serde(with = "iso")]
    pub sent_at: Timestamp,
}

/// Why nothing can be transferred like this, whatever the balances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TransferFault {
    #[error("amountMinor: the amount is zero")]
    Nothing,
    #[error("to: both sides are one cell")]
    OneCell,
    #[error("{0}: must be one line of 1 to 128 characters")]
    Text(&'static str),
}

/// Whether a cell is the sender or the receiver of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferDirection {
    Out,
    In,
}

impl TransferDirection {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::In => "in",
        }
    }
}

/// The state of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferState {
    /// Posted by the sender; the receiver has not answered.
    Sent,
    /// The receiver has posted it.
    Confirmed,
    /// The receiver has refused it, and the owner has it back.
    TakenBack,
    /// Known to the receiver, and not decided.
    Announced,
    /// Posted by the receiver.
    Received,
    /// It will never be received.
    Refused,
}

/// What happens to one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The receiver's signed receipt came.
    Receipt,
    /// Two operators of the sender take it back, by the receiver's signed refusal.
    TakeBack,
    /// Two operators of the receiver have it.
    Receive,
    /// Two operators of the receiver refuse it.
    Refuse,
}

/// The result of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Changed(TransferState),
    /// It happened before.
    Repeated,
}

/// The event contradicts what happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the transfer is {} here", .state.as_str())]
pub struct Contradiction {
    pub state: TransferState,
}

impl TransferState {
    pub const ALL: [Self; 6] =
        [Self::Sent, Self::Confirmed, Self::TakenBack, Self::Announced, Self::Received, Self::Refused];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Confirmed => "confirmed",
            Self::TakenBack => "taken_back",
            Self::Announced => "announced",
            Self::Received => "received",
            Self::Refused => "refused",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    pub const fn direction(self) -> TransferDirection {
        match self {
            Self::Sent | Self::Confirmed | Self::TakenBack => TransferDirection::Out,
            Self::Announced | Self::Received | Self::Refused => TransferDirection::In,
        }
    }

    /// Nothing has ended it so far.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Sent | Self::Announced)
    }

    /// The only way a side changes.
    ///
    /// # Errors
    /// The event contradicts the state, or is about the other side.
    pub const fn step(self, event: Event) -> Result<Outcome, Contradiction> {
        match (self, event) {
            (Self::Sent, Event::Receipt) => Ok(Outcome::Changed(Self::Confirmed)),
            (Self::Sent, Event::TakeBack) => Ok(Outcome::Changed(Self::TakenBack)),
            (Self::Announced, Event::Receive) => Ok(Outcome::Changed(Self::Received)),
            (Self::Announced, Event::Refuse) => Ok(Outcome::Changed(Self::Refused)),
            (Self::Confirmed, Event::Receipt)
            | (Self::TakenBack, Event::TakeBack)
            | (Self::Received, Event::Receive)
            | (Self::Refused, Event::Refuse) => Ok(Outcome::Repeated),
            (_, Event::Receipt | Event::TakeBack | Event::Receive | Event::Refuse) => {
                Err(Contradiction { state: self })
            }
        }
    }

    /// By how much a side in this state has changed the transit account: one amount more, one less, or nothing.
    pub const fn in_transit(self) -> i128 {
        match self {
            Self::Sent | Self::Confirmed => 1,
            Self::Received => -1,
            Self::TakenBack | Self::Announced | Self::Refused => 0,
        }
    }
}

impl Transfer {
    /// # Errors
    /// The first defect.
    pub fn check(&self) -> Result<(), TransferFault> {
        let Self { id, owner, asset, .. } = self;
        let name = match owner {
            Owner::Provider(name) | Owner::Partner { id: name, .. } => name,
        };
        for (field, text) in [("id", id.as_str()), (owner.kind(), name), ("asset", asset)] {
            if !is_id(text) {
                return Err(TransferFault::Text(field));
            }
        }
        if self.amount_minor.is_zero() {
            return Err(TransferFault::Nothing);
        }
        if self.from == self.to { Err(TransferFault::OneCell) } else { Ok(()) }
    }

    fn available(&self) -> Account {
        Account::Balance(self.owner.clone(), Part::Available)
    }

    fn posting(&self, reason: PostingReason, from: Account, to: Account) -> Posting {
        let mut posting = Posting::new(reason);
        posting.add(&self.asset, from, to, self.amount_minor);
        posting
    }

    /// The sender's posting: the owner no longer has it here.
    pub fn sent(&self) -> Posting {
        self.posting(PostingReason::TransferOut, self.available(), Account::Transit(self.to))
    }

    /// The sender's posting once the receiver has refused it.
    pub fn taken_back(&self) -> Posting {
        self.posting(PostingReason::TransferBack, Account::Transit(self.to), self.available())
    }

    /// The receiver's posting.
    pub fn received(&self) -> Posting {
        self.posting(PostingReason::TransferIn, Account::Transit(self.from), self.available())
    }
}

#[cfg(test)]
mod tests;
