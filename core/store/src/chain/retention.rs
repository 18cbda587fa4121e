//! Deletion of what the chain side keeps of orders that ended long ago. Each function is a short statement over at most
//! `limit` orders or rows, the oldest first, and returns how many rows it deleted.
//!
//! Kept for ever: events of the service's own contracts and orders, which receipts and reports name, and nonces, so that
//! none is used again when an endpoint lags.

use std::time::Duration;

use sqlx::PgConnection;

use crate::{StoreError, statement};

/// The oldest commands that are looked at: those that may not be deleted yet are few.
const WINDOW: i64 = 4_000;

/// Deletes commands, their transactions' rows and facts of orders that ended before this age, and of the audit log's
/// anchors. An order that may still need one keeps all.
pub async fn delete_work(conn: &mut PgConnection, age: Duration, limit: i64) -> Result<u64, StoreError> {
    let sql = "with oldest as ( \
             select reference, min(id) as id from ( \
                 select id, reference, created_at from chain_command order by id limit $3) c \
             where c.created_at < now() - make_interval(secs => $1) group by reference), \
         due as ( \
             select o.reference \
             from oldest o left join execution e on e.reference = o.reference \
             where (case when e.reference is null then o.reference like 'audit:%' \
                         else e.terminal_at < now() - make_interval(secs => $1) and e.held_until is null \
                              and e.unresolved is null end) \
               and not exists (select from chain_command c where c.reference = o.reference \
                               and (c.state not in ('done', 'failed') \
                                    or coalesce(c.done_at, c.created_at) > now() - make_interval(secs => $1))) \
               and not exists (select from chain_command c join chain_fact f on f.entity = c.entity \
                               where c.reference = o.reference \
                                 and f.consumed_at is null and f.retracted_at is null) \
               and not exists (select from effect w where w.reference = o.reference) \
             order by o.id limit $2), \
         commands as ( \
             select c.id, c.entity from chain_command c join due on due.reference = c.reference), \
         carried as ( \
             delete from slot_command s using commands c where s.command_id = c.id returning 1), \
         facts as ( \
             delete from chain_fact f using (select distinct entity from commands) c \
             where f.entity = c.entity returning 1), \
         gone as ( \
             delete from chain_command c using commands d \
             where c.id = d.id and (select count(*) from carried) >= 0 returning 1) \
         select (select count(*) from carried) + (select count(*) from facts) + (select count(*) from gone)";
    let rows: i64 = statement::load_value(conn, sql, (age.as_secs_f64(), limit, WINDOW)).await?;
    Ok(rows.unsigned_abs())
}

/// Deletes final anchors by strangers, of hashes that are none of ours, and counts them for each contract. The newest
/// event of a contract stays.
pub async fn delete_strangers(conn: &mut PgConnection, age: Duration, limit: i64) -> Result<u64, StoreError> {
    let sql = "with due as ( \
             select l.ctid as place from chain_cursor c cross join lateral ( \
                 select ctid, * from chain_log l \
                 where l.chain_id = c.chain_id and l.canonical and l.event = 'Anchored' and l.fact is null \
                   and l.block_number < least(c.final_number, c.facts_number) \
                 order by l.chain_id, l.block_number limit $2) l \
             where l.block_time < now() - make_interval(secs => $1) \
               and l.seq < (select max(seq) from chain_log n \
                            where n.chain_id = l.chain_id and n.contract = l.contract and n.canonical) \
               and not exists (select from receipt r where r.content_hash = l.entity) \
               and not exists (select from audit_anchor a where a.hash = l.entity)), \
         gone as ( \
             delete from chain_log where ctid = any(array(select place from due)) returning chain_id, contract), \
         counted as ( \
             insert into chain_deleted as d (chain_id, contract, events) \
             select chain_id, contract, count(*) from gone group by chain_id, contract \
             on conflict on constraint chain_deleted_pkey do update set events = d.events + excluded.events) \
         select count(*) from gone";
    let rows: i64 = statement::load_value(conn, sql, (age.as_secs_f64(), limit)).await?;
    Ok(rows.unsigned_abs())
}

/// Deletes blocks, and their events, that another block has replaced for good.
pub async fn delete_orphans(conn: &mut PgConnection, age: Duration, limit: i64) -> Result<u64, StoreError> {
    let mut rows = 0_u64;
    for sql in [
        "delete from chain_log where ctid = any(array( \
             select l.ctid from chain_cursor c cross join lateral ( \
                 select ctid, observed_at from chain_log l where l.chain_id = c.chain_id and not l.canonical \
                   and l.block_number < c.final_number order by l.chain_id, l.block_number limit $2) l \
             where l.observed_at < now() - make_interval(secs => $1)))",
        "delete from chain_block where ctid = any(array( \
             select b.ctid from chain_cursor c cross join lateral ( \
                 select ctid, observed_at from chain_block b where b.chain_id = c.chain_id and not b.canonical \
                   and b.number < c.final_number order by b.chain_id, b.number limit $2) b \
             where b.observed_at < now() - make_interval(secs => $1)))",
    ] {
        rows = rows.saturating_add(statement::affected(conn, sql, (age.as_secs_f64(), limit)).await?);
    }
    Ok(rows)
}
