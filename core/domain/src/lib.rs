//! The rules of dvp: functions from values to values.
//!
//! **Architecture invariant:** nothing here does IO, reads a clock, draws randomness or looks at the environment.
//! Time and ids come in as arguments, so every rule can be tested by giving it values.
//!
//! Reading order: [`money`] and [`asset`] say what is exchanged; [`pricing`], [`liquidity`] and [`quote`] at what price;
//! [`text`] which text can be stored; [`intent`] what a caller may ask; [`decision`] whether it is accepted; [`settlement`] what happens then;
//! [`windows`] and [`calendar`] until when; [`chain`] and [`payment`] what is asked of the chain and of a bank; [`event`], [`envelope`], [`status`] and [`receipt`] how it is told; [`webhook`] when telling is tried again;
//! [`reconcile`] whether the chain tells the same.

pub mod asset;
pub mod beneficiary;
pub mod calendar;
pub mod canonical;
pub mod chain;
pub mod decision;
pub mod envelope;
pub mod environment;
pub mod event;
pub mod fees;
pub mod hold;
pub mod ids;
pub mod intent;
pub mod ledger;
pub mod limit;
pub mod liquidity;
pub mod money;
pub mod pause;
pub mod payment;
pub mod permit;
pub mod plan;
pub mod pricing;
pub mod quote;
pub mod receipt;
pub mod reconcile;
pub mod sample;
pub mod screening;
pub mod settlement;
pub mod snapshot;
pub mod status;
pub mod terms;
pub mod text;
pub mod time;
pub mod webhook;
pub mod windows;
