//! The gateway over TCP, with a real engine and a real database.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test they are called from")]

mod admission;
mod client;
mod dictionaries;
mod door;
mod engagement;
mod failing;
mod house;
mod killed;
mod limits;
mod liveness;
mod orders;
mod paced;
mod schedule;
mod secrecy;
mod sessions;
mod tls;
