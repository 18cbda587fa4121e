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
    /// HTTP endpoint of a node.
    pub rpc_url: String,
    /// Depth at which an event is told: 1 as soon as its block is there.
    pub confirmations: u64,
    /// Blocks below the node's `finalized` that may still change. Zero on a real chain, where a change there is a
    /// reason to stop; more on a development node, which may lose its newest blocks when it is killed.
    pub finality_margin: u64,
    /// How often the node is asked for a new head.
    pub poll_interval: Duration,
    /// A transaction that is not mined for so long is sent again with higher fees.
    pub bump_after: Duration,
    pub deployment: Deployment,
}

impl ChainConfig {
    /// The defaults for a development node.
    #[must_use]
    pub fn development(rpc_url: &str, deployment: Deployment) -> Self {
        Self {
            chain_id: deployment.chain_id,
            name: "anvil".to_owned(),
            rpc_url: rpc_url.to_owned(),
            confirmations: 1,
            finality_margin: 64,
            poll_interval: Duration::from_millis(200),
            bump_after: Duration::from_secs(15),
            deployment,
        }
    }
}
