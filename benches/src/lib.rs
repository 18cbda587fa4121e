//! Measurements and drills: a house with one partner and one provider, orders with really signed permits, and
//! figures beside their floor in the same run.

pub mod backfill;
pub mod cpu;
pub mod crash;
pub mod feed_pages;
pub mod figure;
pub mod fix;
pub mod fix_messages;
pub mod hooks;
pub mod house;
pub mod http;
pub mod reads;
pub mod receiver;
pub mod submit;
pub mod webhooks;
