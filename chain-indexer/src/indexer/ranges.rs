//! The final zone: many blocks by number, several ranges asked for at once, written in order.
//!
//! A range is written when its blocks are the node's own, its events join what we have, and end where the contracts
//! say they end at its last block. A node that has forgotten the state there cannot say; then the events may lack
//! their end, which the next ones show, and what is missing is added ([`Indexer::repair`]).

use super::gather::Gathering;
use super::proof::is_refusal;
use super::{IndexError, Indexer, Step, block_row, decode};
use crate::deploy::Deployment;
use crate::reader::{ChainReader, Fault, classify};
use crate::rpc::BlockHead;
use alloy::eips::BlockId;
use alloy::primitives::{Address, B256};
use alloy::rpc::types::{Filter, Log};
use dvp_core::store::chain::{Backfill, BlockRow, Cursor, LogRow};
use dvp_core::store::lease::Lease;
use futures_util::StreamExt;
use futures_util::stream::{self, Stream};
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;

/// Ranges asked for at once.
const AT_ONCE: usize = 4;
/// Ranges in one step, at most.
const IN_A_STEP: usize = 64;

/// What a node gave for a range.
pub(super) struct Fetched {
    pub(super) blocks: Vec<BlockRow>,
    pub(super) rows: Vec<LogRow>,
    /// Every contract's own count at the last block; `None` when the node has forgotten it.
    pub(super) ends: Option<Vec<(Address, u64)>>,
}

impl<R: ChainReader> Indexer<R> {
    /// Reads ranges until `end`, or until it has read enough for one step.
    pub(super) async fn read_ranges(
        &mut self,
        at: usize,
        node: &Arc<R>,
        lease: &Lease,
        cursor: Cursor,
        head: &BlockHead,
        end: u64,
    ) -> Result<Step, IndexError> {
        let number = cursor.head_number;
        let ours = node.block(BlockId::number(number)).await?.ok_or(IndexError::Behind { number })?;
        if ours.hash != cursor.head_hash {
            return self.unwind(node, at, lease, &cursor, head.number).await;
        }
        let endpoint = self.endpoints.at(at);
        let (size, count) = (endpoint.range(), if endpoint.is_probed() { IN_A_STEP } else { 1 });
        let mut backfill = self.backfill.take().unwrap_or(Backfill { from: number, to: end, events: 0 });
        backfill.to = end;
        let reading = self.pipeline(node, lease, cursor, head.number, (end, size, count), &mut backfill);
        let result = Box::pin(reading).await;
        self.backfill = Some(backfill);
        let endpoint = self.endpoints.at_mut(at);
        match result {
            Ok(fullest) => {
                endpoint.range_worked(fullest);
                self.range_failures = 0;
                Ok(Step::Advanced)
            }
            Err(Stopped { error, advanced }) => {
                let fault = match &error {
                    IndexError::Rpc(error) => classify(error),
                    _ => Fault::Refused,
                };
                if error.is_of_the_endpoint() {
                    endpoint.range_failed(size, fault);
                    self.range_failures = if advanced { 0 } else { self.range_failures + 1 };
                }
                // A shorter range is no reason to ask somebody else.
                let shorter = matches!(fault, Fault::Range { .. }) && size > 1;
                if advanced || shorter { Ok(Step::Advanced) } else { Err(error) }
            }
        }
    }

    /// While some ranges are written the next ones are fetched. Gives the events of the fullest one.
    async fn pipeline(
        &self,
        node: &Arc<R>,
        lease: &Lease,
        mut cursor: Cursor,
        head_number: u64,
        (end, size, count): (u64, u64, usize),
        backfill: &mut Backfill,
    ) -> Result<u64, Stopped> {
        let mut advanced = false;
        let last = self.last_seqs(&cursor).await.map_err(|error| Stopped { error, advanced })?;
        let ranges = pin!(self.fetching(node, cursor.head_number, end, size, count));
        let mut gathering = Gathering::new(ranges, last);
        while let Some(batch) = gathering.take().await {
            if batch.lacks_an_end {
                self.doubt_the_end();
            }
            let to = batch.blocks.last().map_or(cursor.head_number, |block| block.number);
            let write = self.commit(lease, &cursor, &batch.blocks, &batch.rows, to, head_number);
            cursor = gathering.during(write).await.map_err(|error| Stopped { error, advanced })?;
            advanced = true;
            backfill.events += u64::try_from(batch.rows.len()).unwrap_or(u64::MAX);
        }
        match gathering.failed {
            Some(error) => Err(Stopped { error, advanced }),
            None => Ok(gathering.fullest),
        }
    }

    fn fetching<'a>(
        &'a self,
        node: &'a Arc<R>,
        after: u64,
        end: u64,
        size: u64,
        count: usize,
    ) -> impl Stream<Item = Result<Fetched, IndexError>> + 'a {
        let starts = (0..count).scan(after + 1, move |next, _| {
            let from = *next;
            *next = from.saturating_add(size);
            (from <= end).then_some(from)
        });
        let contracts = self.contracts();
        stream::iter(starts)
            .map(move |from| {
                let to = end.min(from.saturating_add(size - 1));
                fetch(node.as_ref(), &self.config.deployment, contracts, from, to)
            })
            .buffered(AT_ONCE)
    }

    /// The events of a stretch that was read before, without its end being checked.
    pub(super) async fn read_again(
        &self,
        node: &R,
        from: u64,
        to: u64,
    ) -> Result<(Vec<BlockRow>, Vec<LogRow>), IndexError> {
        let (deployment, contracts) = (&self.config.deployment, self.contracts());
        let (mut blocks, mut rows) = (Vec::new(), Vec::new());
        let mut size = self.endpoints.shortest_range();
        let mut from = from;
        while from <= to {
            let end = to.min(from + size - 1);
            let fetched = match fetch(node, deployment, contracts, from, end).await {
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

/// Reads and decodes the events of blocks `from` to `to`, in ranges of so many blocks, and keeps nothing: what a
/// backfill costs without a database. Gives their number.
pub async fn scan<R: ChainReader>(
    node: &R,
    deployment: &Deployment,
    (from, to): (u64, u64),
    size: u64,
) -> Result<u64, IndexError> {
    let contracts = [deployment.settler, deployment.escrow, deployment.anchor, deployment.payouts];
    let starts =
        std::iter::successors(Some(from), |from| from.checked_add(size)).take_while(|from| *from <= to);
    let mut ranges = pin!(
        stream::iter(starts)
            .map(|from| fetch(node, deployment, contracts, from, to.min(from.saturating_add(size - 1))))
            .buffered(AT_ONCE)
    );
    let mut events = 0;
    while let Some(fetched) = ranges.next().await {
        events += u64::try_from(fetched?.rows.len()).unwrap_or(u64::MAX);
    }
    Ok(events)
}

/// Why a run of ranges stopped, and whether any was written.
struct Stopped {
    error: IndexError,
    advanced: bool,
}

/// The events of blocks `from` to `to`, and the blocks they are in.
async fn fetch<R: ChainReader>(
    node: &R,
    deployment: &Deployment,
    contracts: [Address; 4],
    from: u64,
    to: u64,
) -> Result<Fetched, IndexError> {
    let filter = Filter::new()
        .from_block(from)
        .to_block(to)
        .address(contracts.to_vec())
        .event_signature(decode::topics());
    let logs = node.logs(&filter).await?;
    let mut numbers = numbers_of(&logs, from, to)?;
    if numbers.last() != Some(&to) {
        numbers.push(to);
    }
    let heads = node.blocks(&numbers).await?;
    let mut blocks = Vec::with_capacity(numbers.len());
    let mut hashes: HashMap<u64, B256> = HashMap::with_capacity(numbers.len());
    for (&number, head) in numbers.iter().zip(&heads) {
        let head = head.as_ref().filter(|head| head.number == number).ok_or(IndexError::Behind { number })?;
        hashes.insert(number, head.hash);
        blocks.push(block_row(head, "range"));
    }
    for log in logs.iter().filter(|log| !log.removed) {
        let ours = log.block_number.and_then(|number| hashes.get(&number)).copied();
        if ours.is_none() || log.block_hash != ours {
            return Err(IndexError::OtherBlock { asked: ours.unwrap_or_default(), found: log.block_hash });
        }
    }
    let timestamps = blocks.iter().map(|block| (block.hash, block.timestamp)).collect();
    let rows = decode::rows(deployment, &logs, &timestamps)?;
    let ends = match blocks.last() {
        Some(end) => ends_at(node, contracts, end.hash).await?,
        None => None,
    };
    Ok(Fetched { blocks, rows, ends })
}

fn numbers_of(logs: &[Log], from: u64, to: u64) -> Result<Vec<u64>, IndexError> {
    let mut numbers = Vec::new();
    for log in logs.iter().filter(|log| !log.removed) {
        match log.block_number {
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
    contracts: [Address; 4],
    at: B256,
) -> Result<Option<Vec<(Address, u64)>>, IndexError> {
    let mut ends = Vec::with_capacity(contracts.len());
    for contract in contracts {
        let answer = node.seq(contract, at).await;
        if is_refusal(&answer) && answer.as_ref().is_err_and(|error| classify(error) == Fault::Refused) {
            return Ok(None);
        }
        ends.push((contract, answer?));
    }
    Ok(Some(ends))
}
