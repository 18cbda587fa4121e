//! Moves of partners between cells: their rows in both databases, and what is copied.
//!
//! Batches of orders, deposits and changes of webhook endpoints hold a shared lock, and closing a partner takes it
//! exclusively. So each of them is either committed before the partner is closed, or reads that it is closed.

mod intents;
mod late;
mod rows;
mod session_rows;
mod sessions;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::StoreError;

pub use intents::{
    IntentKey, IntentPage, draw_seed, find_intent_page, has_intent_page, insert_intents, list_intent_keys,
    list_intents, list_missing_intents,
};
pub use late::{
    LateEvent, insert_late_events, list_late_events, list_passed_on, load_feed_position, lock_left,
    note_brought,
};
pub use rows::{CopiedRows, insert_rows, list_rows};
pub use session_rows::{
    Known, SessionOrders, delete_messages, find_known, insert_messages, insert_orders, insert_session,
    list_messages, list_orders, load_session,
};
pub use sessions::{
    MovingSession, Taken, give_back, has_session, list_behind, list_between, list_came, list_drop_copies,
    list_present, list_sessions, list_staying, lock_taken, note_copied, note_lost, take_session,
    update_drop_copies,
};

/// Begins a transaction that may accept orders.
pub const BEGIN_ORDERS: &str = "begin; select pg_advisory_xact_lock_shared(hashtext('dvp_partner_close'))";

/// A row of `partner_move`.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct MoveRow {
    pub id: String,
    pub partner_id: String,
    pub source: String,
    pub target: String,
    pub state: String,
    pub operator: String,
    pub since: DateTime<Utc>,
    /// At the target: the move that had closed the partner here before.
    pub closed_before: Option<String>,
}

/// The closed ones among these partners.
pub async fn list_closed(conn: &mut PgConnection, partner_ids: &[&str]) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query_scalar("select id from partner where id = any($1) and closed_by is not null");
    Ok(rows.bind(partner_ids).fetch_all(conn).await?)
}

/// Inserts a move: at its source when two operators have decided it, at its target when the partner arrives.
pub async fn insert(conn: &mut PgConnection, new: &MoveRow) -> Result<(), StoreError> {
    sqlx::query(
        "insert into partner_move (id, partner_id, source, target, state, operator, closed_before) \
         values ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(&new.id)
    .bind(&new.partner_id)
    .bind(&new.source)
    .bind(&new.target)
    .bind(&new.state)
    .bind(&new.operator)
    .bind(&new.closed_before)
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn find(conn: &mut PgConnection, id: &str) -> Result<Option<MoveRow>, StoreError> {
    let row = sqlx::query_as("select * from partner_move where id = $1");
    Ok(row.bind(id).fetch_optional(conn).await?)
}

/// The latest move of a partner in this database that was not cancelled.
pub async fn find_latest(conn: &mut PgConnection, partner_id: &str) -> Result<Option<MoveRow>, StoreError> {
    let row = sqlx::query_as(
        "select * from partner_move where partner_id = $1 and state <> 'cancelled' order by number desc limit 1",
    );
    Ok(row.bind(partner_id).fetch_optional(conn).await?)
}

/// The latest move that has brought a partner here from a cell, and has opened it.
pub async fn find_arrival(
    conn: &mut PgConnection,
    partner_id: &str,
    source: &str,
) -> Result<Option<MoveRow>, StoreError> {
    let row = sqlx::query_as(
        "select * from partner_move where partner_id = $1 and source = $2 and state = 'open' \
         order by number desc limit 1",
    );
    Ok(row.bind(partner_id).bind(source).fetch_optional(conn).await?)
}

/// The moves of a partner that are known here, the latest first.
pub async fn list(conn: &mut PgConnection, partner_id: &str, limit: i64) -> Result<Vec<MoveRow>, StoreError> {
    let rows =
        sqlx::query_as("select * from partner_move where partner_id = $1 order by number desc limit $2");
    Ok(rows.bind(partner_id).bind(limit).fetch_all(conn).await?)
}

/// The other cells of a partner's moves, where its keys may be, too.
pub async fn list_other_cells(conn: &mut PgConnection, partner_id: &str) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query_scalar(
        "select distinct case when state in ('closed', 'moved') then target else source end from partner_move \
         where partner_id = $1 and state not in ('approved', 'cancelled') order by 1",
    );
    Ok(rows.bind(partner_id).fetch_all(conn).await?)
}

/// The state of a move, whose row is locked until the end of the transaction.
pub async fn lock(conn: &mut PgConnection, id: &str) -> Result<Option<String>, StoreError> {
    let row = sqlx::query_scalar("select state from partner_move where id = $1 for update");
    Ok(row.bind(id).fetch_optional(conn).await?)
}

/// Takes a move from one state to the next. `false`: it was not in that state.
pub async fn advance(
    conn: &mut PgConnection,
    id: &str,
    [from, to]: [&str; 2],
    operator: &str,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "update partner_move set state = $3, operator = $4, since = clock_timestamp() where id = $1 and state = $2",
    )
    .bind(id)
    .bind(from)
    .bind(to)
    .bind(operator)
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The target accepts the partner's orders; drop copies that come later report its events from here on. `false`: the move
/// was not in that state.
pub async fn open(
    conn: &mut PgConnection,
    id: &str,
    operator: &str,
    drop_copies: &[String],
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "update partner_move set state = 'open', operator = $2, since = clock_timestamp(), \
                feed_position = (select position from feed_counter), drop_copies = $3 \
         where id = $1 and state = 'copied'",
    )
    .bind(id)
    .bind(operator)
    .bind(drop_copies)
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Takes the shared lock: until the end of the transaction no partner is closed.
pub(crate) async fn hold_open(conn: &mut PgConnection) -> Result<(), StoreError> {
    let held = sqlx::query("select pg_advisory_xact_lock_shared(hashtext('dvp_partner_close'))");
    held.execute(conn).await?;
    Ok(())
}

/// The state of the move that has closed a partner here. `None`: the partner is open, until the end of the transaction.
pub async fn hold_open_unless_closed(
    conn: &mut PgConnection,
    partner_id: &str,
) -> Result<Option<String>, StoreError> {
    hold_open(conn).await?;
    let row = sqlx::query_scalar(
        "select coalesce(m.state, 'closed') from partner p left join partner_move m on m.id = p.closed_by \
         where p.id = $1 and p.closed_by is not null",
    );
    Ok(row.bind(partner_id).fetch_optional(conn).await?)
}

/// Where a partner is, as this database knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence {
    /// Here, until the end of the transaction.
    Here,
    /// Its move between this cell and this other one is unfinished, and copies its rows or has copied them.
    Moving(String),
    /// In this cell, or in one to which it has moved from there.
    Elsewhere(String),
}

/// Where a partner is. Until the end of the transaction no move closes it here.
pub async fn hold_presence(conn: &mut PgConnection, partner_id: &str) -> Result<Presence, StoreError> {
    hold_open(conn).await?;
    let row = sqlx::query_as(
        "select m.state, case when m.state in ('closed', 'moved') then m.target else m.source end \
         from partner p left join partner_move m on m.id = p.closed_by \
         where p.id = $1 and p.closed_by is not null",
    );
    let row: Option<(Option<String>, Option<String>)> = row.bind(partner_id).fetch_optional(conn).await?;
    match row {
        None => Ok(Presence::Here),
        Some((Some(state), Some(cell))) => Ok(match state.as_str() {
            "closed" | "copied" => Presence::Moving(cell),
            _ => Presence::Elsewhere(cell),
        }),
        Some(_) => Err(StoreError::corrupt("partner", "closed by an unknown move")),
    }
}

/// Waits until the batches in progress have ended. No batch begins before this transaction ends. Call it in a transaction.
pub async fn lock_orders(conn: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query("select pg_advisory_xact_lock(hashtext('dvp_partner_close'))").execute(conn).await?;
    Ok(())
}

/// The move that has closed a partner here; `None`: there is no such partner.
pub async fn find_closer(
    conn: &mut PgConnection,
    partner_id: &str,
) -> Result<Option<Option<String>>, StoreError> {
    let row = sqlx::query_scalar("select closed_by from partner where id = $1 for update");
    Ok(row.bind(partner_id).fetch_optional(conn).await?)
}

/// Closes a partner, or opens it, for a move.
pub async fn set_closed(
    conn: &mut PgConnection,
    partner_id: &str,
    [before, after]: [Option<&str>; 2],
) -> Result<bool, StoreError> {
    let done =
        sqlx::query("update partner set closed_by = $3 where id = $1 and closed_by is not distinct from $2")
            .bind(partner_id)
            .bind(before)
            .bind(after)
            .execute(conn)
            .await?;
    Ok(done.rows_affected() == 1)
}

/// What keeps a partner from being moved, as texts for an operator.
pub async fn list_obstacles(
    conn: &mut PgConnection,
    partner_id: &str,
    hash_key: &str,
) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query_scalar(
        "select format('it is the maker of provider %s: end that first', provider_id) \
         from maker where partner_id = $1 and ended_at is null \
         union all select format('key %s has no cell in it, or was not used since shared_key was configured: rotate and \
                                  revoke it first', id) \
         from api_key where partner_id = $1 and revoked_at is null \
                        and (hash_key <> $2 or key_prefix !~ '^svc_(test|live)_c[0-9a-f]{3}_[0-9a-f]{12}$') \
         union all select format('the password of session %s was not used since shared_key was configured: log on, or set \
                                  it anew', session_id) \
         from fix_session where partner_id = $1 and enabled and password_key <> $2",
    );
    Ok(rows.bind(partner_id).bind(hash_key).fetch_all(conn).await?)
}

/// The number of a partner's executions that have not ended.
pub async fn count_open(conn: &mut PgConnection, partner_id: &str) -> Result<i64, StoreError> {
    let row =
        sqlx::query_scalar("select count(*) from execution where partner_id = $1 and terminal_at is null");
    Ok(row.bind(partner_id).fetch_one(conn).await?)
}

/// A FIX session that no move has taken from here.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct MappedSession {
    pub session_id: String,
    pub enabled: bool,
}

/// The beginnings of the keys that are used here and may have orders in another cell: those that came from one, and all
/// of a partner that has come back. And the sessions of this cell.
pub async fn list_map(conn: &mut PgConnection) -> Result<(Vec<String>, Vec<MappedSession>), StoreError> {
    let keys = sqlx::query_scalar(
        "select key_prefix from api_key k join partner p on p.id = k.partner_id \
         where k.revoked_at is null and p.closed_by is null \
           and (substring(key_prefix from '_c([0-9a-f]{3})_') <> (select cell from deployment) \
                or exists (select from partner_move m where m.partner_id = p.id and m.state = 'moved')) order by 1",
    );
    let keys = keys.fetch_all(&mut *conn).await?;
    let sessions = sqlx::query_as(
        "select session_id, enabled from fix_session where moved_by is null order by session_id",
    );
    Ok((keys, sessions.fetch_all(conn).await?))
}

/// The version of the schema, which both databases of a move must have.
pub async fn schema_version(conn: &mut PgConnection) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar("select max(version) from _sqlx_migrations where success").fetch_one(conn).await?)
}
