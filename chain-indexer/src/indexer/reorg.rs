//! Reorganizations: where the indexed chain and the node's diverge, and when that is too deep to be believed.

use super::{IndexError, Indexer, SURE_AFTER, Step, Turn};
use crate::reader::ChainReader;
use crate::rpc::BlockHead;
use alloy::eips::BlockId;
use alloy::primitives::B256;
use dvp_domain::chain::BlockNumber;
use dvp_store::chain::{self as store, Cursor, HaltReason};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const PAGE: i64 = 64;
/// After this many steps with the same head the other endpoints' heads are queried.
const COMPARE_EVERY: u32 = 4;
/// The time limit for an endpoint to return its head.
const PATIENCE: Duration = Duration::from_secs(3);

/// The point at which the indexed chain and the node's diverge.
enum Parting {
    /// The newest block that both have.
    At(BlockNumber, B256),
    /// A final indexed block is not the node's.
    Final { number: BlockNumber, ours: B256, theirs: B256 },
}

impl<R: ChainReader> Indexer<R> {
    /// Called when the node is not ahead of the indexer. If its head is an indexed block, it lags at most; otherwise
    /// there was a reorganization, or it lags on an abandoned branch.
    pub(super) async fn compare_head(
        &mut self,
        turn: &Turn<'_, R>,
        cursor: &Cursor,
        head: &BlockHead,
    ) -> Result<Step, IndexError> {
        let same_height = head.number == cursor.head_number;
        let ours = if same_height { Some(cursor.head_hash) } else { self.known_hash(head.number).await? };
        if ours == Some(head.hash) || ours.is_none() {
            if !same_height {
                let (node, indexed) = (head.number, cursor.head_number);
                tracing::debug!(chain = self.config.name, %node, %indexed, "the node is behind");
                self.endpoints.rotate();
            } else if self.is_time_to_compare() {
                self.find_higher(turn.at, head.number).await;
            }
            return Ok(Step::Idle);
        }
        if !same_height && self.others_have(turn.at, cursor.head_number, cursor.head_hash).await {
            self.endpoints.rotate();
            return Err(IndexError::Behind { number: cursor.head_number });
        }
        self.unwind(turn, cursor, head.number).await
    }

    /// Whether the head was unchanged for so many steps that other endpoints are queried.
    const fn is_time_to_compare(&mut self) -> bool {
        self.still += 1;
        self.still.is_multiple_of(COMPARE_EVERY)
    }

    /// Switches to an endpoint with a higher head: the present one may have stalled while the chain has not.
    async fn find_higher(&mut self, at: usize, height: BlockNumber) {
        let others: Vec<usize> = (0..self.endpoints.len()).filter(|&other| other != at).collect();
        for other in others {
            let node = Arc::clone(&self.endpoints.at(other).reader);
            let requested = tokio::time::timeout(PATIENCE, node.block(BlockId::latest())).await;
            if let Ok(Ok(Some(head))) = requested
                && head.number > height + 1
            {
                let (chain, theirs) = (&self.config.name, head.number);
                tracing::warn!(
                    chain,
                    endpoint = at,
                    other,
                    %height,
                    %theirs,
                    "endpoint's head does not advance; switching to another endpoint"
                );
                self.endpoints.pin(other);
                return;
            }
        }
    }

    async fn others_have(&self, at: usize, number: BlockNumber, hash: B256) -> bool {
        for other in self.endpoints.others(at) {
            if let Ok(Some(block)) = other.block(BlockId::number(number.0)).await
                && block.hash == hash
            {
                return true;
            }
        }
        false
    }

    /// Goes back to the newest indexed block that the node still has at its number.
    pub(super) async fn unwind(
        &mut self,
        turn: &Turn<'_, R>,
        cursor: &Cursor,
        node_head: BlockNumber,
    ) -> Result<Step, IndexError> {
        let (number, hash) = match self.parting(turn.node, cursor, node_head).await? {
            Parting::At(number, _) if number == cursor.head_number => {
                // It reported another one just before: two machines behind one endpoint.
                return Err(IndexError::Behind { number: number + 1 });
            }
            Parting::At(number, hash) => (number, hash),
            Parting::Final { number, ours, theirs } => {
                return Err(self.violated(turn, cursor, number, ours, theirs).await);
            }
        };
        let mut tx = self.pool.begin().await?;
        turn.lease.guard(&mut tx).await?;
        let (blocks, logs) = store::unwind_to(&mut tx, cursor, number, hash).await?;
        tx.commit().await?;
        self.backfill = None;
        tracing::warn!(chain = self.config.name, to = %number, blocks, logs, "reorg: blocks reverted");
        Ok(Step::Unwound)
    }

    /// Found by bisection: a block that both have stands for all before it. A deep reorganization takes few queries.
    async fn parting(
        &self,
        node: &R,
        cursor: &Cursor,
        node_head: BlockNumber,
    ) -> Result<Parting, IndexError> {
        let known = self.known_down_to_final(cursor, node_head).await?;
        let theirs = async |number: BlockNumber| {
            let block = node.block(BlockId::number(number.0)).await?;
            Ok::<_, IndexError>(block.ok_or(IndexError::Behind { number })?.hash)
        };
        // Those before `from` are not the node's; the one at `to` is.
        let (mut from, mut to) = (0, known.len());
        while let Some(&(number, hash)) = known.get(from + (to - from) / 2).filter(|_| from < to) {
            let middle = from + (to - from) / 2;
            if theirs(number).await? == hash { to = middle } else { from = middle + 1 }
        }
        match (known.get(from), known.last()) {
            (Some(&(number, hash)), _) if number >= cursor.final_number => Ok(Parting::At(number, hash)),
            (None, Some(&(number, ours))) if number <= cursor.final_number => match theirs(number).await? {
                // It reported another one just before: two machines behind one endpoint.
                theirs if theirs == ours => Err(IndexError::Behind { number }),
                theirs => Ok(Parting::Final { number, ours, theirs }),
            },
            // The node's chain ends below the final indexed block, with the same blocks: it lags.
            _ => Err(IndexError::Behind { number: cursor.final_number }),
        }
    }

    /// The indexed blocks up to the node's head, the newest first, down to one that is final.
    async fn known_down_to_final(
        &self,
        cursor: &Cursor,
        node_head: BlockNumber,
    ) -> Result<Vec<(BlockNumber, B256)>, IndexError> {
        let mut below = (cursor.head_number + 1).min(node_head + 1);
        let mut all: Vec<(BlockNumber, B256)> = Vec::new();
        loop {
            let mut conn = self.pool.acquire().await?;
            let known = store::known_hashes_below(&mut conn, self.config.chain_id, below, PAGE).await?;
            let Some(&(lowest, _)) = known.last() else { return Ok(all) };
            let last = known.iter().position(|(number, _)| *number <= cursor.final_number);
            all.extend(known.into_iter().take(last.map_or(usize::MAX, |last| last + 1)));
            if last.is_some() {
                return Ok(all);
            }
            below = lowest;
        }
    }

    /// An endpoint reports another hash at the height of a final block. The chain is halted once it has reported so
    /// several times in a row, more than half of the endpoints have that hash and none has ours. A lower `finalized`
    /// number alone halts nothing: one URL may be served by several machines, some of which lag.
    async fn violated(
        &mut self,
        turn: &Turn<'_, R>,
        cursor: &Cursor,
        number: BlockNumber,
        ours: B256,
        theirs: B256,
    ) -> IndexError {
        let mut contradicted = false;
        let (endpoints, mut agree) = (self.endpoints.len(), 1);
        for other in self.endpoints.others(turn.at) {
            match other.block(BlockId::number(number.0)).await {
                Ok(Some(block)) if block.hash == ours => contradicted = true,
                Ok(Some(block)) if block.hash == theirs => agree += 1,
                Ok(Some(_) | None) | Err(_) => {}
            }
        }
        let confirmed = agree * 2 > endpoints;
        if contradicted {
            self.violations = 0;
            return IndexError::Disagreement { number };
        }
        if confirmed {
            self.violations += 1;
        }
        tracing::error!(chain = self.config.name, %number, %ours, %theirs, said = self.violations,
                        "a node reports a different block at a finalized height");
        if self.violations < SURE_AFTER {
            return IndexError::FinalityDoubted { number };
        }
        let detail = format!("block {number} was {ours} and final, now it is {theirs}");
        self.halt(turn.lease, cursor, HaltReason::FinalBlockChanged, detail).await
    }

    /// Records that the completeness of the last events is no longer proven.
    pub(super) fn doubt_the_end(&self) {
        self.tail_proven.store(false, Ordering::Relaxed);
    }
}
