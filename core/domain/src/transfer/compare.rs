//! The transfers of two cells, as each of them has them. Pure.
//!
//! The two lists are of different moments. What one side did after the other's list was made may be missing there: it is
//! on its way, and the next list shows it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::message::Listed;
use super::{TransferDirection, TransferState};
use crate::ids::TransferId;
use crate::time::Timestamp;

/// How two records of one transfer differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// The sender has it, and the receiver has neither received nor refused it for too long.
    NeverReceived,
    /// The receiver has it, and the sender knows nothing of it.
    NeverSent,
    /// Both have it, with other amounts.
    AmountDiffers,
    /// Both have it, with another owner, asset or time, or on the same side.
    ContentDiffers,
    /// The sender has a receipt, and the receiver has not received it.
    ReceiptLost,
    /// The sender has taken it back, and the receiver can still receive it.
    RefusalLost,
    /// The receiver has received it, and the sender has taken it back.
    OnBothSides,
    /// The receiver has received it, and the sender has not taken the receipt for too long.
    NotConfirmed,
    /// The receiver has refused it, and the sender has not taken it back for too long.
    NotTakenBack,
}

impl DifferenceKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NeverReceived => "never_received",
            Self::NeverSent => "never_sent",
            Self::AmountDiffers => "amount_differs",
            Self::ContentDiffers => "content_differs",
            Self::ReceiptLost => "receipt_lost",
            Self::RefusalLost => "refusal_lost",
            Self::OnBothSides => "on_both_sides",
            Self::NotConfirmed => "not_confirmed",
            Self::NotTakenBack => "not_taken_back",
        }
    }
}

/// One difference, with the transfer as each cell has it. `None`: the cell does not know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TransferDifference {
    #[serde(rename = "type")]
    pub kind: DifferenceKind,
    pub id: TransferId,
    pub here: Option<Listed>,
    pub there: Option<Listed>,
}

/// The result of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compared {
    pub differences: Vec<TransferDifference>,
    /// Transfers that have ended in the same way on both sides.
    pub agreed: usize,
    /// Transfers that are on their way, and no difference so far.
    pub in_transit: usize,
}

/// A cell's transfers with the other one, at a moment.
#[derive(Debug, Clone, Copy)]
pub struct List<'a> {
    pub transfers: &'a [Listed],
    pub at: Timestamp,
}

enum Verdict {
    Agreed,
    InTransit,
    Differs(DifferenceKind),
}

/// Compares the transfers of this cell and of another one. What has waited for longer than `patience_ms` is a difference.
pub fn compare(here: List<'_>, there: List<'_>, patience_ms: i64) -> Compared {
    let by_id = |list: List<'_>| -> BTreeMap<TransferId, Listed> {
        list.transfers.iter().map(|one| (one.id.clone(), one.clone())).collect()
    };
    let (mut ours, mut theirs) = (by_id(here), by_id(there));
    let ids: BTreeSet<TransferId> = ours.keys().chain(theirs.keys()).cloned().collect();
    let mut done = Compared::default();
    for id in ids {
        let (one, other) = (ours.remove(&id), theirs.remove(&id));
        let sides = Sides::of((one.as_ref(), here.at), (other.as_ref(), there.at), patience_ms);
        match sides.map_or(Verdict::Differs(DifferenceKind::ContentDiffers), |sides| sides.judge()) {
            Verdict::Agreed => done.agreed += 1,
            Verdict::InTransit => done.in_transit += 1,
            Verdict::Differs(kind) => {
                done.differences.push(TransferDifference { kind, id, here: one, there: other });
            }
        }
    }
    done
}

/// A transfer in the cells of its sender and its receiver, and when each cell's list was made.
struct Sides<'a> {
    sender: Option<&'a Listed>,
    sender_at: Timestamp,
    receiver: Option<&'a Listed>,
    receiver_at: Timestamp,
    patience_ms: i64,
}

impl<'a> Sides<'a> {
    /// `None`: both cells say that they sent it, or that they were sent it.
    fn of(
        (one, one_at): (Option<&'a Listed>, Timestamp),
        (other, other_at): (Option<&'a Listed>, Timestamp),
        patience_ms: i64,
    ) -> Option<Self> {
        let is = |side: Option<&Listed>, direction| side.is_none_or(|side| side.direction == direction);
        if is(one, TransferDirection::Out) && is(other, TransferDirection::In) {
            let (sender_at, receiver_at) = (one_at, other_at);
            Some(Self { sender: one, sender_at, receiver: other, receiver_at, patience_ms })
        } else if is(one, TransferDirection::In) && is(other, TransferDirection::Out) {
            let (sender_at, receiver_at) = (other_at, one_at);
            Some(Self { sender: other, sender_at, receiver: one, receiver_at, patience_ms })
        } else {
            None
        }
    }

    fn judge(&self) -> Verdict {
        use DifferenceKind as Kind;
        if let (Some(sent), Some(known)) = (self.sender, self.receiver) {
            if sent.amount_minor != known.amount_minor {
                return Verdict::Differs(Kind::AmountDiffers);
            }
            let content = |one: &Listed| (one.owner.clone(), one.asset.clone(), one.sent_at);
            if content(sent) != content(known) {
                return Verdict::Differs(Kind::ContentDiffers);
            }
        }
        let state = |side: Option<&Listed>| side.map(|side| side.state);
        match (state(self.sender), state(self.receiver)) {
            (Some(TransferState::Confirmed), Some(TransferState::Received))
            | (Some(TransferState::TakenBack), Some(TransferState::Refused))
            // The sender has it, whatever became of the record.
            | (None, Some(TransferState::Refused)) => Verdict::Agreed,
            (Some(TransferState::TakenBack), Some(TransferState::Received)) => Verdict::Differs(Kind::OnBothSides),
            (Some(TransferState::Confirmed), Some(TransferState::Refused)) => Verdict::Differs(Kind::ReceiptLost),
            (Some(TransferState::Confirmed), _) => self.after_list(self.sender, self.receiver_at, Kind::ReceiptLost),
            (Some(TransferState::TakenBack), _) => self.after_list(self.sender, self.receiver_at, Kind::RefusalLost),
            (None, _) => match self.receiver {
                Some(known) if known.sent_at >= self.sender_at => Verdict::InTransit,
                _ => Verdict::Differs(Kind::NeverSent),
            },
            (Some(_), Some(TransferState::Received)) => self.late(self.receiver, Kind::NotConfirmed),
            (Some(_), Some(TransferState::Refused)) => self.late(self.receiver, Kind::NotTakenBack),
            (Some(_), _) => self.late(self.sender, Kind::NeverReceived),
        }
    }

    /// What one side did after the other's list was made is not in it yet.
    fn after_list(&self, side: Option<&Listed>, list_at: Timestamp, kind: DifferenceKind) -> Verdict {
        match side {
            Some(side) if side.since >= list_at => Verdict::InTransit,
            _ => Verdict::Differs(kind),
        }
    }

    fn late(&self, side: Option<&Listed>, kind: DifferenceKind) -> Verdict {
        let now = self.sender_at.max(self.receiver_at).millis();
        match side {
            Some(side) if now.saturating_sub(side.since.millis()) > self.patience_ms => {
                Verdict::Differs(kind)
            }
            _ => Verdict::InTransit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Owner;
    use crate::money::Minor;

    const HOUR: i64 = 3_600_000;
    const START: i64 = 1_800_000_000_000;

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_millis(START + hours * HOUR)
    }

    /// A transfer of hour 0 that came into its state at an hour.
    fn side(state: TransferState, since: i64) -> Listed {
        Listed {
            id: TransferId::from_unique("1"),
            direction: state.direction(),
            owner: Owner::Provider("north".into()),
            asset: "USD".into(),
            amount_minor: Minor::new(5),
            state,
            sent_at: at(0),
            since: at(since),
        }
    }

    /// Of two lists that were made at hours, with ten hours of patience; the same whichever cell compares.
    fn verdict(sender: (Option<Listed>, i64), receiver: (Option<Listed>, i64)) -> &'static str {
        let (out, out_at) = (sender.0.as_slice(), at(sender.1));
        let (other, other_at) = (receiver.0.as_slice(), at(receiver.1));
        let (out, other) = (List { transfers: out, at: out_at }, List { transfers: other, at: other_at });
        let (one, mut two) = (compare(out, other, 10 * HOUR), compare(other, out, 10 * HOUR));
        for found in &mut two.differences {
            std::mem::swap(&mut found.here, &mut found.there);
        }
        assert_eq!(one, two);
        match (one.differences.as_slice(), one.agreed, one.in_transit) {
            ([], 1, 0) => "agreed",
            ([], 0, 1) => "in transit",
            ([found], 0, 0) => found.kind.as_str(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_pair_of_states_is_judged() {
        let out = |state, since| Some(side(state, since));
        let cases: [(Option<Listed>, Option<Listed>, &str, &str); 15] = [
            // Lists of hour 5, and of hour 20.
            (out(TransferState::Sent, 0), None, "in transit", "never_received"),
            (out(TransferState::Sent, 0), out(TransferState::Announced, 1), "in transit", "never_received"),
            (out(TransferState::Sent, 0), out(TransferState::Received, 2), "in transit", "not_confirmed"),
            (out(TransferState::Sent, 0), out(TransferState::Refused, 2), "in transit", "not_taken_back"),
            (out(TransferState::Confirmed, 3), out(TransferState::Received, 2), "agreed", "agreed"),
            (out(TransferState::Confirmed, 3), None, "receipt_lost", "receipt_lost"),
            (
                out(TransferState::Confirmed, 3),
                out(TransferState::Announced, 1),
                "receipt_lost",
                "receipt_lost",
            ),
            (
                out(TransferState::Confirmed, 3),
                out(TransferState::Refused, 2),
                "receipt_lost",
                "receipt_lost",
            ),
            (out(TransferState::TakenBack, 3), out(TransferState::Refused, 2), "agreed", "agreed"),
            (out(TransferState::TakenBack, 3), None, "refusal_lost", "refusal_lost"),
            (
                out(TransferState::TakenBack, 3),
                out(TransferState::Announced, 1),
                "refusal_lost",
                "refusal_lost",
            ),
            (
                out(TransferState::TakenBack, 3),
                out(TransferState::Received, 2),
                "on_both_sides",
                "on_both_sides",
            ),
            (None, out(TransferState::Announced, 1), "never_sent", "never_sent"),
            (None, out(TransferState::Received, 2), "never_sent", "never_sent"),
            (None, out(TransferState::Refused, 2), "agreed", "agreed"),
        ];
        for (sender, receiver, early, late) in cases {
            let found = verdict((sender.clone(), 5), (receiver.clone(), 5));
            assert_eq!(found, early, "{sender:?} {receiver:?}");
            let found = verdict((sender.clone(), 20), (receiver.clone(), 20));
            assert_eq!(found, late, "{sender:?} {receiver:?}");
        }
    }

    #[test]
    fn a_list_that_is_older_than_what_happened_is_no_difference() {
        let one = |state, since| Some(side(state, since));
        assert_eq!(
            verdict((one(TransferState::Confirmed, 6), 7), (one(TransferState::Announced, 1), 5)),
            "in transit"
        );
        assert_eq!(verdict((one(TransferState::TakenBack, 6), 7), (None, 5)), "in transit");
        assert_eq!(verdict((None, 0), (one(TransferState::Received, 2), 5)), "in transit");
    }

    #[test]
    fn other_content_is_named() {
        let sent = side(TransferState::Sent, 0);
        let amount = Listed { amount_minor: Minor::new(6), ..side(TransferState::Received, 1) };
        assert_eq!(verdict((Some(sent.clone()), 5), (Some(amount), 5)), "amount_differs");
        let asset = Listed { asset: "EUR".into(), ..side(TransferState::Received, 1) };
        assert_eq!(verdict((Some(sent.clone()), 5), (Some(asset), 5)), "content_differs");
        assert_eq!(verdict((Some(sent.clone()), 5), (Some(sent), 5)), "content_differs");
    }
}
