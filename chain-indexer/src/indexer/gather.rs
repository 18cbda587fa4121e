//! Ranges as they come: the next ones are asked for while what came is written.
//!
//! Invariant: what is taken out joins what was taken out before, number by number, and ends where the contracts say
//! they end, as far as the node knows.

use super::ranges::Fetched;
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

/// Ranges asked for at once.
pub(super) const AT_ONCE: usize = 4;
/// Ranges in one step, at most.
const IN_A_STEP: usize = 64;
/// A step asks for no further range after so long: between steps the lease is kept, the head looked at, progress told.
const LONGEST: Duration = Duration::from_secs(1);
/// A transaction takes ranges until it has so many events.
const IN_A_BATCH: usize = 8_000;
/// Events read and asked for ahead of what is being written, about, at most.
const AHEAD: u64 = 4 * EVENTS_WANTED;

/// Some ranges in a row.
#[derive(Default)]
pub(super) struct RangeBatch {
    pub(super) blocks: Vec<BlockRow>,
    pub(super) rows: Vec<LogRow>,
    /// The node had forgotten the contracts' counts at the end of one of them.
    pub(super) lacks_an_end: bool,
}

/// Why the ranges ended early.
pub(super) struct Failure {
    pub(super) error: IndexError,
    /// The length of the range.
    pub(super) asked: u64,
}

/// The ranges of a step, and what was read of them and not yet taken.
pub(super) struct Gathering<'a, F, R: Future> {
    fetch: F,
    length: &'a mut RangeLength,
    /// The next block to ask for, and the last one.
    next: BlockNumber,
    end: BlockNumber,
    under_way: FuturesOrdered<R>,
    /// Their lengths.
    lengths: VecDeque<u64>,
    /// Ranges read.
    read: usize,
    ready: VecDeque<Fetched>,
    /// Events of what is ready, and of the range read last.
    events: u64,
    latest: u64,
    /// The last number of each contract, what was read included.
    last: HashMap<Address, u64>,
    began: Instant,
    pub(super) failure: Option<Failure>,
}

impl<'a, F, R> Gathering<'a, F, R>
where
    F: Fn(BlockNumber, BlockNumber) -> R,
    R: Future<Output = Result<Fetched, IndexError>>,
{
    /// `fetch` is given the first and the last block of a range, `last` the number that each contract's kept events
    /// end with.
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

    /// The first of what is ready, or the next range; `None` at the end, or before what failed.
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

    /// Reads on until something is done.
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

    /// One more at a time with every range that came: the first of several at once comes with the last of them, and
    /// until it comes nothing is written.
    fn may_ask(&self) -> bool {
        let at_once = if self.length.is_probed() { AT_ONCE.min(1 + self.read) } else { 1 };
        let asked = self.lengths.len();
        let expected = u64::try_from(asked).unwrap_or(u64::MAX).saturating_mul(self.latest);
        self.failure.is_none()
            && self.next <= self.end
            && asked < at_once
            && self.read + asked < IN_A_STEP
            && self.events.saturating_add(expected) < AHEAD
            && self.began.elapsed() < LONGEST
    }

    fn add(&mut self, range: Result<Fetched, IndexError>) {
        let asked = self.lengths.pop_front().unwrap_or_default();
        self.read += 1;
        match range.and_then(|range| self.check(range)) {
            Ok(range) => {
                let events = events_of(&range);
                self.length.worked(asked, events);
                self.events += events;
                self.latest = events;
                self.ready.push_back(range);
            }
            Err(error) => {
                self.failure = Some(Failure { error, asked });
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
