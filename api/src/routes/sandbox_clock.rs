//! `/v1/sandbox/clock`: the one clock of a sandbox. A service that is no sandbox has no such route.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use dvp_domain::time::Timestamp;
use dvp_store::database::clock;
use serde::Serialize;

use crate::http::error::{ApiError, Code, Reply, json, text};
use crate::http::fields::{Object, take_body};
use crate::state::{Api, SandboxClock};
use crate::wire::SANDBOX_CLOCK;

/// As long as the longest lock.
const DAYS_MAX: i64 = 60;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    now: String,
    ahead_seconds: i64,
}

fn view() -> Response {
    let ahead_seconds = clock::ahead().div_euclid(1_000);
    json(StatusCode::OK, text(&View { now: clock::now().iso8601(), ahead_seconds }))
}

fn of(api: &Api) -> Result<Arc<dyn SandboxClock>, ApiError> {
    api.sandbox.clone().ok_or(ApiError::Plain(Code::NotFound))
}

pub(crate) struct Advance {
    to: Timestamp,
}

impl FromRequest<Api> for Advance {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Api) -> Result<Self, ApiError> {
        of(api)?;
        let body = take_body(request).await?;
        let (fields, name) = (Object::root(&body, SANDBOX_CLOCK)?, "advanceTo");
        let to = Timestamp::from(fields.time(name)?);
        if to > clock::now().plus_millis(DAYS_MAX * 24 * 3_600_000) {
            return Err(fields.fault(name, format_args!("is more than {DAYS_MAX} days ahead of the clock")));
        }
        Ok(Self { to })
    }
}

pub(crate) async fn show(State(api): State<Api>) -> Reply {
    of(&api)?;
    Ok(view())
}

/// Work that becomes due before that time is done first. A time in the past changes nothing.
pub(crate) async fn advance(State(api): State<Api>, Advance { to }: Advance) -> Reply {
    of(&api)?.advance(to).await.map_err(ApiError::Internal)?;
    Ok(view())
}
