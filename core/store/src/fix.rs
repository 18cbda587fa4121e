//! FIX sessions: credentials, numbers, stored messages, the archive, orders.

mod hex_bytes;
mod orders;
mod outbound;
mod parts;
mod processes;
mod sessions;

pub mod admin;
pub mod archive;
pub mod commands;
pub mod parked;
pub mod reports;
pub mod rows;
pub mod settings;
pub mod status;

pub use self::orders::{
    KnownOrder, OwnEvent, Reportable, RoutedEvent, find_order, find_same_order, list_reportable, list_routed,
    list_used_cl_ord_ids,
};
pub use self::outbound::{count_kept, list_outbound};
pub use self::parts::apply_parts;
pub use self::processes::{FixPopulation, leave_processes, register_process};
pub use self::sessions::{
    ConfiguredSession, FixReach, FixSessionRow, MappedSession, NewFixSession, UnreadableSession, find_epoch,
    find_reach, find_session, list_configured, list_mapped, list_next_out, rehash_password, session_id,
    update_epoch, upsert_session,
};
use crate::StoreError;

fn unsigned(value: i64) -> Result<u64, StoreError> {
    u64::try_from(value).map_err(|_| StoreError::corrupt("fix_session", "a negative number"))
}

fn number(value: u64) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| beyond_bigint())
}

fn beyond_bigint() -> StoreError {
    StoreError::corrupt("fix_session", "a number beyond bigint")
}
