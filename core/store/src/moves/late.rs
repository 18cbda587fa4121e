//! Events of orders after their FIX session has moved, as when a payment comes back. They are brought to the session's cell,
//! which reports them.

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::PgConnection;

use super::MoveRow;
use super::rows::insert_arrays;
use super::session_rows::INSERT_EVENTS;
use crate::StoreError;
use crate::fix::{find_session, list_reportable};
use crate::orders::events::StoredEvent;

/// An event that its session has to report.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct LateEvent {
    pub session_id: String,
    pub cl_ord_id: String,
    pub reference: String,
    pub sequence: i64,
    pub occurred_at: DateTime<Utc>,
    /// The row of `moved_event`, as JSON.
    pub event: String,
}

/// Locks the sessions that a move has brought to its target. `None`: the partner is back, or comes back. Until the end of
/// the transaction it cannot.
pub async fn lock_left(
    conn: &mut PgConnection,
    MoveRow { id, partner_id, .. }: &MoveRow,
) -> Result<Option<Vec<String>>, StoreError> {
    let left = sqlx::query("select from partner where id = $1 and closed_by = $2 for share");
    if left.bind(partner_id).bind(id).execute(&mut *conn).await?.rows_affected() == 0 {
        return Ok(None);
    }
    let locked = sqlx::query_scalar(
        "select session_id from fix_session \
         where partner_id = $1 and moved_by = $2 and copied_at is not null and not drop_copy order by 1 for update",
    );
    Ok(Some(locked.bind(partner_id).bind(id).fetch_all(conn).await?))
}

/// The position of the feed: all events up to it are visible.
pub async fn load_feed_position(conn: &mut PgConnection) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar("select position from feed_counter").fetch_one(conn).await?)
}

/// Events of a session's orders that came after it had left, from a page of its partner's events after a position (`None`:
/// since it left), and up to another. And the position of the next page, if there is one.
pub async fn list_late_events(
    conn: &mut PgConnection,
    session_id: &str,
    (after, until): (Option<i64>, i64),
    limit: i64,
) -> Result<(Vec<LateEvent>, Option<i64>), StoreError> {
    let Some(session) = find_session(conn, session_id).await? else { return Ok((Vec::new(), None)) };
    let after = after.unwrap_or(session.feed_position);
    let page = list_reportable(conn, &session, after, limit).await?;
    let late = page.events.into_iter().filter_map(|(StoredEvent { position, event }, order)| {
        let is_late = position <= until && order.reference.as_ref() == Some(&event.reference);
        is_late.then(|| LateEvent {
            session_id: session_id.to_owned(),
            cl_ord_id: order.cl_ord_id,
            event: json!({
                "reference": event.reference,
                "type": event.kind.as_str(),
                "sequence": event.sequence,
                "object": event.object,
            })
            .to_string(),
            reference: event.reference,
            sequence: event.sequence,
            occurred_at: event.occurred_at,
        })
    });
    let next = Some(page.position).filter(|position| page.has_more && *position < until);
    Ok((late.collect(), next))
}

/// Events that were brought here and whose session has gone on to another cell before.
pub async fn list_passed_on(
    conn: &mut PgConnection,
    MoveRow { id, partner_id, .. }: &MoveRow,
) -> Result<Vec<LateEvent>, StoreError> {
    let rows = sqlx::query_as(
        "select r.session_id, r.cl_ord_id, r.reference, r.sequence, r.occurred_at, to_jsonb(m)::text as event \
         from fix_session s join fix_late_report r on r.session_id = s.session_id \
         join moved_event m on m.reference = r.reference \
         where s.partner_id = $1 and s.moved_by = $2 and s.copied_at is not null",
    );
    Ok(rows.bind(partner_id).bind(id).fetch_all(conn).await?)
}

/// Records that the target has the events up to a position, and those that were passed on.
pub async fn note_brought(
    conn: &mut PgConnection,
    MoveRow { id, partner_id, .. }: &MoveRow,
    until: i64,
) -> Result<(), StoreError> {
    sqlx::query(
        "delete from fix_late_report r using fix_session s \
         where r.session_id = s.session_id and s.partner_id = $1 and s.moved_by = $2 and s.copied_at is not null",
    )
    .bind(partner_id)
    .bind(id)
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "update fix_session set feed_position = $3 \
         where partner_id = $1 and moved_by = $2 and copied_at is not null and not drop_copy and feed_position < $3",
    )
    .bind(partner_id)
    .bind(id)
    .bind(until)
    .execute(conn)
    .await?;
    Ok(())
}

/// Enters events of another cell's orders for their sessions to report, each once. Call it in a transaction.
pub async fn insert_late_events(conn: &mut PgConnection, late: &[LateEvent]) -> Result<(), StoreError> {
    sqlx::query(
        "insert into fix_late_report as t (session_id, cl_ord_id, reference, sequence, occurred_at) \
         select distinct on (session_id, cl_ord_id) session_id, cl_ord_id, reference, sequence, occurred_at \
         from unnest($1::text[], $2::text[], $3::text[], $4::int8[], $5::timestamptz[]) \
              as late (session_id, cl_ord_id, reference, sequence, occurred_at) \
         where not exists (select from execution e where e.reference = late.reference) \
           and not exists (select from moved_event m where m.reference = late.reference and m.sequence >= late.sequence) \
           and exists (select from fix_order o where o.session_id = late.session_id and o.cl_ord_id = late.cl_ord_id) \
         order by session_id, cl_ord_id, sequence desc \
         on conflict on constraint fix_late_report_pkey do update \
             set sequence = excluded.sequence, occurred_at = excluded.occurred_at \
             where excluded.sequence > t.sequence",
    )
    .bind(late.iter().map(|one| one.session_id.as_str()).collect::<Vec<_>>())
    .bind(late.iter().map(|one| one.cl_ord_id.as_str()).collect::<Vec<_>>())
    .bind(late.iter().map(|one| one.reference.as_str()).collect::<Vec<_>>())
    .bind(late.iter().map(|one| one.sequence).collect::<Vec<_>>())
    .bind(late.iter().map(|one| one.occurred_at).collect::<Vec<_>>())
    .execute(&mut *conn)
    .await?;
    let events: Vec<String> = late.iter().map(|one| one.event.clone()).collect();
    insert_arrays(conn, INSERT_EVENTS, &events).await
}
