//! The rules of dvp: functions from values to values.
//!
//! **Architecture invariant:** nothing here does IO or reads a clock, randomness or the environment. Time and ids come
//! in as arguments, so every rule can be tested by giving it values.
//!
//! Reading order: [`money`] and [`asset`] define what is exchanged; [`pricing`], [`liquidity`] and [`quote`] at what
//! price; [`text`] which text can be stored, [`json`] and [`mod@names`] how it is read, [`address`] and [`currency`] what it
//! names; [`intent`] the requests, and [`range`] those whose output falls with time; [`decision`] their acceptance, and
//! [`abandonment`] what it costs to let an accepted one go; [`settlement`] their execution; [`windows`] and [`calendar`]
//! its deadlines; [`chain`], [`payment`] and [`recall`] the requests to the chain and to a bank; [`event`], [`envelope`],
//! [`status`] and [`receipt`] the reports; [`webhook`] the retries of their delivery; [`reconcile`] the comparison with the
//! chain.

pub mod abandonment;
pub mod address;
pub mod asset;
pub mod beneficiary;
pub mod calendar;
pub mod canonical;
pub mod cell;
pub mod chain;
pub mod currency;
pub mod decision;
pub mod envelope;
pub mod environment;
pub mod event;
pub mod failure_code;
pub mod fees;
pub mod hold;
pub mod ids;
pub mod intent;
pub mod json;
pub mod ledger;
pub mod limit;
pub mod liquidity;
pub mod money;
pub mod names;
pub mod operator;
pub mod pause;
pub mod payment;
pub mod permit;
pub mod plan;
pub mod pricing;
pub mod quote;
pub mod range;
pub mod recall;
pub mod receipt;
pub mod reconcile;
pub mod rejection;
pub mod sample;
pub mod scheme;
pub mod screening;
pub mod settlement;
pub mod snapshot;
pub mod status;
pub mod terms;
pub mod text;
pub mod time;
pub mod trace;
pub mod webhook;
pub mod windows;
