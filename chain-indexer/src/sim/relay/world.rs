//! The chain: blocks, forks, and the transactions that wait for a block.

use super::super::rng::Rng;
use super::contracts::{Effect, State, gas_of};
use crate::deploy::Deployment;
use alloy::primitives::{Address, B256, Bytes, keccak256};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const BLOCK_GAS: u64 = 30_000_000;
/// The depth below the head that no fork reaches.
pub(super) const FINAL_DEPTH: u64 = 6;
const GWEI: u128 = 1_000_000_000;
/// The price of a replacement, as nodes require it.
const REPLACEMENT_PERCENT: u128 = 110;

#[derive(Debug, Clone)]
pub(super) struct Tx {
    pub(super) hash: B256,
    pub(super) sender: Address,
    pub(super) nonce: u64,
    pub(super) to: Address,
    pub(super) input: Bytes,
    pub(super) gas: u64,
    pub(super) max_fee: u128,
    pub(super) tip: u128,
}

#[derive(Debug, Clone)]
pub(super) struct Mined {
    pub(super) tx: Tx,
    pub(super) succeeded: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Block {
    pub(super) number: u64,
    pub(super) hash: B256,
    pub(super) parent: B256,
    pub(super) base_fee: u128,
    pub(super) txs: Vec<Mined>,
    /// With their numbers and the transaction of each.
    pub(super) effects: Vec<(Effect, u64, B256)>,
    pub(super) state: State,
}

pub(super) struct World {
    pub(super) deployment: Deployment,
    /// The canonical chain from its first block on.
    pub(super) blocks: Vec<Block>,
    pub(super) finalized: u64,
    pub(super) waiting: BTreeMap<(Address, u64), Tx>,
    /// Everything that was ever sent to the node.
    pub(super) received: BTreeSet<B256>,
    pub(super) rng: Rng,
    pub(super) base_fee: u128,
    /// Failing calls per thousand; zero in the quiet phase.
    pub(super) failing: u64,
    /// Whether transactions of reverted blocks wait for a block again.
    pub(super) requeues: bool,
    /// Transactions per thousand that fail for lack of gas.
    pub(super) hungry: u64,
    /// The gas of a transaction without a call, the minimum of every transaction, which differs between chains.
    pub(super) transfer_gas: u64,
    pub(super) reorgs: u32,
    pub(super) calls: u64,
    forks: u64,
}

impl World {
    pub(super) fn new(seed: u64, deployment: Deployment, mut rng: Rng) -> Self {
        let first = Block {
            number: 0,
            hash: keccak256(seed.to_be_bytes()),
            parent: B256::ZERO,
            base_fee: GWEI,
            txs: Vec::new(),
            effects: Vec::new(),
            state: State::default(),
        };
        let (failing, requeues) = (*rng.pick(&[0, 10, 60]), rng.chance(500));
        let hungry = *rng.pick(&[0, 0, 50]);
        Self {
            deployment,
            blocks: vec![first],
            finalized: 0,
            waiting: BTreeMap::new(),
            received: BTreeSet::new(),
            rng,
            base_fee: GWEI,
            failing,
            requeues,
            hungry,
            transfer_gas: if seed.is_multiple_of(2) { 21_000 } else { 90_000 },
            reorgs: 0,
            calls: 0,
            forks: 0,
        }
    }

    pub(super) fn head(&self) -> &Block {
        self.blocks.last().unwrap_or(&self.blocks[0])
    }

    pub(super) fn by_number(&self, number: u64) -> Option<&Block> {
        self.blocks.get(usize::try_from(number).unwrap_or(usize::MAX))
    }

    pub(super) fn by_hash(&self, hash: B256) -> Option<&Block> {
        self.blocks.iter().rev().find(|block| block.hash == hash)
    }

    /// A node's answer to a transaction; an error is its refusal.
    pub(super) fn take(&mut self, tx: Tx) -> Result<(), &'static str> {
        self.received.insert(tx.hash);
        if tx.nonce < self.head().state.nonces.get(&tx.sender).copied().unwrap_or(0) {
            return Err("nonce too low");
        }
        if tx.max_fee < self.base_fee {
            return Err("max fee per gas less than block base fee");
        }
        if tx.to == tx.sender && tx.gas < self.transfer_gas {
            return Err("intrinsic gas too low");
        }
        let key = (tx.sender, tx.nonce);
        if let Some(there) = self.waiting.get(&key) {
            if there.hash == tx.hash {
                return Err("already known");
            }
            let short = |new: u128, old: u128| new * 100 < old * REPLACEMENT_PERCENT;
            if short(tx.max_fee, there.max_fee) || short(tx.tip, there.tip) {
                return Err("replacement transaction underpriced");
            }
        }
        self.waiting.insert(key, tx);
        Ok(())
    }

    /// Makes a block of some of the waiting transactions; of all that are possible in the quiet phase.
    pub(super) fn mine(&mut self, quiet: bool) {
        let parent = self.head().clone();
        let mut state = parent.state.clone();
        let (mut txs, mut effects, mut gas) = (Vec::new(), Vec::new(), 0);
        let senders: BTreeSet<Address> = self.waiting.keys().map(|(sender, _)| *sender).collect();
        let mut senders: Vec<Address> = senders.into_iter().collect();
        if self.rng.chance(500) {
            senders.reverse();
        }
        for sender in senders {
            while quiet || self.rng.chance(850) {
                let nonce = state.nonces.get(&sender).copied().unwrap_or(0);
                let Some(tx) = self.waiting.get(&(sender, nonce)) else { break };
                if tx.max_fee < self.base_fee || gas + tx.gas > BLOCK_GAS {
                    break;
                }
                let Some(tx) = self.waiting.remove(&(sender, nonce)) else { break };
                gas += tx.gas;
                state.nonces.insert(sender, nonce + 1);
                let hungry = !quiet && self.rng.chance(self.hungry);
                let enough = tx.gas >= gas_of(&tx.input) && !hungry;
                let outcome = if enough || tx.to == sender {
                    state.call(&self.deployment, tx.to, &tx.input)
                } else {
                    Err(Bytes::new())
                };
                for effect in outcome.iter().flat_map(|(_, reported)| reported) {
                    let seq = state.seqs.entry(effect.contract).or_default();
                    *seq += 1;
                    effects.push((effect.clone(), *seq, tx.hash));
                }
                txs.push(Mined { succeeded: outcome.is_ok(), tx });
            }
        }
        self.forks += 1;
        let number = parent.number + 1;
        let hash = keccak256([parent.hash.as_slice(), &self.forks.to_be_bytes()].concat());
        let base_fee = self.base_fee;
        self.blocks.push(Block { number, hash, parent: parent.hash, base_fee, txs, effects, state });
        self.finalized = self.finalized.max(number.saturating_sub(FINAL_DEPTH));
        self.base_fee = (self.base_fee * 7 / 8).max(GWEI);
        let nonces = self.head().state.nonces.clone();
        self.waiting.retain(|(sender, nonce), _| *nonce >= nonces.get(sender).copied().unwrap_or(0));
    }

    pub(super) fn reorg(&mut self) {
        let deepest = self.head().number.saturating_sub(self.finalized);
        if deepest == 0 {
            return;
        }
        let depth = self.rng.between(1, deepest);
        self.reorgs += 1;
        for _ in 0..depth {
            let Some(gone) = self.blocks.pop() else { break };
            for mined in gone.txs {
                if self.requeues && self.rng.chance(700) {
                    self.waiting.entry((mined.tx.sender, mined.tx.nonce)).or_insert(mined.tx);
                }
            }
        }
        for _ in 0..=depth {
            self.mine(false);
        }
    }

    /// Raises the gas price suddenly, and evicts transactions that offer less.
    pub(super) fn spike(&mut self) {
        self.base_fee = GWEI * u128::from(self.rng.between(2, 40));
        let base_fee = self.base_fee;
        self.waiting.retain(|_, tx| tx.max_fee >= base_fee);
    }

    pub(super) fn evict(&mut self) {
        let kept: Vec<bool> = (0..self.waiting.len()).map(|_| self.rng.chance(500)).collect();
        let mut kept = kept.into_iter();
        self.waiting.retain(|_, _| kept.next().unwrap_or(true));
    }

    pub(super) fn impoverish(&mut self, maker: Address) {
        if let Some(block) = self.blocks.last_mut() {
            block.state.poor.insert(maker);
        }
    }
}
