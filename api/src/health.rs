//! Whether this process can answer: the database does, and the writer runs.

use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tokio::sync::Mutex;

use crate::app::Api;
use crate::error::{ApiError, json};

/// How long a database that has answered is believed to do so.
const FRESH: Duration = Duration::from_millis(250);

/// When the database answered last.
#[derive(Default)]
pub(crate) struct Health(Mutex<Option<Instant>>);

pub(crate) async fn show(State(api): State<Api>) -> Result<Response, ApiError> {
    if !api.engine.availability().is_available() {
        return Err(ApiError::Unavailable("the database does not answer".into()));
    }
    if !api.engine.is_writing() {
        return Err(ApiError::Unavailable("the writer has stopped".into()));
    }
    // Requests at the same time share one query, because the route is open to everybody at any rate.
    let mut looked_at = api.health.0.lock().await;
    if looked_at.is_none_or(|at| at.elapsed() >= FRESH) {
        api.engine.feed_epoch().await?;
        *looked_at = Some(Instant::now());
    }
    Ok(json(StatusCode::OK, r#"{"status":"ok"}"#.to_owned()))
}
