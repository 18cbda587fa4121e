//! `GET /v1/events/stream`: a tenant's feed as server-sent events (WHATWG HTML, section 9.2).
//!
//! Each event's id is the cursor after it, so that a reader which sends the last one (`Last-Event-ID`) misses nothing. A
//! stream ends after [`LIFE`], when the service stops, and before it gives an event to a key that has been disabled or
//! revoked. A waiting stream holds no permit and no connection to the database.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use dvp_core::engine::webhooks::envelope;
use dvp_domain::event::API_VERSION;
use dvp_store::orders::events::StoredEvent;
use dvp_store::orders::feed;
use futures_util::stream::{self, StreamExt as _};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use uuid::Uuid;

use super::events::{Selected, Watch};
use crate::access::auth::Caller;
use crate::http::error::{ApiError, Code, text};
use crate::http::load::RequestPermit;
use crate::http::query::Params;
use crate::routes::cursor::Feed;
use crate::state::Api;

/// How long a stream lasts.
const LIFE: Duration = Duration::from_secs(300);
/// A comment this often shows both sides that the other one is there.
const BEAT: Duration = Duration::from_secs(15);
/// How soon a reader connects again.
const RETRY: Duration = Duration::from_secs(1);
/// Events read at once.
const PAGE: i64 = 100;
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Cancelled when the service stops.
#[derive(Clone)]
pub(crate) struct Closing(pub(crate) CancellationToken);

/// From `Last-Event-ID`, else `since`, else from now on.
pub(crate) async fn open(
    State(api): State<Api>,
    caller: Caller,
    Extension(place): Extension<RequestPermit>,
    Extension(closing): Extension<Closing>,
    headers: HeaderMap,
    params: Params,
) -> Result<Response, ApiError> {
    let selected = Selected::parse(&params)?;
    let mut conn = api.engine.reads().acquire().await?;
    let reader = feed::load_reader(&mut conn, &caller.key_id).await?;
    let vault = api.engine.context().vault.clone();
    let cursors = Feed { vault: &vault, tenant: &caller.tenant, epoch: reader.epoch };
    let last = headers.get(LAST_EVENT_ID).map(HeaderValue::to_str).transpose();
    let last = last.map_err(|_| Code::InvalidCursor)?;
    let after = match last.map_or_else(|| params.get("since"), |last| Ok(Some(last)))? {
        Some(cursor) => cursors.position(cursor).ok_or(Code::InvalidCursor)?,
        None => feed::load_last_position(&mut conn).await?,
    };
    drop(conn);
    place.wait()?;
    let api_key = headers.get(API_KEY).and_then(|key| key.to_str().ok()).unwrap_or_default().to_owned();
    let watch = |filter| Watch::new(&api, &caller, place.clone(), filter);
    let streaming = Streaming {
        watch: selected.filter(after, PAGE).map(watch),
        api_key,
        _place: place,
        api,
        caller,
        epoch: reader.epoch,
        version: reader.api_version.unwrap_or_else(|| API_VERSION.to_owned()),
        ends: Instant::now() + LIFE,
        closing,
    };
    let more = |mut streaming: Streaming| async move {
        let events = streaming.next().await?;
        Some((stream::iter(events), streaming))
    };
    let opening = stream::iter([Event::default().retry(RETRY)]);
    let events = opening.chain(stream::unfold(streaming, more).flatten()).map(Ok::<_, Infallible>);
    let mut response = Sse::new(events).keep_alive(KeepAlive::new().interval(BEAT)).into_response();
    // A proxy that collects the answer would hold events back.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
        .headers_mut()
        .insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    Ok(response)
}

struct Streaming {
    api: Api,
    caller: Caller,
    api_key: String,
    /// Counts the stream among its partner's.
    _place: RequestPermit,
    /// `None`: events that never come.
    watch: Option<Watch>,
    epoch: Uuid,
    version: String,
    ends: Instant,
    closing: Closing,
}

impl Streaming {
    /// The next events, at least one; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Vec<Event>> {
        let next = async {
            match &mut self.watch {
                Some(watch) => watch.next().await,
                None => std::future::pending().await,
            }
        };
        let found = tokio::select! {
            () = self.closing.0.cancelled() => return None,
            () = sleep_until(self.ends) => return None,
            found = next => found,
        };
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                warn!(
                    ?error,
                    partner = self.caller.tenant.partner_id,
                    "stream of events failed, its reader connects again"
                );
                return None;
            }
        };
        if !self.is_allowed().await {
            return None;
        }
        let vault = &self.api.engine.context().vault;
        let cursors = Feed { vault, tenant: &self.caller.tenant, epoch: self.epoch };
        let event = |stored: &Arc<StoredEvent>| {
            Event::default()
                .id(cursors.cursor(stored.position))
                .event(stored.event.kind.as_str())
                .data(text(&envelope(stored, &self.version)))
        };
        Some(found.iter().map(event).collect())
    }

    /// Whether the key is still good, as it was at most a second ago.
    async fn is_allowed(&self) -> bool {
        let found = self.api.keys.find(&self.api.engine, None, &self.api_key).await;
        found.is_ok_and(|key| !key.disabled)
    }
}
