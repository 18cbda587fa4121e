//! Queries a node whether a content hash is anchored.

use alloy::primitives::{Address, B256};
use alloy::providers::Provider;
use alloy::rpc::types::Filter;
use alloy::sol_types::SolEvent;
use alloy::transports::TransportError;
use dvp_domain::chain::BlockNumber;

use crate::contracts::anchor::ReceiptAnchor;
use crate::rpc;

/// The place of an anchor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnchorSeen {
    pub chain_id: u64,
    pub contract: Address,
    pub submitter: Address,
    pub tx_hash: B256,
    pub block_number: BlockNumber,
}

/// The first `Anchored` event of a contract with this content hash. With `tx` only that transaction is read: nodes of
/// large chains refuse to search all blocks.
pub async fn find_anchor(
    rpc_url: &str,
    contract: Address,
    content_hash: B256,
    tx: Option<B256>,
) -> Result<Option<AnchorSeen>, TransportError> {
    let provider = rpc::connect(rpc_url)?;
    let chain_id = provider.get_chain_id().await?;
    let logs = match tx {
        Some(tx) => {
            let receipt = provider.get_transaction_receipt(tx).await?;
            receipt.map(|receipt| receipt.inner.logs().to_vec()).unwrap_or_default()
        }
        None => {
            let filter = Filter::new()
                .address(contract)
                .event_signature(ReceiptAnchor::Anchored::SIGNATURE_HASH)
                .topic1(content_hash)
                .from_block(0);
            provider.get_logs(&filter).await?
        }
    };
    let seen = logs.iter().filter(|log| log.address() == contract && !log.removed).find_map(|log| {
        let event = ReceiptAnchor::Anchored::decode_log(&log.inner).ok()?;
        (event.contentHash == content_hash).then_some(())?;
        Some(AnchorSeen {
            chain_id,
            contract,
            submitter: event.submitter,
            tx_hash: log.transaction_hash?,
            block_number: BlockNumber(log.block_number?),
        })
    });
    Ok(seen)
}
