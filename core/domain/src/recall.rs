//! Recalls: requests to the bank to give a payment back, and how its answers change their status, in any order and with
//! repetitions. A recall moves no money: what comes back is a return of the payment. Pure.
//!
//! ```text
//! approved -> sent -> pending -> accepted -> recalled
//!     |                  └─────> rejected
//!     ├─> not_needed   the payment ended unpaid before the request was sent
//!     └─> withdrawn    closed by operators before it was sent
//! unrequested          the bank has answered a request that was never made
//! ```
//!
//! Invariants: `accepted` and `rejected` are not revoked: a contradicting answer changes nothing and is reported. A
//! recall ends as `recalled` by the payment's own status only.

use crate::names::names;
use crate::payment::PaymentSubject;

/// The most characters that a bank is told beside the reason.
pub const INFORMATION_MAX: usize = 105;

names! {
    /// Why a payment is recalled: codes of ISO's external list.
    #[serde(try_from = "String", into = "String")]
    pub enum RecallReason {
        Duplicate = "DUPL",
        /// It was ordered by fraud.
        Fraud = "FRAD",
        /// It was ordered by a technical problem.
        Technical = "TECH",
        /// The customer asks for it.
        Customer = "CUST",
        WrongAmount = "AM09",
        WrongAccount = "AC03",
    }
}

/// The text is no code of a recall's reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no reason of a recall: one of DUPL, FRAD, TECH, CUST, AM09, AC03")]
pub struct UnknownReason(pub String);

impl RecallReason {
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Duplicate => "the payment was ordered twice",
            Self::Fraud => "the payment was ordered by fraud",
            Self::Technical => "the payment was ordered by a technical problem",
            Self::Customer => "the customer asks for the payment back",
            Self::WrongAmount => "the payment has a wrong amount",
            Self::WrongAccount => "the payment went to a wrong account",
        }
    }
}

impl std::str::FromStr for RecallReason {
    type Err = UnknownReason;

    fn from_str(text: &str) -> Result<Self, UnknownReason> {
        Self::parse(text).ok_or_else(|| UnknownReason(text.to_owned()))
    }
}

impl TryFrom<String> for RecallReason {
    type Error = UnknownReason;

    fn try_from(text: String) -> Result<Self, UnknownReason> {
        text.parse()
    }
}

impl From<RecallReason> for String {
    fn from(reason: RecallReason) -> Self {
        reason.as_str().to_owned()
    }
}

names! {
    /// Why money that was paid to us is not given back: codes of ISO's external list.
    #[serde(try_from = "String", into = "String")]
    pub enum RefusalReason {
        Customer = "CUST",
        AlreadyReturned = "ARDT",
        NotReceived = "NOOR",
        NoFunds = "AM04",
        Law = "LEGL",
        NoAnswer = "NOAS",
    }
}

/// The text is no code of a refusal's reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no reason to refuse a recall: one of CUST, ARDT, NOOR, AM04, LEGL, NOAS")]
pub struct UnknownRefusal(pub String);

impl RefusalReason {
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Customer => "whom the money was credited to does not agree",
            Self::AlreadyReturned => "the payment was returned before",
            Self::NotReceived => "the payment was never received",
            Self::NoFunds => "the money is not there any more",
            Self::Law => "the law forbids it",
            Self::NoAnswer => "whom the money was credited to does not answer",
        }
    }
}

impl std::str::FromStr for RefusalReason {
    type Err = UnknownRefusal;

    fn from_str(text: &str) -> Result<Self, UnknownRefusal> {
        Self::parse(text).ok_or_else(|| UnknownRefusal(text.to_owned()))
    }
}

impl TryFrom<String> for RefusalReason {
    type Error = UnknownRefusal;

    fn try_from(text: String) -> Result<Self, UnknownRefusal> {
        text.parse()
    }
}

impl From<RefusalReason> for String {
    fn from(reason: RefusalReason) -> Self {
        reason.as_str().to_owned()
    }
}

names! {
    /// The status of a recall.
    pub enum RecallStatus {
        /// Two operators want it; its file is not known to be with the bank.
        Approved = "approved",
        Sent = "sent",
        /// The bank has it and has not decided.
        Pending = "pending",
        Accepted = "accepted",
        Rejected = "rejected",
        /// The payment came back, or never left.
        Recalled = "recalled",
        NotNeeded = "not_needed",
        Withdrawn = "withdrawn",
        Unrequested = "unrequested",
    }
}

/// What an answer of the bank refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecallSubject {
    /// The id of our case.
    pub case: Option<String>,
    /// The payment, or our message that ordered it.
    pub payment: Option<PaymentSubject>,
}

/// An answer of the bank to a recall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecallAnswer {
    /// Not decided yet.
    Pending {
        status: String,
    },
    Accepted,
    /// A part of the amount comes back.
    PartlyAccepted,
    Rejected {
        reason: String,
        text: String,
    },
}

impl RecallAnswer {
    /// Its name in rows and metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Pending { .. } => "pending",
            Self::Accepted => "accepted",
            Self::PartlyAccepted => "partly_accepted",
            Self::Rejected { .. } => "rejected",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AfterAnswer {
    pub status: RecallStatus,
    /// For operators.
    pub alarm: Option<&'static str>,
    /// The answer contradicts what is known, until operators have closed it.
    pub is_contradiction: bool,
}

/// Alarms about answers.
pub const PARTLY: &str = "the bank gives a part of the recalled payment back";
pub const ACCEPTED_AFTER_REJECTED: &str = "the bank accepted a recall that it had rejected";
pub const REJECTED_AFTER_ACCEPTED: &str = "the bank rejected a recall that it had accepted";
pub const NEVER_REQUESTED: &str = "the bank answered a recall that was never requested";

pub fn apply(status: RecallStatus, answer: &RecallAnswer) -> AfterAnswer {
    use RecallStatus::{
        Accepted, Approved, NotNeeded, Pending, Recalled, Rejected, Sent, Unrequested, Withdrawn,
    };
    let quiet = |status| AfterAnswer { status, alarm: None, is_contradiction: false };
    let alarm = |status, alarm| AfterAnswer { status, alarm: Some(alarm), is_contradiction: false };
    let contradiction = |alarm| AfterAnswer { status, alarm: Some(alarm), is_contradiction: true };
    match (status, answer) {
        (NotNeeded | Withdrawn | Unrequested, _) => contradiction(NEVER_REQUESTED),
        (Approved | Sent | Pending, RecallAnswer::Pending { .. }) => quiet(Pending),
        (Accepted | Rejected | Recalled, RecallAnswer::Pending { .. }) => quiet(status),
        (Approved | Sent | Pending, RecallAnswer::Accepted) => quiet(Accepted),
        (Accepted | Recalled, RecallAnswer::Accepted) => quiet(status),
        (Approved | Sent | Pending, RecallAnswer::PartlyAccepted) => alarm(Accepted, PARTLY),
        (Accepted | Recalled, RecallAnswer::PartlyAccepted) => alarm(status, PARTLY),
        (Rejected, RecallAnswer::Accepted | RecallAnswer::PartlyAccepted) => {
            contradiction(ACCEPTED_AFTER_REJECTED)
        }
        (Approved | Sent | Pending, RecallAnswer::Rejected { .. }) => quiet(Rejected),
        (Accepted, RecallAnswer::Rejected { .. }) => contradiction(REJECTED_AFTER_ACCEPTED),
        // What has come back is no longer the bank's to refuse.
        (Rejected | Recalled, RecallAnswer::Rejected { .. }) => quiet(status),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;
    use proptest::prelude::*;

    use super::*;

    fn answers() -> [RecallAnswer; 4] {
        [
            RecallAnswer::Pending { status: "PDCR".into() },
            RecallAnswer::Accepted,
            RecallAnswer::PartlyAccepted,
            RecallAnswer::Rejected { reason: "CUST".into(), text: String::new() },
        ]
    }

    #[test]
    fn the_whole_table_of_statuses_and_answers_is_the_committed_one() {
        let mut table = String::new();
        for status in RecallStatus::ALL {
            for answer in answers() {
                let AfterAnswer { status: next, alarm, is_contradiction } = apply(status, &answer);
                let alarm = alarm.map(|alarm| format!(" ALARM {alarm}")).unwrap_or_default();
                let open = if is_contradiction { " CONTRADICTION" } else { "" };
                let (status, answer) = (status.as_str(), answer.as_str());
                table.push_str(&format!("{status} + {answer} -> {}{alarm}{open}\n", next.as_str()));
            }
        }
        expect_file!["recalls.txt"].assert_eq(&table);
    }

    #[test]
    fn a_reason_is_one_of_the_codes() {
        for reason in RecallReason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(reason));
        }
        assert!("AC04".parse::<RecallReason>().is_err() && "dupl".parse::<RecallReason>().is_err());
    }

    proptest! {
        /// The first decision stays, and every other one than it is reported.
        #[test]
        fn answers_in_any_order_decide_once(said in prop::collection::vec(0_usize..4, 0..8)) {
            let (mut status, mut decided) = (RecallStatus::Sent, None);
            for answer in said.iter().filter_map(|n| answers().into_iter().nth(*n)) {
                let is_yes = match answer {
                    RecallAnswer::Pending { .. } => None,
                    RecallAnswer::Accepted | RecallAnswer::PartlyAccepted => Some(true),
                    RecallAnswer::Rejected { .. } => Some(false),
                };
                let after = apply(status, &answer);
                let expected = decided.or(is_yes);
                prop_assert_eq!(after.is_contradiction, is_yes.is_some() && is_yes != expected);
                (status, decided) = (after.status, expected);
                prop_assert_eq!(status, match decided {
                    None => RecallStatus::Pending,
                    Some(true) => RecallStatus::Accepted,
                    Some(false) => RecallStatus::Rejected,
                });
            }
        }
    }
}
