//! A simulated chain with a seed, and the real indexer on the real database over it.
//!
//! The chain grows, forks and becomes final while it is read; its endpoints lose logs, lag, lie about ranges and fail;
//! the database fails at a statement, connections are cut, and steps are dropped at an await. What must hold
//! (`oracle`): the canonical rows are the chain's, contract by contract without a hole, and what was told is final
//! or was taken back, once.
//!
//! What the chain does and what the endpoints answer follow from the seed alone. At which await a step is dropped or
//! a connection is cut depends on how the operating system wakes us, too.

mod chain;
mod node;
mod oracle;
mod relay;
mod rng;
mod run;

pub use relay::{RelayOutcome, run_relay_seed};
pub use run::{Outcome, SimDatabase, run_seed};
