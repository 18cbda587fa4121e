//! The core of dvp: every order, from REST or FIX, passes through [`engine`].
//!
//! **Architecture invariant:** nothing is reported before it is committed. [`writer`] writes every change of an order:
//! the intent, its execution, events, ledger, effects, chain commands and the FIX session's numbers. Other modules
//! write their own tables only: [`engine::webhooks`] the endpoints and queued deliveries, [`legacy`] the polling state of
//! its orders, [`operators`] their decisions, [`ledger::reconciliation`] its runs, [`workflow`] the claims of effects;
//! [`workflow::retention`] deletes expired rows. External effects (rails, chain) are rows first, and [`workflow`] and the
//! chain side execute them afterwards.
//!
//! Reading order: [`context`] the configuration, [`liquidity`] the sources of prices, [`engine`] the entry point,
//! [`chain::wallets`] the cached wallets, [`writer`] the commit and the status cache, [`ranges`] the orders that
//! wait for the market, [`workflow`] the work after acceptance. The rails are in `dvp_rails`, all SQL is in `dvp_store`.
//!
//! Kept by `tests/e2e/crash.rs::orders_over_both_interfaces_survive_kills_at_any_moment`.

pub mod chain;
mod clock;
pub mod context;
pub mod engine;
pub mod ledger;
pub mod legacy;
pub mod liquidity;
pub mod listeners;
pub mod operators;
pub mod ranges;
pub mod screening;
pub mod secrets;
pub mod trace;
pub mod workflow;
pub mod writer;
