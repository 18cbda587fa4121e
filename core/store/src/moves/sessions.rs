//! FIX sessions in the course of a move: each is taken at the source, copied, and goes on at the target.

use sqlx::PgConnection;

use super::MoveRow;
use crate::StoreError;

/// A FIX session of a partner in the course of its move.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct MovingSession {
    pub session_id: String,
    pub enabled: bool,
    pub moved_by: Option<String>,
    /// It has orders that have not ended, or reports that are not made yet.
    pub is_busy: bool,
}

/// The sessions of a partner.
pub async fn list_sessions(
    conn: &mut PgConnection,
    partner_id: &str,
) -> Result<Vec<MovingSession>, StoreError> {
    let rows = sqlx::query_as(
        "select s.session_id, s.enabled, s.moved_by, \
                exists (select from fix_parked p where p.session_id = s.session_id) \
                or exists (select from fix_late_report r where r.session_id = s.session_id) \
                or s.drop_copy and exists (select from legacy_intent l where l.partner_id = s.partner_id \
                                             and l.stage in ('pending', 'solving', 'queued', 'submitting')) \
                or s.drop_copy and exists (select from execution e where e.partner_id = s.partner_id and terminal_at is null) \
                or s.drop_copy and exists (select from event_record v where v.partner_id = s.partner_id \
                                             and v.livemode = s.livemode and v.position > s.feed_position) \
                or exists (select from fix_order o join execution e on e.reference = o.reference \
                           where o.session_id = s.session_id and e.terminal_at is null) \
                or exists (select from event_record v join fix_order o on o.reference = v.reference \
                           where v.partner_id = s.partner_id and v.livemode = s.livemode \
                             and v.position > s.feed_position and o.session_id = s.session_id) as is_busy \
         from fix_session s where s.partner_id = $1 order by 1",
    );
    Ok(rows.bind(partner_id).fetch_all(conn).await?)
}

/// Sessions of a partner that another cell does not have yet, although a move took them from here.
pub async fn list_between(conn: &mut PgConnection, partner_id: &str) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query_scalar(
        "select session_id from fix_session where partner_id = $1 and moved_by is not null and copied_at is null \
         order by 1",
    );
    Ok(rows.bind(partner_id).fetch_all(conn).await?)
}

/// Those among these sessions that this cell has and that were not taken from it.
pub async fn list_present(
    conn: &mut PgConnection,
    session_ids: &[String],
) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query_scalar(
        "select session_id from fix_session where session_id = any($1) and moved_by is null order by 1",
    );
    Ok(rows.bind(session_ids).fetch_all(conn).await?)
}

/// Takes a session from this cell, unless the partner is back: disables it, and its process lets go of it. Call it in a
/// transaction.
pub async fn take_session(
    conn: &mut PgConnection,
    session_id: &str,
    found: &MoveRow,
) -> Result<Taken, StoreError> {
    let left = sqlx::query("select from partner where id = $1 and closed_by = $2 for share")
        .bind(&found.partner_id)
        .bind(&found.id)
        .execute(&mut *conn)
        .await?;
    if left.rows_affected() == 0 {
        return Ok(Taken::Not);
    }
    let now = sqlx::query(
        "update fix_session set enabled = false, moved_by = $2, copied_at = null \
         where session_id = $1 and enabled and moved_by is null",
    )
    .bind(session_id)
    .bind(&found.id)
    .execute(&mut *conn)
    .await?;
    if now.rows_affected() == 1 {
        return Ok(Taken::Now);
    }
    let before =
        sqlx::query_scalar("select exists (select from fix_session where session_id = $1 and moved_by = $2)");
    let before: bool = before.bind(session_id).bind(&found.id).fetch_one(&mut *conn).await?;
    Ok(if before { Taken::Before } else { Taken::Not })
}

/// Whether a move has taken a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    Now,
    /// An earlier run did.
    Before,
    /// The partner has come back, or operators have disabled the session.
    Not,
}

/// Locks a session that the move has taken and that the target does not have yet, while the partner is not back. `false`:
/// there is nothing to copy.
pub async fn lock_taken(
    conn: &mut PgConnection,
    session_id: &str,
    found: &MoveRow,
) -> Result<bool, StoreError> {
    let locked = sqlx::query(
        "select from fix_session s join partner p on p.id = s.partner_id and p.closed_by = $2 \
         where s.session_id = $1 and s.moved_by = $2 and s.copied_at is null for update of s for share of p",
    );
    Ok(locked.bind(session_id).bind(&found.id).execute(conn).await?.rows_affected() == 1)
}

/// Whether a cell has a session that a move brings, or another one under its id.
pub async fn has_session(conn: &mut PgConnection, session_id: &str, id: &str) -> Result<bool, StoreError> {
    let row = sqlx::query_scalar(
        "select exists (select from fix_session where session_id = $1 and (came_by = $2 or moved_by is null))",
    );
    Ok(row.bind(session_id).bind(id).fetch_one(conn).await?)
}

/// The sessions that a move has brought here.
pub async fn list_came(conn: &mut PgConnection, id: &str) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query_scalar("select session_id from fix_session where came_by = $1 order by 1");
    Ok(rows.bind(id).fetch_all(conn).await?)
}

/// Gives a session that a move has taken back to this cell. `enabled`: it may log on again; else it stays as operators
/// have left it. Call it in the transaction that has locked it.
pub async fn give_back(conn: &mut PgConnection, session_id: &str, enabled: bool) -> Result<(), StoreError> {
    let given =
        sqlx::query("update fix_session set enabled = enabled or $2, moved_by = null where session_id = $1");
    given.bind(session_id).bind(enabled).execute(conn).await?;
    Ok(())
}

/// Records that the target has the session.
pub async fn note_copied(conn: &mut PgConnection, session_id: &str) -> Result<(), StoreError> {
    let noted = sqlx::query("update fix_session set copied_at = now() where session_id = $1");
    noted.bind(session_id).execute(conn).await?;
    Ok(())
}

/// Records that the target does not have the session any more.
pub async fn note_lost(conn: &mut PgConnection, session_id: &str) -> Result<(), StoreError> {
    let noted =
        sqlx::query("update fix_session set copied_at = null where session_id = $1 and moved_by is not null");
    noted.bind(session_id).execute(conn).await?;
    Ok(())
}

/// Drop copies that a move has not brought to its target yet.
pub async fn list_drop_copies(
    conn: &mut PgConnection,
    MoveRow { id, partner_id, .. }: &MoveRow,
) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query_scalar(
        "select session_id from fix_session \
         where partner_id = $1 and drop_copy and (enabled or moved_by = $2 and copied_at is null) order by 1",
    );
    Ok(rows.bind(partner_id).bind(id).fetch_all(conn).await?)
}

/// Records at the target which drop copies are still at the source.
pub async fn update_drop_copies(
    conn: &mut PgConnection,
    id: &str,
    drop_copies: &[String],
) -> Result<(), StoreError> {
    let changed = sqlx::query("update partner_move set drop_copies = $2 where id = $1 and drop_copies <> $2");
    changed.bind(id).bind(drop_copies).execute(conn).await?;
    Ok(())
}

/// Drop copies that have not followed the partner to this cell, as texts for an operator; those in the cell `target`
/// excepted, which knows them itself.
pub async fn list_behind(
    conn: &mut PgConnection,
    partner_id: &str,
    target: &str,
) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query_scalar(
        "select format('drop copy %s is still in cell %s: run the move %s again once all orders there have ended', \
                       session_id, source, id) \
         from (select id, source, drop_copies from partner_move where partner_id = $1 and state = 'open' \
               order by number desc limit 1) came cross join unnest(drop_copies) session_id \
         where source <> $2 order by 1",
    );
    Ok(rows.bind(partner_id).bind(target).fetch_all(conn).await?)
}

/// Drop copies that have not left this cell with the partner, as texts for an operator.
pub async fn list_staying(conn: &mut PgConnection, partner_id: &str) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query_scalar(
        "select format('drop copy %s is still in cell %s: run the move %s again once all orders there have ended, or \
                        disable it, and it never reports the orders since the move', session_id, source, id) \
         from (select id, source from partner_move where partner_id = $1 and state = 'moved' \
               order by number desc limit 1) went join fix_session on partner_id = $1 and drop_copy and enabled \
         order by 1",
    );
    Ok(rows.bind(partner_id).fetch_all(conn).await?)
}
