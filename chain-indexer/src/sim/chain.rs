//! A chain without a node: blocks with real headers, receipts and events, that grows, forks and becomes final.
//!
//! The contracts' rules hold: numbers grow by one, a settlement goes through its states in order, and a reverted
//! transaction may be included again in another block.

use super::rng::Rng;
use crate::contracts::{anchor::ReceiptAnchor, escrow::Escrow, payouts::Payouts, settler::IntentSettler};
use crate::deploy::Deployment;
use crate::rpc::{BlockHead, Commitments};
use alloy::consensus::proofs::calculate_receipt_root;
use alloy::consensus::{Header, Receipt, ReceiptEnvelope, ReceiptWithBloom};
use alloy::primitives::{Address, B256, Bloom, BloomInput, Log as PrimitiveLog, LogData, U256, keccak256};
use alloy::rpc::types::{Log, TransactionReceipt};
use alloy::sol_types::SolEvent;
use dvp_domain::chain::BlockNumber;
use std::collections::HashMap;
use std::sync::Arc;

/// Settlements and payouts of one chain.
pub(super) const ENTITIES: usize = 6;
/// The number of old views kept for machines that lag.
const HISTORY: usize = 6;
pub(super) const DEPLOYED_BLOCK: u64 = 3;
/// Blocks at this depth are always final: no fork is as deep as the depth that counts as final without the tag.
const FINAL_WITHIN: u64 = 60;
const RELAYER: Address = Address::repeat_byte(0x77);
/// The token that every settlement locks.
pub(super) const LOCKED_TOKEN: Address = Address::repeat_byte(8);
pub(super) const LOCKED_AMOUNT: u64 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    None,
    Created,
    Filled,
    Over,
}

#[derive(Debug, Clone)]
struct World {
    /// Of settler, escrow, anchor and payouts.
    seqs: [u64; 4],
    stages: [Stage; ENTITIES],
    paid: [bool; ENTITIES],
    anchors: u64,
}

#[derive(Debug)]
pub(super) struct SimBlock {
    pub(super) head: BlockHead,
    pub(super) receipts: Vec<TransactionReceipt>,
    /// All logs, foreign ones too.
    pub(super) logs: Vec<Log>,
    /// The logs that lead to a fact if a command waits for them: their indices and entities.
    pub(super) reported: Vec<(u64, B256)>,
    world: World,
}

#[derive(Debug)]
pub(super) struct View {
    /// By number.
    pub(super) blocks: Vec<Arc<SimBlock>>,
    pub(super) finalized: u64,
}

impl View {
    pub(super) fn tip(&self) -> &Arc<SimBlock> {
        self.blocks.last().expect("a chain has its first block")
    }

    pub(super) fn at(&self, number: u64) -> Option<&Arc<SimBlock>> {
        self.blocks.get(usize::try_from(number).ok()?)
    }
}

#[derive(Debug)]
pub(super) struct SimChain {
    pub(super) deployment: Deployment,
    pub(super) all: HashMap<B256, Arc<SimBlock>>,
    /// Whether the chain has broken its own finality.
    pub(super) violated: bool,
    pub(super) reorgs: u32,
    seed: u64,
    rng: Rng,
    salt: u64,
    /// Newest last; never empty.
    views: Vec<Arc<View>>,
}

impl SimChain {
    pub(super) fn new(seed: u64, chain_id: u64, blocks: u64) -> Self {
        let deployment = Deployment {
            chain_id,
            permit: Address::repeat_byte(0x11),
            escrow: Address::repeat_byte(0x22),
            settler: Address::repeat_byte(0x33),
            anchor: Address::repeat_byte(0x44),
            payouts: Address::repeat_byte(0x55),
            relayers: vec![RELAYER],
            deployed_block: BlockNumber(DEPLOYED_BLOCK),
            ..Deployment::default()
        };
        let view = Arc::new(View { blocks: Vec::new(), finalized: 0 });
        let mut chain = Self {
            deployment,
            all: HashMap::new(),
            violated: false,
            reorgs: 0,
            seed,
            rng: Rng::new(seed ^ 0x00c0_ffee),
            salt: 0,
            views: vec![view],
        };
        let mut grown = Vec::new();
        chain.grow(&mut grown, blocks);
        // A deployment counts once it is final.
        let finalized = blocks.saturating_sub(chain.rng.between(4, 12)).max(DEPLOYED_BLOCK);
        chain.views = vec![Arc::new(View { blocks: grown, finalized })];
        chain
    }

    /// The present view, or the one this many changes ago.
    pub(super) fn view(&self, changes_ago: usize) -> Arc<View> {
        let newest = self.views.len() - 1;
        Arc::clone(&self.views[newest.saturating_sub(changes_ago)])
    }

    pub(super) fn now(&self) -> Arc<View> {
        self.view(0)
    }

    /// The chain's changes between two queries.
    pub(super) fn evolve(&mut self) {
        let now = self.now();
        let tip = now.tip().head.number.0;
        let mut blocks = now.blocks.clone();
        let mut finalized = now.finalized;
        match self.rng.between(0, 99) {
            0..=39 => self.grow(&mut blocks, 1),
            40..=49 => {
                let count = self.rng.between(2, 5);
                self.grow(&mut blocks, count);
            }
            50..=79 if tip > finalized => {
                let depth = self.rng.between(1, tip - finalized);
                let longer = self.rng.between(0, 3);
                self.fork(&mut blocks, depth, (depth + longer).saturating_sub(1));
            }
            _ => {
                let most = (tip - finalized).min(5);
                finalized += self.rng.between(0, most);
            }
        }
        self.show(blocks, finalized);
    }

    /// Reverts final blocks, which no chain may do.
    pub(super) fn violate(&mut self) {
        let now = self.now();
        let above_the_start = now.finalized - DEPLOYED_BLOCK;
        if above_the_start < 2 {
            return;
        }
        let depth =
            now.tip().head.number.0 - now.finalized + self.rng.between(1, above_the_start.min(20) - 1);
        let mut blocks = now.blocks.clone();
        self.fork(&mut blocks, depth, depth + 2);
        self.violated = true;
        self.show(blocks, now.finalized);
    }

    pub(super) fn extend(&mut self, count: u64) {
        let now = self.now();
        let mut blocks = now.blocks.clone();
        self.grow(&mut blocks, count);
        self.show(blocks, now.finalized);
    }

    /// The contracts' logs from the first block to the one with this hash; `None` when there is no such block.
    pub(super) fn logs_up_to(&self, hash: B256) -> Option<Vec<&Log>> {
        let ours = |log: &&Log| self.contracts().contains(&log.address());
        let mut logs: Vec<&Log> = Vec::new();
        for block in self.path_to(hash)?.into_iter().rev() {
            logs.extend(block.logs.iter().filter(ours));
        }
        Some(logs)
    }

    pub(super) fn path_to(&self, hash: B256) -> Option<Vec<&Arc<SimBlock>>> {
        let mut path = Vec::new();
        let mut block = self.all.get(&hash)?;
        loop {
            path.push(block);
            match self.all.get(&block.head.parent) {
                Some(parent) => block = parent,
                None => return Some(path),
            }
        }
    }

    pub(super) fn entity(&self, kind: &str, at: u64) -> B256 {
        keccak256(format!("{} {kind} {at}", self.seed))
    }

    fn contracts(&self) -> Vec<Address> {
        self.deployment.numbered()
    }

    fn show(&mut self, blocks: Vec<Arc<SimBlock>>, finalized: u64) {
        let tip = blocks.last().map_or(0, |block| block.head.number.0);
        let finalized = finalized.max(tip.saturating_sub(FINAL_WITHIN));
        self.views.push(Arc::new(View { blocks, finalized }));
        if self.views.len() > HISTORY {
            self.views.remove(0);
        }
    }

    fn fork(&mut self, blocks: &mut Vec<Arc<SimBlock>>, depth: u64, grow: u64) {
        let keep = blocks.len().saturating_sub(usize::try_from(depth).unwrap_or(usize::MAX)).max(1);
        blocks.truncate(keep);
        self.reorgs += 1;
        self.salt += 1;
        self.grow(blocks, grow);
    }

    fn grow(&mut self, blocks: &mut Vec<Arc<SimBlock>>, count: u64) {
        for _ in 0..count {
            let block = Arc::new(self.block(blocks.last().map(AsRef::as_ref)));
            self.all.insert(block.head.hash, Arc::clone(&block));
            blocks.push(block);
        }
    }

    fn block(&mut self, parent: Option<&SimBlock>) -> SimBlock {
        let (number, parent_hash) =
            parent.map_or((0, B256::ZERO), |parent| (parent.head.number.0 + 1, parent.head.hash));
        let mut world = parent.map_or(
            World { seqs: [0; 4], stages: [Stage::None; ENTITIES], paid: [false; ENTITIES], anchors: 0 },
            |parent| parent.world.clone(),
        );
        let count = if number <= DEPLOYED_BLOCK { 0 } else { *self.rng.pick(&[0, 0, 0, 1, 1, 2, 3]) };
        let txs: Vec<(B256, Vec<PrimitiveLog>)> = (0..count).map(|_| self.transaction(&mut world)).collect();
        let envelopes: Vec<ReceiptEnvelope<PrimitiveLog>> =
            txs.iter().map(|(_, logs)| envelope(logs.clone(), bloom_of(logs))).collect();
        let bloom = envelopes.iter().fold(Bloom::ZERO, |bloom, receipt| bloom | *receipt.logs_bloom());
        let header = Header {
            parent_hash,
            number,
            timestamp: 1_700_000_000 + number,
            logs_bloom: bloom,
            receipts_root: calculate_receipt_root(&envelopes),
            extra_data: U256::from(self.salt).to_be_bytes_vec().into(),
            ..Header::default()
        };
        let hash = header.hash_slow();
        let head = BlockHead {
            number: BlockNumber(number),
            hash,
            parent: parent_hash,
            timestamp: header.timestamp,
            base_fee: 0,
            gas_limit: header.gas_limit,
            proven: Some(Commitments { bloom, receipts_root: header.receipts_root }),
        };
        place(head, txs, world)
    }

    fn transaction(&mut self, world: &mut World) -> (B256, Vec<PrimitiveLog>) {
        let at = self.rng.between(0, 5);
        let index = usize::try_from(at).unwrap_or_default() % ENTITIES;
        let id = self.entity("settlement", at);
        let (kind, logs) = match (self.rng.between(0, 9), world.stages[index]) {
            (0..=5, Stage::None) => ("create", self.create(world, index, id)),
            (0..=3, Stage::Created) => ("fill", self.fill(world, index, id)),
            (4..=5, Stage::Created) => ("cancel", self.cancel(world, index, id)),
            (0..=5, Stage::Filled) => ("settle", self.settle(world, index, id)),
            (6..=7, _) if !world.paid[index] => {
                world.paid[index] = true;
                let id = self.entity("payout", at);
                let amount = U256::from(7);
                let (payer, receiver, token) = (RELAYER, Address::repeat_byte(9), Address::repeat_byte(8));
                let seq = bump(world, 3);
                let event = Payouts::Paid { id, payer, receiver, token, amount, seq };
                ("pay", vec![log(self.deployment.payouts, event.encode_log_data())])
            }
            (8, _) => {
                let topic = B256::from(U256::from(self.rng.next()));
                let data = LogData::new_unchecked(vec![topic], Vec::new().into());
                ("foreign", vec![log(Address::repeat_byte(0xfe), data)])
            }
            _ => return self.anchor(world),
        };
        (keccak256(format!("{} {kind} {at}", self.seed)), logs)
    }

    fn anchor(&mut self, world: &mut World) -> (B256, Vec<PrimitiveLog>) {
        let at = world.anchors;
        world.anchors += 1;
        let submitter = if self.rng.chance(800) { RELAYER } else { Address::repeat_byte(0x66) };
        let content_hash = self.entity("anchor", at);
        let event = ReceiptAnchor::Anchored { contentHash: content_hash, submitter, seq: bump(world, 2) };
        let logs = vec![log(self.deployment.anchor, event.encode_log_data())];
        (keccak256(format!("{} anchor {at} {submitter}", self.seed)), logs)
    }

    fn create(&self, world: &mut World, index: usize, id: B256) -> Vec<PrimitiveLog> {
        world.stages[index] = Stage::Created;
        let (party, token, amount) = (Address::repeat_byte(1), LOCKED_TOKEN, U256::from(LOCKED_AMOUNT));
        let created = IntentSettler::Created {
            intentId: id,
            maker: party,
            solver: party,
            tokenIn: token,
            amountIn: amount,
            fillDeadline: 10,
            terms: id,
            seq: bump(world, 0),
        };
        let locked = Escrow::Locked {
            id,
            sender: party,
            receiver: party,
            token,
            amount,
            hashlock: id,
            timelock: 20,
            seq: bump(world, 1),
        };
        vec![self.of_settler(&created), self.of_escrow(&locked)]
    }

    fn fill(&self, world: &mut World, index: usize, id: B256) -> Vec<PrimitiveLog> {
        world.stages[index] = Stage::Filled;
        let solver = Address::repeat_byte(1);
        let event = IntentSettler::Filled { intentId: id, solver, payoutRef: id, seq: bump(world, 0) };
        vec![self.of_settler(&event)]
    }

    fn settle(&self, world: &mut World, index: usize, id: B256) -> Vec<PrimitiveLog> {
        world.stages[index] = Stage::Over;
        let (solver, amount) = (Address::repeat_byte(1), U256::from(LOCKED_AMOUNT));
        let settled = IntentSettler::Settled { intentId: id, solver, amountIn: amount, seq: bump(world, 0) };
        let released = Escrow::Released { id, preimage: id, seq: bump(world, 1) };
        vec![self.of_settler(&settled), self.of_escrow(&released)]
    }

    fn cancel(&self, world: &mut World, index: usize, id: B256) -> Vec<PrimitiveLog> {
        world.stages[index] = Stage::Over;
        let (maker, amount) = (Address::repeat_byte(1), U256::from(LOCKED_AMOUNT));
        let cancelled =
            IntentSettler::Cancelled { intentId: id, maker, amountIn: amount, seq: bump(world, 0) };
        let refunded = Escrow::Refunded { id, seq: bump(world, 1) };
        vec![self.of_settler(&cancelled), self.of_escrow(&refunded)]
    }

    fn of_settler(&self, event: &impl SolEvent) -> PrimitiveLog {
        log(self.deployment.settler, event.encode_log_data())
    }

    fn of_escrow(&self, event: &impl SolEvent) -> PrimitiveLog {
        log(self.deployment.escrow, event.encode_log_data())
    }

    pub(super) fn seq(&self, contract: Address, block: &SimBlock) -> u64 {
        let at = self.contracts().iter().position(|ours| *ours == contract);
        at.map_or(0, |at| block.world.seqs[at])
    }
}

const fn bump(world: &mut World, contract: usize) -> u64 {
    world.seqs[contract] += 1;
    world.seqs[contract]
}

const fn log(address: Address, data: LogData) -> PrimitiveLog {
    PrimitiveLog { address, data }
}

fn bloom_of(logs: &[PrimitiveLog]) -> Bloom {
    let mut bloom = Bloom::ZERO;
    for log in logs {
        bloom.accrue(BloomInput::Raw(log.address.as_slice()));
        for topic in log.data.topics() {
            bloom.accrue(BloomInput::Raw(topic.as_slice()));
        }
    }
    bloom
}

fn envelope<T>(logs: Vec<T>, logs_bloom: Bloom) -> ReceiptEnvelope<T> {
    let receipt = Receipt { status: true.into(), cumulative_gas_used: 21_000, logs };
    ReceiptEnvelope::Eip1559(ReceiptWithBloom { receipt, logs_bloom })
}

/// Puts transactions into a block with a given header.
fn place(head: BlockHead, txs: Vec<(B256, Vec<PrimitiveLog>)>, world: World) -> SimBlock {
    let (mut logs, mut receipts, mut reported) = (Vec::new(), Vec::new(), Vec::new());
    let mut log_index = 0;
    for (transaction_index, (tx_hash, tx_logs)) in (0_u64..).zip(txs) {
        let bloom = bloom_of(&tx_logs);
        let mut placed = Vec::with_capacity(tx_logs.len());
        for inner in tx_logs {
            if let Some(entity) = about(&inner) {
                reported.push((log_index, entity));
            }
            placed.push(Log {
                inner,
                block_hash: Some(head.hash),
                block_number: Some(head.number.0),
                block_timestamp: None,
                transaction_hash: Some(tx_hash),
                transaction_index: Some(transaction_index),
                log_index: Some(log_index),
                removed: false,
            });
            log_index += 1;
        }
        logs.extend(placed.iter().cloned());
        receipts.push(TransactionReceipt {
            inner: envelope(placed, bloom),
            transaction_hash: tx_hash,
            transaction_index: Some(transaction_index),
            block_hash: Some(head.hash),
            block_number: Some(head.number.0),
            gas_used: 21_000,
            effective_gas_price: 1,
            blob_gas_used: None,
            blob_gas_price: None,
            from: RELAYER,
            to: None,
            contract_address: None,
        });
    }
    SimBlock { head, receipts, logs, reported, world }
}

/// The entity of an event that leads to a fact: an independent derivation of the facts.
fn about(log: &PrimitiveLog) -> Option<B256> {
    let always = [
        IntentSettler::Created::SIGNATURE_HASH,
        IntentSettler::Filled::SIGNATURE_HASH,
        IntentSettler::Settled::SIGNATURE_HASH,
        IntentSettler::Cancelled::SIGNATURE_HASH,
        Payouts::Paid::SIGNATURE_HASH,
    ];
    let (topic, entity) = (log.data.topics().first()?, log.data.topics().get(1)?);
    let anchored = *topic == ReceiptAnchor::Anchored::SIGNATURE_HASH
        && log.data.topics().get(2) == Some(&RELAYER.into_word());
    (anchored || always.contains(topic)).then_some(*entity)
}
