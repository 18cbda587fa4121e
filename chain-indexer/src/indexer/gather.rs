//! Ranges as they come, put together while others are written: a transaction holds what came during the last one.
//!
//! Invariant: what is taken out joins what was taken out before, number by number, and ends where the contracts say
//! they end, as far as the node knows.

use super::ranges::Fetched;
use super::{IndexError, decode};
use crate::pool::EVENTS_WANTED;
use alloy::primitives::Address;
use dvp_core::store::chain::{BlockRow, LogRow};
use futures_util::future::{Either, select};
use futures_util::{Stream, StreamExt};
use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

/// Events in a transaction, about, at most.
const IN_A_BATCH: usize = 16_000;
/// A step reads no further range after so long: between steps the duty is kept, the head looked at, progress told.
const LONGEST: Duration = Duration::from_secs(1);

/// Some ranges in a row.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) blocks: Vec<BlockRow>,
    pub(super) rows: Vec<LogRow>,
    /// The node had forgotten the contracts' counts at the end of one of them.
    pub(super) lacks_an_end: bool,
}

/// The ranges of a step, and what was read of them and not yet taken.
pub(super) struct Gathering<'a, S> {
    ranges: Pin<&'a mut S>,
    /// The last number of each contract, what was read included.
    last: HashMap<Address, u64>,
    batch: Batch,
    /// Events of the fullest range.
    pub(super) fullest: u64,
    began: Instant,
    over: bool,
    /// Why the ranges ended early.
    pub(super) failed: Option<IndexError>,
}

impl<'a, S: Stream<Item = Result<Fetched, IndexError>>> Gathering<'a, S> {
    /// `last`: the number that each contract's kept events end with.
    pub(super) fn new(ranges: Pin<&'a mut S>, last: HashMap<Address, u64>) -> Self {
        let began = Instant::now();
        Self { ranges, last, batch: Batch::default(), fullest: 0, began, over: false, failed: None }
    }

    /// What was gathered, or the next range; `None` at the end, or before what failed.
    pub(super) async fn take(&mut self) -> Option<Batch> {
        if self.batch.blocks.is_empty() && !self.over {
            let range = self.ranges.next().await;
            self.add(range);
        }
        let batch = std::mem::take(&mut self.batch);
        (!batch.blocks.is_empty()).then_some(batch)
    }

    /// Gathers until something is done.
    pub(super) async fn during<T>(&mut self, something: impl Future<Output = T>) -> T {
        let mut something = pin!(something);
        while !self.over && self.batch.rows.len() < IN_A_BATCH {
            match select(something.as_mut(), self.ranges.next()).await {
                Either::Left((done, _)) => return done,
                Either::Right((range, _)) => self.add(range),
            }
        }
        something.await
    }

    fn add(&mut self, range: Option<Result<Fetched, IndexError>>) {
        let Some(range) = range else {
            self.over = true;
            return;
        };
        match range.and_then(|range| self.check(range)) {
            Ok(range) => {
                let events = u64::try_from(range.rows.len()).unwrap_or(u64::MAX);
                self.fullest = self.fullest.max(events);
                // Shorter ones from here on.
                self.over = self.fullest > 2 * EVENTS_WANTED || self.began.elapsed() > LONGEST;
                self.batch.lacks_an_end |= range.ends.is_none();
                self.batch.blocks.extend(range.blocks);
                self.batch.rows.extend(range.rows);
            }
            Err(error) => {
                self.over = true;
                self.failed = Some(error);
            }
        }
    }

    fn check(&mut self, range: Fetched) -> Result<Fetched, IndexError> {
        decode::continue_seqs(&mut self.last, &range.rows)?;
        let block_number = range.blocks.last().map_or(0, |block| block.number);
        for &(contract, emitted) in range.ends.iter().flatten() {
            let seen = self.last.get(&contract).copied().unwrap_or_default();
            if emitted != seen {
                return Err(IndexError::Incomplete { contract, block_number, emitted, seen });
            }
        }
        Ok(range)
    }
}
