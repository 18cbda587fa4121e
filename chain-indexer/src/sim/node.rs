//! Machines that answer for the simulated chain, each with its own faults.

use super::chain::{SimBlock, SimChain, View};
use super::rng::Rng;
use crate::reader::ChainReader;
use crate::rpc::BlockHead;
use alloy::eips::{BlockId, BlockNumberOrTag};
use alloy::primitives::{Address, B256};
use alloy::rpc::json_rpc::ErrorPayload;
use alloy::rpc::types::{Filter, FilterBlockOption, Log, TransactionReceipt};
use alloy::transports::{RpcError, TransportError, TransportErrorKind};
use dvp_domain::chain::BlockNumber;
use parking_lot::{Mutex, MutexGuard};
use std::borrow::Cow;
use std::sync::Arc;

/// Machines that keep little have no state this far below the finalized block.
const STATE_KEPT: u64 = 60;

/// The faults of one endpoint. Those of the first part end in the quiet phase, the others do not.
#[derive(Debug, Clone)]
pub(super) struct Weaknesses {
    /// Per thousand calls.
    broken: u64,
    limited: u64,
    nothing: u64,
    lost_log: u64,
    lost_tail: u64,
    empty: u64,
    doubled: u64,
    shuffled: u64,
    removed: u64,
    orphans: u64,
    lagging: u64,
    lost_receipt: u64,
    /// Logs of some blocks are never returned.
    blind: bool,

    range_limit: u64,
    forgets_state: bool,
    no_receipts: bool,
    no_proof: bool,
    no_finalized: bool,
}

impl Weaknesses {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let mut often = |share: u64| if rng.chance(share) { *rng.pick(&[10, 40, 150]) } else { 0 };
        let mut drawn = Self {
            broken: often(400),
            limited: often(300),
            nothing: often(200),
            lost_log: often(400),
            lost_tail: often(400),
            empty: often(400),
            doubled: often(300),
            shuffled: often(300),
            removed: often(300),
            orphans: often(300),
            lagging: often(500),
            lost_receipt: often(200),
            forgets_state: rng.chance(300),
            blind: rng.chance(150),
            range_limit: *rng.pick(&[u64::MAX, u64::MAX, 2_000, 50, 7]),
            no_receipts: false,
            no_proof: false,
            no_finalized: false,
        };
        // A node that neither keeps state nor returns receipts proves nothing about old blocks.
        drawn.no_receipts = !drawn.forgets_state && rng.chance(200);
        drawn.no_proof = !drawn.forgets_state && rng.chance(150);
        drawn.no_finalized = rng.chance(50);
        drawn
    }
}

#[derive(Debug)]
pub(super) struct Sim {
    pub(super) chain: SimChain,
    weaknesses: Vec<Weaknesses>,
    rng: Rng,
    /// The chain does not change, and every endpoint answers correctly.
    pub(super) quiet: bool,
    pub(super) calls: u64,
}

impl Sim {
    pub(super) const fn new(chain: SimChain, weaknesses: Vec<Weaknesses>, rng: Rng) -> Self {
        Self { chain, weaknesses, rng, quiet: false, calls: 0 }
    }

    pub(super) fn weaknesses(&self) -> &[Weaknesses] {
        &self.weaknesses
    }
}

#[derive(Debug, Clone)]
pub(super) struct SimNode {
    pub(super) sim: Arc<Mutex<Sim>>,
    pub(super) at: usize,
}

impl SimNode {
    pub(super) fn sim(&self) -> MutexGuard<'_, Sim> {
        self.sim.lock()
    }

    /// A call begins: the chain may have changed, and the call may fail.
    async fn call(&self) -> Result<Answering, TransportError> {
        tokio::task::yield_now().await;
        let mut sim = self.sim();
        sim.calls += 1;
        let weaknesses = sim.weaknesses[self.at].clone();
        if sim.quiet {
            return Ok(Answering { view: sim.chain.now(), weaknesses, quiet: true });
        }
        if sim.rng.chance(60) {
            sim.chain.evolve();
        }
        if sim.rng.chance(weaknesses.broken) {
            return Err(match sim.rng.between(0, 2) {
                0 => TransportErrorKind::custom_str("connection reset by peer"),
                1 => TransportErrorKind::http_error(503, "upstream unavailable".into()),
                _ => RpcError::NullResp,
            });
        }
        if sim.rng.chance(weaknesses.limited) {
            return Err(match sim.rng.between(0, 1) {
                0 => TransportErrorKind::http_error(429, "Too Many Requests".into()),
                _ => refused(429, "Your app has exceeded its compute units per second capacity"),
            });
        }
        let ago = if sim.rng.chance(weaknesses.lagging) { sim.rng.between(1, 5) } else { 0 };
        let view = sim.chain.view(usize::try_from(ago).unwrap_or_default());
        Ok(Answering { view, weaknesses, quiet: false })
    }

    fn chance(&self, answering: &Answering, per_mille: u64) -> bool {
        !answering.quiet && self.sim().rng.chance(per_mille)
    }

    fn spoil(&self, answering: &Answering, logs: &mut Vec<Log>) {
        if answering.quiet {
            return;
        }
        let weak = &answering.weaknesses;
        let mut sim = self.sim();
        if weak.blind {
            logs.retain(|log| log.block_hash.is_none_or(|hash| hash[0] % 8 != 1));
        }
        if sim.rng.chance(weak.empty) {
            logs.clear();
        }
        let count = u64::try_from(logs.len()).unwrap_or_default();
        if count > 0 && sim.rng.chance(weak.lost_log) {
            let lost = sim.rng.between(0, count - 1);
            logs.remove(usize::try_from(lost).unwrap_or_default());
        }
        if sim.rng.chance(weak.lost_tail) {
            logs.truncate(logs.len() / 2);
        }
        if sim.rng.chance(weak.doubled)
            && let Some(log) = logs.last().cloned()
        {
            logs.push(log);
        }
        if sim.rng.chance(weak.removed)
            && let Some(mut log) = logs.first().cloned()
        {
            log.removed = true;
            log.block_hash = Some(B256::repeat_byte(0xdd));
            logs.push(log);
        }
        if sim.rng.chance(weak.shuffled) {
            logs.reverse();
        }
    }

    /// Logs of abandoned blocks, as from an index that is not cleaned up.
    fn orphans(&self, answering: &Answering, from: u64, to: u64, filter: &Filter) -> Vec<Log> {
        if !self.chance(answering, answering.weaknesses.orphans) {
            return Vec::new();
        }
        let sim = self.sim();
        let mut orphans: Vec<&Arc<SimBlock>> = sim.chain.all.values().collect();
        orphans.retain(|block| {
            let number = block.head.number.0;
            let canonical = answering.view.at(number).is_some_and(|ours| ours.head.hash == block.head.hash);
            !canonical && (from..=to).contains(&number)
        });
        orphans.sort_by_key(|block| block.head.hash);
        orphans.first().map_or_else(Vec::new, |block| matching(block, filter))
    }

    fn range(
        &self,
        answering: &Answering,
        from: u64,
        to: u64,
        filter: &Filter,
    ) -> Result<Vec<Log>, TransportError> {
        let limit = answering.weaknesses.range_limit;
        if to.saturating_sub(from) >= limit {
            return Err(self.too_long(from, limit));
        }
        let mut logs: Vec<Log> = Vec::new();
        for number in from..=to {
            // Beyond the head the answer is empty, without an error.
            let Some(block) = answering.view.at(number) else { break };
            logs.extend(matching(block, filter));
        }
        logs.extend(self.orphans(answering, from, to, filter));
        self.spoil(answering, &mut logs);
        Ok(logs)
    }

    fn too_long(&self, from: u64, limit: u64) -> TransportError {
        let works = from + limit - 1;
        match self.sim().rng.between(0, 5) {
            0 => refused(
                -32005,
                format!(
                    "query returned more than 10000 results. Try with this block range [{from:#x}, {works:#x}]."
                ),
            ),
            1 => refused(
                -32602,
                format!(
                    "Log response size exceeded. You can make eth_getLogs requests with up to a 2K block range. Based on your parameters, this block range should work: [{from:#x}, {works:#x}]"
                ),
            ),
            2 => refused(-32614, format!("eth_getLogs is limited to a {limit} range")),
            3 => refused(-32600, "block range is too wide"),
            4 => refused(-32000, format!("requested too many blocks, maximum is set to {limit}")),
            _ => TransportErrorKind::http_error(400, format!("exceed maximum block range: {limit}")),
        }
    }
}

struct Answering {
    view: Arc<View>,
    weaknesses: Weaknesses,
    quiet: bool,
}

impl Answering {
    fn head(&self, block: &SimBlock) -> BlockHead {
        let mut head = block.head.clone();
        if self.weaknesses.no_proof {
            head.proven = None;
        }
        head
    }
}

impl ChainReader for SimNode {
    async fn chain_id(&self) -> Result<u64, TransportError> {
        self.call().await?;
        Ok(self.sim().chain.deployment.chain_id)
    }

    async fn block(&self, id: BlockId) -> Result<Option<BlockHead>, TransportError> {
        let answering = self.call().await?;
        if self.chance(&answering, answering.weaknesses.nothing) {
            return Ok(None);
        }
        let number = match id {
            BlockId::Hash(hash) => {
                let sim = self.sim();
                return Ok(sim.chain.all.get(&hash.block_hash).map(|block| answering.head(block)));
            }
            BlockId::Number(BlockNumberOrTag::Number(number)) => number,
            BlockId::Number(BlockNumberOrTag::Latest) => answering.view.tip().head.number.0,
            BlockId::Number(BlockNumberOrTag::Finalized) if answering.weaknesses.no_finalized => {
                return Err(refused(-32601, "the tag finalized is not known"));
            }
            BlockId::Number(BlockNumberOrTag::Finalized | BlockNumberOrTag::Safe) => answering.view.finalized,
            BlockId::Number(_) => return Err(refused(-32602, "tag not known")),
        };
        Ok(answering.view.at(number).map(|block| answering.head(block)))
    }

    async fn blocks(&self, numbers: &[BlockNumber]) -> Result<Vec<Option<BlockHead>>, TransportError> {
        let answering = self.call().await?;
        let head = |number: &BlockNumber| answering.view.at(number.0).map(|block| answering.head(block));
        Ok(numbers.iter().map(head).collect())
    }

    async fn logs(&self, filter: &Filter) -> Result<Vec<Log>, TransportError> {
        let answering = self.call().await?;
        match filter.block_option {
            FilterBlockOption::AtBlockHash(hash) => {
                let block = self.sim().chain.all.get(&hash).cloned();
                let block = block.filter(|block| {
                    answering.view.at(block.head.number.0).is_some_and(|ours| ours.head.hash == hash)
                });
                let Some(block) = block else { return Err(refused(-32000, "unknown block")) };
                let mut logs = matching(&block, filter);
                self.spoil(&answering, &mut logs);
                Ok(logs)
            }
            FilterBlockOption::Range {
                from_block: Some(BlockNumberOrTag::Number(from)),
                to_block: Some(BlockNumberOrTag::Number(to)),
            } => self.range(&answering, from, to, filter),
            FilterBlockOption::Range { .. } => Err(refused(-32602, "a range by number is wanted")),
        }
    }

    async fn seq(&self, contract: Address, at: B256) -> Result<u64, TransportError> {
        let answering = self.call().await?;
        let sim = self.sim();
        let Some(block) = sim.chain.all.get(&at) else { return Err(refused(-32000, "header not found")) };
        let kept_from = answering.view.finalized.saturating_sub(STATE_KEPT);
        if answering.weaknesses.forgets_state && block.head.number.0 < kept_from {
            return Err(refused(-32000, "missing trie node"));
        }
        Ok(sim.chain.seq(contract, block))
    }

    async fn receipts(&self, block: B256) -> Result<Option<Vec<TransactionReceipt>>, TransportError> {
        let answering = self.call().await?;
        if answering.weaknesses.no_receipts {
            return Err(refused(-32601, "the method eth_getBlockReceipts does not exist"));
        }
        let Some(mut receipts) = self.sim().chain.all.get(&block).map(|block| block.receipts.clone()) else {
            return Ok(None);
        };
        if self.chance(&answering, answering.weaknesses.lost_receipt) {
            receipts.pop();
        }
        Ok(Some(receipts))
    }
}

fn matching(block: &SimBlock, filter: &Filter) -> Vec<Log> {
    let wanted = |log: &&Log| {
        filter.address.matches(&log.address())
            && log.topic0().is_some_and(|topic| filter.topics[0].matches(topic))
    };
    block.logs.iter().filter(wanted).cloned().collect()
}

fn refused(code: i64, message: impl Into<Cow<'static, str>>) -> TransportError {
    RpcError::ErrorResp(ErrorPayload { code, message: message.into(), data: None })
}
