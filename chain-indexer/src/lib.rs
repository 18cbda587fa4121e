//! The chain side of dvp: contracts, indexer, relayer.
//!
//! It never calls the engine. The engine inserts commands into the database and the [`relayer`] carries them out; the
//! [`indexer`] follows the contracts' events and inserts facts.
//!
//! Architecture invariant: nothing here depends on quotes, partners or rails, and a transaction is sent only after its
//! bytes were committed.
//!
//! A service runs three tasks for each of its chains, in any number of processes; leases in the database ensure that
//! one of them at a time works:
//!
//! - [`run_indexer`], over [`ChainConfig::rpc_url`] and [`ChainConfig::further_rpc_urls`], woken by
//!   [`ChainConfig::ws_url`];
//! - [`run_relayers`], with an account for each [`KeySource`] that the chain's config names;
//! - [`run_reconciler`], every minute or so.
//!
//! Reading order: [`contracts`], [`deploy`], [`config`], [`gate`], [`relayer`], [`indexer`],
//! [`reconcile`](mod@reconcile), [`wallets`], [`prices`], then the utilities: [`rpc`], [`signing`].

pub mod anchors;
pub mod checkup;
pub mod config;
pub mod contracts;
pub mod deploy;
pub mod gate;
pub mod indexer;
pub mod keys;
mod lease_guard;
pub mod orders;
mod pool;
pub mod prices;
pub mod reader;
pub mod reconcile;
pub mod relayer;
pub mod rpc;
pub mod signing;
#[cfg(feature = "sim")]
pub mod sim;
mod wake;
pub mod wallets;

pub use config::{ChainConfig, FeePolicy};
pub use indexer::run_indexer;
pub use keys::KeySource;
pub use prices::ChainPrices;
pub use reconcile::{reconcile, run_reconciler};
pub use relayer::run_relayers;
pub use wallets::ChainWallets;
