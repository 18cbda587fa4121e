//! `GET /v1/events`: a tenant's feed, page by page (contract sections 2.8 and 4, rule 3).
//!
//! A page that is empty gives back the position it was asked from, so a cursor never goes backwards.

use axum::extract::{Extension, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use dvp_core::store::events::{Filter, StoredEvent};
use dvp_domain::event::{API_VERSION, EventType};
use dvp_domain::time::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::app::Api;
use crate::auth::Caller;
use crate::cursor::Feed;
use crate::error::{ApiError, json, text};
use crate::fields::{fault, is_id};
use crate::query::Params;

const LIMIT_DEFAULT: i64 = 20;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    data: Vec<Envelope>,
    has_more: bool,
    next_cursor: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    object: &'static str,
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    occurred_at: String,
    observed_at: String,
    is_terminal: bool,
    livemode: bool,
    api_version: &'static str,
    intent_id: String,
    client_reference: Option<String>,
    sequence: i64,
    data: Data,
}

#[derive(Serialize)]
struct Data {
    object: Value,
}

impl From<StoredEvent> for Envelope {
    fn from(stored: StoredEvent) -> Self {
        let event = stored.event;
        Self {
            object: "event",
            id: event.event_id,
            kind: event.kind.as_str(),
            occurred_at: Timestamp::from(event.occurred_at).iso8601(),
            observed_at: Timestamp::from(event.observed_at).iso8601(),
            is_terminal: event.kind.is_terminal(),
            livemode: event.tenant.livemode,
            api_version: API_VERSION,
            intent_id: event.intent_id,
            client_reference: event.client_reference,
            sequence: event.sequence,
            data: Data { object: event.object },
        }
    }
}

pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let params = Params::of(&uri)?;
    let limit = params.limit(LIMIT_DEFAULT)?;
    let kind = params.get("type")?.map(asked_type).transpose()?;
    let intent_id = params.get("intentId")?.map(str::to_owned);
    if intent_id.as_deref().is_some_and(|id| !is_id(id)) {
        return Err(fault("intentId", "must have 1 to 128 characters"));
    }
    let (epoch, vault) = (api.engine.feed_epoch().await?, &api.engine.context().vault);
    let feed = Feed { vault, tenant: &caller.tenant, epoch };
    let after = match params.get("since")? {
        Some(cursor) => feed.position(cursor).ok_or(ApiError::InvalidCursor)?,
        None => 0,
    };
    let mut found = match kind {
        Some(AskedType::Ping) => Vec::new(),
        Some(AskedType::Of(_)) | None => {
            let kind = kind.and_then(AskedType::lifecycle);
            // One more than asked for tells whether more follow.
            let filter = Filter { after, kind, intent_id, limit: limit.saturating_add(1) };
            api.engine.events(&caller.tenant, &filter).await?
        }
    };
    let limit = usize::try_from(limit).unwrap_or_default();
    let has_more = found.len() > limit;
    found.truncate(limit);
    let next_cursor = feed.cursor(found.last().map_or(after, |last| last.position));
    let page = Page { data: found.into_iter().map(Envelope::from).collect(), has_more, next_cursor };
    Ok(json(StatusCode::OK, text(&page)))
}

/// A type of the contract: pings belong to no intent and are never in the feed.
#[derive(Clone, Copy)]
enum AskedType {
    Of(EventType),
    Ping,
}

impl AskedType {
    const fn lifecycle(self) -> Option<EventType> {
        match self {
            Self::Of(kind) => Some(kind),
            Self::Ping => None,
        }
    }
}

fn asked_type(text: &str) -> Result<AskedType, ApiError> {
    if text == "test.ping" {
        return Ok(AskedType::Ping);
    }
    EventType::parse(text).map(AskedType::Of).ok_or(ApiError::InvalidType)
}
