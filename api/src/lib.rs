//! The REST API of dvp: authentication, limits, idempotency and handlers in front of the engine.
//!
//! **Architecture invariant:** nothing here decides business or writes anything but through
//! [`Engine`](dvp_core::engine::Engine). What this crate keeps itself (known keys, rate windows, nonces) is lost
//! with the process and may be lost.
//!
//! A request passes, in this order: request id and time limit (`request`), key, scope and rate (`auth`), signature
//! (`signature`), idempotency (`once`), body (`fields` and each route's `parse`), the engine. The order decides which
//! answer a doubly wrong request gets.
//!
//! Reading order: `server` the routes, `error` how a request fails, `request`, `auth`, `signature`, `once`, then one
//! module a route.

mod app;
mod auth;
mod cursor;
mod docs;
mod error;
mod events;
mod executions;
mod fields;
mod firm_quotes;
mod health;
mod intent_status;
mod intents;
mod keys;
mod limit;
mod nonces;
mod once;
mod openapi;
mod query;
mod quotes;
mod reconciliation;
mod request;
mod routes;
mod server;
mod signature;

pub use app::{Api, Clock};
pub use error::Code;
pub use openapi::{document, document_text};
pub use server::{router, serve};
