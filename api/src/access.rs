//! Access: API keys and scopes, request signatures, idempotency.

pub(crate) mod auth;
pub(crate) mod idempotency;
pub(crate) mod scope;
pub(crate) mod signature;
