//! FIX sessions as an operator sees and changes them.

use sqlx::PgConnection;

use super::StoreError;

/// A session as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct ListedSession {
    pub session_id: String,
    pub partner: String,
    pub livemode: bool,
    pub username: String,
    pub enabled: bool,
    pub next_in: i64,
    pub next_out: i64,
    pub drop_copy: bool,
    pub cancel_on_disconnect_secs: Option<i32>,
    pub max_slippage_bps: i32,
}

/// Sessions by id, those after `after`, disabled ones too.
pub async fn list(
    conn: &mut PgConnection,
    after: &str,
    limit: i64,
) -> Result<Vec<ListedSession>, StoreError> {
    let rows = sqlx::query_as(
        "select s.session_id, p.name as partner, s.livemode, s.username, s.enabled, s.next_in, s.next_out, \
                s.drop_copy, s.cancel_on_disconnect_secs, s.max_slippage_bps \
         from fix_session s join partner p on p.id = s.partner_id \
         where s.session_id > $1 order by s.session_id limit $2",
    )
    .bind(after)
    .bind(limit)
    .fetch_all(conn)
    .await?;
    Ok(rows)
}

/// Enables or disables a session. Returns whether it is there.
pub async fn set_enabled(
    conn: &mut PgConnection,
    session_id: &str,
    enabled: bool,
) -> Result<bool, StoreError> {
    let done = sqlx::query("update fix_session set enabled = $2 where session_id = $1")
        .bind(session_id)
        .bind(enabled)
        .execute(conn)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// How far an order without a price may slip, in basis points.
pub async fn update_max_slippage(
    conn: &mut PgConnection,
    session_id: &str,
    max_slippage_bps: i32,
) -> Result<(), StoreError> {
    sqlx::query("update fix_session set max_slippage_bps = $2 where session_id = $1")
        .bind(session_id)
        .bind(max_slippage_bps)
        .execute(conn)
        .await?;
    Ok(())
}

/// Whether a process holds the session right now.
pub async fn is_held(conn: &mut PgConnection, lease: &str) -> Result<bool, StoreError> {
    let row: (bool,) = sqlx::query_as(
        "select exists (select from lease where name = $1 and expires_at > clock_timestamp())",
    )
    .bind(lease)
    .fetch_one(conn)
    .await?;
    Ok(row.0)
}

/// Begins both numbers at 1 again and forgets the messages kept for resends. Orders and their ClOrdIDs stay. Returns
/// whether a disabled session was there.
pub async fn reset(conn: &mut PgConnection, session_id: &str) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "with stopped as (update fix_session set next_in = 1, next_out = 1 \
                          where session_id = $1 and not enabled returning session_id), \
              forgotten as (delete from fix_outbound where session_id in (select session_id from stopped)) \
         select from stopped",
    )
    .bind(session_id)
    .fetch_optional(conn)
    .await?;
    Ok(done.is_some())
}
