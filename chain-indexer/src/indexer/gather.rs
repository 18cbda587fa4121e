//! Reads ranges ahead: the next ones are requested while the last ones are written.
//!
//! Invariant: the returned ranges follow each other, number by number, and end where the contracts' counts end, as far
//! as the node knows.

use super::{IndexError, decode};
use crate::pool::{EVENTS_WANTED, RangeLength};
use alloy::primitives::Address;
use dvp_domain::chain::BlockNumber;
use dvp_store::chain::{BlockRow, LogRow};
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesOrdered;
use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::time::{Duration, Instant};

pub(super) const AT_ONCE: usize = 4;
const IN_A_STEP: usize = 64;
/// A step requests no further range after this time: between steps the lease is renewed, the head queried, progress
/// reported.
const LONGEST: Duration = Duration::from_secs(1);
/// A transaction takes ranges until it has this many events.
const IN_A_BATCH: usize = 8_000;
/// The approximate maximum of events read and requested ahead of those being written.
const AHEAD: u64 = 4 * EVENTS_WANTED;

/// A node's answer for a range.
pub(super) struct Fetched {
    pub(super) blocks: Vec<BlockRow>,
    pub(super) rows: Vec<LogRow>,
    /// Every contract's own count at the last block; `None` when the node no longer has it.
    pub(super) ends: Option<Vec<(Address, u64)>>,
}

/// Consecutive ranges.
#[derive(Default)]
pub(super) struct RangeBatch {
    pub(super) blocks: Vec<BlockRow>,
    pub(super) rows: Vec<LogRow>,
    /// The node no longer had the contracts' counts at the end of one of them.
    pub(super) lacks_an_end: bool,
}

pub(super) struct Failure {
    pub(super) error: IndexError,
    pub(super) requested: u64,
}

/// The ranges of a step, and those that were read and not yet returned.
pub(super) struct Gathering<'a, F, R: Future> {
    fetch: F,
    length: &'a mut RangeLength,
    /// The next block to request, and the last one.
    next: BlockNumber,
    end: BlockNumber,
    under_way: FuturesOrdered<R>,
    lengths: VecDeque<u64>,
    read: usize,
    ready: VecDeque<Fetched>,
    /// The events of the ready ranges, and of the range read last.
    events: u64,
    latest: u64,
    /// The last number of each contract, including the ranges read.
    last: HashMap<Address, u64>,
    began: Instant,
    pub(super) failure: Option<Failure>,
}

impl<'a, F, R> Gathering<'a, F, R>
where
    F: Fn(BlockNumber, BlockNumber) -> R,
    R: Future<Output = Result<Fetched, IndexError>>,
{
    /// `fetch` gets the first and the last block of a range, `last` the number of each contract's last stored event.
    pub(super) fn new(
        fetch: F,
        length: &'a mut RangeLength,
        (after, end): (BlockNumber, BlockNumber),
        last: HashMap<Address, u64>,
    ) -> Self {
        Self {
            fetch,
            length,
            next: after + 1,
            end,
            under_way: FuturesOrdered::new(),
            lengths: VecDeque::new(),
            read: 0,
            ready: VecDeque::new(),
            events: 0,
            latest: 0,
            last,
            began: Instant::now(),
            failure: None,
        }
    }

    /// The ready ranges, or the next one; `None` at the end, or before a failure.
    pub(super) async fn take(&mut self) -> Option<RangeBatch> {
        if self.ready.is_empty() {
            self.ask_on();
            if let Some(range) = self.under_way.next().await {
                self.add(range);
            }
        }
        let mut batch = RangeBatch::default();
        while batch.rows.len() < IN_A_BATCH
            && let Some(range) = self.ready.pop_front()
        {
            self.events = self.events.saturating_sub(events_of(&range));
            batch.lacks_an_end |= range.ends.is_none();
            batch.blocks.extend(range.blocks);
            batch.rows.extend(range.rows);
        }
        (!batch.blocks.is_empty()).then_some(batch)
    }

    /// Continues reading until `something` is done.
    pub(super) async fn during<T>(&mut self, something: impl Future<Output = T>) -> T {
        let mut something = pin!(something);
        loop {
            self.ask_on();
            if self.under_way.is_empty() {
                return something.await;
            }
            match select(something.as_mut(), self.under_way.next()).await {
                Either::Left((done, _)) => return done,
                Either::Right((Some(range), _)) => self.add(range),
                Either::Right((None, _)) => {}
            }
        }
    }

    fn ask_on(&mut self) {
        while self.may_ask() {
            let (from, length) = (self.next, self.length.blocks());
            let to = self.end.min(BlockNumber(from.0.saturating_add(length - 1)));
            self.under_way.push_back((self.fetch)(from, to));
            self.lengths.push_back(length);
            self.next = to + 1;
        }
    }

    /// One more concurrent request for each range that arrived. When several are requested at once, the first of them
    /// arrives with the last, and nothing is written until then.
    fn may_ask(&self) -> bool {
        let at_once = if self.length.is_probed() { AT_ONCE.min(1 + self.read) } else { 1 };
        let requested = self.lengths.len();
        let expected = u64::try_from(requested).unwrap_or(u64::MAX).saturating_mul(self.latest);
        self.failure.is_none()
            && self.next <= self.end
            && requested < at_once
            && self.read + requested < IN_A_STEP
            && self.events.saturating_add(expected) < AHEAD
            && self.began.elapsed() < LONGEST
    }

    fn add(&mut self, range: Result<Fetched, IndexError>) {
        let requested = self.lengths.pop_front().unwrap_or_default();
        self.read += 1;
        match range.and_then(|range| self.check(range)) {
            Ok(range) => {
                let events = events_of(&range);
                self.length.worked(requested, events);
                self.events += events;
                self.latest = events;
                self.ready.push_back(range);
            }
            Err(error) => {
                self.failure = Some(Failure { error, requested });
                self.under_way.clear();
                self.lengths.clear();
            }
        }
    }

    fn check(&mut self, range: Fetched) -> Result<Fetched, IndexError> {
        decode::continue_seqs(&mut self.last, &range.rows)?;
        let block_number = range.blocks.last().map_or(BlockNumber::FIRST, |block| block.number);
        for &(contract, emitted) in range.ends.iter().flatten() {
            let seen = self.last.get(&contract).copied().unwrap_or_default();
            if emitted != seen {
                return Err(IndexError::Incomplete { contract, block_number, emitted, seen });
            }
        }
        Ok(range)
    }
}

fn events_of(range: &Fetched) -> u64 {
    u64::try_from(range.rows.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
