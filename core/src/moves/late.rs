//! What happened to orders after their FIX sessions had moved: a payment that came back.

use dvp_store::Acquire as _;
use dvp_store::moves::{self, LateEvent, MoveRow};
use dvp_store::{PgConnection, StoreError};

use super::{MoveError, Side};

const PAGE: i64 = 500;

/// Brings the events since the latest run to the target, where the sessions report them.
pub(super) async fn bring(
    source: &mut Side<'_>,
    target: &mut Side<'_>,
    found: &MoveRow,
) -> Result<(), MoveError> {
    let mut tx = source.conn.begin().await?;
    let brought = bring_in(&mut tx, target.conn, found).await;
    if brought.is_ok() {
        tx.commit().await?;
    } else {
        tx.rollback().await?;
    }
    Ok(brought?)
}

/// The source forgets nothing before the target has it; what the target has, it takes once.
async fn bring_in(
    source: &mut PgConnection,
    target: &mut PgConnection,
    found: &MoveRow,
) -> Result<(), StoreError> {
    let Some(sessions) = moves::lock_left(source, found).await? else { return Ok(()) };
    let until = moves::load_feed_position(source).await?;
    for session_id in &sessions {
        let mut after = None;
        loop {
            let (late, next) = moves::list_late_events(source, session_id, (after, until), PAGE).await?;
            insert(target, &late).await?;
            if next.is_none() {
                break;
            }
            after = next;
        }
    }
    insert(target, &moves::list_passed_on(source, found).await?).await?;
    moves::note_brought(source, found, until).await
}

async fn insert(target: &mut PgConnection, late: &[LateEvent]) -> Result<(), StoreError> {
    if late.is_empty() {
        return Ok(());
    }
    let mut tx = target.begin().await?;
    moves::insert_late_events(&mut tx, late).await?;
    Ok(tx.commit().await?)
}
