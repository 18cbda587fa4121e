//! Operators' view of FIX sessions, and their changes.

use sqlx::PgConnection;

use crate::fix::rows::FixReset;
use crate::{StoreError, fix, statement};

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
    let sql = "select s.session_id, p.name as partner, s.livemode, s.username, s.enabled, s.next_in, s.next_out, \
                s.drop_copy, s.cancel_on_disconnect_secs, s.max_slippage_bps \
         from fix_session s join partner p on p.id = s.partner_id \
         where s.session_id > $1 order by s.session_id limit $2";
    statement::list(conn, sql, (after, limit)).await
}

/// A session by its id, a disabled one too.
pub async fn find(conn: &mut PgConnection, session_id: &str) -> Result<Option<ListedSession>, StoreError> {
    let sql = "select s.session_id, p.name as partner, s.livemode, s.username, s.enabled, s.next_in, s.next_out, \
                s.drop_copy, s.cancel_on_disconnect_secs, s.max_slippage_bps \
         from fix_session s join partner p on p.id = s.partner_id where s.session_id = $1";
    statement::find(conn, sql, (session_id,)).await
}

/// Enables or disables a session. Returns whether it exists.
pub async fn set_enabled(
    conn: &mut PgConnection,
    session_id: &str,
    enabled: bool,
) -> Result<bool, StoreError> {
    let sql = "update fix_session set enabled = $2 where session_id = $1";
    Ok(statement::affected(conn, sql, (session_id, enabled)).await? == 1)
}

/// The maximum slippage of an order without a price, in basis points.
pub async fn update_max_slippage(
    conn: &mut PgConnection,
    session_id: &str,
    max_slippage_bps: i32,
) -> Result<(), StoreError> {
    let sql = "update fix_session set max_slippage_bps = $2 where session_id = $1";
    statement::execute(conn, sql, (session_id, max_slippage_bps)).await
}

/// Whether a process owns the session now.
pub async fn is_held(conn: &mut PgConnection, lease: &str) -> Result<bool, StoreError> {
    let sql = "select exists (select from lease where name = $1 and expires_at > clock_timestamp())";
    statement::load_value(conn, sql, (lease,)).await
}

#[derive(Debug, Clone, Copy)]
pub struct NewNumbers {
    pub next_in: u64,
    pub next_out: u64,
    /// Stored messages are deleted, except those that the peer may not have received: they are renumbered from
    /// `next_out` on.
    pub with_reset: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renumbered {
    Done {
        next_out: i64,
        kept: u64,
    },
    /// A number would identify two messages: the session's `next_out` is this.
    TooLow {
        next_out: i64,
    },
}

/// Sets the numbers of a session without an owner. The caller holds its lease.
pub async fn renumber(
    tx: &mut PgConnection,
    session_id: &str,
    numbers: NewNumbers,
    stale_types: &[String],
) -> Result<Renumbered, StoreError> {
    let sql = "select next_out, seen_out, written_out from fix_session where session_id = $1 for update";
    let (before, seen_out, written_out): (i64, i64, i64) = statement::load(tx, sql, (session_id,)).await?;
    let mut next_out = fix::number(numbers.next_out)?;
    let mut kept = 0;
    if numbers.with_reset {
        let seen_out = fix::unsigned(seen_out.min(before - 1))?;
        kept = fix::count_kept(tx, session_id, seen_out, stale_types).await?;
        let reset = FixReset {
            seen_out,
            written_out: fix::unsigned(written_out)?,
            first_kept: numbers.next_out,
            kept,
            stale_types: stale_types.to_vec(),
        };
        super::outbound::move_kept(tx, session_id, &reset).await?;
        next_out = fix::number(numbers.next_out.checked_add(kept).ok_or_else(fix::beyond_bigint)?)?;
    } else if next_out < before {
        return Ok(Renumbered::TooLow { next_out: before });
    }
    let sql = "update fix_session \
         set next_in = $2, next_out = $3, seen_out = case when $4 then 0 else seen_out end, \
             written_out = case when $4 then 0 else written_out end \
         where session_id = $1";
    let parameters = (session_id, fix::number(numbers.next_in)?, next_out, numbers.with_reset);
    statement::execute(tx, sql, parameters).await?;
    Ok(Renumbered::Done { next_out, kept })
}
