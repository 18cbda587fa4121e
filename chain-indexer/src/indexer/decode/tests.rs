use super::*;
use crate::deploy::CoinContracts;
use alloy::primitives::{LogData, U256};

fn deployment() -> Deployment {
    Deployment {
        chain_id: 31337,
        permit: Address::repeat_byte(1),
        escrow: Address::repeat_byte(2),
        settler: Address::repeat_byte(3),
        anchor: Address::repeat_byte(4),
        payouts: Address::repeat_byte(6),
        coin: Some(CoinContracts { gate: Address::repeat_byte(7), wrapped: Address::repeat_byte(8) }),
        ..Deployment::default()
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

#[test]
fn created_without_its_lock_is_refused() {
    let refused = decoded(&[log(deployment().settler, 0, created(1))]);
    assert!(matches!(refused, Err(DecodeError::CreatedWithoutLock { .. })));
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
