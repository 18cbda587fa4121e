use super::*;
use crate::deploy::CoinContracts;
use alloy::primitives::{LogData, U256};
use dvp_domain::chain::BlockNumber;

fn deployment() -> Deployment {
    Deployment {
        chain_id: 31337,
        permit: Address::repeat_byte(1),
        escrow: Address::repeat_byte(2),
        settler: Address::repeat_byte(3),
        anchor: Address::repeat_byte(4),
        payouts: Address::repeat_byte(6),
        coin: Some(CoinContracts { gate: Address::repeat_byte(7), wrapped: Address::repeat_byte(8) }),
        relayers: vec![Address::repeat_byte(5)],
        tokens: Vec::new(),
        deployed_block: BlockNumber(1),
    }
}

fn log(address: Address, index: u64, data: LogData) -> Log {
    Log {
        inner: alloy::primitives::Log { address, data },
        block_hash: Some(B256::repeat_byte(0xb1)),
        block_number: Some(7),
        block_timestamp: None,
        transaction_hash: Some(B256::repeat_byte(0xc1)),
        transaction_index: Some(0),
        log_index: Some(index),
        removed: false,
    }
}

fn decoded(logs: &[Log]) -> Result<Vec<LogRow>, DecodeError> {
    rows(&deployment(), logs, &HashMap::from([(B256::repeat_byte(0xb1), 99)]))
}

fn created(seq: u64) -> LogData {
    IntentSettler::Created {
        intentId: B256::repeat_byte(9),
        maker: Address::ZERO,
        solver: Address::ZERO,
        tokenIn: Address::ZERO,
        amountIn: U256::from(5),
        fillDeadline: 10,
        terms: B256::ZERO,
        seq,
    }
    .encode_log_data()
}

fn locked(seq: u64) -> LogData {
    Escrow::Locked {
        id: B256::repeat_byte(9),
        sender: Address::ZERO,
        receiver: Address::ZERO,
        token: Address::ZERO,
        amount: U256::from(5),
        hashlock: B256::ZERO,
        timelock: 77,
        seq,
    }
    .encode_log_data()
}

fn kinds(rows: &[LogRow]) -> Vec<Option<&str>> {
    rows.iter().map(|row| row.fact.as_ref().and_then(|fact| fact["kind"].as_str())).collect()
}

#[test]
fn a_created_fact_has_the_timelock_of_its_lock() {
    let (escrow, settler) = (deployment().escrow, deployment().settler);
    let rows = decoded(&[log(escrow, 1, locked(1)), log(settler, 0, created(1))]).unwrap();
    assert_eq!(kinds(&rows), [Some("created"), None], "in block order");
    assert_eq!(rows[0].fact.as_ref().unwrap()["timelock"], 77);
    assert_eq!(rows[0].timestamp, 99);
}

#[test]
fn created_without_its_lock_is_refused() {
    let refused = decoded(&[log(deployment().settler, 0, created(1))]);
    assert!(matches!(refused, Err(DecodeError::CreatedWithoutLock { .. })));
}

#[test]
fn a_refund_is_reported_unless_it_follows_a_cancel() {
    let refunded = Escrow::Refunded { id: B256::repeat_byte(9), seq: 1 }.encode_log_data();
    let cancelled = IntentSettler::Cancelled {
        intentId: B256::repeat_byte(9),
        maker: Address::ZERO,
        amountIn: U256::from(5),
        seq: 1,
    };
    let refund = log(deployment().escrow, 1, refunded);
    let alone = decoded(std::slice::from_ref(&refund)).unwrap();
    assert_eq!(kinds(&alone), [Some("refunded")]);
    let cancel = log(deployment().settler, 0, cancelled.encode_log_data());
    assert_eq!(kinds(&decoded(&[cancel, refund]).unwrap()), [Some("cancelled"), None]);
}

#[test]
fn an_anchor_counts_only_from_the_services_relayer() {
    let anchored = |submitter| {
        let event = ReceiptAnchor::Anchored { contentHash: B256::repeat_byte(8), submitter, seq: 1 };
        decoded(&[log(deployment().anchor, 0, event.encode_log_data())]).unwrap()
    };
    assert_eq!(kinds(&anchored(Address::repeat_byte(5))), [Some("anchored")]);
    assert_eq!(kinds(&anchored(Address::repeat_byte(6))), [None]);
}

#[test]
fn removed_and_repeated_logs_are_left_out_and_rows_are_sorted() {
    let escrow = deployment().escrow;
    let (first, second) = (log(escrow, 0, locked(1)), log(escrow, 1, locked(2)));
    let mut removed = log(escrow, 2, locked(3));
    removed.removed = true;
    let rows = decoded(&[second.clone(), removed, first.clone(), second.clone()]).unwrap();
    assert_eq!(rows.iter().map(|row| row.seq).collect::<Vec<_>>(), [1, 2]);
    let other = log(escrow, 1, locked(7));
    assert!(matches!(decoded(&[first, second, other]), Err(DecodeError::TwoInOnePlace { .. })));
}

#[test]
fn logs_of_other_contracts_are_refused() {
    let foreign = log(Address::repeat_byte(0xee), 0, locked(1));
    assert!(matches!(decoded(&[foreign]), Err(DecodeError::Undecodable { .. })));
}

#[test]
fn a_missing_or_repeated_number_is_an_error() {
    let escrow = deployment().escrow;
    let rows = |seq| decoded(&[log(escrow, 0, locked(seq))]).unwrap();
    let mut last = HashMap::from([(escrow, 4)]);
    continue_seqs(&mut last, &rows(5)).unwrap();
    assert_eq!(last[&escrow], 5);
    let hole = continue_seqs(&mut last, &rows(7)).unwrap_err();
    assert_eq!((hole.expected, hole.found), (6, 7));
    assert_eq!(continue_seqs(&mut last, &rows(5)).unwrap_err().found, 5);
}
