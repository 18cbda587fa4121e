//! Follows the contracts' events and gives the engine facts.
//!
//! Two zones. Up to the chain's finalized block, ranges of blocks are read by number. Above it one block at a time
//! is read by its hash, linked to its parent; when the link breaks we go back to the last block that is still
//! there. Blocks, events, facts and the cursor are written in one transaction under the lease of the duty.
//!
//! Invariants:
//! - the cursor never passes a block whose events are not proven complete: the header's own bloom excludes our
//!   contracts, or the events' numbers are contiguous and end at the contract's `seq()` at that very block;
//! - what is in doubt is read again, never skipped;
//! - nothing at or below `final_number` is ever taken back: a chain that does is not followed any further.

mod decode;
mod verify;

use crate::config::ChainConfig;
use crate::duty::{Backoff, Duty};
use crate::rpc::{self, BlockHead};
use alloy::eips::BlockId;
use alloy::primitives::{Address, B256};
use alloy::providers::{DynProvider, Provider};
use alloy::transports::{RpcError, TransportError};
use dvp_core::store::chain::{self as store, BlockRow, Cursor, Emitted, LogRow};
use dvp_core::store::lease::Lease;
use dvp_core::store::{PgPool, StoreError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

pub use decode::{DecodeError, Hole};

/// So far behind the final block, ranges are read.
const RANGE_FROM: u64 = 16;
const RANGE_MAX: u64 = 2_000;
/// Canonical blocks remembered below the final one.
const KEEP_BLOCKS: u64 = 1_024;
const PRUNE_EVERY: u64 = 256;

/// Why the indexer does not go on for now.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("chain call failed: {0}")]
    Rpc(#[from] TransportError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error(transparent)]
    Hole(#[from] Hole),
    #[error("contract {contract} has emitted {emitted} events at block {block_number}, we were given {seen}")]
    Incomplete { contract: Address, block_number: u64, emitted: u64, seen: u64 },
    #[error("the node gave logs of block {found:?} for block {asked}")]
    OtherBlock { asked: B256, found: Option<B256> },
    #[error("block {number} changed though it was final")]
    FinalityViolated { number: u64 },
    #[error("the node is on chain {found}, not {expected}")]
    WrongChain { expected: u64, found: u64 },
}

impl From<sqlx::Error> for IndexError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// What one step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Blocks were read; there may be more.
    Advanced,
    /// Blocks were taken back.
    Unwound,
    /// We are at the head.
    Idle,
}

/// Runs until cancelled. Errors of the node and the database are logged and tried again.
pub async fn run_indexer(
    pool: PgPool,
    config: ChainConfig,
    shutdown: CancellationToken,
) -> Result<(), IndexError> {
    let name = format!("indexer:{}", config.chain_id);
    let mut indexer = Indexer::new(pool.clone(), config)?;
    while let Some(mut duty) = Duty::acquire(&pool, &name, &shutdown).await {
        indexer.follow(&mut duty, &shutdown).await;
        duty.release(&pool).await;
    }
    Ok(())
}

/// Reads one chain, step by step.
pub struct Indexer {
    pool: PgPool,
    provider: DynProvider,
    config: ChainConfig,
    /// Whether the node was asked which chain it is on.
    chain_checked: bool,
    /// Whether the numbers read so far were compared with the contracts' own since we started.
    tail_proven: bool,
    range: u64,
}

impl Indexer {
    /// No traffic yet.
    pub fn new(pool: PgPool, config: ChainConfig) -> Result<Self, IndexError> {
        let provider = rpc::connect(&config.rpc_url)?;
        Ok(Self { pool, provider, config, chain_checked: false, tail_proven: false, range: RANGE_MAX })
    }

    async fn follow(&mut self, duty: &mut Duty, shutdown: &CancellationToken) {
        let mut backoff = Backoff::new();
        while !shutdown.is_cancelled() {
            let pause = match self.turn(duty).await {
                Ok(None) => {
                    tracing::warn!(chain = self.config.name, "the indexer's duty was lost");
                    return;
                }
                Ok(Some(step)) => {
                    backoff.reset();
                    if step == Step::Idle { self.config.poll_interval } else { Duration::ZERO }
                }
                Err(error @ IndexError::FinalityViolated { .. }) => {
                    tracing::error!(chain = self.config.name, %error, "chain halted: an operator must look");
                    Duration::from_secs(5)
                }
                Err(error) => {
                    tracing::error!(chain = self.config.name, %error, "the indexer holds");
                    backoff.next()
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn turn(&mut self, duty: &mut Duty) -> Result<Option<Step>, IndexError> {
        if duty.keep(&self.pool).await? { self.step(&duty.lease).await.map(Some) } else { Ok(None) }
    }

    /// Reads the next block or range, or goes back, if there is reason to.
    pub async fn step(&mut self, lease: &Lease) -> Result<Step, IndexError> {
        self.check_chain().await?;
        let cursor = self.cursor().await?;
        let head = rpc::head(&self.provider).await?;
        if head.number <= cursor.head_number {
            return self.compare_head(lease, &cursor, &head).await;
        }
        let final_number = self.final_number(&head).await?;
        if final_number > cursor.head_number + RANGE_FROM {
            self.read_range(lease, &cursor, &head, final_number).await
        } else {
            self.read_next(lease, &cursor, head, final_number).await
        }
    }

    async fn check_chain(&mut self) -> Result<(), IndexError> {
        if !self.chain_checked {
            let (expected, found) = (self.config.chain_id, self.provider.get_chain_id().await?);
            if found != expected {
                return Err(IndexError::WrongChain { expected, found });
            }
            self.chain_checked = true;
        }
        Ok(())
    }

    /// Where we are; at first, just before the contracts.
    async fn cursor(&self) -> Result<Cursor, IndexError> {
        let chain_id = self.config.chain_id;
        let mut conn = self.pool.acquire().await?;
        if let Some(cursor) = store::find_cursor(&mut conn, chain_id).await? {
            return Ok(cursor);
        }
        let number = self.config.deployment.deployed_block.saturating_sub(1);
        let block = self.block_at(number).await?.ok_or(RpcError::NullResp)?;
        let start = Cursor {
            chain_id,
            head_number: number,
            head_hash: block.hash,
            final_number: number,
            facts_number: number,
            version: 0,
        };
        store::insert_cursor(&mut conn, &start).await?;
        Ok(store::find_cursor(&mut conn, chain_id).await?.unwrap_or(start))
    }

    async fn block_at(&self, number: u64) -> Result<Option<BlockHead>, TransportError> {
        rpc::block(&self.provider, BlockId::number(number)).await
    }

    /// The node's finalized block less our margin; a node that knows no such tag finalizes nothing.
    async fn final_number(&self, head: &BlockHead) -> Result<u64, TransportError> {
        let finalized = match rpc::block(&self.provider, BlockId::finalized()).await {
            Ok(block) => block.map_or(0, |block| block.number),
            Err(RpcError::ErrorResp(_)) => 0,
            Err(error) => return Err(error),
        };
        Ok(finalized.min(head.number).saturating_sub(self.config.finality_margin))
    }

    /// The node is not ahead of us. If its head is a block of ours it is at most late, otherwise there was a reorg.
    async fn compare_head(
        &mut self,
        lease: &Lease,
        cursor: &Cursor,
        head: &BlockHead,
    ) -> Result<Step, IndexError> {
        let ours = if head.number == cursor.head_number {
            Some(cursor.head_hash)
        } else {
            let mut conn = self.pool.acquire().await?;
            store::find_known_hash(&mut conn, self.config.chain_id, head.number).await?
        };
        match ours {
            Some(hash) if hash == head.hash => Ok(Step::Idle),
            Some(_) => self.unwind(lease, cursor).await,
            None => {
                let (node, indexed) = (head.number, cursor.head_number);
                tracing::warn!(chain = self.config.name, node, indexed, "the node is far behind");
                Ok(Step::Idle)
            }
        }
    }

    /// Goes back to the newest block of ours that the node still has under its number.
    async fn unwind(&mut self, lease: &Lease, cursor: &Cursor) -> Result<Step, IndexError> {
        let chain_id = self.config.chain_id;
        let mut below = cursor.head_number + 1;
        let (number, hash) = loop {
            let mut conn = self.pool.acquire().await?;
            let known = store::known_hashes_below(&mut conn, chain_id, below, 64).await?;
            drop(conn);
            let Some((lowest, _)) = known.last().copied() else {
                return Err(IndexError::FinalityViolated { number: below });
            };
            if let Some(ancestor) = self.first_shared(cursor, &known).await? {
                break ancestor;
            }
            below = lowest;
        };
        let mut tx = self.pool.begin().await?;
        lease.guard(&mut tx).await?;
        let (blocks, logs) = store::unwind_to(&mut tx, cursor, number, hash).await?;
        tx.commit().await?;
        self.tail_proven = false;
        tracing::warn!(chain = self.config.name, to = number, blocks, logs, "reorg: blocks taken back");
        Ok(Step::Unwound)
    }

    async fn first_shared(
        &self,
        cursor: &Cursor,
        known: &[(u64, B256)],
    ) -> Result<Option<(u64, B256)>, IndexError> {
        for &(number, hash) in known {
            if number < cursor.final_number {
                return Err(IndexError::FinalityViolated { number: cursor.final_number });
            }
            if self.block_at(number).await?.is_some_and(|block| block.hash == hash) {
                return Ok(Some((number, hash)));
            }
        }
        Ok(None)
    }

    /// The hot zone: the one block after the cursor.
    async fn read_next(
        &mut self,
        lease: &Lease,
        cursor: &Cursor,
        head: BlockHead,
        final_number: u64,
    ) -> Result<Step, IndexError> {
        let number = cursor.head_number + 1;
        let head_number = head.number;
        let block = if head_number == number {
            head
        } else {
            self.block_at(number).await?.ok_or(RpcError::NullResp)?
        };
        if block.parent != cursor.head_hash {
            return self.unwind(lease, cursor).await;
        }
        let (logs, verified_by) = self.proven_logs(cursor, &block).await?;
        let rows = [block_row(&block, verified_by)];
        self.commit(lease, cursor, &rows, &logs, final_number, head_number).await?;
        self.tail_proven = true;
        Ok(Step::Advanced)
    }

    /// The final zone: many blocks by number. Shorter ranges are tried after an error.
    async fn read_range(
        &mut self,
        lease: &Lease,
        cursor: &Cursor,
        head: &BlockHead,
        final_number: u64,
    ) -> Result<Step, IndexError> {
        let ours = self.block_at(cursor.head_number).await?;
        if ours.is_none_or(|block| block.hash != cursor.head_hash) {
            return self.unwind(lease, cursor).await;
        }
        let to = final_number.min(cursor.head_number + self.range);
        match self.proven_range(cursor, to).await {
            Ok((blocks, logs)) => {
                self.commit(lease, cursor, &blocks, &logs, to, head.number).await?;
                self.range = (self.range * 2).min(RANGE_MAX);
                Ok(Step::Advanced)
            }
            Err(error) => {
                self.range = (self.range / 2).max(1);
                Err(error)
            }
        }
    }

    /// Everything about these blocks in one transaction.
    async fn commit(
        &self,
        lease: &Lease,
        cursor: &Cursor,
        blocks: &[BlockRow],
        logs: &[LogRow],
        final_number: u64,
        head_number: u64,
    ) -> Result<(), IndexError> {
        let Some(last) = blocks.last() else { return Ok(()) };
        let chain_id = self.config.chain_id;
        let deep = (head_number + 1).saturating_sub(self.config.confirmations.max(1));
        let to = Cursor {
            head_number: last.number,
            head_hash: last.hash,
            final_number: final_number.min(last.number).max(cursor.final_number),
            facts_number: deep.min(last.number).max(cursor.facts_number),
            ..cursor.clone()
        };
        let mut tx = self.pool.begin().await?;
        lease.guard(&mut tx).await?;
        store::record_blocks(&mut tx, cursor, &to, blocks, logs).await?;
        let emitted = store::emit_facts(&mut tx, chain_id, cursor.facts_number, to.facts_number).await?;
        if !emitted.is_empty() {
            store::complete_commands(&mut tx, chain_id).await?;
        }
        if to.head_number.is_multiple_of(PRUNE_EVERY) {
            let below = to.final_number.saturating_sub(KEEP_BLOCKS);
            store::prune_blocks(&mut tx, chain_id, below).await?;
        }
        tx.commit().await?;
        for fact in &emitted {
            tell(fact);
        }
        Ok(())
    }
}

fn tell(fact: &Emitted) {
    let intent_id = fact.intent_id.as_deref().unwrap_or_default();
    let reference = fact.reference.as_deref().unwrap_or_default();
    let _span = tracing::info_span!("chain_fact", intent_id, reference).entered();
    let (kind, block, tx, entity) = (&fact.kind, fact.block_number, fact.tx_hash, fact.entity);
    tracing::info!(kind, block, %tx, %entity, "seen on the chain");
}

const fn block_row(block: &BlockHead, verified_by: &'static str) -> BlockRow {
    BlockRow {
        number: block.number,
        hash: block.hash,
        parent: block.parent,
        timestamp: block.timestamp,
        verified_by,
    }
}
