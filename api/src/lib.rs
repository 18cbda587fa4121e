//! The REST API of dvp: authentication, limits, idempotency and handlers in front of the engine.
//!
//! **Architecture invariant:** nothing here decides business or writes anything but through
//! [`Engine`](dvp_core::engine::Engine) and, for webhooks, [`dvp_core::webhooks`]. What this crate keeps itself (known keys, rate windows, nonces) is lost
//! with the process and may be lost.
//!
//! A request passes, in this order: request id and time limit (`request`), key, scope and rate (`auth`), signature
//! (`signature`), idempotency (`once`), body (`fields` and each route's `parse`), the engine. The order decides which
//! answer a doubly wrong request gets.
//!
//! Beside the routes runs [`delivery`], which sends the feed's events to partners' endpoints.
//!
//! Reading order: `server` the routes, `error` how a request fails, `request`, `auth`, `signature`, `once`, then one
//! module a route.

mod answering;
mod app;
mod auth;
mod cursor;
pub mod delivery;
mod docs;
mod error;
mod events;
mod executions;
mod feed_watch;
mod fields;
mod firm_quotes;
mod health;
mod idempotency;
mod intent_status;
mod intents;
mod keys;
mod legacy;
mod limit;
mod load;
mod log_limit;
mod nonces;
mod openapi;
mod query;
mod quotes;
mod reconciliation;
mod request;
mod routes;
mod server;
mod signature;
mod source;
mod webhooks;

pub use app::{Api, Clock, WebhookRules};
pub use error::Code;
pub use idempotency::fingerprint;
pub use load::Limits;
pub use openapi::{document, document_text, resolve};
pub use server::{router, serve};
pub use signature::{UsedNonce, check_signature};
