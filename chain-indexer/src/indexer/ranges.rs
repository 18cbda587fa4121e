//! The final zone: many blocks by number, several ranges requested at once, written in order.
//!
//! A range is written when its blocks are the node's own, its events follow the stored ones, and end at the contracts'
//! counts at its last block. A node without the state of that block cannot return the counts; then the last events may
//! be missing, which the next ones reveal, and they are added ([`Indexer::repair`]).

use super::gather::{AT_ONCE, Failure, Fetched, Gathering};
use super::proof::is_refusal;
use super::{IndexError, Indexer, Step, Turn, block_row, decode};
use crate::deploy::Deployment;
use crate::pool::RangeLength;
use crate::reader::{ChainReader, Fault, classify};
use crate::rpc::BlockHead;
use alloy::eips::BlockId;
use alloy::primitives::{Address, B256};
use alloy::rpc::types::{Filter, Log};
use dvp_domain::chain::BlockNumber;
use dvp_store::chain::{Backfill, BlockRow, Cursor, LogRow};
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use std::collections::HashMap;
use std::pin::pin;

impl<R: ChainReader> Indexer<R> {
    /// Reads ranges until `end`, or until it has read enough for one step.
    pub(super) async fn read_ranges(
        &mut self,
        turn: &Turn<'_, R>,
        cursor: Cursor,
        head: &BlockHead,
        end: BlockNumber,
    ) -> Result<Step, IndexError> {
        let &Turn { at, node, .. } = turn;
        let number = cursor.head_number;
        let ours = node.block(BlockId::number(number.0)).await?.ok_or(IndexError::Behind { number })?;
        if ours.hash != cursor.head_hash {
            return self.unwind(turn, &cursor, head.number).await;
        }
        let mut length = self.endpoints.at(at).length;
        let mut backfill = self.backfill.take().unwrap_or(Backfill { from: number, to: end, events: 0 });
        backfill.to = end;
        let mut advanced = false;
        let reading =
            self.pipeline(turn, cursor, (head.number, end), &mut length, &mut backfill, &mut advanced);
        let result = Box::pin(reading).await;
        self.backfill = Some(backfill);
        let endpoint = self.endpoints.at_mut(at);
        endpoint.length = length;
        let Err(Failure { error, requested }) = result else {
            self.range_failures = 0;
            return Ok(Step::Advanced);
        };
        let fault = match &error {
            IndexError::Rpc(error) => classify(error),
            _ => Fault::Refused,
        };
        if error.is_of_the_endpoint() {
            endpoint.length.failed(requested, fault);
            self.range_failures = if advanced { 0 } else { self.range_failures + 1 };
        }
        // A range that must be shorter is no reason to query another endpoint.
        let shorter = matches!(fault, Fault::Range { .. }) && requested > 1;
        if advanced || shorter { Ok(Step::Advanced) } else { Err(error) }
    }

    /// While some ranges are written the next ones are fetched.
    async fn pipeline(
        &self,
        turn: &Turn<'_, R>,
        mut cursor: Cursor,
        (head_number, end): (BlockNumber, BlockNumber),
        length: &mut RangeLength,
        backfill: &mut Backfill,
        advanced: &mut bool,
    ) -> Result<(), Failure> {
        let requested = length.blocks();
        let last = self.last_seqs(&cursor).await.map_err(|error| Failure { error, requested })?;
        let deployment = &self.config.deployment;
        let fetch = |from, to| fetch(turn.node.as_ref(), deployment, from, to);
        let mut gathering = Gathering::new(fetch, length, (cursor.head_number, end), last);
        while let Some(batch) = gathering.take().await {
            if batch.lacks_an_end {
                self.doubt_the_end();
            }
            let to = batch.blocks.last().map_or(cursor.head_number, |block| block.number);
            let write = self.commit(turn.lease, &cursor, &batch.blocks, &batch.rows, to, head_number);
            cursor = gathering.during(write).await.map_err(|error| Failure { error, requested })?;
            *advanced = true;
            backfill.events += u64::try_from(batch.rows.len()).unwrap_or(u64::MAX);
        }
        gathering.failure.map_or(Ok(()), Err)
    }

    /// Reads again the events of a range that was read without a check of its end.
    pub(super) async fn read_again(
        &self,
        node: &R,
        from: BlockNumber,
        to: BlockNumber,
    ) -> Result<(Vec<BlockRow>, Vec<LogRow>), IndexError> {
        let deployment = &self.config.deployment;
        let (mut blocks, mut rows) = (Vec::new(), Vec::new());
        let mut size = self.endpoints.shortest_range();
        let mut from = from;
        while from <= to {
            let end = to.min(from + (size - 1));
            let fetched = match fetch(node, deployment, from, end).await {
                Err(IndexError::Rpc(error)) if size > 1 => match classify(&error) {
                    Fault::Range { hint } => {
                        size = hint.filter(|&hint| hint < size).unwrap_or(size / 2).max(1);
                        continue;
                    }
                    Fault::Limited | Fault::Refused | Fault::Broken => return Err(error.into()),
                },
                fetched => fetched?,
            };
            blocks.extend(fetched.blocks);
            rows.extend(fetched.rows);
            from = end + 1;
        }
        Ok((blocks, rows))
    }
}

/// Reads and decodes the events of blocks `from` to `to`, in ranges of this many blocks, and stores nothing: measures a
/// backfill without a database. Returns their number.
pub async fn scan<R: ChainReader>(
    node: &R,
    deployment: &Deployment,
    (from, to): (BlockNumber, BlockNumber),
    size: u64,
) -> Result<u64, IndexError> {
    let starts = std::iter::successors(Some(from), |from| from.0.checked_add(size).map(BlockNumber))
        .take_while(|from| *from <= to);
    let mut ranges = pin!(
        stream::iter(starts)
            .map(|from| fetch(node, deployment, from, to.min(BlockNumber(from.0.saturating_add(size - 1)))))
            .buffered(AT_ONCE)
    );
    let mut events = 0;
    while let Some(fetched) = ranges.next().await {
        events += u64::try_from(fetched?.rows.len()).unwrap_or(u64::MAX);
    }
    Ok(events)
}

/// The events of blocks `from` to `to`, and their blocks.
pub(super) async fn fetch<R: ChainReader>(
    node: &R,
    deployment: &Deployment,
    from: BlockNumber,
    to: BlockNumber,
) -> Result<Fetched, IndexError> {
    let contracts = deployment.numbered();
    let filter = Filter::new()
        .from_block(from.0)
        .to_block(to.0)
        .address(contracts.clone())
        .event_signature(decode::topics());
    let logs = node.logs(&filter).await?;
    let mut numbers = numbers_of(&logs, from, to)?;
    if numbers.last() != Some(&to) {
        numbers.push(to);
    }
    let heads = node.blocks(&numbers).await?;
    let mut blocks = Vec::with_capacity(numbers.len());
    let mut hashes: HashMap<BlockNumber, B256> = HashMap::with_capacity(numbers.len());
    for (&number, head) in numbers.iter().zip(&heads) {
        let head = head.as_ref().filter(|head| head.number == number).ok_or(IndexError::Behind { number })?;
        hashes.insert(number, head.hash);
        blocks.push(block_row(head, "range"));
    }
    for log in logs.iter().filter(|log| !log.removed) {
        let ours = log.block_number.and_then(|number| hashes.get(&BlockNumber(number))).copied();
        if ours.is_none() || log.block_hash != ours {
            return Err(IndexError::OtherBlock {
                requested: ours.unwrap_or_default(),
                found: log.block_hash,
            });
        }
    }
    let timestamps = blocks.iter().map(|block| (block.hash, block.timestamp)).collect();
    let rows = decode::rows(deployment, &logs, &timestamps)?;
    let ends = match blocks.last() {
        Some(end) => ends_at(node, &contracts, end.hash).await?,
        None => None,
    };
    Ok(Fetched { blocks, rows, ends })
}

fn numbers_of(logs: &[Log], from: BlockNumber, to: BlockNumber) -> Result<Vec<BlockNumber>, IndexError> {
    let mut numbers = Vec::new();
    for log in logs.iter().filter(|log| !log.removed) {
        match log.block_number.map(BlockNumber) {
            Some(number) if (from..=to).contains(&number) => numbers.push(number),
            found => return Err(IndexError::OutOfRange { from, to, found }),
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

async fn ends_at<R: ChainReader>(
    node: &R,
    contracts: &[Address],
    at: B256,
) -> Result<Option<Vec<(Address, u64)>>, IndexError> {
    let answers = join_all(contracts.iter().map(|contract| node.seq(*contract, at))).await;
    let mut ends = Vec::with_capacity(contracts.len());
    for (&contract, answer) in contracts.iter().zip(answers) {
        if is_refusal(&answer) && answer.as_ref().is_err_and(|error| classify(error) == Fault::Refused) {
            return Ok(None);
        }
        ends.push((contract, answer?));
    }
    Ok(Some(ends))
}
