//! Queries a node by whom a content hash is anchored: anybody can anchor anything, so that an anchor proves something of
//! its submitter alone.

use alloy::eips::BlockId;
use alloy::primitives::{Address, B256};
use alloy::providers::{DynProvider, Provider};
use alloy::rpc::types::Filter;
use alloy::sol_types::SolEvent;
use alloy::transports::{RpcError, TransportError};
use dvp_domain::chain::BlockNumber;

use crate::contracts::anchor::ReceiptAnchor;
use crate::rpc;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnchorSeen {
    pub chain_id: u64,
    pub contract: Address,
    pub submitter: Address,
    pub tx_hash: B256,
    pub block_number: BlockNumber,
    /// Its block is final for the node.
    pub is_final: bool,
}

/// The `Anchored` events of a contract with this content hash, the earliest first. With `tx` only that transaction is
/// read: nodes of large chains refuse to search all blocks. `depth`: blocks this far below the newest one are final, for
/// a chain whose nodes know no `finalized` block.
pub async fn find_anchors(
    rpc_url: &str,
    contract: Address,
    content_hash: B256,
    tx: Option<B256>,
    depth: Option<u64>,
) -> Result<Vec<AnchorSeen>, TransportError> {
    let provider = rpc::connect(rpc_url)?;
    let chain_id = provider.get_chain_id().await?;
    let finalized = final_number(&provider, depth).await?;
    let logs = match tx {
        Some(tx) => rpc::receipt(&provider, tx).await?.map(|receipt| receipt.logs).unwrap_or_default(),
        None => {
            let filter = Filter::new()
                .address(contract)
                .event_signature(ReceiptAnchor::Anchored::SIGNATURE_HASH)
                .topic1(content_hash)
                .from_block(0);
            provider.get_logs(&filter).await?
        }
    };
    let seen = logs.iter().filter(|log| log.address() == contract && !log.removed).filter_map(|log| {
        let event = ReceiptAnchor::Anchored::decode_log(&log.inner).ok()?;
        (event.contentHash == content_hash).then_some(())?;
        let block_number = BlockNumber(log.block_number?);
        Some(AnchorSeen {
            chain_id,
            contract,
            submitter: event.submitter,
            tx_hash: log.transaction_hash?,
            block_number,
            is_final: finalized.is_some_and(|finalized| block_number <= finalized),
        })
    });
    Ok(seen.collect())
}

/// The node's finalized block, or one at a depth that counts as final.
async fn final_number(
    provider: &DynProvider,
    depth: Option<u64>,
) -> Result<Option<BlockNumber>, TransportError> {
    if let Some(depth) = depth {
        return Ok(Some(rpc::head(provider).await?.number.saturating_sub(depth)));
    }
    match rpc::block(provider, BlockId::finalized()).await {
        Ok(block) => Ok(block.map(|block| block.number)),
        Err(RpcError::ErrorResp(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
