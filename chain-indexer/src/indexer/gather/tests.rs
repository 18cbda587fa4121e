use super::*;
use crate::reader::Fault;
use alloy::primitives::B256;
use dvp_domain::chain::BlockNumber;
use std::cell::RefCell;
use std::future::ready;

const CONTRACT: Address = Address::repeat_byte(0xa1);

fn block(number: u64) -> BlockRow {
    BlockRow {
        number: BlockNumber(number),
        hash: B256::ZERO,
        parent: B256::ZERO,
        timestamp: 0,
        verified_by: "range",
    }
}

fn event(block_number: u64, seq: u64) -> LogRow {
    LogRow {
        block_hash: B256::ZERO,
        log_index: seq,
        block_number: BlockNumber(block_number),
        timestamp: 0,
        tx_hash: B256::ZERO,
        contract: CONTRACT,
        event: "Anchored",
        entity: B256::ZERO,
        seq,
        fact: None,
        deposit: None,
    }
}

/// A range of a chain with this many events in every block.
fn range(from: u64, to: u64, events: u64) -> Fetched {
    let seqs = (from - 1) * events + 1..=to * events;
    let rows = seqs.map(|seq| event((seq - 1) / events.max(1) + 1, seq)).collect();
    Fetched { blocks: vec![block(to)], rows, ends: Some(vec![(CONTRACT, to * events)]) }
}

/// The number of requests in progress after `came` ranges arrived one by one and none was written.
async fn under_way(events: u64, came: usize) -> usize {
    let mut length = RangeLength::unknown();
    let fetch = |from: BlockNumber, to: BlockNumber| ready(Ok(range(from.0, to.0, events)));
    let mut gathering =
        Gathering::new(fetch, &mut length, (BlockNumber(0), BlockNumber(1_000_000)), HashMap::new());
    for _ in 0..came {
        gathering.ask_on();
        let range = gathering.under_way.next().await.unwrap();
        gathering.add(range);
    }
    gathering.ask_on();
    gathering.under_way.len()
}

#[tokio::test]
async fn the_density_of_one_range_is_known_before_more_are_requested() {
    assert_eq!(under_way(0, 0).await, 1);
    assert_eq!(under_way(0, 1).await, 2);
    assert_eq!(under_way(0, 2).await, 3);
    assert_eq!(under_way(0, 9).await, AT_ONCE);
}

#[tokio::test]
async fn unwritten_ranges_limit_how_far_ahead_is_read() {
    assert_eq!(under_way(62, 2).await, 3, "room for some more");
    assert_eq!(under_way(62, 5).await, 0, "about {AHEAD} events wait");
}

#[tokio::test]
async fn ranges_follow_each_other_and_adapt_to_the_number_of_events() {
    let (mut length, requested) = (RangeLength::unknown(), RefCell::new(Vec::new()));
    let fetch = |from: BlockNumber, to: BlockNumber| {
        requested.borrow_mut().push((from.0, to.0));
        ready(Ok(range(from.0, to.0, 125)))
    };
    let mut gathering =
        Gathering::new(fetch, &mut length, (BlockNumber(0), BlockNumber(150)), HashMap::new());
    let mut taken = Vec::new();
    while let Some(batch) = gathering.take().await {
        taken.extend(batch.rows.iter().map(|row| row.seq));
    }
    assert!(gathering.failure.is_none());
    assert_eq!(*requested.borrow(), [(1, 64), (65, 96), (97, 128), (129, 150)], "4,000 events are wanted");
    assert_eq!(taken, (1..=150 * 125).collect::<Vec<_>>());
}

#[tokio::test]
async fn ranges_before_a_failure_are_used_and_the_failure_names_its_range() {
    let mut length = RangeLength::unknown();
    // The third range lacks its first event.
    let fetch = |from: BlockNumber, to: BlockNumber| {
        let mut range = range(from.0, to.0, 1);
        if from.0 > 64 + 128 {
            range.rows.remove(0);
        }
        ready(Ok(range))
    };
    let mut gathering =
        Gathering::new(fetch, &mut length, (BlockNumber(0), BlockNumber(10_000)), HashMap::new());
    let mut last = 0;
    while let Some(batch) = gathering.take().await {
        last = batch.blocks.last().unwrap().number.0;
    }
    let failure = gathering.failure.unwrap();
    assert!(matches!(failure.error, IndexError::Hole(_)), "{}", failure.error);
    assert_eq!((last, failure.requested), (64 + 128, 128), "requested for with the one before");
    length.failed(failure.requested, Fault::Refused);
    assert_eq!(length.blocks(), 64);
}
