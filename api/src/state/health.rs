//! Whether this process can answer: the database does, and the writer runs.

use std::time::{Duration, Instant};

use dvp_core::engine::Engine;
use tokio::sync::Mutex;

use crate::http::error::ApiError;

/// How long a database that has answered is believed to do so.
const FRESH: Duration = Duration::from_millis(250);

/// When the database answered last.
#[derive(Default)]
pub(crate) struct Health(Mutex<Option<Instant>>);

impl Health {
    pub(crate) async fn check(&self, engine: &Engine) -> Result<(), ApiError> {
        if !engine.availability().is_available() {
            return Err(ApiError::Unavailable("the database does not answer".into()));
        }
        if !engine.is_writing() {
            return Err(ApiError::Unavailable("the writer has stopped".into()));
        }
        // Requests at the same time share one query, because the route is open to everybody at any rate.
        let mut looked_at = self.0.lock().await;
        if looked_at.is_none_or(|at| at.elapsed() >= FRESH) {
            engine.feed_epoch().await?;
            *looked_at = Some(Instant::now());
        }
        Ok(())
    }
}
