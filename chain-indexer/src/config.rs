//! What the indexer and the relayer of one chain need to know.

use crate::deploy::Deployment;
use std::time::Duration;

/// One chain.
#[derive(Debug, Clone)]
pub struct ChainConfig {
    /// Must be what the node says it is.
    pub chain_id: u64,
    /// For people.
    pub name: String,
    /// HTTP endpoint of a node: the relayer's, and the indexer's first.
    pub rpc_url: String,
    /// Further endpoints of the same chain for the indexer. With any, a final block counts once two endpoints agree
    /// on its hash.
    pub further_rpc_urls: Vec<String>,
    /// Websocket endpoint: news of blocks from there end a wait early, nothing else depends on it.
    pub ws_url: Option<String>,
    /// Depth at which an event is told: 1 as soon as its block is there.
    pub confirmations: u64,
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
    /// A transaction that is not mined for so long is sent again with higher fees.
    pub bump_after: Duration,
    /// An account of the relayer's that holds less is reported.
    pub balance_low_wei: u128,
    pub deployment: Deployment,
}

impl ChainConfig {
    /// The defaults for a chain that many share: its `finalized` tag is believed, and a change below it halts.
    #[must_use]
    pub fn public(name: &str, rpc_url: &str, deployment: Deployment) -> Self {
        Self {
            name: name.to_owned(),
            finality_margin: 0,
            poll_interval: Duration::from_secs(1),
            bump_after: Duration::from_secs(45),
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
            finality_margin: 64,
            finality_depth: None,
            range_margin: 32,
            trust_bloom: true,
            trust_receipts: true,
            poll_interval: Duration::from_millis(200),
            bump_after: Duration::from_secs(15),
            balance_low_wei: 100_000_000_000_000_000,
            deployment,
        }
    }
}
