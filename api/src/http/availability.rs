//! Requests while the database does not answer.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use dvp_core::engine::Engine;

use super::error::ApiError;

/// The layer that refuses requests that need the database while it does not answer. They would wait for it in places
/// that other requests need once it answers again.
pub(crate) async fn require_database(State(engine): State<Engine>, request: Request, next: Next) -> Response {
    if engine.availability().is_available() {
        next.run(request).await
    } else {
        ApiError::Unavailable("the database does not answer".into()).into_response()
    }
}
