//! All SQL of the chain side: the indexer's and the relayer's tables.
//!
//! Block numbers, sequence numbers and nonces are unsigned here and `bigint` there; none comes near 2^63.

mod bulk;
pub mod commands;
mod events;
mod facts;
mod index;
mod relay;
pub mod retention;
mod sets;
mod status;

pub use events::{KeptEvent, list_block_events, list_range_events};
pub use facts::{
    DerivedFacts, Emitted, Gate, GatedKind, Heights, NewFill, PassableFill, WaitingFill, WaitingFills,
    complete_command, count_waiting_fills, fail_command, insert_fact, lift_gates, list_new_fills,
    list_passable_fills, list_waiting_fills, open as open_facts, publish_events, publish_late_events,
    reset_gates, retract_refunds_of_cancels, set_gates,
};
pub use index::{
    BlockRow, Cursor, HaltReason, Halted, LogRow, commit_without_waiting, find_cursor, find_known_hash,
    find_last_block, halt, has_events, has_facts_since, insert_cursor, known_hashes_below, last_seqs,
    list_contradicted, list_events, list_halted, lock_cursor, prune_blocks, record_blocks, resume, unwind_to,
};
pub use relay::{
    AccountState, ChainFees, CommandFilter, CommandRow, CommandState, CommandView, Load, NewSlot,
    RelayerAccount, Retried, Share, SlotRow, SlotState, TxAttempt, WaitingRow, abandon_slots, await_deposit,
    count_failures, count_waiting, defer_commands, finalize_slots, find_load, find_next_nonce, find_share,
    find_stored_nonce, halve_slot, has_goal_event, insert_attempt, insert_slot, judge_slots, list_accounts,
    list_attempts, list_commands, list_due_kinds, list_fees, list_live_commands, list_ready_commands,
    list_retired, list_signers, list_unsettled_slots, lock_commands, lowest_waiting, mark_broadcast,
    mark_foreign, mark_mined, mark_unmined, note_balance, note_fees, note_send_error, note_unable,
    release_deposited, remake_slot, reserve_nonce, retry_command, trouble_command,
};

pub use sets::{OpenInSet, list_open_sets};
pub use status::{Backfill, IndexerState, StateName, StatusRow, list_statuses, report_status};

use crate::StoreError;
use alloy::primitives::{Address, B256};
use dvp_domain::chain::BlockNumber;

fn hash(table: &'static str, bytes: &[u8]) -> Result<B256, StoreError> {
    B256::try_from(bytes).map_err(|error| StoreError::corrupt(table, error))
}

fn address(table: &'static str, bytes: &[u8]) -> Result<Address, StoreError> {
    Address::try_from(bytes).map_err(|error| StoreError::corrupt(table, error))
}

fn unsigned(table: &'static str, number: i64) -> Result<u64, StoreError> {
    u64::try_from(number).map_err(|error| StoreError::corrupt(table, error))
}

fn block(table: &'static str, number: i64) -> Result<BlockNumber, StoreError> {
    unsigned(table, number).map(BlockNumber)
}

/// Every number bound here is far below 2^63 (see the module's note); one that is not becomes negative and is
/// refused when read back.
const fn bigint(number: u64) -> i64 {
    number.cast_signed()
}
