//! Deletion of rows that are kept for a limited time: the oldest first and by an index, in one short statement. A row
//! that is changed concurrently stays.

use std::time::Duration;

use sqlx::{PgConnection, PgTransaction};

use crate::{StoreError, statement};

/// Limits the next statement of the transaction, so that it ends soon and is tried again later.
pub async fn bound(tx: &mut PgTransaction<'_>) -> Result<(), StoreError> {
    let sql = "select set_config('statement_timeout', '20s', true), set_config('lock_timeout', '1s', true)";
    statement::execute(tx, sql, ()).await
}

/// Deletes rows that are older than an age, at most `limit`, and returns their number.
pub async fn delete(
    conn: &mut PgConnection,
    Expired(sql): Expired,
    age: Duration,
    limit: i64,
) -> Result<u64, StoreError> {
    statement::affected(conn, sql, (age.as_secs_f64(), limit)).await
}

/// The statement that deletes a table's rows of an age.
#[derive(Debug, Clone, Copy)]
pub struct Expired(&'static str);

/// Rows whose column is before a time, the age ago unless it is given.
macro_rules! oldest {
    ($table:literal, $column:literal) => {
        oldest!($table, $column, "now() - make_interval(secs => $1)")
    };
    ($table:literal, $column:literal, $before:literal) => {
        Expired(concat!(
            "delete from ",
            $table,
            " where ctid = any(array(select ctid from ",
            $table,
            " where ",
            $column,
            " < ",
            $before,
            " order by ",
            $column,
            " limit $2))"
        ))
    };
}

/// Answers stored under an idempotency key.
pub const IDEMPOTENCY: Expired = oldest!("idempotency", "accepted_at");

/// Of nonces of signed requests that every process refuses by their timestamp, even one with a slow clock; of permit nonces
/// that the chain has used for so long that no cached wallet data is older, and that no reorganization removes them any
/// more; of published permits that have expired, even by a chain whose clock is slow.
pub const OUTDATED: Duration = Duration::from_secs(3600);
pub const NONCES: Expired = oldest!("request_nonce", "expires_at");
pub const PERMIT_HOLDS: Expired = oldest!("permit_use", "locked_at");
pub const PUBLISHED_PERMITS: Expired =
    oldest!("permit_published", "deadline", "extract(epoch from now() - make_interval(secs => $1))::int8");

/// The sums of days that no limit counts any more.
pub const LIMIT_USAGE: Expired =
    oldest!("limit_usage", "day", "(now() at time zone 'UTC' - make_interval(secs => $1))::date");

pub const REQUESTS: Expired = oldest!("request_log", "at");
pub const QUOTE_REQUESTS: Expired = oldest!("quote_request", "created_at");
/// By the end of their validity.
pub const FIRM_QUOTES: Expired = oldest!("firm_quote", "valid_until");

/// Calls of rails, by the last call of a row.
pub const RAIL_CALLS: Expired = Expired(
    "delete from rail_call where ctid = any(array( \
         select ctid from rail_call where first_at < now() - make_interval(secs => $1) \
                                      and last_at < now() - make_interval(secs => $1) \
         order by first_at limit $2))",
);

/// Notices to owners of webhook endpoints.
pub const NOTICES: Expired = Expired(
    "delete from webhook_notice n using (select id, at from webhook_notice order by id limit $2) o \
     where n.id = o.id and o.at < now() - make_interval(secs => $1)",
);

/// Signed bytes of chain transactions whose nonce is used in a final block.
pub const TRANSACTIONS: Expired = Expired(
    "delete from tx_attempt a \
     using relayer_account l cross join lateral ( \
         select chain_id, signer, nonce, attempt, created_at from tx_attempt \
         where chain_id = l.chain_id and signer = l.signer \
         order by chain_id, signer, nonce, attempt limit $2 \
     ) o join nonce_slot s on (s.chain_id, s.signer, s.nonce) = (o.chain_id, o.signer, o.nonce) \
     where (a.chain_id, a.signer, a.nonce, a.attempt) = (o.chain_id, o.signer, o.nonce, o.attempt) \
       and s.state = 'final' and o.created_at < now() - make_interval(secs => $1)",
);

/// Messages of FIX sessions that their peer has received. A deleted message that is requested again is answered by a gap
/// fill; messages that the peer has not received stay, however old.
pub const FIX_MESSAGES: Expired = Expired(
    "with aged as (select ((extract(epoch from pg_catalog.now()) - $1) * 1e9)::bigint as since) \
     delete from fix_outbound where ctid = any(array( \
         select o.ctid \
         from fix_session s cross join aged cross join lateral ( \
             select seq, sending_time from fix_outbound \
             where session_id = s.session_id order by seq limit 1 \
         ) first cross join lateral ( \
             select ctid, seq, sending_time from fix_outbound \
             where session_id = s.session_id order by seq limit $2 \
         ) o \
         where first.seq <= s.seen_out and first.sending_time < aged.since \
           and o.seq <= s.seen_out and o.sending_time < aged.since limit $2))",
);

/// Deletes orders that were let go, ended cool-downs, and what unused quotes held: none of it counts any more.
pub async fn delete_abandonments(
    conn: &mut PgConnection,
    age: Duration,
    limit: i64,
) -> Result<u64, StoreError> {
    /// Longer than the longest sliding time.
    const QUOTES: Duration = Duration::from_secs(2 * 86_400);
    let orders = delete(conn, oldest!("abandonment", "at"), age, limit).await?;
    let cool_downs = delete(conn, oldest!("cool_down", "until"), age, limit).await?;
    let holds = delete(conn, oldest!("unused_hold", "lapsed_in"), QUOTES, limit).await?;
    Ok(orders.saturating_add(cool_downs).saturating_add(holds))
}

pub async fn delete_bank_messages(
    conn: &mut PgConnection,
    age: Duration,
    limit: i64,
) -> Result<u64, StoreError> {
    let messages = delete(conn, oldest!("bank_message", "at"), age, limit).await?;
    let documents = delete(conn, oldest!("bank_document", "kept_at"), age, limit).await?;
    Ok(messages.saturating_add(documents))
}
