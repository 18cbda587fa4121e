//! What the move of a partner reads and compares, over a history: as the source, and as a target that has all of it.

use anyhow::ensure;
use dvp_store::moves::{self, CopiedRows, IntentKey, MoveRow};
use dvp_store::{PgConnection, PgPool};

use crate::history::SESSION;

const PARTNER: &str = "ptn_acme";
/// The rows of a page of a partner, and of a session, whose orders are few in this history.
const PAGE: i64 = 2_000;
const SESSION_PAGE: i64 = 50;
/// Events of all partners since the latest run.
const EVENTS_SINCE: i64 = 2_000;
/// More than the executions that PostgreSQL plans for their values.
const PAGES: usize = 8;

/// Pages of all that is copied. Nothing is changed.
///
/// # Errors
/// Fails when the history has no intents, orders or messages to copy.
pub async fn copy_pages(pool: &PgPool) -> anyhow::Result<()> {
    let mut tx = pool.begin().await?;
    moves::list_obstacles(&mut tx, PARTNER, "key").await?;
    for kind in CopiedRows::ALL {
        let mut after = None;
        for _ in 0..PAGES {
            let (rows, last) = moves::list_rows(&mut tx, kind, PARTNER, after, PAGE).await?;
            ensure!(rows.is_empty() == last.is_none(), "{kind:?}");
            after = last;
        }
    }
    let seed = moves::draw_seed(&mut tx).await?;
    let (mut after, mut compared) = (IntentKey::default(), 0);
    while let Some(page) = moves::find_intent_page(&mut tx, PARTNER, after, seed, PAGE).await? {
        ensure!(moves::has_intent_page(&mut tx, PARTNER, &page).await?, "it differs from itself");
        if compared < PAGES {
            let keys = moves::list_intent_keys(&mut tx, PARTNER, &page).await?;
            ensure!(moves::list_missing_intents(&mut tx, PARTNER, &keys).await?.is_empty(), "one is missing");
            let rows = moves::list_intents(&mut tx, PARTNER, &keys).await?;
            moves::insert_intents(&mut tx, &rows).await?;
        }
        compared += 1;
        after = page.last;
    }
    ensure!(compared > 0, "no intents");
    let (mut orders, mut messages) = (String::new(), 0);
    for _ in 0..PAGES {
        let (page, last) = moves::list_orders(&mut tx, SESSION, &orders, SESSION_PAGE).await?;
        moves::insert_orders(&mut tx, &page).await?;
        orders = last.unwrap_or(orders);
        let (rows, last) = moves::list_messages(&mut tx, SESSION, messages, SESSION_PAGE).await?;
        messages = last.unwrap_or(messages);
        ensure!(rows.is_empty() == last.is_none(), "messages");
    }
    ensure!(!orders.is_empty() && messages > 0, "no orders or messages");
    late_events(&mut tx).await?;
    tx.rollback().await?;
    Ok(())
}

/// Events of orders whose session has moved.
async fn late_events(conn: &mut PgConnection) -> anyhow::Result<()> {
    let found = MoveRow {
        id: "apr_moved".to_owned(),
        partner_id: PARTNER.to_owned(),
        source: "00a".to_owned(),
        target: "00b".to_owned(),
        state: "moved".to_owned(),
        operator: "jo".to_owned(),
        since: chrono::DateTime::UNIX_EPOCH,
        closed_before: None,
    };
    let until = moves::load_feed_position(conn).await?;
    sqlx::query(
        "update fix_session set enabled = false, moved_by = $2, copied_at = now(), feed_position = $3 where session_id = $1",
    )
    .bind(SESSION)
    .bind(&found.id)
    .bind(until.saturating_sub(EVENTS_SINCE))
    .execute(&mut *conn)
    .await?;
    for _ in 0..PAGES {
        let (late, _) = moves::list_late_events(conn, SESSION, (None, until), SESSION_PAGE).await?;
        moves::insert_late_events(conn, &late).await?;
        moves::list_passed_on(conn, &found).await?;
    }
    moves::note_brought(conn, &found, until).await?;
    Ok(())
}
