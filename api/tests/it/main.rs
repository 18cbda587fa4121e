//! The REST API as a partner meets it: the router with a real database, writer and engine behind it.

mod auth;
mod claims;
mod contract;
mod delivery;
mod documents;
mod events;
mod executions;
mod harness;
mod idempotency;
mod intents;
mod interleavings;
mod isolation;
mod legacy;
mod logs;
mod lookups;
mod nulls;
mod partners;
mod places;
mod processes;
mod quotes;
#[path = "../../../benches/src/receiver.rs"]
#[expect(dead_code, unreachable_pub, reason = "shared with the measurements, which use more of it")]
mod receiver;
mod reconciliation;
mod resting_orders;
mod signing;
mod texts;
mod transport;
mod unauthenticated;
mod webhooks;
