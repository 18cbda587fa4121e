//! What the indexer and the relayer of one chain need to know.

use crate::deploy::Deployment;
use crate::gate::{PayoutGate, Wait};
use std::time::Duration;

/// One chain.
#[derive(Debug, Clone)]
pub struct ChainConfig {
    /// Must be what the node says it is.
    pub chain_id: u64,
    /// For people.
    pub name: String,
    /// HTTP endpoint of a node, the first that is asked.
    pub rpc_url: String,
    /// Further endpoints of the same chain. With any, a final block counts once two endpoints agree
    /// on its hash.
    pub further_rpc_urls: Vec<String>,
    /// Websocket endpoint: news of blocks from there end a wait early, nothing else depends on it.
    pub ws_url: Option<String>,
    /// Depth at which an event is told: 1 as soon as its block is there.
    pub confirmations: u64,
    /// What a fill waits for before it is told.
    pub payout_gate: PayoutGate,
    /// Blocks below the node's `finalized` that may still change. Zero on a real chain, where a change there is a
    /// reason to stop; more on a development node, which may lose its newest blocks when it is killed.
    pub finality_margin: u64,
    /// For a node that has never told a finalized block: so far below its head a block counts as final. `None` trusts
    /// the tag alone.
    pub finality_depth: Option<u64>,
    /// Ranges end so many blocks below the final one, the rest is read block by block: by so much the machines behind
    /// one endpoint may lag behind each other without our noticing.
    pub range_margin: u64,
    /// Whether a header's logs bloom counts as evidence. Some chains leave it empty.
    pub trust_bloom: bool,
    /// Whether a header's receipts root counts as evidence. Some chains have receipts that are not in it.
    pub trust_receipts: bool,
    /// How often the node is asked for a new head.
    pub poll_interval: Duration,
    pub fees: FeePolicy,
    /// A transaction without a block is sent again after so long, the same bytes.
    pub resend_after: Duration,
    /// The relayer leaves an endpoint that has told no new block for so long for another.
    pub stale_after: Duration,
    /// A newest block older than this is an alarm: the endpoints, or the chain, stand still. `None` for a chain that
    /// makes blocks only when there is something to put in.
    pub stalled_after: Option<Duration>,
    /// An account of the relayer's that holds less is reported.
    pub balance_low_wei: u128,
    pub deployment: Deployment,
}

/// What the relayer pays for gas. Between floor and cap it follows what the newest blocks took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeePolicy {
    /// The smallest tip offered, in wei per gas.
    pub tip_floor_wei: u128,
    /// The most paid in all, in wei per gas.
    pub cap_wei: u128,
    /// A transaction that offers too little is replaced after so many blocks.
    pub bump_blocks: u64,
    /// Added to the gas that a node says a transaction needs, in percent.
    pub gas_margin_percent: u64,
}

impl Default for FeePolicy {
    /// For a chain whose blocks are a few seconds apart.
    fn default() -> Self {
        Self {
            tip_floor_wei: 1_000_000_000,
            cap_wei: 500_000_000_000,
            bump_blocks: 3,
            gas_margin_percent: 20,
        }
    }
}

impl ChainConfig {
    /// The defaults for a chain that many share: its `finalized` tag is believed, and a change below it halts.
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

    /// The defaults for a development node.
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
            deployment,
        }
    }
}
