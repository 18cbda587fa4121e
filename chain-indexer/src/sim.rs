//! A simulated chain with a seed, and the real indexer on a real database over it.
//!
//! The chain grows, forks and becomes final while it is read; its endpoints lose logs, lag, give wrong errors about
//! ranges and fail; the database fails at a statement, connections are cut, and steps are dropped at an await. Required
//! (`oracle`): the canonical rows are the chain's, without a gap in any contract's numbers, and every reported event is
//! final or was reported as lost, once.
//!
//! The chain's events and the endpoints' answers follow from the seed alone. The await at which a step is dropped or a
//! connection is cut also depends on the operating system's scheduling.

mod chain;
mod node;
mod oracle;
mod relay;
mod rng;
mod run;

pub use relay::{RelayOutcome, entity_of, run_relay_seed};
pub use rng::Rng;
pub use run::{Outcome, SimDatabase, run_seed};

/// A violated condition, or what kept the simulator from finding out.
type Broken = Box<dyn std::error::Error + Send + Sync>;
