//! The configuration of the indexer and the relayer of one chain.

use crate::deploy::Deployment;
use crate::gate::{PayoutGate, Wait};
use alloy::primitives::Address;
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct ChainConfig {
    /// Must equal the node's chain id.
    pub chain_id: u64,
    pub name: String,
    /// HTTP endpoint of a node, the preferred one.
    pub rpc_url: String,
    /// Further endpoints of the same chain. With any, a final block counts once two endpoints agree on its hash.
    pub further_rpc_urls: Vec<String>,
    /// Websocket endpoint: its notifications of blocks end a wait early, nothing else depends on it.
    pub ws_url: Option<String>,
    /// Depth at which an event is reported: 1 as soon as it is in a block.
    pub confirmations: u64,
    /// The finality that a fill requires before it is reported.
    pub payout_gate: PayoutGate,
    /// The number of blocks below the node's `finalized` that may still change. Zero on a real chain, which is halted
    /// by such a change; more on a development node, which may lose its newest blocks when it is killed.
    pub finality_margin: u64,
    /// For a node that has never reported a finalized block: the depth below its head at which a block counts as final.
    /// `None` trusts the tag alone.
    pub finality_depth: Option<u64>,
    /// Ranges end this many blocks below the final one, and the rest is read block by block: an undetected lag between
    /// the machines behind one endpoint may be that large.
    pub range_margin: u64,
    /// Whether a header's logs bloom counts as evidence. Some chains leave it empty.
    pub trust_bloom: bool,
    /// Whether a header's receipts root counts as evidence. Some chains have receipts that are not in it.
    pub trust_receipts: bool,
    pub poll_interval: Duration,
    pub fees: FeePolicy,
    /// A transaction without a block is broadcast again, unchanged, after this time.
    pub resend_after: Duration,
    /// The relayer switches to another endpoint when the present one has reported no new block for this time.
    pub stale_after: Duration,
    /// A newest block older than this raises an alarm: the endpoints, or the chain, have stalled. `None` for a chain
    /// that makes blocks only when there are transactions.
    pub stalled_after: Option<Duration>,
    /// A relayer account with a lower balance is reported.
    pub balance_low_wei: u128,
    /// The contract that says what data costs on the chain's L1: the OP stack's `GasPriceOracle`, or one like it.
    pub l1_fee_oracle: Option<Address>,
    pub deployment: Deployment,
}

/// The relayer's gas fees. Between floor and cap they follow those of the newest blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeePolicy {
    /// The smallest tip offered, in wei per gas.
    pub tip_floor_wei: u128,
    /// The highest fee paid in total, in wei per gas.
    pub cap_wei: u128,
    /// A transaction that offers too little is replaced after this many blocks.
    pub bump_blocks: u64,
    /// Added to the node's gas estimate of a transaction, in percent.
    pub gas_margin_percent: u64,
    /// The gas of a block that is counted on at most. Some chains name limits that no block reaches.
    pub block_gas: u64,
    /// What one transaction may be: its greatest cost in wei (gas times fee, which nodes limit, and the fee of its data on
    /// the chain's L1), and its bytes.
    pub tx_fee_max_wei: u128,
    pub tx_bytes_max: usize,
}

impl FeePolicy {
    /// For a transaction of this gas, whose data costs so much: no node takes one that may cost more.
    pub(crate) fn within(self, gas: u64, data: u128) -> Self {
        let left = self.tx_fee_max_wei.saturating_sub(data);
        let most = left.checked_div(u128::from(gas)).unwrap_or(u128::MAX);
        Self { cap_wei: self.cap_wei.min(most), ..self }
    }

    /// Whether a batch of commands may be one transaction.
    pub(crate) fn takes(&self, bytes: usize, gas: u64, max_fee: u128, data: u128) -> bool {
        let cost = u128::from(gas).saturating_mul(max_fee).saturating_add(data);
        bytes <= self.tx_bytes_max && cost <= self.tx_fee_max_wei
    }
}

impl Default for FeePolicy {
    /// For a chain with a block every few seconds.
    fn default() -> Self {
        Self {
            tip_floor_wei: 1_000_000_000,
            cap_wei: 500_000_000_000,
            bump_blocks: 3,
            gas_margin_percent: 20,
            block_gas: 60_000_000,
            // Nodes usually refuse more than one coin, and sequencers more than 95 kB.
            tx_fee_max_wei: 900_000_000_000_000_000,
            tx_bytes_max: 90_000,
        }
    }
}

impl ChainConfig {
    /// The defaults for a public chain: its `finalized` tag is trusted, and a change below it halts the chain.
    #[must_use]
    pub fn public(name: &str, rpc_url: &str, deployment: Deployment) -> Self {
        Self {
            name: name.to_owned(),
            payout_gate: PayoutGate::always(Wait::Finalized),
            finality_margin: 0,
            poll_interval: Duration::from_secs(1),
            fees: FeePolicy { tip_floor_wei: 1_000_000, ..FeePolicy::default() },
            stalled_after: Some(Duration::from_secs(300)),
            ..Self::development(rpc_url, deployment)
        }
    }

    /// The HTTP endpoints, the preferred one first.
    pub fn rpc_urls(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.rpc_url).chain(&self.further_rpc_urls).map(String::as_str)
    }

    #[must_use]
    pub fn development(rpc_url: &str, deployment: Deployment) -> Self {
        Self {
            chain_id: deployment.chain_id,
            name: "anvil".to_owned(),
            rpc_url: rpc_url.to_owned(),
            further_rpc_urls: Vec::new(),
            ws_url: None,
            confirmations: 1,
            payout_gate: PayoutGate::always(Wait::Depth(1)),
            finality_margin: 64,
            finality_depth: None,
            range_margin: 32,
            trust_bloom: true,
            trust_receipts: true,
            poll_interval: Duration::from_millis(200),
            fees: FeePolicy::default(),
            resend_after: Duration::from_secs(2),
            stale_after: Duration::from_secs(60),
            stalled_after: None,
            balance_low_wei: 100_000_000_000_000_000,
            l1_fee_oracle: None,
            deployment,
        }
    }
}
