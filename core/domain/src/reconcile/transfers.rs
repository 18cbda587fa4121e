//! Transfers between cells in this cell's books: the transit accounts against the transfers, and what transfers explain of
//! a wallet's balance. Pure.

use std::collections::BTreeSet;

use super::{Break, BreakKind, Difference, SuggestedAction};
use crate::cell::CellId;
use crate::ids::TransferId;
use crate::ledger::Owner;
use crate::money::Minor;
use crate::time::Timestamp;
use crate::transfer::TransferState;

/// A transfer as this cell has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownTransfer {
    pub id: TransferId,
    /// The other cell.
    pub cell: CellId,
    pub owner: Owner,
    pub asset: String,
    pub amount: Minor,
    pub state: TransferState,
    /// When it came into its state.
    pub since: Timestamp,
}

impl KnownTransfer {
    fn is_late(&self, now: Timestamp, patience_ms: i64) -> bool {
        now.millis().saturating_sub(self.since.millis()) > patience_ms
    }

    /// Whether its amount may be in the owner's wallet although the ledger does not have it there: sent and not moved
    /// yet, moved and not received yet, or refused and not moved back yet.
    pub fn may_be_here(&self, now: Timestamp, patience_ms: i64) -> bool {
        match self.state {
            TransferState::Sent | TransferState::Announced | TransferState::Refused => {
                !self.is_late(now, patience_ms)
            }
            TransferState::Confirmed | TransferState::TakenBack | TransferState::Received => false,
        }
    }

    /// The break of a transfer that has had no end for too long.
    pub fn overdue(&self, now: Timestamp, patience_ms: i64) -> Option<Break> {
        let Self { id, cell, owner, asset, amount, state, since } = self;
        if !state.is_open() || !self.is_late(now, patience_ms) {
            return None;
        }
        let way = match state {
            TransferState::Announced => "from",
            _ => "to",
        };
        let (state, since) = (state.as_str(), since.iso8601());
        Some(Break {
            kind: BreakKind::TransferOverdue,
            reference: Some(id.to_string()),
            entity: None,
            detail: format!("{amount} of {asset} {way} cell {cell} for {owner}: {state} since {since}"),
            action: SuggestedAction::AskCell,
            difference: None,
        })
    }
}

/// The transit account of another cell in one asset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransitBalance {
    pub cell: CellId,
    pub asset: String,
    pub ledger: i128,
    /// What the transfers have posted there.
    pub transfers: i128,
}

impl TransitBalance {
    pub fn judge(&self) -> Option<Break> {
        let Self { cell, asset, ledger, transfers } = self;
        if ledger == transfers {
            return None;
        }
        let minor = transfers.saturating_sub(*ledger);
        Some(Break {
            kind: BreakKind::TransitDiffers,
            reference: None,
            entity: None,
            detail: format!(
                "the ledger has {ledger} of {asset} in transit to cell {cell}, the transfers come to {transfers}"
            ),
            action: SuggestedAction::Page,
            difference: Some(Difference { account: format!("transit:{cell}"), asset: asset.clone(), minor }),
        })
    }
}

/// The most different sums of transfers that are tried.
const SUMS_MAX: usize = 4096;

/// Whether a surplus is the sum of some of the amounts, each whole or not at all.
pub fn explains(surplus: i128, amounts: impl IntoIterator<Item = Minor>) -> bool {
    let mut sums = BTreeSet::from([0_i128]);
    for amount in amounts {
        let amount = i128::try_from(amount.get()).unwrap_or(i128::MAX);
        let more: Vec<i128> =
            sums.iter().map(|sum| sum.saturating_add(amount)).filter(|sum| *sum <= surplus).collect();
        sums.extend(more);
        if sums.len() > SUMS_MAX {
            return false;
        }
    }
    sums.contains(&surplus)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
    const PATIENCE_MS: i64 = 60_000;

    fn known(state: TransferState, age_ms: i64) -> KnownTransfer {
        KnownTransfer {
            id: TransferId::from_unique("1"),
            cell: "00b".parse().unwrap(),
            owner: Owner::Provider("north".into()),
            asset: "USD".into(),
            amount: Minor::new(5_000),
            state,
            since: NOW.plus_millis(-age_ms),
        }
    }

    #[test]
    fn an_open_transfer_is_a_break_once_it_is_too_old() {
        for state in TransferState::ALL {
            assert_eq!(known(state, PATIENCE_MS).overdue(NOW, PATIENCE_MS), None);
            let late = known(state, PATIENCE_MS + 1).overdue(NOW, PATIENCE_MS);
            assert_eq!(
                late.is_some(),
                matches!(state, TransferState::Sent | TransferState::Announced),
                "{state:?}"
            );
        }
        let found = known(TransferState::Sent, PATIENCE_MS + 1).overdue(NOW, PATIENCE_MS).unwrap();
        assert_eq!((found.kind, found.action), (BreakKind::TransferOverdue, SuggestedAction::AskCell));
        assert_eq!(
            found.detail,
            "5000 of USD to cell 00b for provider north: sent since 2027-01-15T07:58:59.999Z"
        );
        let found = known(TransferState::Announced, PATIENCE_MS + 1).overdue(NOW, PATIENCE_MS).unwrap();
        assert!(found.detail.contains("from cell 00b"), "{}", found.detail);
    }

    #[test]
    fn a_transfer_may_be_in_the_wallet_until_it_is_too_old_or_has_moved() {
        for state in TransferState::ALL {
            let may =
                matches!(state, TransferState::Sent | TransferState::Announced | TransferState::Refused);
            assert_eq!(known(state, PATIENCE_MS).may_be_here(NOW, PATIENCE_MS), may, "{state:?}");
            assert!(!known(state, PATIENCE_MS + 1).may_be_here(NOW, PATIENCE_MS));
        }
    }

    #[test]
    fn a_transit_account_is_explained_to_the_unit() {
        let balance = |ledger, transfers| {
            let (cell, asset) = ("00b".parse().unwrap(), "USD".to_owned());
            TransitBalance { cell, asset, ledger, transfers }.judge()
        };
        assert_eq!(balance(-7, -7), None);
        let found = balance(10, 9).unwrap();
        assert_eq!(found.kind, BreakKind::TransitDiffers);
        let difference = Difference { account: "transit:00b".into(), asset: "USD".into(), minor: -1 };
        assert_eq!(found.difference, Some(difference));
    }

    #[test]
    fn only_whole_transfers_explain_a_surplus() {
        let amounts = || [3, 5, 5].map(Minor::new);
        for (surplus, is_explained) in
            [(0, true), (3, true), (5, true), (8, true), (10, true), (13, true), (1, false), (4, false)]
        {
            assert_eq!(explains(surplus, amounts()), is_explained, "{surplus}");
        }
        assert!(!explains(-3, amounts()));
        assert!(!explains(6, []));
        let many = |count: u32| (0..count).map(|n| Minor::new(1 << n));
        assert!(explains((1 << 11) - 1, many(11)));
        assert!(!explains((1 << 14) - 1, many(14)), "more sums than are tried");
    }
}
