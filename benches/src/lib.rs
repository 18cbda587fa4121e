//! Measurements and drills: an engine with one partner and one provider, orders with really signed permits, and
//! figures beside their floor in the same run.

pub mod auctions;
pub mod backfill;
pub mod crash;
mod dice;
pub mod drill;
pub mod failover;
pub mod figure;
pub mod fix;
mod fix_client;
pub mod fix_messages;
pub mod fix_orders;
pub mod grow;
pub mod harness;
pub mod history;
pub mod hostile;
pub mod http;
pub mod interfaces;
pub mod nodes;
pub mod oms;
pub mod patroni;
pub mod plans;
mod proc;
pub mod processes;
pub mod progress;
mod rpc;
pub mod scenes;
pub mod screens;
pub mod settle;
pub mod settle_fiat;
pub mod stream;
pub mod submit;
pub mod webhooks;
mod wire;
