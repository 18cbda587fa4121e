//! Follows the contracts' events and publishes facts for the engine.
//!
//! Two zones. Up to a margin below the chain's finalized block, ranges of blocks are read by number (`ranges`). Above
//! it each block is linked to its parent and its events are requested by its hash, several blocks at once when the
//! indexer is behind (`run`); when the link breaks, it goes back to the last block that is still canonical (`reorg`).
//! Blocks, events, facts and the cursor are written in one transaction under the lease.
//!
//! Invariants:
//! - the cursor never passes a hot block whose events are not proven complete (`proof`): the header's own bloom
//!   excludes the contracts, or the events' numbers are contiguous and end at the contract's `seq()` at that very
//!   block, or the header's own receipts root is that of the receipts that the events are taken from;
//! - events in doubt are read again, from another endpoint if there is one, never skipped;
//! - no block at or below `final_number` is ever reverted: a chain that reverts one is halted, even after a restart;
//! - one step queries one endpoint; the others are only queried to compare their answers;
//! - a fill is published only once it has passed the payout gate (`gate`).
//!
//! A step may be dropped at any await: it has then committed completely or not at all.
//!
//! Kept by `chain-indexer/tests/it/sim.rs::rows_are_the_chains_and_facts_final_or_retracted_under_all_faults`.

mod backfill;
mod decode;
mod error;
mod follow;
mod gate;
mod gather;
mod proof;
mod ranges;
mod reorg;
mod rescan;
mod run;

use crate::config::ChainConfig;
use crate::pool::Pool;
use crate::reader::{ChainReader, HttpReader};
use crate::rpc::BlockHead;
use alloy::eips::BlockId;
use alloy::primitives::{Address, B256};
use alloy::transports::{RpcError, TransportError};
use dvp_domain::chain::BlockNumber;
use dvp_store::PgPool;
use dvp_store::chain::{
    self as store, Backfill, BlockRow, Cursor, DerivedFacts, Emitted, HaltReason, Halted, LogRow,
};
use dvp_store::database::lease::Lease;
use dvp_store::workers::{self, Items, Worker, guarded};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub use backfill::{BackfillError, Progress, backfill};
pub use decode::{DecodeError, Hole};
pub use error::IndexError;
pub use follow::{run_indexer, run_indexer_on};
pub use ranges::scan;
pub use rescan::{Difference, DifferenceKind, Rescan, RestoredBy, rescan, rescan_over};

/// Shorter ranges of final blocks are read one by one.
const RANGE_FROM: u64 = 16;
/// After this many consecutive failed ranges, one block is read alone, for which more proofs are available.
const RANGE_TRIES: u32 = 4;
/// The number of canonical blocks kept below the final one.
const KEEP_BLOCKS: u64 = 1_024;
const PRUNE_EVERY: u64 = 256;
const _: () = assert!(PRUNE_EVERY < KEEP_BLOCKS, "pruning leaves the blocks that are compared");
/// The time limits of a step, each of whose calls has its own, and of the payout gate after it.
const STEP_WITHIN: Duration = Duration::from_secs(300);
const GATE_WITHIN: Duration = Duration::from_secs(20);
/// The number of consecutive times an endpoint must report that a final block has changed before it is believed: of
/// several machines behind one endpoint some may lag.
const SURE_AFTER: u32 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Blocks were read; there may be more.
    Advanced,
    Unwound,
    /// Events missing from a range were added.
    Repaired,
    /// The indexer is at the head, as far as the endpoint knows.
    Idle,
}

/// The endpoint that a step queries, and the lease under which it writes.
struct Turn<'a, R> {
    at: usize,
    node: &'a Arc<R>,
    lease: &'a Lease,
}

pub struct Indexer<R = HttpReader> {
    pool: PgPool,
    config: ChainConfig,
    endpoints: Pool<R>,
    /// Whether commands inserted after their events were looked for.
    late_facts_given: bool,
    /// Whether the numbers up to the cursor are known to be the last of each contract there.
    tail_proven: AtomicBool,
    /// Events written so far, for display.
    events: AtomicU64,
    /// The last final block that endpoints agreed on.
    agreed: Option<(BlockNumber, B256)>,
    /// The backfill in progress, for display.
    backfill: Option<Backfill>,
    range_failures: u32,
    /// The consecutive reports of an endpoint that a final block had changed.
    violations: u32,
    /// Head and finalized block of the last step's endpoint.
    node: (BlockNumber, BlockNumber),
    gate: gate::GateKeeper,
    /// Consecutive steps with the same head.
    still: u32,
    /// Time of the newest block seen, in Unix seconds.
    newest: u64,
    /// The head at which the relayer's accounts were last looked up.
    accounts_at: B256,
    /// The chain, and its payout gate.
    items: Items,
}

impl Indexer<HttpReader> {
    /// Does not connect yet.
    pub fn new(pool: PgPool, config: ChainConfig) -> Result<Self, IndexError> {
        let readers = config.rpc_urls().map(HttpReader::new).collect::<Result<Vec<_>, _>>()?;
        Self::over(pool, config, readers)
    }
}

impl<R: ChainReader> Indexer<R> {
    /// An indexer over these endpoints, the first one preferred.
    pub fn over(pool: PgPool, config: ChainConfig, readers: Vec<R>) -> Result<Self, IndexError> {
        let endpoints = Pool::new(readers).ok_or(IndexError::NoEndpoint)?;
        let items = Items::new(pool.clone(), Worker::Indexer, STEP_WITHIN);
        Ok(Self {
            pool,
            config,
            endpoints,
            late_facts_given: false,
            tail_proven: AtomicBool::new(false),
            events: AtomicU64::new(0),
            agreed: None,
            backfill: None,
            range_failures: 0,
            violations: 0,
            node: (BlockNumber::FIRST, BlockNumber::FIRST),
            gate: gate::GateKeeper::default(),
            still: 0,
            newest: 0,
            accounts_at: B256::ZERO,
            items,
        })
    }

    /// Reads the next block or ranges, or reverts blocks if necessary.
    pub async fn step(&mut self, lease: &Lease) -> Result<Step, IndexError> {
        let at = self.endpoints.pick();
        let node = Arc::clone(&self.endpoints.at(at).reader);
        let result = self.step_at(&Turn { at, node: &node, lease }).await;
        if result.is_ok() {
            self.keep_gate_apart(at, lease).await;
        }
        match &result {
            Ok(_) => {
                self.endpoints.record_success(at);
                self.violations = 0;
            }
            Err(error) if error.is_of_the_endpoint() => self.endpoints.record_failure(at),
            Err(_) => {}
        }
        result
    }

    /// What the gate cannot do now holds up no block: it is listed, and tried again after the next step.
    async fn keep_gate_apart(&mut self, at: usize, lease: &Lease) {
        let chain = self.config.name.clone();
        let kept = guarded(GATE_WITHIN, async {
            workers::at(workers::Step::IndexerGate, &chain).await?;
            self.keep_gate(at, lease).await
        });
        let kept = kept.await.map_err(|error| error.to_string());
        self.items.note(&format!("{chain} payout gate"), &chain, kept).await;
    }

    async fn step_at(&mut self, turn: &Turn<'_, R>) -> Result<Step, IndexError> {
        let &Turn { at, node, lease } = turn;
        workers::at(workers::Step::IndexerRead, &self.config.name).await?;
        self.check_chain(at, node).await?;
        let cursor = self.cursor(node).await?;
        if let Some(halted) = cursor.halted {
            return Err(IndexError::Halted(halted));
        }
        self.give_late_facts(lease).await?;
        let (head, finalized) = tokio::join!(node.block(BlockId::latest()), node.block(BlockId::finalized()));
        let head = head?.ok_or(RpcError::NullResp)?;
        let finalized = self.finalized(at, node, &head, finalized).await?;
        let final_reported = finalized.as_ref().map_or(BlockNumber::FIRST, |block| block.number);
        self.node = (head.number, final_reported);
        self.newest = self.newest.max(head.timestamp);
        self.look_up_accounts(&head).await?;
        if head.hash == cursor.head_hash && self.finalize_the_read(turn, &cursor, finalized.clone()).await? {
            return Ok(Step::Advanced);
        }
        if head.number <= cursor.head_number {
            return self.compare_head(turn, &cursor, &head).await;
        }
        self.still = 0;
        let finalized = self.agreed_on(at, finalized).await;
        let keep_off = self.config.finality_margin.max(self.config.range_margin);
        let range_end =
            finalized.as_ref().map_or(BlockNumber::FIRST, |block| block.number.saturating_sub(keep_off));
        if range_end > cursor.head_number + RANGE_FROM && self.range_failures < RANGE_TRIES {
            return self.read_ranges(turn, cursor, &head, range_end).await;
        }
        self.range_failures = 0;
        self.backfill = None;
        Box::pin(self.read_next(turn, &cursor, head, finalized)).await
    }

    /// Adds the accounts that are in service to those of the deployment's record, which may be older than they are:
    /// anchors count when one of them submitted them. An account is stored before it signs, so that those stored by now
    /// are all that can have sent a transaction of this head's chain.
    async fn look_up_accounts(&mut self, head: &BlockHead) -> Result<(), IndexError> {
        if self.accounts_at == head.hash {
            return Ok(());
        }
        add_accounts(&self.pool, &mut self.config).await?;
        self.accounts_at = head.hash;
        Ok(())
    }

    async fn check_chain(&mut self, at: usize, node: &R) -> Result<(), IndexError> {
        if !self.endpoints.at(at).chain_checked {
            let (expected, found) = (self.config.chain_id, node.chain_id().await?);
            if found != expected {
                return Err(IndexError::WrongChain { expected, found });
            }
            self.endpoints.at_mut(at).chain_checked = true;
        }
        Ok(())
    }

    /// The indexer's position; at first, just before the contracts.
    async fn cursor(&self, node: &R) -> Result<Cursor, IndexError> {
        if let Some(cursor) = self.stored_cursor().await? {
            return Ok(cursor);
        }
        let number = self.config.deployment.first_block().saturating_sub(1);
        let block = node.block(BlockId::number(number.0)).await?.ok_or(RpcError::NullResp)?;
        let start = Cursor {
            chain_id: self.config.chain_id,
            head_number: number,
            head_hash: block.hash,
            final_number: number,
            facts_number: number,
            version: 0,
            halted: None,
        };
        let mut tx = self.pool.begin().await?;
        store::insert_cursor(&mut tx, &start, &block_row(&block, "start")).await?;
        tx.commit().await?;
        Ok(self.stored_cursor().await?.unwrap_or(start))
    }

    async fn stored_cursor(&self) -> Result<Option<Cursor>, IndexError> {
        Ok(store::find_cursor(&mut *self.pool.acquire().await?, self.config.chain_id).await?)
    }

    /// The hash of a canonical block, if it is stored.
    async fn known_hash(&self, number: BlockNumber) -> Result<Option<B256>, IndexError> {
        Ok(store::find_known_hash(&mut *self.pool.acquire().await?, self.config.chain_id, number).await?)
    }

    /// The endpoint's finalized block; on a chain without that tag, a block at a depth that counts as final. For an
    /// endpoint that has supported the tag before, a missing tag is an error.
    async fn finalized(
        &mut self,
        at: usize,
        node: &R,
        head: &BlockHead,
        answer: Result<Option<BlockHead>, TransportError>,
    ) -> Result<Option<BlockHead>, IndexError> {
        let reported = match answer {
            Ok(reported) => reported,
            Err(RpcError::ErrorResp(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let endpoint = self.endpoints.at_mut(at);
        endpoint.knows_finalized |= reported.is_some();
        if reported.is_some() || endpoint.knows_finalized {
            return Ok(reported);
        }
        endpoint.tagless = endpoint.tagless.saturating_add(1);
        let Some(depth) = self.config.finality_depth.filter(|_| endpoint.tagless >= SURE_AFTER) else {
            return Ok(None);
        };
        let number = head.number.saturating_sub(depth);
        Ok(node.block(BlockId::number(number.0)).await?)
    }

    /// The finalized block once another endpoint has the same one at its number; a single endpoint is believed.
    async fn agreed_on(&mut self, at: usize, finalized: Option<BlockHead>) -> Option<BlockHead> {
        let block = finalized?;
        let place = (block.number, block.hash);
        let others = self.endpoints.others(at);
        if others.is_empty() || self.agreed == Some(place) {
            return Some(block);
        }
        for other in others {
            match other.block(BlockId::number(block.number.0)).await {
                Ok(Some(theirs)) if theirs.hash == block.hash => {
                    self.agreed = Some(place);
                    return Some(block);
                }
                Ok(Some(theirs)) => {
                    let (ours, theirs) = (block.hash, theirs.hash);
                    tracing::warn!(chain = self.config.name, block = %block.number, %ours, %theirs,
                                   "endpoints disagree on a finalized block");
                }
                Ok(None) | Err(_) => {}
            }
        }
        None
    }

    async fn read_next(
        &mut self,
        turn: &Turn<'_, R>,
        cursor: &Cursor,
        head: BlockHead,
        finalized: Option<BlockHead>,
    ) -> Result<Step, IndexError> {
        let &Turn { node, lease, .. } = turn;
        let number = cursor.head_number + 1;
        let head_number = head.number;
        let run = self.read_run(node, cursor, head_number).await.unwrap_or_else(|error| {
            tracing::debug!(chain = self.config.name, %error, "blocks could not be read together");
            Vec::new()
        });
        if run.len() > 1 {
            return self.write_run(lease, cursor, run, head_number, finalized.as_ref()).await;
        }
        let block = if head_number == number {
            head
        } else {
            node.block(BlockId::number(number.0)).await?.ok_or(IndexError::Behind { number })?
        };
        if block.number != number {
            return Err(IndexError::Behind { number });
        }
        if block.parent != cursor.head_hash {
            return self.unwind(turn, cursor, head_number).await;
        }
        let proof = match self.prove(node, cursor, &block).await {
            Ok(proof) => proof,
            Err(error) => return self.repair(turn, cursor, error).await,
        };
        let rows = [block_row(&block, proof.by)];
        let final_number = self.final_for(cursor, std::slice::from_ref(&block), finalized.as_ref()).await?;
        self.commit(lease, cursor, &rows, &proof.rows, final_number, head_number).await?;
        if proof.reaches_the_end {
            self.tail_proven.store(true, Ordering::Relaxed);
        }
        Ok(Step::Advanced)
    }

    /// Blocks become final without a new one, too: some chains make blocks only on demand.
    async fn finalize_the_read(
        &mut self,
        turn: &Turn<'_, R>,
        cursor: &Cursor,
        finalized: Option<BlockHead>,
    ) -> Result<bool, IndexError> {
        let margin = self.config.finality_margin;
        let is_newer = |block: &BlockHead| block.number.saturating_sub(margin) > cursor.final_number;
        let Some(finalized) = finalized.filter(is_newer) else { return Ok(false) };
        let Some(finalized) = self.agreed_on(turn.at, Some(finalized)).await else { return Ok(false) };
        if self.known_hash(finalized.number).await? != Some(finalized.hash) {
            return Ok(false);
        }
        let to = Cursor { final_number: finalized.number.saturating_sub(margin), ..cursor.clone() };
        let mut tx = self.pool.begin().await?;
        turn.lease.guard(&mut tx).await?;
        store::record_blocks(&mut tx, cursor, &to, &[], &[]).await?;
        tx.commit().await?;
        Ok(true)
    }

    async fn write_run(
        &self,
        lease: &Lease,
        cursor: &Cursor,
        run: Vec<(BlockHead, proof::Proof)>,
        head_number: BlockNumber,
        finalized: Option<&BlockHead>,
    ) -> Result<Step, IndexError> {
        let (blocks, proofs): (Vec<_>, Vec<_>) = run.into_iter().unzip();
        let final_number = self.final_for(cursor, &blocks, finalized).await?;
        let rows: Vec<_> =
            blocks.iter().zip(&proofs).map(|(block, proof)| block_row(block, proof.by)).collect();
        let logs: Vec<LogRow> = proofs.into_iter().flat_map(|proof| proof.rows).collect();
        self.commit(lease, cursor, &rows, &logs, final_number, head_number).await?;
        self.tail_proven.store(true, Ordering::Relaxed);
        Ok(Step::Advanced)
    }

    /// The final block after these are read: the newest block of the indexed chain at or below the finalized block.
    async fn final_for(
        &self,
        cursor: &Cursor,
        blocks: &[BlockHead],
        finalized: Option<&BlockHead>,
    ) -> Result<BlockNumber, IndexError> {
        let Some(last) = blocks.last() else { return Ok(cursor.final_number) };
        let Some(finalized) = finalized.filter(|finalized| finalized.number <= last.number) else {
            return Ok(cursor.final_number);
        };
        let final_number = finalized.number.saturating_sub(self.config.finality_margin);
        if final_number <= cursor.final_number {
            return Ok(cursor.final_number);
        }
        let ours = match blocks.iter().find(|block| block.number == finalized.number) {
            Some(block) => Some(block.hash),
            None => self.known_hash(finalized.number).await?,
        };
        Ok(if ours == Some(finalized.hash) { final_number } else { cursor.final_number })
    }

    /// Writes these blocks with their events and facts in one transaction; returns the new cursor.
    async fn commit(
        &self,
        lease: &Lease,
        cursor: &Cursor,
        blocks: &[BlockRow],
        logs: &[LogRow],
        final_number: BlockNumber,
        head_number: BlockNumber,
    ) -> Result<Cursor, IndexError> {
        let Some(last) = blocks.last() else { return Ok(cursor.clone()) };
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
        let reported = store::publish_events(&mut tx, chain_id, cursor.facts_number, to.facts_number).await?;
        if to.head_number.0 / PRUNE_EVERY > cursor.head_number.0 / PRUNE_EVERY {
            let below = to.final_number.saturating_sub(KEEP_BLOCKS);
            store::prune_blocks(&mut tx, chain_id, below).await?;
        }
        if blocks.len() > 1 && reported.facts.is_empty() {
            store::commit_without_waiting(&mut tx).await?;
        }
        tx.commit().await?;
        self.events.fetch_add(u64::try_from(logs.len()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.tell(&reported, (cursor.facts_number, to.facts_number));
        Ok(Cursor { version: cursor.version + 1, ..to })
    }

    /// Publishes the events of commands that were inserted after their events were read, as from a backup.
    async fn give_late_facts(&mut self, lease: &Lease) -> Result<(), IndexError> {
        if self.late_facts_given {
            return Ok(());
        }
        let chain_id = self.config.chain_id;
        let mut tx = self.pool.begin().await?;
        lease.guard(&mut tx).await?;
        let late = store::publish_late_events(&mut tx, chain_id).await?;
        tx.commit().await?;
        self.late_facts_given = true;
        if !late.is_empty() {
            let facts = late.len();
            tracing::warn!(
                chain = self.config.name,
                facts,
                "chain facts inserted late: their commands had been missing"
            );
        }
        late.iter().for_each(tell);
        Ok(())
    }

    /// Logs the published facts, and foreign uses of the contracts.
    fn tell(&self, reported: &DerivedFacts, (after, up_to): (BlockNumber, BlockNumber)) {
        reported.facts.iter().for_each(tell);
        if reported.foreign > 0 {
            let foreign = reported.foreign;
            tracing::error!(
                chain = self.config.name,
                foreign,
                %after,
                %up_to,
                "contract events without a command of ours; run `dvp reconcile` to list them"
            );
        }
    }

    /// Halts the chain. Returns the error to report: that it is halted, or why it could not be.
    async fn halt(&self, lease: &Lease, cursor: &Cursor, reason: HaltReason, detail: String) -> IndexError {
        let halted = Halted { reason, detail };
        let write = async {
            let mut tx = self.pool.begin().await?;
            lease.guard(&mut tx).await?;
            store::halt(&mut tx, cursor, &halted).await?;
            tx.commit().await?;
            Ok::<_, IndexError>(())
        };
        match write.await {
            Ok(()) => {
                let (reason, detail) = (reason.as_str(), halted.detail.as_str());
                tracing::error!(
                    chain = self.config.name,
                    reason,
                    detail,
                    "chain halted: operator action is required"
                );
                IndexError::Halted(halted)
            }
            Err(error) => error,
        }
    }

    /// Events written since this indexer was created, including those reverted later.
    pub fn events_written(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    fn contracts(&self) -> Vec<Address> {
        self.config.deployment.numbered()
    }
}

/// Adds the accounts that have ever been in service to those of the deployment's record.
async fn add_accounts(pool: &PgPool, config: &mut ChainConfig) -> Result<(), IndexError> {
    let mut conn = pool.acquire().await?;
    let signers = store::list_signers(&mut conn, config.chain_id).await?;
    let relayers = &mut config.deployment.relayers;
    for signer in signers {
        if !relayers.contains(&signer) {
            relayers.push(signer);
        }
    }
    Ok(())
}

fn tell(fact: &Emitted) {
    let Some(intent_id) = fact.intent_id.as_deref() else { return };
    let reference = fact.reference.as_deref().unwrap_or_default();
    let _span = tracing::info_span!("chain_fact", intent_id, reference).entered();
    let (kind, block, tx, entity) = (&fact.kind, fact.block_number, fact.tx_hash, fact.entity);
    tracing::info!(kind, %block, %tx, %entity, "chain fact recorded");
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
