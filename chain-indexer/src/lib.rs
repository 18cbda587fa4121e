//! The chain side of dvp: contracts, indexer, relayer.
//!
//! It never talks to the engine. The engine leaves commands in the database and the [`relayer`] carries them out;
//! the [`indexer`] follows the contracts' events and leaves facts there.
//!
//! Architecture invariant: nothing here knows quotes, partners or rails, and no transaction is sent whose bytes
//! were not committed first.
//!
//! Reading order: [`contracts`], [`rpc`], [`signing`], [`deploy`].

#[cfg(feature = "anvil")]
pub mod anvil;
pub mod contracts;
pub mod deploy;
pub mod rpc;
pub mod signing;
