//! Logs to rows and facts, and whether any are missing. Pure.

use crate::contracts::{anchor::ReceiptAnchor, escrow::Escrow, payouts::Payouts, settler::IntentSettler};
use crate::deploy::Deployment;
use alloy::primitives::{Address, B256};
use alloy::rpc::types::Log;
use alloy::sol_types::{SolEvent, SolEventInterface};
use dvp_core::chain::ChainFact;
use dvp_core::store::chain::LogRow;
use std::collections::HashMap;

/// The events we ask for. The contracts emit others (roles), which carry no number.
pub(super) fn topics() -> Vec<B256> {
    vec![
        Escrow::Locked::SIGNATURE_HASH,
        Escrow::Released::SIGNATURE_HASH,
        Escrow::Refunded::SIGNATURE_HASH,
        IntentSettler::Created::SIGNATURE_HASH,
        IntentSettler::Filled::SIGNATURE_HASH,
        IntentSettler::Settled::SIGNATURE_HASH,
        IntentSettler::Cancelled::SIGNATURE_HASH,
        ReceiptAnchor::Anchored::SIGNATURE_HASH,
        Payouts::Paid::SIGNATURE_HASH,
    ]
}

/// A log that cannot be one of ours, or not in a block.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("a log without its place in a block")]
    Unplaced,
    #[error("two logs at place {log_index} of block {block_hash}")]
    TwoInOnePlace { block_hash: B256, log_index: u64 },
    #[error("log {log_index} of transaction {tx_hash} does not decode: {reason}")]
    Undecodable { tx_hash: B256, log_index: u64, reason: String },
    #[error("`Created` of {entity} without its `Locked` in transaction {tx_hash}")]
    CreatedWithoutLock { entity: B256, tx_hash: B256 },
}

/// An event by what it means to us.
enum Event {
    Locked { timelock: u64 },
    Released,
    Refunded,
    Created { amount: String },
    Filled { payout_ref: B256 },
    Settled,
    Cancelled,
    Anchored { submitter: Address },
    Paid { receiver: Address, amount: String },
}

struct Decoded {
    event: Event,
    entity: B256,
    seq: u64,
}

/// Rows in block order, however the logs came: doubles are one, those marked as removed are none.
/// `timestamps` has the time of every block that occurs.
pub(super) fn rows(
    deployment: &Deployment,
    logs: &[Log],
    timestamps: &HashMap<B256, u64>,
) -> Result<Vec<LogRow>, DecodeError> {
    let mut rows = Vec::with_capacity(logs.len());
    let mut events = Vec::with_capacity(logs.len());
    for log in in_order(logs)? {
        let Place { block_number, log_index, block_hash, tx_hash } = place(log)?;
        let undecodable = |reason: String| DecodeError::Undecodable { tx_hash, log_index, reason };
        let decoded = decode(deployment, log).map_err(undecodable)?;
        rows.push(LogRow {
            block_hash,
            log_index,
            block_number,
            timestamp: timestamps.get(&block_hash).copied().ok_or(DecodeError::Unplaced)?,
            tx_hash,
            contract: log.address(),
            event: decoded.event.name(),
            entity: decoded.entity,
            seq: decoded.seq,
            fact: None,
        });
        events.push(decoded.event);
    }
    add_facts(deployment, &mut rows, &events)?;
    Ok(rows)
}

struct Place {
    block_number: u64,
    log_index: u64,
    block_hash: B256,
    tx_hash: B256,
}

fn place(log: &Log) -> Result<Place, DecodeError> {
    let place = (log.block_number, log.log_index, log.block_hash, log.transaction_hash);
    let (Some(block_number), Some(log_index), Some(block_hash), Some(tx_hash)) = place else {
        return Err(DecodeError::Unplaced);
    };
    Ok(Place { block_number, log_index, block_hash, tx_hash })
}

fn in_order(logs: &[Log]) -> Result<Vec<&Log>, DecodeError> {
    let mut there: Vec<&Log> = logs.iter().filter(|log| !log.removed).collect();
    there.sort_by_key(|log| (log.block_number, log.log_index, log.block_hash));
    let twin = |a: &Log, b: &Log| a.block_hash == b.block_hash && a.log_index == b.log_index;
    for pair in there.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        if twin(a, b) && (a.inner != b.inner || a.transaction_hash != b.transaction_hash) {
            let Place { block_hash, log_index, .. } = place(a)?;
            return Err(DecodeError::TwoInOnePlace { block_hash, log_index });
        }
    }
    there.dedup_by(|a, b| twin(a, b));
    Ok(there)
}

impl Event {
    const fn name(&self) -> &'static str {
        match self {
            Self::Locked { .. } => "Locked",
            Self::Released => "Released",
            Self::Refunded => "Refunded",
            Self::Created { .. } => "Created",
            Self::Filled { .. } => "Filled",
            Self::Settled => "Settled",
            Self::Cancelled => "Cancelled",
            Self::Anchored { .. } => "Anchored",
            Self::Paid { .. } => "Paid",
        }
    }
}

fn decode(deployment: &Deployment, log: &Log) -> Result<Decoded, String> {
    let address = log.address();
    if address == deployment.settler {
        use IntentSettler::IntentSettlerEvents as E;
        let event = E::decode_log(&log.inner).map_err(|error| error.to_string())?.data;
        let (event, entity, seq) = match event {
            E::Created(e) => (Event::Created { amount: e.amountIn.to_string() }, e.intentId, e.seq),
            E::Filled(e) => (Event::Filled { payout_ref: e.payoutRef }, e.intentId, e.seq),
            E::Settled(e) => (Event::Settled, e.intentId, e.seq),
            E::Cancelled(e) => (Event::Cancelled, e.intentId, e.seq),
            E::RoleAdminChanged(_) | E::RoleGranted(_) | E::RoleRevoked(_) => {
                return Err("not asked for".into());
            }
        };
        Ok(Decoded { event, entity, seq })
    } else if address == deployment.escrow {
        use Escrow::EscrowEvents as E;
        let event = E::decode_log(&log.inner).map_err(|error| error.to_string())?.data;
        let (event, entity, seq) = match event {
            E::Locked(e) => (Event::Locked { timelock: e.timelock }, e.id, e.seq),
            E::Released(e) => (Event::Released, e.id, e.seq),
            E::Refunded(e) => (Event::Refunded, e.id, e.seq),
            E::RoleAdminChanged(_) | E::RoleGranted(_) | E::RoleRevoked(_) => {
                return Err("not asked for".into());
            }
        };
        Ok(Decoded { event, entity, seq })
    } else if address == deployment.anchor {
        use ReceiptAnchor::ReceiptAnchorEvents as E;
        let E::Anchored(e) = E::decode_log(&log.inner).map_err(|error| error.to_string())?.data;
        Ok(Decoded { event: Event::Anchored { submitter: e.submitter }, entity: e.contentHash, seq: e.seq })
    } else if address == deployment.payouts {
        use Payouts::PayoutsEvents as E;
        let event = E::decode_log(&log.inner).map_err(|error| error.to_string())?.data;
        let E::Paid(e) = event else { return Err("not asked for".into()) };
        let paid = Event::Paid { receiver: e.receiver, amount: e.amount.to_string() };
        Ok(Decoded { event: paid, entity: e.id, seq: e.seq })
    } else {
        Err(format!("{address} is not a contract of ours"))
    }
}

/// What the engine is told. A refund that a cancel brought about in the same transaction is the cancel's; anchors
/// count when one of our relayers submitted them.
fn add_facts(deployment: &Deployment, rows: &mut [LogRow], events: &[Event]) -> Result<(), DecodeError> {
    let mut timelocks = HashMap::new();
    let mut cancels = std::collections::HashSet::new();
    for (row, event) in rows.iter().zip(events) {
        match event {
            Event::Locked { timelock } => {
                timelocks.insert((row.tx_hash, row.entity), *timelock);
            }
            Event::Cancelled => {
                cancels.insert((row.tx_hash, row.entity));
            }
            Event::Released
            | Event::Refunded
            | Event::Created { .. }
            | Event::Filled { .. }
            | Event::Settled
            | Event::Anchored { .. }
            | Event::Paid { .. } => {}
        }
    }
    for (row, event) in rows.iter_mut().zip(events) {
        let of = (row.tx_hash, row.entity);
        let fact = match event {
            Event::Created { amount } => {
                let timelock = timelocks.get(&of).copied();
                let missing = DecodeError::CreatedWithoutLock { entity: row.entity, tx_hash: row.tx_hash };
                Some(ChainFact::Created { timelock: timelock.ok_or(missing)?, amount: amount.clone() })
            }
            Event::Filled { payout_ref } => Some(ChainFact::Filled { payout_ref: payout_ref.to_string() }),
            Event::Settled => Some(ChainFact::Settled),
            Event::Paid { receiver, amount } => {
                Some(ChainFact::Transferred { receiver: receiver.to_string(), amount: amount.clone() })
            }
            Event::Cancelled => Some(ChainFact::Cancelled),
            Event::Refunded if !cancels.contains(&of) => Some(ChainFact::Refunded),
            Event::Anchored { submitter } if deployment.relayers.contains(submitter) => {
                Some(ChainFact::Anchored)
            }
            Event::Locked { .. } | Event::Released | Event::Refunded | Event::Anchored { .. } => None,
        };
        row.fact = fact.map(|fact| serde_json::to_value(fact).expect("a fact has no map keys but strings"));
    }
    Ok(())
}

/// A number that should have come next and did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("contract {contract}: event {expected} is missing before event {found} in block {block_number}")]
pub struct Hole {
    pub contract: Address,
    pub expected: u64,
    pub found: u64,
    pub block_number: u64,
}

/// Adds the rows' numbers to `last`, contract by contract, when none is missing or twice.
pub(super) fn continue_seqs(last: &mut HashMap<Address, u64>, rows: &[LogRow]) -> Result<(), Hole> {
    for row in rows {
        let last = last.entry(row.contract).or_default();
        let expected = *last + 1;
        if row.seq != expected {
            return Err(Hole {
                contract: row.contract,
                expected,
                found: row.seq,
                block_number: row.block_number,
            });
        }
        *last = row.seq;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
