//! The core of dvp: every order, from REST or FIX, passes through [`engine`].
//!
//! **Architecture invariant:** nothing is reported before it is committed. [`writer`] writes every change of an order:
//! the intent, its execution, events, ledger, effects, chain commands and the FIX session's numbers. Other modules
//! write their own tables only: [`webhooks`] the endpoints and queued deliveries, [`legacy`] the polling state of its
//! orders, [`operations`] the decisions of operators, [`reconciliation`] its runs, [`workflow`] the leases of effects; [`retention`] deletes expired
//! rows. External effects (rails, chain) are rows first, and [`workflow`] and the chain side execute them afterwards.
//!
//! Reading order: [`context`] the configuration, [`liquidity`] the sources of prices, [`engine`] the entry point,
//! [`wallets`] the cached wallets, [`writer`] the commit, `statuses` the status cache, [`ranges`] the orders that
//! wait for the market, [`workflow`] the work after acceptance. The rails are in `dvp_rails`, all SQL is in `dvp_store`.

pub mod answering;
pub mod approvals;
pub mod audit;
pub mod backlog;
pub mod bands;
pub mod chain;
mod clock;
pub mod connections;
pub mod context;
pub mod credentials;
pub mod engine;
pub mod figures;
pub mod fix_sessions;
pub mod halts;
mod handover;
pub mod instructions;
pub mod invitations;
pub mod keys;
pub mod ledger_operations;
pub mod ledger_rebuild;
pub mod legacy;
pub mod limits;
pub mod liquidity;
pub mod makers;
pub mod moves;
pub mod operations;
pub mod operators;
pub mod partners;
pub mod pauses;
pub mod permit;
pub mod personal_data;
pub mod ranges;
pub mod reads;
pub mod reconciliation;
pub mod requests;
pub mod retention;
pub mod rotation;
pub mod screening;
pub mod secrets;
pub mod statements;
mod statuses;
pub mod trace;
pub mod transfers;
pub mod wallets;
pub mod webhooks;
pub mod workflow;
pub mod writer;
