//! A simulated node with a seed, and the real relayer on a real database over it.
//!
//! The node refuses transactions that offer too little, evicts some, accepts replacements for an eighth more only,
//! makes blocks of any transactions in any order, forks, loses its answers and fails; the relayer is killed at an
//! await, its transaction is aborted by a failing statement, and accounts are taken out of service. Required: every
//! command takes effect exactly once, abandoned ones never do, every nonce is used and none blocks others, nothing is
//! broadcast that was not committed, no transaction offers more than the cap, and no command is reopened while its event
//! waits at the payout gate.
//!
//! The indexer's part is played by its store functions, block by block; the indexer has its own simulator.

mod contracts;
mod gates;
mod node;
mod oracle;
mod run;
mod world;

pub use run::{RelayOutcome, entity_of, run_relay_seed};
