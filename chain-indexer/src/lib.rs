//! The chain side of dvp: contracts, indexer, relayer.
//!
//! It never talks to the engine. The engine leaves commands in the database and the [`relayer`] carries them out; the
//! [`indexer`] follows the contracts' events and leaves facts there.
//!
//! Architecture invariant: nothing here knows quotes, partners or rails, and no transaction is sent whose bytes
//! were not committed first.
//!
//! A service runs three things for each of its chains, in any of its processes, as often as it likes; leases in the
//! database see to it that one at a time does the work:
//!
//! - [`run_indexer`], over [`ChainConfig::rpc_url`] and [`ChainConfig::further_rpc_urls`], woken by
//!   [`ChainConfig::ws_url`];
//! - [`run_relayers`], with an account for each [`KeySource`] that the chain's config names;
//! - [`run_reconciler`], every minute or so.
//!
//! Reading order: [`contracts`], [`deploy`], [`config`], [`gate`], [`relayer`], [`indexer`], [`reconcile`](mod@reconcile),
//! [`wallets`], [`prices`], then the means: [`rpc`], [`signing`].

pub mod anchors;
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
pub use relayer::{run_relayer, run_relayers};
pub use wallets::ChainWallets;
