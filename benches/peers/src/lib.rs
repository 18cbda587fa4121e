//! What the measurements of `dvp-benches` need of it.

#[path = "../../src/fix_messages.rs"]
pub mod fix_messages;
