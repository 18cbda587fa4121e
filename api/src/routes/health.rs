//! `GET /healthz`

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::http::error::{ApiError, json};
use crate::state::Api;

pub(crate) async fn show(State(api): State<Api>) -> Result<Response, ApiError> {
    api.health.check(&api.engine).await?;
    Ok(json(StatusCode::OK, r#"{"status":"ok"}"#.to_owned()))
}
