//! The service's time: the machine's, plus the offset of a sandbox or a test.
//!
//! Statements call `now()` by name. A database that [`install`] was run on has a schema with a `now()` of its own before
//! `pg_catalog` in its search path, so the statements of the service run unchanged. A body is one expression with a
//! constant, which the planner writes into a statement: a call costs what it did. Time passes there as fast as before.
//!
//! What another machine compares with its own clock is by [`system`]: signatures, SendingTime(52), one-time passwords.

use std::sync::atomic::{AtomicI64, Ordering};

use dvp_domain::time::Timestamp;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::{StoreError, statement};

/// In milliseconds; a sandbox has one for all that it runs.
static AHEAD: AtomicI64 = AtomicI64::new(0);

/// The search path of a database with the functions. New tables go to `public`.
const PATH: &str = "public, virtual_time, pg_catalog";
const FUNCTIONS: [(&str, &str); 3] =
    [("now", "stable"), ("statement_timestamp", "stable"), ("clock_timestamp", "volatile")];
/// The columns whose default is one of them.
const DEFAULTS: &str = "do $$
    declare defaulted record;
    begin
        for defaulted in select table_name, column_name, column_default from information_schema.columns
            where table_schema = 'public' and column_default in ('now()', 'clock_timestamp()')
        loop
            execute format('alter table public.%I alter column %I set default virtual_time.%s',
                           defaulted.table_name, defaulted.column_name, defaulted.column_default);
        end loop;
    end $$;";

/// The time of the process.
pub fn now() -> Timestamp {
    system().plus_millis(AHEAD.load(Ordering::SeqCst))
}

/// The machine's own time.
pub fn system() -> Timestamp {
    chrono::Utc::now().into()
}

/// By how many milliseconds the time of the process is ahead of the machine's.
pub fn ahead() -> i64 {
    AHEAD.load(Ordering::SeqCst)
}

/// For a sandbox.
pub fn set_ahead(millis: i64) {
    AHEAD.store(millis, Ordering::SeqCst);
}

/// Gives a database the functions, for the connections opened from here on. Returns by how many milliseconds its time
/// is ahead, from before.
pub async fn install(conn: &mut PgConnection) -> Result<i64, StoreError> {
    sqlx::raw_sql("create schema if not exists virtual_time").execute(&mut *conn).await?;
    let ahead = read(conn).await?;
    advance(conn, ahead).await?;
    sqlx::raw_sql(DEFAULTS).execute(&mut *conn).await?;
    let (name,): (String,) =
        sqlx::query_as("select quote_ident(current_database())").fetch_one(&mut *conn).await?;
    let path = format!("alter database {name} set search_path = {PATH}");
    sqlx::query(AssertSqlSafe(path)).execute(conn).await?;
    Ok(ahead)
}

/// Sets the process's clock to that of a sandbox's database.
pub async fn follow(conn: &mut PgConnection) -> Result<(), StoreError> {
    set_ahead(read(conn).await?);
    Ok(())
}

async fn read(conn: &mut PgConnection) -> Result<i64, StoreError> {
    let found: Option<(Option<String>,)> = sqlx::query_as(
        "select obj_description(p.oid, 'pg_proc') from pg_proc p join pg_namespace n on n.oid = p.pronamespace \
         where n.nspname = 'virtual_time' and p.proname = 'now'",
    )
    .fetch_optional(conn)
    .await?;
    let Some((Some(text),)) = found else { return Ok(0) };
    text.parse()
        .map_err(|_| StoreError::corrupt("virtual_time.now", "its comment is no number of milliseconds"))
}

/// Sets by how many milliseconds the database is ahead, and wakes who waits for a time. The functions are replaced in
/// one transaction; a statement that was planned before is planned again.
pub async fn advance(conn: &mut PgConnection, ahead: i64) -> Result<(), StoreError> {
    // Several statements at once are one transaction.
    sqlx::raw_sql(AssertSqlSafe(functions(ahead))).execute(conn).await?;
    Ok(())
}

fn functions(ahead: i64) -> String {
    let mut sql = String::new();
    for (name, volatility) in FUNCTIONS {
        sql += &format!(
            "create or replace function virtual_time.{name}() returns timestamptz language sql {volatility} \
             as 'select pg_catalog.{name}() + interval ''{ahead} milliseconds''';"
        );
    }
    sql += &format!("comment on function virtual_time.now() is '{ahead}';");
    sql += "select pg_notify('dvp_feed', ''), pg_notify('dvp_work', '');";
    sql
}

/// Whether an order's work has become due that can be done now.
pub async fn has_due(conn: &mut PgConnection) -> Result<bool, StoreError> {
    let sql = "select exists (select from effect where run_at <= now()) \
            or exists (select from chain_command where state in ('pending', 'sent') and kind <> 'anchor' \
                       and not_before <= now()) \
            or exists (select from chain_fact where consumed_at is null and retracted_at is null and gate is null)";
    statement::load_value(conn, sql, ()).await
}

/// The same while processes work: leases and claims last `by` milliseconds longer, so that the step ends none of them.
pub async fn advance_held(conn: &mut PgConnection, ahead: i64, by: i64) -> Result<(), StoreError> {
    let by = format!("interval '{by} milliseconds'");
    let held = [
        ("lease", "expires_at", "true"),
        ("endpoint_lease", "expires_at", "true"),
        ("fix_process", "alive_until", "true"),
        ("webhook_sender", "alive_until", "true"),
        ("effect", "claimed_until", "true"),
        ("chain_fact", "claimed_until", "consumed_at is null and retracted_at is null"),
    ];
    let prolonged = held.map(|(table, column, which)| {
        format!(
            "update {table} set {column} = {column} + {by} where {column} > clock_timestamp() and {which};"
        )
    });
    let sql = prolonged.concat() + &functions(ahead);
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await?;
    Ok(())
}
