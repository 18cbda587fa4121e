//! Whether this process can answer: the database does.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::app::Api;
use crate::error::{ApiError, json};

pub(crate) async fn show(State(api): State<Api>) -> Result<Response, ApiError> {
    api.engine.feed_epoch().await?;
    Ok(json(StatusCode::OK, r#"{"status":"ok"}"#.to_owned()))
}
