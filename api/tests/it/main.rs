//! The REST API as a partner meets it: the router with a real database, writer and engine behind it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

mod account;
mod auth;
mod bodies;
mod claims;
mod contract;
mod delivery;
mod documents;
mod event_stream;
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
mod partners;
mod permits;
mod places;
mod quotes;
mod reconciliation;
mod resting_orders;
mod signing;
mod transport;
mod unauthenticated;
mod webhooks;
