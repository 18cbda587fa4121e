//! What a comparison with the chain reads of our side, and the runs that are kept.
//!
//! Invariant: everything a run reads comes from one snapshot, which its caller opens ([`snapshot`]): executions and
//! events are of the same moment.

mod runs;
mod subjects;

pub use runs::{KeptRun, NewRun, delete_old_runs, find_last_run, insert_run, list_breaks, list_runs};
pub use subjects::{
    ContractCount, Scope, count_events, list_booked, list_final_blocks, list_lock_facts, list_lone_anchors,
    list_lone_entities, list_open_entities, snapshot,
};
