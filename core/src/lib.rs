//! The one door of dvp: every order, from REST or FIX, passes through [`engine`].
//!
//! **Architecture invariant:** nothing is told before it is committed. [`writer`] is the only way anything is
//! written; effects on the world outside (rails, chain) are rows first and are carried out by [`workflow`] and the
//! chain side afterwards.
//!
//! Reading order: [`context`] what never changes, [`liquidity`] where prices come from, [`engine`] the door, [`wallets`] what is known of
//! the wallets that pay, [`writer`] the commit, `statuses` what is
//! read from memory, [`workflow`] what
//! happens after acceptance, The world outside is `dvp_rails`. All SQL is in `dvp_store`.

pub mod backlog;
pub mod chain;
mod clock;
pub mod context;
pub mod engine;
pub mod keys;
pub mod legacy;
pub mod liquidity;
pub mod operations;
pub mod permit;
pub mod reads;
pub mod retention;
pub mod rotation;
pub mod secrets;
mod statuses;
pub mod wallets;
pub mod webhooks;
pub mod workflow;
pub mod writer;
