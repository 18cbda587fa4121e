//! `GET /v1/events` and `GET /v1/events/{eventId}`: a tenant's feed (contract sections 2.8 and 4, rule 3).
//!
//! An empty page returns the requested position, so that a cursor never moves backwards. With `wait` an empty page is
//! returned only after that many seconds without an event.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use dvp_core::engine::webhooks::envelope;
use dvp_domain::envelope::{Envelope, TEST_PING};
use dvp_domain::event::{API_VERSION, EventType};
use dvp_store::orders::events::{self, EventFilter, StoredEvent};
use dvp_store::orders::feed::{self, Reader};
use dvp_store::orders::intents::Tenant;
use metrics::counter;
use serde::Serialize;
use tokio::time::Instant;

use crate::access::auth::Caller;
use crate::http::error::{ApiError, Code, Reply, json, text};
use crate::http::fields::{fault, is_id};
use crate::http::load::{RequestPermit, Turn};
use crate::http::path::PathId;
use crate::http::query::Params;
use crate::http::request::ROUTE_LIMIT;
use crate::routes::cursor::Feed;
use crate::routes::webhooks::NO_EVENT;
use crate::state::Api;
use crate::state::feed_watch::Subscription;

const LIMIT: i64 = 20;
/// How often a waiting reader looks itself while nothing tells it of new events.
const UNFOLLOWED_LOOK: Duration = Duration::from_secs(1);
/// Less than the time limit of a route.
const WAIT_SECS_MAX: u64 = 8;
const _: () =
    assert!(WAIT_SECS_MAX < ROUTE_LIMIT.as_secs(), "a long-poll ends before its route is timed out");

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
    data: Vec<Envelope<'a>>,
    has_more: bool,
    next_cursor: String,
}

pub(crate) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Extension(place): Extension<RequestPermit>,
    params: Params,
) -> Reply {
    let limit = params.limit(LIMIT)?;
    let wait = wait(&params)?;
    let selected = Selected::parse(&params)?;
    let until = (!wait.is_zero()).then(|| Instant::now() + wait);
    // Long-polls take turns from their first statement on, so that they leave connections to other reads.
    let turn = match until {
        Some(until) => Some(place.look_until(until).await.ok_or(ApiError::Busy)?),
        None => None,
    };
    let Reader { epoch, api_version } =
        feed::load_reader(&mut *api.engine.reads().acquire().await?, &caller.key_id).await?;
    let vault = &api.engine.context().vault;
    let feed = Feed { vault, tenant: &caller.tenant, epoch };
    let after = match params.get("since")? {
        Some(cursor) => feed.position(cursor).ok_or(Code::InvalidCursor)?,
        None => 0,
    };
    // One more than requested shows whether more follow.
    let mut found = match selected.filter(after, limit.saturating_add(1)) {
        Some(filter) => find(&api, &caller, place.clone(), turn, filter, until).await?,
        None => Vec::new(),
    };
    let limit = usize::try_from(limit).unwrap_or_default();
    let has_more = found.len() > limit;
    found.truncate(limit);
    let next_cursor = feed.cursor(found.last().map_or(after, |last| last.position));
    let version = api_version.as_deref().unwrap_or(API_VERSION);
    let data = found.iter().map(|stored| envelope(stored, version)).collect();
    Ok(json(StatusCode::OK, text(&Page { data, has_more, next_cursor })))
}

/// The events that a request asks for.
pub(super) struct Selected {
    /// Pings belong to no intent and are never in the feed.
    is_ping: bool,
    kind: Option<EventType>,
    intent_id: Option<String>,
}

impl Selected {
    pub(super) fn parse(params: &Params) -> Result<Self, ApiError> {
        let is_ping = params.get("type")? == Some(TEST_PING);
        let kind = params.get("type")?.filter(|_| !is_ping);
        let kind =
            kind.map(|kind| EventType::parse(kind).ok_or(ApiError::InvalidType("type"))).transpose()?;
        let intent_id = params.get("intentId")?.map(str::to_owned);
        if intent_id.as_deref().is_some_and(|id| !is_id(id)) {
            return Err(fault("intentId", "must be one line of 1 to 128 characters"));
        }
        Ok(Self { is_ping, kind, intent_id })
    }

    /// `None`: there are none.
    pub(super) fn filter(self, after: i64, limit: i64) -> Option<EventFilter> {
        let Self { is_ping, kind, intent_id } = self;
        (!is_ping).then_some(EventFilter { after, kind, intent_id, limit })
    }
}

/// A page, or the events that come before `until`. A waiting request releases its permit.
async fn find(
    api: &Api,
    caller: &Caller,
    place: RequestPermit,
    turn: Option<Turn<'_>>,
    filter: EventFilter,
    until: Option<Instant>,
) -> Result<Vec<Arc<StoredEvent>>, ApiError> {
    let Some(until) = until else { return read(api, &caller.tenant, &filter).await };
    let mut watch = Watch::new(api, caller, place, filter);
    let found = watch.read().await?;
    drop(turn);
    if !found.is_empty() {
        return Ok(found);
    }
    // The cursor stays, so that the next request returns what comes later.
    tokio::time::timeout_at(until, watch.next()).await.unwrap_or_else(|_| Ok(Vec::new()))
}

/// The reader of a feed that waits for its next events.
pub(super) struct Watch {
    api: Api,
    caller: Caller,
    place: RequestPermit,
    news: Subscription,
    filter: EventFilter,
    is_behind: bool,
}

impl Watch {
    pub(super) fn new(api: &Api, caller: &Caller, place: RequestPermit, filter: EventFilter) -> Self {
        // Subscribed before the first read, so that no event is missed between them.
        let news = api.feed.subscribe(api.engine.reads(), &caller.tenant);
        Self { api: api.clone(), caller: caller.clone(), place, news, filter, is_behind: true }
    }

    /// The next events, at least one. Holds no permit while it waits.
    pub(super) async fn next(&mut self) -> Result<Vec<Arc<StoredEvent>>, ApiError> {
        self.place.wait()?;
        loop {
            let found = match self.is_behind {
                true => {
                    let place = self.place.clone();
                    let _turn = place.look().await.ok_or(ApiError::Busy)?;
                    self.read().await?
                }
                false => self.told().await,
            };
            if !found.is_empty() {
                return Ok(found);
            }
        }
    }

    async fn read(&mut self) -> Result<Vec<Arc<StoredEvent>>, ApiError> {
        let found = read(&self.api, &self.caller.tenant, &self.filter).await?;
        // After a full page more may follow.
        self.is_behind = i64::try_from(found.len()) == Ok(self.filter.limit);
        self.pass(&found);
        Ok(found)
    }

    /// The events that the follower tells of.
    async fn told(&mut self) -> Vec<Arc<StoredEvent>> {
        if self.news.is_followed() {
            self.news.changed().await;
        } else {
            let _ = tokio::time::timeout(UNFOLLOWED_LOOK, self.news.changed()).await;
        }
        let all = EventFilter { limit: i64::MAX, ..self.filter.clone() };
        let found = self.news.take(&all);
        self.is_behind = found.is_none();
        let found = found.unwrap_or_default();
        self.pass(&found);
        found
    }

    fn pass(&mut self, found: &[Arc<StoredEvent>]) {
        if let Some(last) = found.last() {
            self.filter.after = last.position;
        }
    }
}

async fn read(api: &Api, tenant: &Tenant, filter: &EventFilter) -> Result<Vec<Arc<StoredEvent>>, ApiError> {
    counter!("dvp_rest_feed_reads_total", "reader" => "request").increment(1);
    Ok(api.engine.events(tenant, filter).await?.into_iter().map(Arc::new).collect())
}

pub(crate) async fn show(State(api): State<Api>, event_id: PathId, caller: Caller) -> Reply {
    let event_id = event_id.or(NO_EVENT)?;
    let mut conn = api.engine.reads().acquire().await?;
    let found = events::find_for_tenant(&mut conn, &caller.tenant, &event_id).await?;
    let stored = found.ok_or(NO_EVENT)?;
    let reader = feed::load_reader(&mut conn, &caller.key_id).await?;
    let version = reader.api_version.as_deref().unwrap_or(API_VERSION);
    Ok(json(StatusCode::OK, text(&envelope(&stored, version))))
}

fn wait(params: &Params) -> Result<Duration, ApiError> {
    let Some(text) = params.get("wait")? else { return Ok(Duration::ZERO) };
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds: Option<u64> = text.parse().ok().filter(|seconds| digits && *seconds <= WAIT_SECS_MAX);
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| fault("wait", "must be a whole number of seconds from 0 to 8"))
}
