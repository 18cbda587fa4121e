//! What a move copies is bounded in each statement, and neither a large copy nor a failed one stops anything else.

use std::time::Duration;

use dvp_core::keys;
use dvp_core::moves::MoveError;
use dvp_core::secrets::Vault;
use dvp_domain::environment::Environment;
use dvp_domain::pause::Scope;
use dvp_store::Acquire as _;
use dvp_store::moves::{CopiedRows, IntentKey, find_intent_page, has_intent_page, list_rows};
use dvp_store::pauses::{self, Decided};
use dvp_testing::Harness;

use crate::moves::Cells;
use crate::scenes::fix_session;

async fn write(at: &Harness, statements: &[&'static str]) {
    for statement in statements {
        sqlx::query(*statement).execute(at.pool()).await.unwrap();
    }
}

async fn texts(at: &Harness, statement: &'static str) -> Vec<String> {
    sqlx::query_scalar(statement).fetch_all(at.pool()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_moves_whose_orders_no_single_array_holds() {
    let cells = Cells::new().await;
    fix_session(&cells.source, &cells.tenant, "LARGE").await;
    // 270 MB, in few rows.
    let orders = [
        "update fix_session set password_key = 'cells'",
        "insert into fix_order (session_id, cl_ord_id, intent_id, details) \
         select session_id, 'C-' || n, 'int-' || n, jsonb_build_object('account', null, 'text', repeat('x', 1000000)) \
         from fix_session cross join generate_series(1, 270) n",
        "insert into fix_outbound (session_id, seq, msg_type, body, sending_time) \
         select session_id, n, '8', '35=8', 1 from fix_session cross join generate_series(1, 1001) n",
    ];
    write(&cells.source, &orders).await;
    cells.decide().await;
    let progress = cells.run().await.unwrap();
    assert_eq!(progress.sessions[0].state, "moved");
    for table in ["select count(*) from fix_order", "select count(*) from fix_outbound"] {
        assert_eq!(cells.target.count(table).await, cells.source.count(table).await, "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_cannot_be_copied_is_enabled_again_and_the_others_move() {
    let cells = Cells::new().await;
    let (a, b) = (&cells.source, &cells.target);
    let first = fix_session(a, &cells.tenant, "FIRST").await;
    let second = fix_session(a, &cells.tenant, "SECOND").await;
    let copy = fix_session(a, &cells.tenant, "THIRD").await;
    let ready = [
        "update fix_session set password_key = 'cells', drop_copy = session_id like '%THIRD'",
        "insert into fix_parked (session_id, cl_ord_id, message, received_at) \
         select session_id, 'C-1', '', now() from fix_session where drop_copy",
        "insert into fix_order (session_id, cl_ord_id, intent_id, details) \
         select session_id, 'C-1', 'int-1', '{}' from fix_session where not drop_copy",
    ];
    write(a, &ready).await;
    cells.decide().await;
    let broken = "alter table fix_order add constraint fix_order_broken check (session_id not like '%FIRST')";
    write(b, &[broken]).await;
    let Err(error) = cells.run().await else { panic!("it was copied") };
    let error = error.to_string();
    assert!(error.contains(&first) && !error.contains(&second), "{error}");
    let enabled = "select session_id from fix_session where enabled order by 1";
    assert_eq!(texts(a, enabled).await, [first.clone(), copy.clone()]);
    assert_eq!(texts(b, enabled).await, [second.as_str()]);
    let behind = "select unnest(drop_copies) from partner_move";
    assert_eq!(texts(b, behind).await, std::slice::from_ref(&copy));
    let record = "select action from fix_session_command where session_id like '%FIRST' order by id";
    assert_eq!(texts(a, record).await, ["disable", "enable"]);

    // The drop copy goes, too, while the other one still fails.
    write(a, &["delete from fix_parked"]).await;
    assert!(cells.run().await.is_err());
    assert_eq!(texts(b, behind).await, Vec::<String>::new());
    write(b, &["alter table fix_order drop constraint fix_order_broken"]).await;
    cells.run().await.unwrap();
    assert_eq!(texts(a, enabled).await, Vec::<String>::new());
    assert_eq!(texts(b, enabled).await, [first, second, copy]);
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_work_at_the_target_while_a_partner_is_copied() {
    let cells = Cells::new().await;
    let insert = "insert into idempotency (partner_id, livemode, method, path, key, fingerprint, status, body) \
                  values ($1, false, 'POST', '/v1/intents', '00000000-0000-4000-8000-000000000001', \
                          decode(repeat('00', 32), 'hex'), 200, '{}')";
    let record = || sqlx::query(insert).bind(&cells.tenant.partner_id);
    record().execute(cells.source.pool()).await.unwrap();
    cells.decide().await;
    // The copy waits for this row of the target.
    let mut open = cells.target.pool().begin().await.unwrap();
    record().execute(&mut *open).await.unwrap();
    let working = async {
        let waits = "select count(*) from pg_stat_activity where datname = current_database() \
                     and wait_event_type = 'Lock' and query like '%idempotency%'";
        cells.target.wait_for_count(waits, 1).await;
        let mut conn = cells.target.pool().acquire().await.unwrap();
        let by = Decided { operator: "jo", reason: "to be sure" };
        let work = pauses::insert(&mut conn, Scope::Rail, "payout", by);
        tokio::time::timeout(Duration::from_secs(5), work).await.expect("the copy stops it").unwrap();
        open.rollback().await.unwrap();
    };
    let (moved, ()) = tokio::join!(cells.run(), working);
    assert_eq!(moved.unwrap().target_state.as_deref(), Some("open"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_intent_is_at_the_target_whatever_the_copy_ahead_has_missed() {
    let cells = Cells::new().await;
    let (a, b) = (&cells.source, &cells.target);
    let intents = async |from: i32, to: i32| {
        sqlx::query(
            "insert into intent (partner_id, livemode, intent_id, reason, request) \
             select $1, livemode, 'int-' || n, 'x', '{}' from generate_series($2, $3) n \
             cross join unnest('{true,false}'::boolean[]) livemode where livemode or n > 1",
        )
        .bind(&cells.tenant.partner_id)
        .bind(from)
        .bind(to)
        .execute(a.pool())
        .await
        .unwrap();
    };
    // The same ids in both modes, across the ends of pages.
    intents(1, 2_500).await;
    let mut conn = a.pool().acquire().await.unwrap();
    let own = Vault::new([1; 32]);
    let old = keys::issue(&mut conn, &own, &cells.tenant.partner_id, Environment::Test, &[]).await.unwrap();
    cells.decide().await;
    assert!(matches!(cells.run().await, Err(MoveError::Obstacles(_))));
    let copied = "select count(*) from intent";
    assert_eq!(b.count(copied).await, 4_999, "they were copied ahead");
    write(b, &["delete from intent where intent_id = 'int-77' and livemode"]).await;
    intents(2_501, 2_510).await;
    dvp_store::partners::revoke_key(&mut conn, &old.key_id).await.unwrap();
    cells.run().await.unwrap();
    assert_eq!((a.count(copied).await, b.count(copied).await), (5_019, 5_019));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_reads_its_own_rows_only() {
    let cells = Cells::new().await;
    let partner = cells.tenant.partner_id.as_str();
    let records = "insert into idempotency (partner_id, livemode, method, path, key, fingerprint, status, body) \
                   select $1, n % 2 = 0, 'POST', '/v1/intents', gen_random_uuid(), decode(repeat('00', 32), 'hex'), 200, '{}' \
                   from generate_series(1, 20000) n";
    let intents = "insert into intent (partner_id, livemode, intent_id, reason, request) \
                   select $1, n % 2 = 0, 'int-' || gen_random_uuid(), 'x', '{}' from generate_series(1, 20000) n";
    let mut conn = cells.source.pool().acquire().await.unwrap();
    for statement in [records, intents] {
        sqlx::query(statement).bind(partner).execute(&mut *conn).await.unwrap();
    }
    sqlx::query("analyze idempotency, intent").execute(&mut *conn).await.unwrap();
    let mut tx = conn.begin().await.unwrap();
    let (mut after, mut rows) = (None, 0);
    loop {
        let page = list_rows(&mut tx, CopiedRows::Answers, partner, after, 1_000).await.unwrap();
        rows += page.0.len();
        if page.1.is_none() {
            break;
        }
        after = page.1;
    }
    assert_eq!(rows, 20_000);
    let (mut after, mut pages) = (IntentKey::default(), 0);
    while let Some(page) = find_intent_page(&mut tx, partner, after, 7, 1_000).await.unwrap() {
        assert!(has_intent_page(&mut tx, partner, &page).await.unwrap());
        pages += 1;
        after = page.last;
    }
    assert_eq!(pages, 20);
    let read = "select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables where relname = $1";
    // The page and its comparison.
    for (table, at_most) in [("idempotency", 20_000), ("intent", 40_000)] {
        let read: i64 = sqlx::query_scalar(read).bind(table).fetch_one(&mut *tx).await.unwrap();
        assert!(read <= at_most, "{table}: {read} rows were read");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_is_cancelled_while_it_runs_is_cancelled_in_both_cells() {
    let cells = Cells::new().await;
    let mut conn = cells.source.pool().acquire().await.unwrap();
    let own = Vault::new([1; 32]);
    let old = keys::issue(&mut conn, &own, &cells.tenant.partner_id, Environment::Test, &[]).await.unwrap();
    cells.decide().await;
    assert!(matches!(cells.run().await, Err(MoveError::Obstacles(_))));
    dvp_store::partners::revoke_key(&mut conn, &old.key_id).await.unwrap();
    // The run has found the move `arriving`, and waits for its row.
    let mut open = cells.target.pool().begin().await.unwrap();
    sqlx::query("update partner_move set state = 'cancelled'").execute(&mut *open).await.unwrap();
    let cancelling = async {
        let waits = "select count(*) from pg_stat_activity where datname = current_database() \
                     and wait_event_type = 'Lock' and query like '%partner_move%'";
        cells.target.wait_for_count(waits, 1).await;
        open.commit().await.unwrap();
    };
    let (moved, ()) = tokio::join!(cells.run(), cancelling);
    assert!(matches!(moved, Err(MoveError::State { .. })), "{moved:?}");
    assert_eq!(texts(&cells.source, "select state from partner_move").await, ["closed"]);
    cells.cancel().await.unwrap();
    assert!(cells.takes(&cells.source).await);
}
