//! The events of a block, and the proof that they are complete.
//!
//! The proofs, cheapest first: the header's bloom excludes the contracts; the events' numbers follow the last ones and
//! end at the contracts' counts at this very block; the root of the receipts is the header's. If none succeeds, the
//! step fails and another endpoint is queried.

use super::{IndexError, Indexer, Step, Turn, decode};
use crate::reader::ChainReader;
use crate::rpc::BlockHead;
use alloy::consensus::proofs::calculate_receipt_root;
use alloy::primitives::{Address, B256, BloomInput, Log as PrimitiveLog};
use alloy::rpc::types::{Filter, Log, TransactionReceipt};
use alloy::transports::RpcError;
use dvp_store::chain::{self as store, Cursor, LogRow};
use futures_util::future::try_join_all;
use std::collections::HashMap;
use std::sync::atomic::Ordering;

pub(super) struct Proof {
    pub(super) rows: Vec<LogRow>,
    pub(super) by: &'static str,
    /// Whether it proves for every contract that no event up to this block is missing.
    pub(super) reaches_the_end: bool,
}

impl<R: ChainReader> Indexer<R> {
    pub(super) async fn prove(
        &self,
        node: &R,
        cursor: &Cursor,
        block: &BlockHead,
    ) -> Result<Proof, IndexError> {
        let requested = self.not_excluded(block);
        if requested.is_empty() {
            return Ok(Proof { rows: Vec::new(), by: "bloom", reaches_the_end: true });
        }
        let last = self.last_seqs(cursor).await?;
        match self.by_count(node, &requested, block, last.clone()).await {
            Ok(rows) => Ok(Proof { rows, by: "seq", reaches_the_end: true }),
            Err(error) if error.is_doubt() => match self.by_receipts(node, block, last).await? {
                Some(Ok(proof)) => Ok(proof),
                Some(Err(earlier)) => Err(earlier),
                None => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// The contracts that the block's header does not exclude.
    pub(super) fn not_excluded(&self, block: &BlockHead) -> Vec<Address> {
        let tail_proven = self.tail_proven.load(Ordering::Relaxed);
        let mut requested = self.contracts();
        if let Some(proven) = block.proven.as_ref().filter(|_| self.config.trust_bloom && tail_proven) {
            requested.retain(|address| proven.bloom.contains_input(BloomInput::Raw(address.as_slice())));
        }
        requested
    }

    pub(super) async fn last_seqs(&self, cursor: &Cursor) -> Result<HashMap<Address, u64>, IndexError> {
        let mut conn = self.pool.acquire().await?;
        Ok(store::last_seqs(&mut conn, cursor.chain_id, &self.contracts()).await?)
    }

    async fn by_count(
        &self,
        node: &R,
        requested: &[Address],
        block: &BlockHead,
        mut last: HashMap<Address, u64>,
    ) -> Result<Vec<LogRow>, IndexError> {
        let (rows, emitted) =
            tokio::join!(self.events_of(node, requested, block), counts(node, requested, block));
        let rows = rows?;
        decode::continue_seqs(&mut last, &rows)?;
        for (contract, emitted) in emitted? {
            // Contiguous numbers do not show that the last ones are missing; the contract's own count does.
            let seen = last.get(&contract).copied().unwrap_or_default();
            if emitted != seen {
                return Err(IndexError::Incomplete { contract, block_number: block.number, emitted, seen });
            }
        }
        Ok(rows)
    }

    pub(super) async fn events_of(
        &self,
        node: &R,
        requested: &[Address],
        block: &BlockHead,
    ) -> Result<Vec<LogRow>, IndexError> {
        let filter = Filter::new()
            .at_block_hash(block.hash)
            .address(requested.to_vec())
            .event_signature(decode::topics());
        self.rows_of(block, &node.logs(&filter).await?)
    }

    fn rows_of(&self, block: &BlockHead, logs: &[Log]) -> Result<Vec<LogRow>, IndexError> {
        let there = logs.iter().filter(|log| !log.removed);
        if let Some(log) = there.into_iter().find(|log| log.block_hash != Some(block.hash)) {
            return Err(IndexError::OtherBlock { requested: block.hash, found: log.block_hash });
        }
        let timestamps = HashMap::from([(block.hash, block.timestamp)]);
        Ok(decode::rows(&self.config.deployment, logs, &timestamps)?)
    }

    /// `None`: nothing is proven. An inner error: this block is proven, and shows that an earlier event is missing.
    async fn by_receipts(
        &self,
        node: &R,
        block: &BlockHead,
        mut last: HashMap<Address, u64>,
    ) -> Result<Option<Result<Proof, IndexError>>, IndexError> {
        let Some(proven) = block.proven.as_ref().filter(|_| self.config.trust_receipts) else {
            return Ok(None);
        };
        let Ok(Some(receipts)) = node.receipts(block.hash).await else { return Ok(None) };
        if root(&receipts) != proven.receipts_root {
            return Ok(None);
        }
        let (contracts, topics) = (self.contracts(), decode::topics());
        let requested = |log: &Log| {
            contracts.contains(&log.address()) && log.topic0().is_some_and(|topic| topics.contains(topic))
        };
        let rows = self.rows_of(block, &placed(&receipts, block, requested))?;
        if let Err(hole) = decode::continue_seqs(&mut last, &rows) {
            return Ok(Some(Err(hole.into())));
        }
        let mut reaches_the_end = true;
        for contract in contracts {
            let seen = last.get(&contract).copied().unwrap_or_default();
            match node.seq(contract, block.hash).await {
                Ok(emitted) if emitted == seen => {}
                Ok(emitted) => {
                    let block_number = block.number;
                    return Ok(Some(Err(IndexError::Incomplete { contract, block_number, emitted, seen })));
                }
                Err(_) => reaches_the_end = self.tail_proven.load(Ordering::Relaxed),
            }
        }
        Ok(Some(Ok(Proof { rows, by: "receipts", reaches_the_end })))
    }

    /// Handles a block whose events do not follow the stored ones. If ranges were read whose end could not be proven,
    /// the missing events may be there: they are read again. Otherwise the error is returned.
    pub(super) async fn repair(
        &self,
        turn: &Turn<'_, R>,
        cursor: &Cursor,
        error: IndexError,
    ) -> Result<Step, IndexError> {
        let contract = match &error {
            IndexError::Hole(hole) => hole.contract,
            IndexError::Incomplete { contract, .. } => *contract,
            _ => return Err(error),
        };
        if self.tail_proven.load(Ordering::Relaxed) {
            return Err(error);
        }
        let chain_id = self.config.chain_id;
        let from = store::find_last_block(&mut *self.pool.acquire().await?, chain_id, contract).await?;
        let deployment = &self.config.deployment;
        // A new set of contracts may be older than the last start.
        let set = deployment.sets().find(|set| set.own_numbered().any(|own| own == contract));
        let from = from.unwrap_or_else(|| set.unwrap_or(deployment).deployed_block);
        let Ok((blocks, mut rows)) = self.read_again(turn.node, from, cursor.head_number).await else {
            return Err(error);
        };
        let mut last = self.last_seqs(cursor).await?;
        // Another contract may lack earlier events: its own gap will show them.
        let known = last.get(&contract).copied().unwrap_or_default();
        rows.retain(|row| row.contract == contract && row.seq > known);
        if rows.is_empty() || decode::continue_seqs(&mut last, &rows).is_err() {
            return Err(error);
        }
        let mut tx = self.pool.begin().await?;
        turn.lease.guard(&mut tx).await?;
        store::record_blocks(&mut tx, cursor, cursor, &blocks, &rows).await?;
        store::retract_refunds_of_cancels(&mut tx, chain_id).await?;
        let after = from.saturating_sub(1);
        let reported = store::publish_events(&mut tx, chain_id, after, cursor.facts_number).await?;
        tx.commit().await?;
        self.tell(&reported, (after, cursor.facts_number));
        tracing::warn!(
            chain = self.config.name,
            %from,
            events = rows.len(),
            "events missing from range queries were added"
        );
        Ok(Step::Repaired)
    }
}

/// Each contract's own count at the end of a block.
pub(super) async fn counts<R: ChainReader>(
    node: &R,
    contracts: &[Address],
    block: &BlockHead,
) -> Result<Vec<(Address, u64)>, IndexError> {
    let answers = try_join_all(contracts.iter().map(|contract| node.seq(*contract, block.hash))).await?;
    Ok(contracts.iter().copied().zip(answers).collect())
}

fn root(receipts: &[TransactionReceipt]) -> B256 {
    let plain: Vec<_> =
        receipts.iter().map(|receipt| receipt.inner.clone().map_logs(PrimitiveLog::from)).collect();
    calculate_receipt_root(&plain)
}

/// The receipts' logs at their places in the block, regardless of the node's statements: only what the root covers is
/// evidence. Transaction hashes are not covered; they are for display.
fn placed(receipts: &[TransactionReceipt], block: &BlockHead, wanted: impl Fn(&Log) -> bool) -> Vec<Log> {
    let mut logs = Vec::new();
    let mut log_index = 0;
    for receipt in receipts {
        for log in receipt.inner.logs() {
            if wanted(log) {
                logs.push(Log {
                    inner: log.inner.clone(),
                    block_hash: Some(block.hash),
                    block_number: Some(block.number.0),
                    block_timestamp: None,
                    transaction_hash: Some(receipt.transaction_hash),
                    transaction_index: receipt.transaction_index,
                    log_index: Some(log_index),
                    removed: false,
                });
            }
            log_index += 1;
        }
    }
    logs
}

/// Whether an endpoint refused, as one does that no longer has old state.
pub(super) const fn is_refusal<T, E>(result: &Result<T, RpcError<E>>) -> bool {
    matches!(result, Err(RpcError::ErrorResp(_)))
}
