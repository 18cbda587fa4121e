//! The REST API as a partner meets it: the router with a real database, writer and engine behind it.

mod auth;
mod contract;
mod documents;
mod events;
mod executions;
mod house;
mod idempotency;
mod intents;
mod isolation;
mod lookups;
mod quotes;
mod reconciliation;
mod signing;
mod transport;
mod webhooks;
