//! Events that came to another cell's orders after their session had moved here, until the session has reported them.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::sessions::FixSessionRow;
use crate::StoreError;
use crate::fix::rows::{FixNumbers, FixOrder, FixRows, LateReport};
use crate::orders::events::{self, NewEvent, StoredEvent};
use crate::orders::intents::Tenant;

/// The sessions with such events.
pub async fn list_sessions(conn: &mut PgConnection) -> Result<Vec<String>, StoreError> {
    Ok(sqlx::query_scalar("select distinct session_id from fix_late_report").fetch_all(conn).await?)
}

#[derive(sqlx::FromRow)]
struct Row {
    cl_ord_id: String,
    reference: String,
    sequence: i64,
    occurred_at: DateTime<Utc>,
    #[sqlx(rename = "type")]
    kind: String,
    object: serde_json::Value,
    intent_id: String,
    details: serde_json::Value,
}

/// The events that a session has to report, each with its order.
pub async fn list(
    conn: &mut PgConnection,
    session: &FixSessionRow,
    limit: i64,
) -> Result<Vec<(StoredEvent, FixOrder)>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(
        "select r.cl_ord_id, r.reference, r.sequence, r.occurred_at, m.type, m.object, o.intent_id, o.details \
         from fix_late_report r join moved_event m on m.reference = r.reference \
         join fix_order o on o.session_id = r.session_id and o.cl_ord_id = r.cl_ord_id \
         where r.session_id = $1 order by r.occurred_at, r.cl_ord_id limit $2",
    )
    .bind(&session.session_id)
    .bind(limit)
    .fetch_all(conn)
    .await?;
    let read = |row: Row| {
        let Row { cl_ord_id, reference, sequence, occurred_at, kind, object, intent_id, details } = row;
        let event = NewEvent {
            event_id: String::new(),
            tenant: Tenant { partner_id: session.partner_id.clone(), livemode: session.livemode },
            reference: reference.clone(),
            intent_id: intent_id.clone(),
            client_reference: None,
            sequence,
            kind: events::kind(&kind)?,
            occurred_at,
            observed_at: occurred_at,
            object,
        };
        let order = FixOrder { cl_ord_id, reference: Some(reference), intent_id, details };
        Ok((StoredEvent { position: 0, event }, order))
    };
    rows.into_iter().map(read).collect()
}

/// Deletes the events that are reported by a batch.
pub(super) async fn apply(
    conn: &mut PgConnection,
    parts: &[(&FixNumbers, FixRows)],
) -> Result<(), StoreError> {
    let reported: Vec<(&str, &LateReport)> = parts
        .iter()
        .flat_map(|(part, rows)| rows.late.iter().map(move |late| (part.session_id.as_str(), late)))
        .collect();
    if reported.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "delete from fix_late_report r using unnest($1::text[], $2::text[], $3::int8[]) as u (session_id, cl_ord_id, sequence) \
         where r.session_id = u.session_id and r.cl_ord_id = u.cl_ord_id and r.sequence = u.sequence",
    )
    .bind(reported.iter().map(|(session_id, _)| *session_id).collect::<Vec<_>>())
    .bind(reported.iter().map(|(_, late)| late.cl_ord_id.as_str()).collect::<Vec<_>>())
    .bind(reported.iter().map(|(_, late)| late.sequence).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    Ok(())
}
