//! Turns the feed, and requested replays of it, into deliveries.
//!
//! One process at a time: it holds the lock of the row with the dispatcher's position, and moves the position in the
//! transaction that inserts the deliveries.

use std::collections::HashMap;
use std::time::Duration;

use dvp_core::trace;
use dvp_core::webhooks::body;
use dvp_domain::envelope::BODY_BYTES_MAX;
use dvp_store::orders::executions;
use dvp_store::orders::feed::{self, Routed};
use dvp_store::webhooks::deliveries::{self, NewDelivery, Origin};
use dvp_store::webhooks::replays as webhook_replays;
use dvp_store::{PgPool, StoreError};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::wake::Wake;

/// Feed positions per transaction.
const STRIDE: i64 = 1000;
/// A replay adds nothing to an endpoint's queue with more deliveries than this: those of an endpoint that fails stay for
/// days.
const WAITING_MAX: i64 = 5000;
/// When a replay that waits for its endpoint's queue is looked at again.
const REPLAY_PAUSE: Duration = Duration::from_secs(5);

pub(super) async fn run(pool: &PgPool, wake: &Wake, poll: Duration, shutdown: &CancellationToken) {
    while !shutdown.is_cancelled() {
        let more = match step(pool).await {
            Ok(more) => more,
            Err(error) => {
                error!(%error, "webhook dispatch failed, will retry");
                false
            }
        };
        if more {
            continue;
        }
        tokio::select! {
            () = wake.dispatcher.notified() => {}
            () = tokio::time::sleep(poll) => {}
            () = shutdown.cancelled() => {}
        }
    }
}

/// Processes one piece of the feed and one of a replay. Returns whether there is more.
async fn step(pool: &PgPool) -> Result<bool, StoreError> {
    let fed = turn_feed(pool).await?;
    let replayed = turn_replay(pool).await?;
    Ok(fed || replayed)
}

async fn turn_feed(pool: &PgPool) -> Result<bool, StoreError> {
    let mut tx = pool.begin().await?;
    let Some(position) = feed::lock_dispatcher(&mut tx).await? else { return Ok(false) };
    let last = feed::load_last_position(&mut tx).await?;
    if position >= last {
        return Ok(false);
    }
    let until = last.min(position.saturating_add(STRIDE));
    let routed = feed::list_routed(&mut tx, position, until).await?;
    insert(&mut tx, &routed, Origin::Feed).await?;
    feed::update_dispatcher(&mut tx, until).await?;
    tx.commit().await?;
    Ok(until < last)
}

/// Serves the replay that was served least recently.
async fn turn_replay(pool: &PgPool) -> Result<bool, StoreError> {
    let mut tx = pool.begin().await?;
    let Some(replay) = webhook_replays::lock_due(&mut tx).await? else { return Ok(false) };
    if deliveries::waits_more_than(&mut tx, &replay.endpoint_id, WAITING_MAX).await? {
        webhook_replays::put_off(&mut tx, replay.id, REPLAY_PAUSE).await?;
        tx.commit().await?;
        return Ok(true);
    }
    let until = replay.until.min(replay.position.saturating_add(STRIDE));
    let routed = webhook_replays::list_routed(&mut tx, &replay, until).await?;
    insert(&mut tx, &routed, Origin::Replay).await?;
    if until >= replay.until {
        webhook_replays::delete(&mut tx, replay.id).await?;
        info!(endpoint = replay.endpoint_id, "webhook replay queued");
    } else {
        webhook_replays::update_position(&mut tx, replay.id, until).await?;
    }
    tx.commit().await?;
    Ok(true)
}

async fn insert(
    conn: &mut dvp_store::PgConnection,
    routed: &[Routed],
    origin: Origin,
) -> Result<(), StoreError> {
    if routed.is_empty() {
        return Ok(());
    }
    let references: Vec<&str> = routed.iter().map(|one| one.stored.event.reference.as_str()).collect();
    let traces = match trace::is_recording() {
        true => executions::list_traces(conn, &references).await?,
        false => HashMap::new(),
    };
    let trace = |one: &Routed| traces.get(&one.stored.event.reference).cloned();
    let new: Vec<NewDelivery> =
        routed.iter().map(|one| NewDelivery { trace: trace(one), ..delivery(one, origin) }).collect();
    deliveries::insert(conn, &new).await
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
