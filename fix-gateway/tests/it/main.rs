//! The gateway over TCP, with a real engine and a real database.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test they are called from")]

mod admission;
mod agreed;
mod archive;
mod certification;
mod client;
mod deliveries;
mod descriptors;
mod dictionaries;
mod engagement;
mod failing;
mod failing_items;
mod fields;
mod followed;
mod harness;
mod idle;
mod limits;
mod listener;
mod liveness;
mod logons;
mod market_data;
mod operators;
mod orchestra;
mod orders;
mod paced;
mod parked;
mod processes;
mod ranges;
mod resets;
mod samples;
mod schedule;
mod secrecy;
mod served;
mod sessions;
mod status;
mod terms;
mod timers;
mod tls;
mod trading_days;
mod unwritable;
