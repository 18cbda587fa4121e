//! What operators see of sessions while they run: connection, times of messages, numbers and gaps.

use chrono::{DateTime, Utc};
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection, Row as _};
use uuid::Uuid;

use crate::{StoreError, statement};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionStatus {
    pub session_id: String,
    /// The peer's address and since when it is connected.
    pub connection: Option<(String, DateTime<Utc>)>,
    pub last_in_at: Option<DateTime<Utc>>,
    pub last_out_at: Option<DateTime<Utc>>,
    pub next_in: i64,
    pub next_out: i64,
    /// The first and the last missing message.
    pub gap: Option<(i64, i64)>,
}

/// Writes sessions whose leases the process has; those of others are left out.
pub async fn write(
    conn: &mut PgConnection,
    process: Uuid,
    sessions: &[SessionStatus],
) -> Result<(), StoreError> {
    fn column<'a, T>(sessions: &'a [SessionStatus], of: impl Fn(&'a SessionStatus) -> T) -> Vec<T> {
        sessions.iter().map(of).collect()
    }
    let sql = "insert into fix_session_status (session_id, process, peer, connected_at, last_in_at, last_out_at, \
                                         next_in, next_out, gap_from, gap_until) \
         select u.session_id, $1, u.peer, u.connected_at, u.last_in_at, u.last_out_at, u.next_in, u.next_out, \
                u.gap_from, u.gap_until \
         from unnest($2::text[], $3::text[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[], $7::bigint[], \
                     $8::bigint[], $9::bigint[], $10::bigint[]) \
              as u (session_id, peer, connected_at, last_in_at, last_out_at, next_in, next_out, gap_from, gap_until) \
              join lease l on l.name = 'fix:' || u.session_id and l.owner = $1 and l.expires_at > clock_timestamp() \
         on conflict on constraint fix_session_status_pkey do update \
         set process = excluded.process, peer = excluded.peer, connected_at = excluded.connected_at, \
             last_in_at = excluded.last_in_at, last_out_at = excluded.last_out_at, next_in = excluded.next_in, \
             next_out = excluded.next_out, gap_from = excluded.gap_from, gap_until = excluded.gap_until";
    let parameters = (
        process,
        column(sessions, |one| one.session_id.as_str()),
        column(sessions, |one| one.connection.as_ref().map(|(peer, _)| peer.as_str())),
        column(sessions, |one| one.connection.as_ref().map(|(_, since)| *since)),
        column(sessions, |one| one.last_in_at),
        column(sessions, |one| one.last_out_at),
        column(sessions, |one| one.next_in),
        column(sessions, |one| one.next_out),
        column(sessions, |one| one.gap.map(|(from, _)| from)),
        column(sessions, |one| one.gap.map(|(_, until)| until)),
    );
    statement::execute(conn, sql, parameters).await
}

impl FromRow<'_, PgRow> for SessionStatus {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let (peer, since): (Option<_>, Option<_>) = (row.try_get("peer")?, row.try_get("connected_at")?);
        let (from, until): (Option<_>, Option<_>) = (row.try_get("gap_from")?, row.try_get("gap_until")?);
        Ok(Self {
            session_id: row.try_get("session_id")?,
            connection: peer.zip(since),
            last_in_at: row.try_get("last_in_at")?,
            last_out_at: row.try_get("last_out_at")?,
            next_in: row.try_get("next_in")?,
            next_out: row.try_get("next_out")?,
            gap: from.zip(until),
        })
    }
}

/// What the present owners of these sessions have written. A session without an owner is left out.
pub async fn list(conn: &mut PgConnection, session_ids: &[&str]) -> Result<Vec<SessionStatus>, StoreError> {
    let sql = "select s.* \
         from fix_session_status s \
              join lease l on l.name = 'fix:' || s.session_id and l.owner = s.process and l.expires_at > clock_timestamp() \
         where s.session_id = any($1)";
    statement::list(conn, sql, (session_ids,)).await
}
