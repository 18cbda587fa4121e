//! The payout gate: a fill is published once its block has the finality that the order's amount requires, and once more
//! than half of the endpoints have the same events of escrow, settler and payouts in the blocks of the lock and of the
//! fill. The payment for a lock on another chain passes it likewise, by its own token and amount. The end of a lock with
//! a fill, on which its release depends, waits for that agreement only.
//!
//! An undecided fill is checked again later. A few blocks are compared at a time, and no more of them after [`BUDGET`]:
//! the reading of the chain waits for that time and [`PATIENCE`] at most, whichever endpoint does not answer.
//!
//! A reorganization that reverts a published lock or fill inserts a fact that it is lost, whichever of the two
//! commits first.
//!
//! Kept by `chain-indexer/tests/it/endpoints.rs::a_fill_that_one_of_two_endpoints_lacks_is_not_published` and
//! `chain-indexer/tests/it/endpoints.rs::what_was_reported_and_is_reorganised_is_reported_lost_and_then_again`.

use super::{IndexError, Indexer, decode};
use crate::gate::Wait;
use crate::orders;
use crate::reader::ChainReader;
use alloy::eips::BlockId;
use alloy::primitives::{Address, B256};
use alloy::rpc::types::Filter;
use dvp_domain::asset::COIN;
use dvp_domain::chain::BlockNumber;
use dvp_store::chain::{
    self as store, Gate, GatedKind, Heights, KeptEvent, NewFill, PassableFill, WaitingFills,
};
use dvp_store::database::lease::Lease;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use metrics::{counter, gauge};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

const PAGE: i64 = 512;
const TOGETHER: usize = 8;
/// No further block is compared after this part of a step. The rest is for the next step.
const BUDGET: Duration = Duration::from_secs(1);
/// The time limit of an endpoint's answer about a block's events.
const PATIENCE: Duration = Duration::from_secs(3);
/// How much longer the other endpoints are waited for once a block is decided: one of them may have other events, which
/// is an alarm.
const GRACE: Duration = Duration::from_millis(200);
/// After endpoints disagreed, or did not answer, they are queried again after this many steps or this time.
const ASK_AGAIN_STEPS: u32 = 16;
const ASK_AGAIN: Duration = Duration::from_secs(2);
const REMEMBERED: usize = 4_096;

#[derive(Debug, Default)]
pub(super) struct GateKeeper {
    /// Whether this process has set their gates: the steps may have changed with the configuration.
    reset: bool,
    /// Blocks of which enough endpoints have the same events.
    agreed: HashSet<B256>,
    disputed: HashSet<B256>,
    /// Blocks that too few endpoints confirmed, and when: one that is never confirmed must not hold up the others.
    doubted: HashMap<B256, Instant>,
    /// When endpoints disagreed, and the number of steps since.
    refused: Option<(Instant, u32)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockComparison {
    Same,
    Other,
    Nothing,
}

/// A block with events of a fill, which names the order in logs.
type Compared<'a> = ((BlockNumber, B256), &'a PassableFill);

/// The numbers of endpoints with the same events of a block, and with others.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    same: usize,
    other: usize,
}

impl GateKeeper {
    /// Whether endpoints that disagreed must not be queried yet.
    fn is_too_soon(&mut self) -> bool {
        if let Some((at, steps)) = &mut self.refused {
            *steps += 1;
            if *steps < ASK_AGAIN_STEPS && at.elapsed() < ASK_AGAIN {
                return true;
            }
        }
        self.refused = None;
        false
    }

    fn doubted_at(&self, fill: &PassableFill) -> Option<Instant> {
        fill.blocks.iter().filter_map(|(_, hash)| self.doubted.get(hash)).max().copied()
    }

    fn doubt(&mut self, hash: B256) {
        if self.doubted.len() >= REMEMBERED {
            self.doubted.clear();
        }
        self.doubted.insert(hash, Instant::now());
    }

    fn agree(&mut self, hash: B256) {
        if self.agreed.len() >= REMEMBERED {
            self.agreed.clear();
        }
        self.doubted.remove(&hash);
        self.agreed.insert(hash);
    }
}

impl<R: ChainReader> Indexer<R> {
    pub(super) async fn keep_gate(&mut self, at: usize, lease: &Lease) -> Result<(), IndexError> {
        if self.gate.is_too_soon() {
            return Ok(());
        }
        let waiting = self.count_waiting().await?;
        self.show(waiting.all);
        if waiting.all == 0 {
            return Ok(());
        }
        if waiting.new > 0 || !self.gate.reset {
            self.set_gates(lease).await?;
        }
        let Some(cursor) = self.stored_cursor().await? else { return Ok(()) };
        let safe = self.safe(at).await?;
        let heights = Heights { head: cursor.head_number, safe, finalized: cursor.final_number };
        let passed = self.let_pass(lease, heights).await?;
        self.show(waiting.all.saturating_sub(passed));
        Ok(())
    }

    async fn count_waiting(&self) -> Result<WaitingFills, IndexError> {
        Ok(store::count_waiting_fills(&mut *self.pool.acquire().await?, self.config.chain_id).await?)
    }

    fn show(&self, waiting: u64) {
        let waiting = f64::from(u32::try_from(waiting).unwrap_or(u32::MAX));
        gauge!("dvp_chain_fills_waiting", "chain" => self.config.name.clone()).set(waiting);
    }

    async fn set_gates(&mut self, lease: &Lease) -> Result<(), IndexError> {
        let chain_id = self.config.chain_id;
        loop {
            let mut tx = self.pool.begin().await?;
            lease.guard(&mut tx).await?;
            if !self.gate.reset {
                store::reset_gates(&mut tx, chain_id).await?;
            }
            let new = store::list_new_fills(&mut tx, chain_id, PAGE).await?;
            let gates: Vec<(i64, Gate)> = new.iter().map(|fill| (fill.id, self.gate_of(fill))).collect();
            if !gates.is_empty() {
                store::set_gates(&mut tx, &gates).await?;
            }
            tx.commit().await?;
            self.gate.reset = true;
            if new.is_empty() {
                return Ok(());
            }
        }
    }

    fn gate_of(&self, fill: &NewFill) -> Gate {
        match fill.kind {
            GatedKind::Fill => {}
            // It was read at the confirmation depth.
            GatedKind::LockEnd => return Gate::Head(fill.block_number),
        }
        let order = || {
            // A payment in the coin is gated as the asset that it is.
            let coin = self.config.deployment.coin.filter(|_| fill.token.as_deref() == Some(COIN));
            let token = match coin {
                Some(coin) => coin.wrapped,
                None => orders::address("token", fill.token.as_deref()?).ok()?,
            };
            let amount = orders::amount("amount", fill.amount.as_deref()?).ok()?;
            Some((token, amount))
        };
        match self.config.payout_gate.wait(order()) {
            Wait::Depth(depth) => Gate::Head(fill.block_number + (depth.max(1) - 1)),
            Wait::Safe => Gate::Safe(fill.block_number),
            Wait::Finalized => Gate::Finalized(fill.block_number),
        }
    }

    /// The endpoint's `safe` block, if a fill waits for it and it is an indexed one.
    async fn safe(&self, at: usize) -> Result<Option<BlockNumber>, IndexError> {
        if self.count_waiting().await?.safe == 0 {
            return Ok(None);
        }
        let node = &self.endpoints.at(at).reader;
        let requested = tokio::time::timeout(PATIENCE, node.block(BlockId::safe())).await;
        let Ok(Ok(Some(safe))) = requested else { return Ok(None) };
        let ours = self.known_hash(safe.number).await?;
        Ok((ours == Some(safe.hash)).then_some(safe.number))
    }

    async fn let_pass(&mut self, lease: &Lease, heights: Heights) -> Result<u64, IndexError> {
        let (chain_id, mut after, mut passed) = (self.config.chain_id, 0, 0);
        let until = Instant::now() + BUDGET;
        loop {
            let mut conn = self.pool.acquire().await?;
            let mut page = store::list_passable_fills(&mut conn, chain_id, heights, after, PAGE).await?;
            drop(conn);
            let Some(last) = page.last() else { return Ok(passed) };
            after = last.id;
            page.sort_by_key(|fill| self.gate.doubted_at(fill));
            self.compare(&page, until).await?;
            let ids: Vec<i64> = page.iter().filter(|fill| self.is_agreed(fill)).map(|fill| fill.id).collect();
            if ids.is_empty() {
                continue;
            }
            let mut tx = self.pool.begin().await?;
            lease.guard(&mut tx).await?;
            passed += store::lift_gates(&mut tx, &ids).await?;
            tx.commit().await?;
        }
    }

    fn is_agreed(&self, fill: &PassableFill) -> bool {
        self.endpoints.len() == 1 || fill.blocks.iter().all(|(_, hash)| self.gate.agreed.contains(hash))
    }

    /// Compares the fills' blocks that are not agreed on, until endpoints disagree or the time is over.
    async fn compare(&mut self, fills: &[PassableFill], until: Instant) -> Result<(), IndexError> {
        if self.endpoints.len() == 1 {
            return Ok(());
        }
        let mut met = HashSet::new();
        let mut blocks: Vec<Compared<'_>> = Vec::new();
        for fill in fills {
            for &block in &fill.blocks {
                if !self.gate.agreed.contains(&block.1) && met.insert(block.1) {
                    blocks.push((block, fill));
                }
            }
        }
        for together in blocks.chunks(TOGETHER) {
            if self.gate.refused.is_some() || Instant::now() >= until {
                break;
            }
            let ours = self.our_events(together).await?;
            let requested = together.iter().zip(&ours).map(|((block, _), ours)| self.ask_all(block.1, ours));
            let tallies = join_all(requested).await;
            for (&(block, fill), tally) in together.iter().zip(tallies) {
                self.decide(block, fill, tally);
            }
        }
        Ok(())
    }

    async fn our_events(&self, blocks: &[Compared<'_>]) -> Result<Vec<Vec<KeptEvent>>, IndexError> {
        let addresses: Vec<Vec<u8>> =
            self.gated_contracts().iter().map(|contract| contract.to_vec()).collect();
        let mut conn = self.pool.acquire().await?;
        let mut events = Vec::with_capacity(blocks.len());
        for (block, _) in blocks {
            events.push(store::list_block_events(&mut conn, self.config.chain_id, *block, &addresses).await?);
        }
        Ok(events)
    }

    fn gated_contracts(&self) -> Vec<Address> {
        let sets = self.config.deployment.sets();
        sets.flat_map(|set| [set.settler, set.escrow, set.payouts]).collect()
    }

    /// Asks all endpoints about a block's events. Once more than half have the same, or can no longer have, the rest is
    /// waited for only briefly.
    async fn ask_all(&self, hash: B256, ours: &[KeptEvent]) -> Tally {
        let filter = Filter::new().at_block_hash(hash).address(self.gated_contracts());
        let filter = filter.event_signature(decode::topics());
        let endpoints = self.endpoints.len();
        let mut requested: FuturesUnordered<_> =
            (0..endpoints).map(|at| self.said(at, hash, &filter, ours)).collect();
        let mut tally = Tally::default();
        let mut until = tokio::time::Instant::now() + PATIENCE;
        while let Ok(Some(said)) = tokio::time::timeout_at(until, requested.next()).await {
            tally.same += usize::from(said == BlockComparison::Same);
            tally.other += usize::from(said == BlockComparison::Other);
            if tally.same * 2 > endpoints || (tally.same + requested.len()) * 2 <= endpoints {
                until = until.min(tokio::time::Instant::now() + GRACE);
            }
        }
        tally
    }

    fn decide(&mut self, block: (BlockNumber, B256), fill: &PassableFill, Tally { same, other }: Tally) {
        if other > 0 {
            self.dispute(block, fill, other);
        }
        let endpoints = self.endpoints.len();
        if same * 2 > endpoints {
            self.gate.agree(block.1);
            return;
        }
        let (chain, number, hash) = (&self.config.name, block.0, block.1);
        let intent_id = fill.intent_id.as_deref();
        tracing::warn!(chain, intent_id, %number, %hash, same, endpoints,
                       "too few endpoints confirm a fill or the end of a lock; its order waits, will retry");
        self.gate.doubt(block.1);
        self.gate.refused = Some((Instant::now(), 0));
    }

    /// Raises the alarm, once for each block.
    fn dispute(&mut self, (number, hash): (BlockNumber, B256), fill: &PassableFill, endpoints: usize) {
        if self.gate.disputed.len() >= REMEMBERED {
            self.gate.disputed.clear();
        }
        if self.gate.disputed.insert(hash) {
            let chain = self.config.name.clone();
            let intent_id = fill.intent_id.as_deref();
            tracing::error!(chain, intent_id, %number, %hash, endpoints,
                            "endpoints disagree on the events of a block with a lock, a fill or the end of a lock");
            counter!("dvp_chain_disputed_blocks_total", "chain" => chain).increment(1);
        }
    }

    async fn said(&self, at: usize, hash: B256, filter: &Filter, ours: &[KeptEvent]) -> BlockComparison {
        let node = &self.endpoints.at(at).reader;
        let Ok(logs) = node.logs(filter).await else { return BlockComparison::Nothing };
        // The times of blocks are not compared, because their hashes are.
        let Ok(rows) = decode::rows(&self.config.deployment, &logs, &HashMap::from([(hash, 0)])) else {
            return BlockComparison::Other;
        };
        let theirs = rows.into_iter().map(|row| KeptEvent {
            log_index: row.log_index,
            tx_hash: row.tx_hash,
            contract: row.contract.to_vec(),
            event: row.event.to_owned(),
            entity: row.entity,
            seq: row.seq,
            fact: row.fact,
            deposit: row.deposit,
        });
        if theirs.eq(ours.iter().cloned()) { BlockComparison::Same } else { BlockComparison::Other }
    }
}
