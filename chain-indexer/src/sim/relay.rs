//! A simulated node with a seed, and the real relayer on the real database over it.
//!
//! The node refuses transactions that offer too little, throws some out, takes replacements for an eighth more only,
//! makes blocks of what it likes in the order it likes, forks, loses its answers and fails; the relayer is killed at an
//! await, its connection is cut short by a failing statement, and accounts are taken out of service. What must hold:
//! every command takes effect exactly once, those that were given up never do, every nonce is used and none holds others
//! up, nothing is sent that was not committed, and nothing offers more than the cap.
//!
//! The indexer's part is played by its own store functions, block by block; the indexer has a simulator of its own.

mod contracts;
mod node;
mod oracle;
mod run;
mod world;

pub use run::{RelayOutcome, run_relay_seed};
