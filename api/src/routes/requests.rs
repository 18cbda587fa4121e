//! `GET /v1/requests`: the partner's requests that changed something or were refused.

use axum::extract::State;
use axum::http::StatusCode;
use dvp_domain::time::Timestamp;
use dvp_store::partners::requests::LoggedRequest;
use serde::Serialize;
use uuid::Uuid;

use crate::access::auth::Caller;
use crate::http::error::{ApiError, Code, Reply, json, text};
use crate::http::query::Params;
use crate::state::Api;

const LIMIT: i64 = 20;
const PREFIX: &str = "req_";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    data: Vec<View>,
    has_more: bool,
    next_cursor: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    at: String,
    request_id: String,
    key_id: String,
    method: String,
    path: String,
    status: i32,
    duration_ms: i32,
    error: Option<RefusalView>,
}

#[derive(Serialize)]
struct RefusalView {
    code: String,
    message: String,
}

impl From<LoggedRequest> for View {
    fn from(logged: LoggedRequest) -> Self {
        let LoggedRequest { id: _, at, key_id, request_id, method, path, status, code, message, millis } =
            logged;
        let error = code.map(|code| RefusalView { code, message: message.unwrap_or_default() });
        let at = Timestamp::from(at).iso8601();
        Self { at, request_id, key_id, method, path, status, duration_ms: millis, error }
    }
}

/// Latest first. `nextCursor` leads to older requests and is null at the end.
pub(crate) async fn list(State(api): State<Api>, caller: Caller, params: Params) -> Reply {
    let limit = params.limit(LIMIT)?;
    let before = match params.get("cursor")? {
        None => None,
        Some(cursor) => {
            let id = cursor.strip_prefix(PREFIX).and_then(|id| Uuid::try_parse(id).ok());
            Some(id.ok_or(ApiError::Plain(Code::InvalidCursor))?)
        }
    };
    let mut found = api.engine.requests(&caller.tenant, before, limit.saturating_add(1)).await?;
    let limit = usize::try_from(limit).unwrap_or_default();
    let has_more = found.len() > limit;
    found.truncate(limit);
    let next_cursor = found.last().filter(|_| has_more).map(|last| format!("{PREFIX}{}", last.id.simple()));
    let data = found.into_iter().map(View::from).collect();
    Ok(json(StatusCode::OK, text(&Page { data, has_more, next_cursor })))
}
