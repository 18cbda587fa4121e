//! A copy of all rows of one moment, and the return to it: what a dump and its restore do, in one database.

use sqlx::PgPool;

const SAVE: &str = "do $$ declare t record; begin \
     create schema saved; \
     for t in select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace \
              where n.nspname = 'public' and c.relkind = 'r' and c.relname <> '_sqlx_migrations' loop \
         execute format('create table saved.%I as table only public.%I', t.relname, t.relname); \
     end loop; \
     create table saved._sequences as \
         select sequencename, last_value from pg_sequences where schemaname = 'public'; end $$";

const RESTORE: &str = "do $$ declare t record; columns text; begin \
     execute (select 'truncate ' || string_agg(format('public.%I', tablename), ', ') from pg_tables \
              where schemaname = 'public' and tablename <> '_sqlx_migrations'); \
     for t in select tablename from pg_tables where schemaname = 'saved' and tablename <> '_sequences' loop \
         select string_agg(quote_ident(attname), ', ' order by attnum) into columns from pg_attribute \
         where attrelid = format('public.%I', t.tablename)::regclass and attnum > 0 and not attisdropped \
           and attgenerated = ''; \
         execute format('insert into public.%I (%s) overriding system value select %s from saved.%I', \
                        t.tablename, columns, columns, t.tablename); \
     end loop; \
     perform setval(format('public.%I', sequencename)::regclass, coalesce(last_value, 1), last_value is not null) \
     from saved._sequences; end $$";

/// All tables of one snapshot.
pub async fn save(pool: &PgPool) {
    let mut tx = pool.begin().await.unwrap();
    sqlx::query("set transaction isolation level repeatable read").execute(&mut *tx).await.unwrap();
    sqlx::raw_sql(SAVE).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
}

/// No trigger and no foreign key sees it.
pub async fn restore(pool: &PgPool) {
    // What still runs beside it may begin between its two statements, and lock tables in another order.
    while let Err(error) = try_restore(pool).await {
        let code = error.as_database_error().and_then(|error| error.code());
        assert_eq!(code.as_deref(), Some(DEADLOCK), "{error}");
    }
}

const DEADLOCK: &str = "40P01";

async fn try_restore(pool: &PgPool) -> sqlx::Result<()> {
    let mut tx = pool.begin().await?;
    // What the stopped processes were doing is undone.
    sqlx::query(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity \
         where datname = current_database() and pid <> pg_backend_pid() and state <> 'idle'",
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query("set local session_replication_role = replica").execute(&mut *tx).await?;
    sqlx::raw_sql(RESTORE).execute(&mut *tx).await?;
    tx.commit().await
}
