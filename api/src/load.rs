//! How much is taken on at once: connections, requests in hand, and how long each may take its time.
//!
//! What is beyond a bound is told so at once (503 with `Retry-After`), before it has cost a database connection or a
//! place in a queue. The health check is answered in any case.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

use crate::error::ApiError;

/// The bounds of a process.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections served at once; more wait to be accepted.
    pub connections: usize,
    /// Requests worked on at once; more are answered with 503.
    pub in_flight: usize,
    /// From the end of a request to the whole head of the next one on its connection.
    pub head: Duration,
    /// From a request's head to its answer, the arrival of its body included.
    pub request: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            in_flight: 1_024,
            head: Duration::from_secs(20),
            request: Duration::from_secs(12),
        }
    }
}

/// The bounds and what is in hand.
pub(crate) struct Load {
    pub(crate) limits: Limits,
    in_flight: Semaphore,
}

impl Load {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, in_flight: Semaphore::new(limits.in_flight) }
    }
}

impl Default for Load {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

/// The layer that refuses what is too much, outside of authentication.
pub(crate) async fn shed(State(load): State<Arc<Load>>, request: Request, next: Next) -> Response {
    if request.uri().path() == "/healthz" {
        return next.run(request).await;
    }
    match load.in_flight.try_acquire() {
        Ok(_place) => next.run(request).await,
        Err(_) => ApiError::Busy.into_response(),
    }
}
