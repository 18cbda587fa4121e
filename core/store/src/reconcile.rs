//! The database's side of a comparison with the chain or the bank, and the stored runs.
//!
//! Invariant: all reads of a run come from one snapshot, which its caller opens ([`snapshot`]), so that executions and
//! events are of the same moment.

pub mod bank;
pub mod closed;
mod points;
mod runs;
mod subjects;
pub mod wallets;

pub use points::{NewPoint, OpenKind, Point, find_point, forget_above, set_point};
pub use runs::{
    AtBlock, KeptBreak, KeptRun, NewRun, delete_old_runs, find_break, find_last_run, insert_run, keep_breaks,
    list_breaks, list_open_breaks, list_runs,
};
pub use subjects::{
    ContractCount, Scope, SubjectPage, count_events, list_booked, list_final_blocks, list_lock_facts,
    list_lone_anchors, list_lone_entities, list_open_entities, snapshot,
};
