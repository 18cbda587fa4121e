//! Time that a test advances: the engine's clock, and the clock functions of the database.
//!
//! Statements call `now()` by name. With virtual time, a schema with a `now()` of its own precedes `pg_catalog` in the
//! search path, so the statements of the service run unchanged. Virtual time also passes by itself, as fast as real
//! time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use dvp_core::context::{Clock, now};
use dvp_domain::time::Timestamp;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};

/// The functions, and the columns whose default is one of them.
const FUNCTIONS: &str = "create schema virtual_time;
    create table virtual_time.ahead (by interval not null);
    insert into virtual_time.ahead values ('0');
    create function virtual_time.now() returns timestamptz language sql stable
        as 'select pg_catalog.now() + by from virtual_time.ahead';
    create function virtual_time.statement_timestamp() returns timestamptz language sql stable
        as 'select pg_catalog.statement_timestamp() + by from virtual_time.ahead';
    create function virtual_time.clock_timestamp() returns timestamptz language sql volatile
        as 'select pg_catalog.clock_timestamp() + by from virtual_time.ahead';
    do $$
    declare defaulted record;
    begin
        for defaulted in select table_name, column_name, column_default from information_schema.columns
            where table_schema = 'public' and column_default in ('now()', 'clock_timestamp()')
        loop
            execute format('alter table public.%I alter column %I set default virtual_time.%s',
                           defaulted.table_name, defaulted.column_name, defaulted.column_default);
        end loop;
    end $$;";

/// How far the time of a harness is ahead of real time.
#[derive(Debug, Clone, Default)]
pub struct VirtualTime {
    ahead_ms: Arc<AtomicI64>,
}

impl VirtualTime {
    /// A clock that shows it.
    pub fn clock(&self) -> Clock {
        let ahead_ms = Arc::clone(&self.ahead_ms);
        Clock::new(move || now().plus_millis(ahead_ms.load(Ordering::SeqCst)))
    }

    /// Replaces the clock functions of a database for the connections opened from here on.
    pub(crate) async fn install(pool: &PgPool) {
        let mut conn = PgConnection::connect_with(&pool.connect_options()).await.unwrap();
        sqlx::raw_sql(FUNCTIONS).execute(&mut conn).await.unwrap();
        let (name,): (String,) =
            sqlx::query_as("select current_database()").fetch_one(&mut conn).await.unwrap();
        let path = format!("alter database {name} set search_path = virtual_time, public, pg_catalog");
        sqlx::query(AssertSqlSafe(path)).execute(&mut conn).await.unwrap();
        conn.close().await.unwrap();
    }

    /// Advances the clock and the database, which needs [`install`](Self::install).
    pub(crate) async fn advance(&self, pool: &PgPool, by: Duration) {
        let millis = i64::try_from(by.as_millis()).unwrap();
        let ahead = self.ahead_ms.fetch_add(millis, Ordering::SeqCst) + millis;
        let moved =
            sqlx::query("update virtual_time.ahead set by = make_interval(secs => $1::float8 / 1000)")
                .bind(ahead)
                .execute(pool)
                .await;
        assert_eq!(moved.unwrap().rows_affected(), 1, "only a harness in virtual time can advance it");
        // Wakes the workers, which otherwise wait for their poll interval in real time.
        let wake = "select pg_notify('dvp_feed', ''), pg_notify('dvp_work', '')";
        sqlx::query(wake).execute(pool).await.unwrap();
    }

    pub(crate) fn until(start: Timestamp) -> Duration {
        let millis = start.millis() - now().millis();
        Duration::from_millis(u64::try_from(millis).expect("virtual time begins after the real one"))
    }
}
