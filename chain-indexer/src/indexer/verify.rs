//! The events of a block or a range, and the proof that none is missing.

use super::{IndexError, Indexer, block_row, decode};
use crate::contracts::anchor::ReceiptAnchor;
use crate::rpc::{self, BlockHead};
use alloy::eips::BlockId;
use alloy::primitives::{Address, B256, BloomInput};
use alloy::providers::Provider;
use alloy::rpc::types::Filter;
use alloy::transports::RpcError;
use dvp_core::store::chain::{self as store, BlockRow, Cursor, LogRow};
use std::collections::HashMap;

impl Indexer {
    fn contracts(&self) -> [Address; 4] {
        let deployment = &self.config.deployment;
        [deployment.settler, deployment.escrow, deployment.anchor, deployment.payouts]
    }

    /// The block's events with the name of the proof: the header's bloom shows that there are none, or their
    /// numbers join the last ones and end where the contracts say they end at this block.
    pub(super) async fn proven_logs(
        &self,
        cursor: &Cursor,
        block: &BlockHead,
    ) -> Result<(Vec<LogRow>, &'static str), IndexError> {
        let mut asked = self.contracts().to_vec();
        if let (Some(bloom), true) = (&block.proven_bloom, self.tail_proven) {
            asked.retain(|address| bloom.contains_input(BloomInput::Raw(address.as_slice())));
        }
        if asked.is_empty() {
            return Ok((Vec::new(), "bloom"));
        }
        let filter =
            Filter::new().at_block_hash(block.hash).address(asked.clone()).event_signature(decode::topics());
        let logs = self.provider.get_logs(&filter).await?;
        if let Some(log) = logs.iter().find(|log| log.block_hash != Some(block.hash)) {
            return Err(IndexError::OtherBlock { asked: block.hash, found: log.block_hash });
        }
        let timestamps = HashMap::from([(block.hash, block.timestamp)]);
        let rows = decode::rows(&self.config.deployment, &logs, &timestamps)?;
        let mut last = self.last_seqs(cursor).await?;
        decode::continue_seqs(&mut last, &rows)?;
        for contract in asked {
            self.check_end(contract, block, &last).await?;
        }
        Ok((rows, "seq"))
    }

    async fn last_seqs(&self, cursor: &Cursor) -> Result<HashMap<Address, u64>, IndexError> {
        let mut conn = self.pool.acquire().await?;
        Ok(store::last_seqs(&mut conn, cursor.chain_id, cursor.head_number).await?)
    }

    /// Contiguous numbers do not show that the last ones are missing; the contract's own count does.
    async fn check_end(
        &self,
        contract: Address,
        block: &BlockHead,
        last: &HashMap<Address, u64>,
    ) -> Result<(), IndexError> {
        let seen = last.get(&contract).copied().unwrap_or_default();
        let at = BlockId::hash(block.hash);
        // All of them have the same `seq()`.
        let emitted = rpc::view(&self.provider, contract, &ReceiptAnchor::seqCall {}, at).await?;
        if emitted == seen {
            Ok(())
        } else {
            Err(IndexError::Incomplete { contract, block_number: block.number, emitted, seen })
        }
    }

    /// The events after the cursor up to `to`, and the blocks they are in. A node that has forgotten the state at
    /// `to` cannot give `seq()` there: then the first hot block is compared.
    pub(super) async fn proven_range(
        &mut self,
        cursor: &Cursor,
        to: u64,
    ) -> Result<(Vec<BlockRow>, Vec<LogRow>), IndexError> {
        let end = self.block_at(to).await?.ok_or(RpcError::NullResp)?;
        let filter = Filter::new()
            .from_block(cursor.head_number + 1)
            .to_block(to)
            .address(self.contracts().to_vec())
            .event_signature(decode::topics());
        let logs = self.provider.get_logs(&filter).await?;
        let mut places: Vec<(u64, B256)> =
            logs.iter().filter_map(|log| Some((log.block_number?, log.block_hash?))).collect();
        places.sort_unstable();
        places.dedup();
        let mut blocks = Vec::with_capacity(places.len() + 1);
        for (number, hash) in places {
            let block = self.block_at(number).await?.ok_or(RpcError::NullResp)?;
            if block.hash != hash {
                return Err(IndexError::OtherBlock { asked: hash, found: Some(block.hash) });
            }
            blocks.push(block_row(&block, "range"));
        }
        if blocks.last().is_none_or(|block| block.number != to) {
            blocks.push(block_row(&end, "range"));
        }
        let timestamps = blocks.iter().map(|block| (block.hash, block.timestamp)).collect();
        let rows = decode::rows(&self.config.deployment, &logs, &timestamps)?;
        let mut last = self.last_seqs(cursor).await?;
        decode::continue_seqs(&mut last, &rows)?;
        for contract in self.contracts() {
            match self.check_end(contract, &end, &last).await {
                Ok(()) => {}
                Err(IndexError::Rpc(RpcError::ErrorResp(_))) => self.tail_proven = false,
                Err(error) => return Err(error),
            }
        }
        Ok((blocks, rows))
    }
}
