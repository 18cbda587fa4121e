//! The blocks after the cursor, several in one step when the indexer is behind.
//!
//! Their headers are requested in one exchange, and their events and counts side by side; each block is then checked as
//! a single one is. The step writes the blocks before the first that is not linked or not proven; that one is read
//! alone, with every proof that there is.

use super::proof::{Proof, counts};
use super::{IndexError, Indexer, decode};
use crate::reader::ChainReader;
use crate::rpc::BlockHead;
use alloy::primitives::Address;
use dvp_domain::chain::BlockNumber;
use dvp_store::chain::{Cursor, LogRow};
use futures_util::StreamExt;
use futures_util::stream;
use std::convert::identity;

const BLOCKS: u64 = 32;
/// The maximum number of blocks whose events are requested at once.
const AT_ONCE: usize = 4;

/// What a node says of the events of a block.
struct Claimed {
    rows: Vec<LogRow>,
    /// Each requested contract's own count; none are requested when the header excludes all.
    emitted: Vec<(Address, u64)>,
}

impl<R: ChainReader> Indexer<R> {
    /// The linked and proven blocks after the cursor; fewer than two are read alone.
    pub(super) async fn read_run(
        &self,
        node: &R,
        cursor: &Cursor,
        head: BlockNumber,
    ) -> Result<Vec<(BlockHead, Proof)>, IndexError> {
        let first = cursor.head_number + 1;
        let last = head.min(cursor.head_number + BLOCKS);
        if last <= first {
            return Ok(Vec::new());
        }
        let numbers: Vec<BlockNumber> = (first.0..=last.0).map(BlockNumber).collect();
        let blocks = linked(cursor, node.blocks(&numbers).await?);
        let mut last = self.last_seqs(cursor).await?;
        let requests: Vec<_> = blocks.iter().map(|block| self.claimed(node, block)).collect();
        let mut claims = stream::iter(requests).buffered(AT_ONCE);
        let mut proofs = Vec::with_capacity(blocks.len());
        while let Some(Ok(Claimed { rows, emitted })) = claims.next().await {
            let by = if emitted.is_empty() { "bloom" } else { "seq" };
            if decode::continue_seqs(&mut last, &rows).is_err() {
                break;
            }
            let seen = |contract| last.get(contract).copied().unwrap_or_default();
            if emitted.iter().any(|(contract, count)| seen(contract) != *count) {
                break;
            }
            proofs.push(Proof { rows, by, reaches_the_end: true });
        }
        drop(claims);
        Ok(blocks.into_iter().zip(proofs).collect())
    }

    async fn claimed(&self, node: &R, block: &BlockHead) -> Result<Claimed, IndexError> {
        let requested = self.not_excluded(block);
        if requested.is_empty() {
            return Ok(Claimed { rows: Vec::new(), emitted: Vec::new() });
        }
        let (rows, emitted) =
            tokio::try_join!(self.events_of(node, &requested, block), counts(node, &requested, block))?;
        Ok(Claimed { rows, emitted })
    }
}

/// The blocks that follow the cursor, each the parent of the next.
fn linked(cursor: &Cursor, blocks: Vec<Option<BlockHead>>) -> Vec<BlockHead> {
    let (mut number, mut parent) = (cursor.head_number, cursor.head_hash);
    let follows = |block: &BlockHead| {
        let follows = block.number == number + 1 && block.parent == parent;
        (number, parent) = (block.number, block.hash);
        follows
    };
    blocks.into_iter().map_while(identity).take_while(follows).collect()
}
