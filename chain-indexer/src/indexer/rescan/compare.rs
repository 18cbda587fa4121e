//! How the events that a chain has differ from the stored ones: pure.

use std::collections::BTreeMap;

use alloy::primitives::{B256, hex};
use dvp_domain::chain::BlockNumber;
use dvp_store::chain::{KeptEvent, LogRow};

/// One event that chain and database do not agree on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    pub block: BlockNumber,
    pub log_index: u64,
    pub kind: DifferenceKind,
    pub tx_hash: B256,
    /// The event, or the fields that differ.
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DifferenceKind {
    /// The chain has it, the database does not.
    Missing,
    /// The database has it, the chain does not.
    Foreign,
    /// Both have an event at this place, and not the same one.
    Changed,
}

impl DifferenceKind {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Foreign => "foreign",
            Self::Changed => "changed",
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Compared {
    pub(super) differences: Vec<Difference>,
    /// Anchors of hashes that are none of ours, which retention deletes.
    pub(super) strangers: u64,
}

pub(super) fn compare(chain: &[LogRow], stored: &[(BlockNumber, B256, KeptEvent)]) -> Compared {
    let mut kept: BTreeMap<(BlockNumber, u64), (B256, &KeptEvent)> = BTreeMap::new();
    for (number, block, event) in stored {
        kept.insert((*number, event.log_index), (*block, event));
    }
    let mut compared = Compared::default();
    for row in chain {
        let difference = |kind, detail| Difference {
            block: row.block_number,
            log_index: row.log_index,
            kind,
            tx_hash: row.tx_hash,
            detail,
        };
        match kept.remove(&(row.block_number, row.log_index)) {
            None if row.event == "Anchored" && row.fact.is_none() => compared.strangers += 1,
            None => {
                let detail = format!("{} of {}", row.event, row.entity);
                compared.differences.push(difference(DifferenceKind::Missing, detail));
            }
            Some((block, event)) => {
                let fields = differing(row, block, event);
                if !fields.is_empty() {
                    compared.differences.push(difference(DifferenceKind::Changed, fields.join(", ")));
                }
            }
        }
    }
    let foreign = kept.into_iter().map(|((block, log_index), (_, event))| Difference {
        block,
        log_index,
        kind: DifferenceKind::Foreign,
        tx_hash: event.tx_hash,
        detail: format!("{} of {}", event.event, event.entity),
    });
    compared.differences.extend(foreign);
    compared.differences.sort();
    compared
}

/// The fields that differ, each with the chain's value and the stored one.
fn differing(row: &LogRow, block: B256, event: &KeptEvent) -> Vec<String> {
    let mut fields = Vec::new();
    let mut field = |name: &str, theirs: String, ours: String| {
        if theirs != ours {
            fields.push(format!("{name}: {theirs} on the chain, {ours} stored"));
        }
    };
    field("block", row.block_hash.to_string(), block.to_string());
    field("transaction", row.tx_hash.to_string(), event.tx_hash.to_string());
    field(
        "contract",
        hex::encode_prefixed(row.contract.as_slice()),
        hex::encode_prefixed(event.contract.as_slice()),
    );
    field("event", row.event.to_owned(), event.event.clone());
    field("entity", row.entity.to_string(), event.entity.to_string());
    field("seq", row.seq.to_string(), event.seq.to_string());
    // The refund that is part of a cancellation is no fact of its own: it is stored without.
    let is_part = event.fact.is_none() && event.event == "Refunded";
    let said = |value: &Option<serde_json::Value>| {
        value.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string)
    };
    if !is_part && row.fact != event.fact {
        field("fact", said(&row.fact), said(&event.fact));
    }
    if row.deposit != event.deposit {
        field("deposit", said(&row.deposit), said(&event.deposit));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy::primitives::Address;
    use serde_json::json;

    fn row(number: u64, log_index: u64) -> LogRow {
        LogRow {
            block_hash: B256::with_last_byte(7),
            log_index,
            block_number: BlockNumber(number),
            timestamp: 0,
            tx_hash: B256::with_last_byte(8),
            contract: Address::with_last_byte(9),
            event: "Filled",
            entity: B256::with_last_byte(10),
            seq: 11,
            fact: Some(json!({"kind": "filled"})),
            deposit: None,
        }
    }

    fn stored(row: &LogRow) -> (BlockNumber, B256, KeptEvent) {
        let event = KeptEvent {
            log_index: row.log_index,
            tx_hash: row.tx_hash,
            contract: row.contract.to_vec(),
            event: row.event.to_owned(),
            entity: row.entity,
            seq: row.seq,
            fact: row.fact.clone(),
            deposit: row.deposit.clone(),
        };
        (row.block_number, row.block_hash, event)
    }

    fn found(
        chain: &[LogRow],
        ours: &[(BlockNumber, B256, KeptEvent)],
    ) -> Vec<(DifferenceKind, u64, String)> {
        let compared = compare(chain, ours);
        compared.differences.into_iter().map(|d| (d.kind, d.block.0, d.detail)).collect()
    }

    #[test]
    fn a_strangers_anchor_may_be_gone_and_a_refund_may_be_part_of_a_cancellation() {
        let mut stranger = row(1, 0);
        (stranger.event, stranger.fact) = ("Anchored", None);
        let compared = compare(std::slice::from_ref(&stranger), &[]);
        assert_eq!((compared.strangers, compared.differences.len()), (1, 0));
        let mut refund = row(2, 0);
        refund.event = "Refunded";
        let mut kept = stored(&refund);
        kept.2.fact = None;
        assert_eq!(found(&[refund], &[kept]), []);
        let mut kept = stored(&row(2, 0));
        kept.2.fact = None;
        assert_eq!(found(&[row(2, 0)], &[kept])[0].0, DifferenceKind::Changed);
        let mut kept = stored(&row(2, 0));
        kept.2.seq = 12;
        let said = "seq: 11 on the chain, 12 stored".to_owned();
        assert_eq!(found(&[row(2, 0)], &[kept]), [(DifferenceKind::Changed, 2, said)]);
    }
}
