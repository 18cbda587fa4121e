//! The REST API of dvp: authentication, limits, idempotency and handlers in front of the engine.
//!
//! **Architecture invariant:** this crate contains no business rules. Orders change through
//! [`Engine`](dvp_core::engine::Engine) only, webhook endpoints through [`dvp_core::engine::webhooks`]; in this crate only
//! [`delivery`] begins transactions. The state in memory (known keys, rate windows, nonces) is lost with the process.
//!
//! A request passes, in this order: request id and time limit (`http/request`), key, rate and scope (`access/auth`),
//! signature (`access/signature`), idempotency (`access/idempotency`), body (`http/fields` and each route's `parse`),
//! the engine. The order decides which error is returned for a request with several.
//!
//! [`delivery`] runs beside the routes and sends the feed's events to partners' endpoints.
//!
//! Reading order: `server`; `routes`, the table of all routes and a module for each; `access`, in the order above;
//! `http`, the parts that do not depend on the partner (`http/error`: how a request fails); `state`, shared by all
//! requests. `openapi` has the document of the routes, `wire` holds the contract's names of values, `legacy` is the legacy API.

mod access;
pub mod delivery;
mod http;
mod legacy;
mod openapi;
mod routes;
mod server;
mod state;
mod wire;

pub use access::idempotency::fingerprint;
pub use access::signature::{UsedNonce, check_signature};
pub use http::error::Code;
pub use http::load::Limits;
pub use openapi::{document, resolve};
pub use server::{router, serve};
pub use state::{Advancing, Api, Clock, SandboxClock, WebhookRules};
