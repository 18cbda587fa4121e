//! Turns the feed, and requested replays of it, into deliveries.
//!
//! One process at a time turns the feed: it holds the lock of the row with the dispatcher's position, and moves the
//! position in the transaction that inserts the deliveries. An event of which no delivery can be made is set aside in the
//! same transaction and tried again by itself; the others go on. Each replay is an item of its own.

use std::collections::HashMap;
use std::time::Duration;

use dvp_core::engine::webhooks::body;
use dvp_core::trace;
use dvp_domain::envelope::BODY_BYTES_MAX;
use dvp_store::orders::executions;
use dvp_store::orders::feed::{self, Routed, Unrouted};
use dvp_store::webhooks::deliveries::{self, NewDelivery, Origin};
use dvp_store::webhooks::replays as webhook_replays;
use dvp_store::workers::set_aside::{self, EventSetAside};
use dvp_store::workers::{self, Apart, Attended, Step, Worker, guarded};
use dvp_store::{Fault, PgConnection, PgPool, StoreError};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::wake::Wake;

/// Feed positions per transaction, at most.
const STRIDE: i64 = 1000;
/// A replay adds nothing to an endpoint's queue with more deliveries than this: those of an endpoint that fails stay for
/// days.
const WAITING_MAX: i64 = 5000;
/// When a replay that waits for its endpoint's queue is looked at again, or one that failed.
const REPLAY_PAUSE: Duration = Duration::from_secs(5);
/// Replays of a turn, and the longest time for one.
const REPLAYS_MAX: i64 = 16;
const REPLAY_MAX: Duration = Duration::from_secs(30);
const EVENT_MAX: Duration = Duration::from_millis(500);

/// Turns the feed until `shutdown`.
pub(super) async fn run(pool: &PgPool, wake: &Wake, poll: Duration, shutdown: &CancellationToken) {
    let mut stride = STRIDE;
    while !shutdown.is_cancelled() {
        let turned = turn_feed(pool, stride).await;
        let more = match &turned {
            Ok(more) => {
                stride = stride.saturating_mul(2).min(STRIDE);
                *more
            }
            // Deliveries that cannot be written are found by halving.
            Err(error) if error.fault() == Fault::Data && stride > 1 => {
                warn!(%error, stride, "webhook dispatch failed, trying fewer events at once");
                stride = (stride / 2).max(1);
                true
            }
            Err(error) if error.fault() == Fault::Data => pass_one(pool, error).await,
            Err(error) => {
                error!(%error, "webhook dispatch failed, will retry");
                false
            }
        };
        let again = turn_set_aside(pool).await.unwrap_or_else(|error| {
            warn!(%error, "an event that is set aside could not be dispatched, will retry");
            false
        });
        if more || again {
            continue;
        }
        tokio::select! {
            () = wake.dispatcher.notified() => {}
            () = tokio::time::sleep(poll) => {}
            () = shutdown.cancelled() => {}
        }
    }
}

/// Serves replays until `shutdown`.
pub(super) async fn run_replays(pool: &PgPool, poll: Duration, shutdown: &CancellationToken) {
    let replays = Apart::new(pool.clone(), Worker::Replays, REPLAY_MAX);
    while !shutdown.is_cancelled() {
        let served = turn_replays(pool, &replays).await.unwrap_or_else(|error| {
            error!(%error, "webhook replays could not be read, will retry");
            false
        });
        if served {
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(poll) => {}
            () = shutdown.cancelled() => {}
        }
    }
}

/// Processes one piece of the feed. Returns whether there is more.
async fn turn_feed(pool: &PgPool, stride: i64) -> Result<bool, StoreError> {
    let mut tx = pool.begin().await?;
    let Some(position) = feed::lock_dispatcher(&mut tx).await? else { return Ok(false) };
    let last = feed::load_last_position(&mut tx).await?;
    if position >= last {
        return Ok(false);
    }
    let until = last.min(position.saturating_add(stride));
    let routed = feed::list_routed(&mut tx, position, until).await?;
    for (event, why) in insert(&mut tx, routed, Origin::Feed).await? {
        set_aside::insert_event(&mut tx, &event, &why).await?;
    }
    feed::update_dispatcher(&mut tx, until).await?;
    tx.commit().await?;
    Ok(until < last)
}

/// Passes the next event, whose deliveries cannot be written, and sets it aside. Returns whether that was possible.
async fn pass_one(pool: &PgPool, why: &StoreError) -> bool {
    let passing = async {
        let mut tx = pool.begin().await?;
        let Some(position) = feed::lock_dispatcher(&mut tx).await? else { return Ok(false) };
        let position = position.saturating_add(1);
        let event = EventSetAside { position, endpoint_id: None, attempts: 0 };
        set_aside::insert_event(&mut tx, &event, &why.to_string()).await?;
        feed::update_dispatcher(&mut tx, position).await?;
        tx.commit().await?;
        Ok::<_, StoreError>(true)
    };
    passing.await.unwrap_or_else(|error| {
        error!(%error, "an event could not be set aside, will retry");
        false
    })
}

/// Tries an event again that is due. Returns whether one was.
async fn turn_set_aside(pool: &PgPool) -> Result<bool, StoreError> {
    let mut tx = pool.begin().await?;
    let Some(event) = set_aside::lock_due_event(&mut tx).await? else { return Ok(false) };
    let mut routed = feed::list_routed(&mut tx, event.position.saturating_sub(1), event.position).await?;
    let is_for = |endpoint: &str| event.endpoint_id.as_deref().is_none_or(|only| only == endpoint);
    routed.retain(|one| match one {
        Ok(routed) => is_for(&routed.endpoint_id),
        Err(unrouted) => is_for(&unrouted.endpoint_id),
    });
    let failed = match insert(&mut tx, routed, Origin::Feed).await {
        Ok(failed) => failed.into_iter().next().map(|(_, why)| why),
        Err(error) if error.fault() == Fault::Data => Some(error.to_string()),
        Err(error) => return Err(error),
    };
    match failed {
        None => {
            set_aside::delete_event(&mut tx, &event).await?;
            info!(position = event.position, "an event that was set aside is dispatched");
            tx.commit().await?;
        }
        Some(why) => {
            tx.rollback().await?;
            set_aside::insert_event(&mut *pool.acquire().await?, &event, &why).await?;
        }
    }
    Ok(true)
}

/// Serves the replays that are due, each once. Returns whether one was served.
async fn turn_replays(pool: &PgPool, replays: &Apart) -> Result<bool, StoreError> {
    let due = webhook_replays::list_due(&mut *pool.acquire().await?, REPLAYS_MAX).await?;
    let mut has_served = false;
    for (id, endpoint) in due {
        match replays.attend(&id.to_string(), &endpoint, turn_replay(pool.clone(), id)).await {
            Attended::Done(served) => has_served |= served,
            // The others that are due come first.
            Attended::Failed => {
                webhook_replays::put_off(&mut *pool.acquire().await?, id, REPLAY_PAUSE).await?;
            }
            Attended::SetAside | Attended::InProgress => {}
        }
    }
    Ok(has_served)
}

async fn turn_replay(pool: PgPool, id: i64) -> Result<bool, StoreError> {
    let mut tx = pool.begin().await?;
    let Some(replay) = webhook_replays::lock_due(&mut tx, id).await? else { return Ok(false) };
    workers::at(Step::ReplayTurn, &replay.endpoint_id).await?;
    if deliveries::waits_more_than(&mut tx, &replay.endpoint_id, WAITING_MAX).await? {
        webhook_replays::put_off(&mut tx, replay.id, REPLAY_PAUSE).await?;
        tx.commit().await?;
        return Ok(true);
    }
    let until = replay.until.min(replay.position.saturating_add(STRIDE));
    let routed = webhook_replays::list_routed(&mut tx, &replay, until).await?;
    let failed = insert(&mut tx, routed.into_iter().map(Ok).collect(), Origin::Replay).await?;
    if let Some((event, why)) = failed.into_iter().next() {
        return Err(StoreError::corrupt("event", format_args!("at {}: {why}", event.position)));
    }
    if until >= replay.until {
        webhook_replays::delete(&mut tx, replay.id).await?;
        info!(endpoint = replay.endpoint_id, "webhook replay queued");
    } else {
        webhook_replays::update_position(&mut tx, replay.id, until).await?;
    }
    tx.commit().await?;
    Ok(true)
}

/// Queues deliveries. Returns the events of which none could be made, and why.
async fn insert(
    conn: &mut PgConnection,
    routed: Vec<Result<Routed, Unrouted>>,
    origin: Origin,
) -> Result<Vec<(EventSetAside, String)>, StoreError> {
    let (mut readable, mut failed) = (Vec::new(), Vec::new());
    let aside =
        |position, endpoint_id| EventSetAside { position, endpoint_id: Some(endpoint_id), attempts: 0 };
    for one in routed {
        match one {
            Ok(routed) => readable.push(routed),
            Err(Unrouted { position, endpoint_id, error }) => {
                failed.push((aside(position, endpoint_id), error.to_string()));
            }
        }
    }
    let references: Vec<&str> = readable.iter().map(|one| one.stored.event.reference.as_str()).collect();
    let traces = match trace::is_recording() {
        true => executions::list_traces(conn, &references).await?,
        false => HashMap::new(),
    };
    let mut new = Vec::with_capacity(readable.len());
    for one in &readable {
        let making = async {
            workers::at(Step::DispatchEvent, &one.stored.event.reference).await?;
            let trace = traces.get(&one.stored.event.reference).cloned();
            Ok::<_, StoreError>(NewDelivery { trace, ..delivery(one, origin) })
        };
        match guarded(EVENT_MAX, making).await {
            Ok(made) => new.push(made),
            Err(error) => {
                failed.push((aside(one.stored.position, one.endpoint_id.clone()), error.to_string()));
            }
        }
    }
    if !new.is_empty() {
        deliveries::insert(conn, &new).await?;
    }
    Ok(failed)
}

fn delivery(routed: &Routed, origin: Origin) -> NewDelivery {
    let event = &routed.stored.event;
    let body = body(&routed.stored, &routed.api_version);
    if body.len() > BODY_BYTES_MAX {
        error!(
            event = event.event_id,
            bytes = body.len(),
            "event exceeds the delivery size limit and is not delivered; it stays in the feed"
        );
    }
    NewDelivery {
        endpoint_id: routed.endpoint_id.clone(),
        partner_id: event.tenant.partner_id.clone(),
        event_id: event.event_id.clone(),
        kind: event.kind.as_str().to_owned(),
        origin,
        body,
        trace: None,
    }
}
