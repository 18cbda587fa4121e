//! The harness of the tests and the measurements: an engine over a database of its own, with a partner, providers,
//! prices, rails, and a chain whose part the test plays.
//!
//! **Architecture invariant:** only tests and measurements depend on this crate, and it knows nothing of REST, FIX or
//! the real chain. Helpers for a single crate's tests stay in that crate. Unit tests cannot use it: they are
//! compiled with another copy of the types.
//!
//! Reading order: [`market`] assets and pairs, [`node`] the chain as the engine reads it, [`harness`] the engine and
//! its database, [`chain`] facts as the indexer reports them, [`orders`] orders and permits, [`banks`] banks as they are, [`month`] a month of
//! business, [`restore`] a restore in the middle of it, [`signer`] a remote signer, [`kms`] key management services,
//! [`softhsm`] keys in a token, [`receiver`] webhooks' receivers, [`failing`] items of loops that fail, [`example`], [`time`], [`wait`].

#![expect(clippy::unwrap_used, reason = "a test that cannot set its scene fails there")]

pub mod banks;
pub mod chain;
pub mod dice;
pub mod disk;
pub mod example;
pub mod failing;
pub mod harness;
pub mod kms;
mod listening;
pub mod market;
pub mod month;
pub mod node;
pub mod orders;
pub mod receiver;
pub mod restore;
pub mod signer;
pub mod softhsm;
pub mod time;
pub mod totp;
pub mod wait;

pub use harness::{Database, Harness};
pub use market::Market;
pub use node::Node;
