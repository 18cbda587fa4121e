//! Measurements and drills: a house with one partner and one provider, orders with really signed permits, and
//! figures beside their floor in the same run.

pub mod figure;
pub mod fix;
pub mod fix_messages;
pub mod house;
pub mod http;
pub mod reads;
pub mod submit;
