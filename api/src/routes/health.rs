//! `GET /healthz`

use axum::extract::State;
use axum::http::StatusCode;

use crate::http::error::{Reply, json};
use crate::state::Api;

pub(crate) async fn show(State(api): State<Api>) -> Reply {
    api.health.check(&api.engine).await?;
    Ok(json(StatusCode::OK, r#"{"status":"ok"}"#.to_owned()))
}
