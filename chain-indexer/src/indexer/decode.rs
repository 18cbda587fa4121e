//! Decodes logs to rows and facts, and finds missing ones. Pure.

use crate::contracts::{
    anchor::ReceiptAnchor, coin::CoinGate, escrow::Escrow, payouts::Payouts, settler::IntentSettler,
};
use crate::deploy::Deployment;
use alloy::primitives::{Address, B256};
use alloy::rpc::types::Log;
use alloy::sol_types::{SolEvent, SolEventInterface};
use dvp_domain::chain::{BlockNumber, ChainFact, Deposit, LockTerms, SwapTerms};
use dvp_store::chain::LogRow;
use std::collections::HashMap;

/// The requested events: all that have a number. The contracts emit others (OpenZeppelin's own of roles and of the
/// administrator), which have none.
pub(super) fn topics() -> Vec<B256> {
    vec![
        Escrow::Locked::SIGNATURE_HASH,
        Escrow::Released::SIGNATURE_HASH,
        Escrow::Refunded::SIGNATURE_HASH,
        Escrow::Owed::SIGNATURE_HASH,
        Escrow::Withdrawn::SIGNATURE_HASH,
        IntentSettler::Created::SIGNATURE_HASH,
        IntentSettler::Filled::SIGNATURE_HASH,
        IntentSettler::Settled::SIGNATURE_HASH,
        IntentSettler::Cancelled::SIGNATURE_HASH,
        IntentSettler::ReturnApproved::SIGNATURE_HASH,
        IntentSettler::ReceiverSet::SIGNATURE_HASH,
        // The same in `Payouts`.
        IntentSettler::ItemFailed::SIGNATURE_HASH,
        IntentSettler::RoleSet::SIGNATURE_HASH,
        IntentSettler::PauseSet::SIGNATURE_HASH,
        ReceiptAnchor::Anchored::SIGNATURE_HASH,
        Payouts::Paid::SIGNATURE_HASH,
        Payouts::CapSet::SIGNATURE_HASH,
        Payouts::AuthorizerSet::SIGNATURE_HASH,
        CoinGate::Deposited::SIGNATURE_HASH,
        CoinGate::Reclaimed::SIGNATURE_HASH,
        CoinGate::Claimed::SIGNATURE_HASH,
    ]
}

/// Why a log is not a valid event of the contracts in a block.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("a log without its place in a block")]
    Unplaced,
    #[error("two logs at place {log_index} of block {block_hash}")]
    TwoInOnePlace { block_hash: B256, log_index: u64 },
    #[error("log {log_index} of transaction {tx_hash} does not decode: {reason}")]
    Undecodable { tx_hash: B256, log_index: u64, reason: String },
    #[error("`Created` of {entity} without its `Locked` or `Settled` in transaction {tx_hash}")]
    CreatedWithoutLock { entity: B256, tx_hash: B256 },
}

enum Event {
    Locked {
        timelock: u64,
        hashlock: B256,
    },
    Released,
    Refunded,
    Created(Box<IntentSettler::Created>),
    Filled {
        payout_ref: B256,
    },
    Settled,
    Cancelled,
    Anchored {
        submitter: Address,
    },
    Paid(Box<Payouts::Paid>),
    Deposit {
        name: &'static str,
        left: Deposit,
    },
    /// Stored for its number and for look-ups: it leads to no fact.
    Other(&'static str),
}

struct Decoded {
    event: Event,
    entity: B256,
    seq: u64,
}

/// Rows in block order, for logs in any order: duplicates are merged, those marked as removed are left out.
/// `timestamps` has the time of every block that occurs.
pub(super) fn rows(
    deployment: &Deployment,
    logs: &[Log],
    timestamps: &HashMap<B256, u64>,
) -> Result<Vec<LogRow>, DecodeError> {
    let mut rows = Vec::with_capacity(logs.len());
    let mut events = Vec::with_capacity(logs.len());
    for log in in_order(logs)? {
        let LogPosition { block_number, log_index, block_hash, tx_hash } = place(log)?;
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
            deposit: None,
        });
        events.push(decoded.event);
    }
    add_facts(deployment, &mut rows, &events)?;
    Ok(rows)
}

struct LogPosition {
    block_number: BlockNumber,
    log_index: u64,
    block_hash: B256,
    tx_hash: B256,
}

fn place(log: &Log) -> Result<LogPosition, DecodeError> {
    let place = (log.block_number.map(BlockNumber), log.log_index, log.block_hash, log.transaction_hash);
    let (Some(block_number), Some(log_index), Some(block_hash), Some(tx_hash)) = place else {
        return Err(DecodeError::Unplaced);
    };
    Ok(LogPosition { block_number, log_index, block_hash, tx_hash })
}

fn in_order(logs: &[Log]) -> Result<Vec<&Log>, DecodeError> {
    let mut there: Vec<&Log> = logs.iter().filter(|log| !log.removed).collect();
    there.sort_by_key(|log| (log.block_number, log.log_index, log.block_hash));
    let twin = |a: &Log, b: &Log| a.block_hash == b.block_hash && a.log_index == b.log_index;
    for pair in there.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        if twin(a, b) && (a.inner != b.inner || a.transaction_hash != b.transaction_hash) {
            let LogPosition { block_hash, log_index, .. } = place(a)?;
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
            Self::Created(_) => "Created",
            Self::Filled { .. } => "Filled",
            Self::Settled => "Settled",
            Self::Cancelled => "Cancelled",
            Self::Anchored { .. } => "Anchored",
            Self::Paid(_) => "Paid",
            Self::Deposit { name, .. } | Self::Other(name) => name,
        }
    }
}

fn decode(deployment: &Deployment, log: &Log) -> Result<Decoded, String> {
    let address = log.address();
    let set = deployment.sets().find(|set| set.own_numbered().any(|own| own == address));
    let set = set.ok_or_else(|| format!("{address} is not a contract of ours"))?;
    let (event, entity, seq) = if address == set.settler {
        of_settler(log)?
    } else if address == set.escrow {
        of_escrow(log)?
    } else if address == set.anchor {
        use ReceiptAnchor::ReceiptAnchorEvents as E;
        let E::Anchored(e) = E::decode_log(&log.inner).map_err(|error| error.to_string())?.data;
        (Event::Anchored { submitter: e.submitter }, e.contentHash, e.seq)
    } else if address == set.payouts {
        of_payouts(log)?
    } else {
        of_gate(log)?
    };
    Ok(Decoded { event, entity, seq })
}

/// An event, its entity and its number. An event about an account has its address as the entity, padded with zeros as
/// on the chain; one about the contract has zero.
type Numbered = (Event, B256, u64);

fn of_settler(log: &Log) -> Result<Numbered, String> {
    use IntentSettler::IntentSettlerEvents as E;
    Ok(match E::decode_log(&log.inner).map_err(|error| error.to_string())?.data {
        E::Created(e) => {
            let (id, seq) = (e.intentId, e.seq);
            (Event::Created(Box::new(e)), id, seq)
        }
        E::Filled(e) => (Event::Filled { payout_ref: e.payoutRef }, e.intentId, e.seq),
        E::Settled(e) => (Event::Settled, e.intentId, e.seq),
        E::Cancelled(e) => (Event::Cancelled, e.intentId, e.seq),
        E::ReturnApproved(e) => (Event::Other("ReturnApproved"), e.intentId, e.seq),
        E::ItemFailed(e) => (Event::Other("ItemFailed"), e.id, e.seq),
        E::ReceiverSet(e) => (Event::Other("ReceiverSet"), e.receiver.into_word(), e.seq),
        E::RoleSet(e) => (Event::Other("RoleSet"), e.account.into_word(), e.seq),
        E::PauseSet(e) => (Event::Other("PauseSet"), B256::ZERO, e.seq),
        E::RoleAdminChanged(_)
        | E::RoleGranted(_)
        | E::RoleRevoked(_)
        | E::DefaultAdminDelayChangeCanceled(_)
        | E::DefaultAdminDelayChangeScheduled(_)
        | E::DefaultAdminTransferCanceled(_)
        | E::DefaultAdminTransferScheduled(_)
        | E::EIP712DomainChanged(_) => return Err("not a requested event".into()),
    })
}

fn of_escrow(log: &Log) -> Result<Numbered, String> {
    use Escrow::EscrowEvents as E;
    Ok(match E::decode_log(&log.inner).map_err(|error| error.to_string())?.data {
        E::Locked(e) => (Event::Locked { timelock: e.timelock, hashlock: e.hashlock }, e.id, e.seq),
        E::Released(e) => (Event::Released, e.id, e.seq),
        E::Refunded(e) => (Event::Refunded, e.id, e.seq),
        E::Owed(e) => (Event::Other("Owed"), e.id, e.seq),
        E::Withdrawn(e) => (Event::Other("Withdrawn"), e.account.into_word(), e.seq),
    })
}

fn of_payouts(log: &Log) -> Result<Numbered, String> {
    use Payouts::PayoutsEvents as E;
    Ok(match E::decode_log(&log.inner).map_err(|error| error.to_string())?.data {
        E::Paid(e) => {
            let (id, seq) = (e.id, e.seq);
            (Event::Paid(Box::new(e)), id, seq)
        }
        E::ItemFailed(e) => (Event::Other("ItemFailed"), e.id, e.seq),
        E::CapSet(e) => (Event::Other("CapSet"), e.payer.into_word(), e.seq),
        E::AuthorizerSet(e) => (Event::Other("AuthorizerSet"), e.payer.into_word(), e.seq),
        E::RoleSet(e) => (Event::Other("RoleSet"), e.account.into_word(), e.seq),
        E::PauseSet(e) => (Event::Other("PauseSet"), B256::ZERO, e.seq),
        E::RoleAdminChanged(_)
        | E::RoleGranted(_)
        | E::RoleRevoked(_)
        | E::DefaultAdminDelayChangeCanceled(_)
        | E::DefaultAdminDelayChangeScheduled(_)
        | E::DefaultAdminTransferCanceled(_)
        | E::DefaultAdminTransferScheduled(_)
        | E::EIP712DomainChanged(_) => return Err("not a requested event".into()),
    })
}

fn of_gate(log: &Log) -> Result<Numbered, String> {
    use CoinGate::CoinGateEvents as E;
    let (name, id, depositor, total, seq) =
        match E::decode_log(&log.inner).map_err(|error| error.to_string())?.data {
            E::Deposited(e) => ("Deposited", e.id, e.depositor, e.total, e.seq),
            E::Reclaimed(e) => ("Reclaimed", e.id, e.depositor, e.total, e.seq),
            E::Claimed(e) => ("Claimed", e.id, e.depositor, e.total, e.seq),
        };
    let left = Deposit { depositor: format!("{depositor:#x}"), total: total.to_string() };
    Ok((Event::Deposit { name, left }, id, seq))
}

/// Data of the other events of a settlement in the same transaction.
#[derive(Default)]
struct Beside<'a> {
    created: Option<&'a IntentSettler::Created>,
    /// Timelock and hashlock of its lock.
    lock: Option<(u64, B256)>,
    cancelled: bool,
    settled: bool,
}

/// Derives the facts. A refund caused by a cancel in the same transaction is reported as the cancel; a swap, which
/// locks nothing, leads to a fact of its payment and, with its terms, one of its settlement; anchors count when one of
/// the service's relayers submitted them.
fn add_facts(deployment: &Deployment, rows: &mut [LogRow], events: &[Event]) -> Result<(), DecodeError> {
    let mut beside: HashMap<(B256, B256), Beside<'_>> = HashMap::new();
    for (row, event) in rows.iter().zip(events) {
        let of = || (row.tx_hash, row.entity);
        match event {
            Event::Locked { timelock, hashlock } => {
                beside.entry(of()).or_default().lock = Some((*timelock, *hashlock));
            }
            Event::Cancelled => beside.entry(of()).or_default().cancelled = true,
            Event::Settled => beside.entry(of()).or_default().settled = true,
            Event::Created(created) => beside.entry(of()).or_default().created = Some(created),
            Event::Released
            | Event::Refunded
            | Event::Filled { .. }
            | Event::Anchored { .. }
            | Event::Paid(_)
            | Event::Deposit { .. }
            | Event::Other(_) => {}
        }
    }
    let alone = Beside::default();
    for (row, event) in rows.iter_mut().zip(events) {
        let beside = beside.get(&(row.tx_hash, row.entity)).unwrap_or(&alone);
        row.deposit = match event {
            Event::Deposit { left, .. } => serde_json::to_value(left).ok(),
            _ => None,
        };
        let fact = match event {
            Event::Created(created) => match beside.lock {
                Some((timelock, hashlock)) => Some(locked(created, timelock, hashlock)),
                None if beside.settled => None,
                None => {
                    let (entity, tx_hash) = (row.entity, row.tx_hash);
                    return Err(DecodeError::CreatedWithoutLock { entity, tx_hash });
                }
            },
            Event::Filled { payout_ref } => Some(ChainFact::Filled { payout_ref: payout_ref.to_string() }),
            Event::Settled => {
                let swap = beside.created.filter(|_| beside.lock.is_none()).map(swapped).map(Box::new);
                Some(ChainFact::Settled { swap })
            }
            Event::Paid(paid) => Some(ChainFact::Transferred {
                payer: paid.payer.to_string(),
                receiver: paid.receiver.to_string(),
                token: paid.token.to_string(),
                amount: paid.amount.to_string(),
            }),
            Event::Cancelled => Some(ChainFact::Cancelled),
            Event::Refunded if !beside.cancelled => Some(ChainFact::Refunded),
            Event::Anchored { submitter }
                if deployment.sets().any(|set| set.relayers.contains(submitter)) =>
            {
                Some(ChainFact::Anchored)
            }
            Event::Locked { .. }
            | Event::Released
            | Event::Refunded
            | Event::Anchored { .. }
            | Event::Deposit { .. }
            | Event::Other(_) => None,
        };
        row.fact = fact.map(|fact| serde_json::to_value(fact).expect("a fact has no map keys but strings"));
    }
    Ok(())
}

fn locked(created: &IntentSettler::Created, timelock: u64, hashlock: B256) -> ChainFact {
    let lock = LockTerms {
        maker: created.maker.to_string(),
        solver: created.solver.to_string(),
        token: created.tokenIn.to_string(),
        fill_deadline: created.fillDeadline,
        hashlock: hashlock.to_string(),
        terms: created.terms.to_string(),
    };
    ChainFact::Created { timelock, amount: created.amountIn.to_string(), lock: Box::new(lock) }
}

fn swapped(created: &IntentSettler::Created) -> SwapTerms {
    SwapTerms {
        maker: created.maker.to_string(),
        solver: created.solver.to_string(),
        token: created.tokenIn.to_string(),
        amount: created.amountIn.to_string(),
        // A swap has no fill deadline, and emits its lock-by in that field.
        lock_by: created.fillDeadline,
        terms: created.terms.to_string(),
    }
}

/// A number that is missing in the sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("contract {contract}: event {expected} is missing before event {found} in block {block_number}")]
pub struct Hole {
    pub contract: Address,
    pub expected: u64,
    pub found: u64,
    pub block_number: BlockNumber,
}

/// Adds the rows' numbers to `last`, by contract, when none is missing or repeated.
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
