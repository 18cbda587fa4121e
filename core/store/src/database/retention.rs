//! Deletion of rows that are kept for a limited time. Each function deletes at most `limit` rows, the oldest first and
//! by an index, in one short statement, and returns their number. A row that is changed concurrently stays.

use std::time::Duration;

use sqlx::{PgConnection, PgTransaction};

use crate::StoreError;

/// Limits the next statement of the transaction, so that it ends soon and is tried again later.
pub async fn bound(tx: &mut PgTransaction<'_>) -> Result<(), StoreError> {
    sqlx::query(
        "select set_config('statement_timeout', '20s', true), set_config('lock_timeout', '1s', true)",
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Deletes answers stored under an idempotency key.
pub async fn delete_idempotency(
    conn: &mut PgConnection,
    age: Duration,
    limit: i64,
) -> Result<u64, StoreError> {
    let statement = "delete from idempotency where ctid = any(array( \
                         select ctid from idempotency where accepted_at < now() - make_interval(secs => $1) \
                         order by accepted_at limit $2))";
    delete(conn, statement, age, limit).await
}

/// Deletes nonces of signed requests that every process refuses by their timestamp, even one with a slow clock.
pub async fn delete_nonces(conn: &mut PgConnection, limit: i64) -> Result<u64, StoreError> {
    const APART: Duration = Duration::from_secs(3600);
    let statement = "delete from request_nonce where ctid = any(array( \
                         select ctid from request_nonce where expires_at < now() - make_interval(secs => $1) \
                         order by expires_at limit $2))";
    delete(conn, statement, APART, limit).await
}

/// Deletes permit nonces that the chain has used for so long that no cached wallet data is older, and that no
/// reorganization removes them any more.
pub async fn delete_permit_holds(conn: &mut PgConnection, limit: i64) -> Result<u64, StoreError> {
    const BEHIND: Duration = Duration::from_secs(3600);
    let statement = "delete from permit_use where ctid = any(array( \
                         select ctid from permit_use where locked_at < now() - make_interval(secs => $1) \
                         order by locked_at limit $2))";
    delete(conn, statement, BEHIND, limit).await
}

/// Deletes published permits that have expired, even by a chain whose clock is slow.
pub async fn delete_published_permits(conn: &mut PgConnection, limit: i64) -> Result<u64, StoreError> {
    const APART: Duration = Duration::from_secs(3600);
    let statement = "delete from permit_published where ctid = any(array( \
                         select ctid from permit_published \
                         where deadline < extract(epoch from now() - make_interval(secs => $1))::int8 \
                         order by deadline limit $2))";
    delete(conn, statement, APART, limit).await
}

/// Deletes the sums of days that no limit counts any more.
pub async fn delete_limit_usage(
    conn: &mut PgConnection,
    age: Duration,
    limit: i64,
) -> Result<u64, StoreError> {
    let statement = "delete from limit_usage where ctid = any(array( \
                         select ctid from limit_usage \
                         where day < (now() at time zone 'UTC' - make_interval(secs => $1))::date \
                         order by day limit $2))";
    delete(conn, statement, age, limit).await
}

/// Deletes orders that were let go, ended cool-downs, and what unused quotes held: none of it counts any more.
pub async fn delete_abandonments(
    conn: &mut PgConnection,
    age: Duration,
    limit: i64,
) -> Result<u64, StoreError> {
    /// Longer than the longest sliding time.
    const QUOTES: Duration = Duration::from_secs(2 * 86_400);
    let mut deleted = 0_u64;
    for (statement, age) in [
        (
            "delete from abandonment where ctid = any(array( \
             select ctid from abandonment where at < now() - make_interval(secs => $1) order by at limit $2))",
            age,
        ),
        (
            "delete from cool_down where ctid = any(array( \
             select ctid from cool_down where until < now() - make_interval(secs => $1) order by until limit $2))",
            age,
        ),
        (
            "delete from unused_hold where ctid = any(array( \
             select ctid from unused_hold where lapsed_in < now() - make_interval(secs => $1) \
             order by lapsed_in limit $2))",
            QUOTES,
        ),
    ] {
        deleted = deleted.saturating_add(delete(conn, statement, age, limit).await?);
    }
    Ok(deleted)
}

/// Deletes contexts of indicative quotes.
pub async fn delete_quote_requests(
    conn: &mut PgConnection,
    age: Duration,
    limit: i64,
) -> Result<u64, StoreError> {
    let statement = "delete from quote_request where ctid = any(array( \
                         select ctid from quote_request where created_at < now() - make_interval(secs => $1) \
                         order by created_at limit $2))";
    delete(conn, statement, age, limit).await
}

/// Deletes firm quotes, by the end of their validity.
pub async fn delete_firm_quotes(
    conn: &mut PgConnection,
    age: Duration,
    limit: i64,
) -> Result<u64, StoreError> {
    let statement = "delete from firm_quote where ctid = any(array( \
                         select ctid from firm_quote where valid_until < now() - make_interval(secs => $1) \
                         order by valid_until limit $2))";
    delete(conn, statement, age, limit).await
}

/// Deletes notices to owners of webhook endpoints.
pub async fn delete_notices(conn: &mut PgConnection, age: Duration, limit: i64) -> Result<u64, StoreError> {
    let statement = "delete from webhook_notice n \
                     using (select id, at from webhook_notice order by id limit $2) o \
                     where n.id = o.id and o.at < now() - make_interval(secs => $1)";
    delete(conn, statement, age, limit).await
}

/// Deletes signed bytes of chain transactions whose nonce is used in a final block.
pub async fn delete_transactions(
    conn: &mut PgConnection,
    age: Duration,
    limit: i64,
) -> Result<u64, StoreError> {
    let statement = "delete from tx_attempt a \
                     using relayer_account l cross join lateral ( \
                         select chain_id, signer, nonce, attempt, created_at from tx_attempt \
                         where chain_id = l.chain_id and signer = l.signer \
                         order by chain_id, signer, nonce, attempt limit $2 \
                     ) o join nonce_slot s \
                         on (s.chain_id, s.signer, s.nonce) = (o.chain_id, o.signer, o.nonce) \
                     where (a.chain_id, a.signer, a.nonce, a.attempt) = (o.chain_id, o.signer, o.nonce, o.attempt) \
                       and s.state = 'final' and o.created_at < now() - make_interval(secs => $1)";
    delete(conn, statement, age, limit).await
}

/// Deletes messages of FIX sessions that their peer has received. A deleted message that is requested again is answered
/// by a gap fill; messages that the peer has not received stay, however old.
pub async fn delete_fix_messages(
    conn: &mut PgConnection,
    age: Duration,
    limit: i64,
) -> Result<u64, StoreError> {
    let statement = "with aged as ( \
                         select ((extract(epoch from now()) - $1) * 1e9)::bigint as since \
                     ) \
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
                           and o.seq <= s.seen_out and o.sending_time < aged.since limit $2))";
    delete(conn, statement, age, limit).await
}

async fn delete(
    conn: &mut PgConnection,
    statement: &'static str,
    age: Duration,
    limit: i64,
) -> Result<u64, StoreError> {
    let done = sqlx::query(statement).bind(age.as_secs_f64()).bind(limit).execute(conn).await?;
    Ok(done.rows_affected())
}
