//! The projections of the ledger are made again from its entries, beside a service that posts.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use chrono::Utc;
use dvp_core::ledger::rebuild::{RebuildError, compare, rebuild};
use dvp_core::operators::requests::Maker;
use dvp_domain::ledger::{Owner, deposited};
use dvp_domain::money::Minor;
use dvp_store::ledger::rebuild::Change;
use dvp_store::ledger::{NewPosting, insert_once};
use dvp_testing::Harness;
use dvp_testing::orders::{Terms, order_for};
use serde_json::Value;
use sqlx::PgConnection;

use crate::scenes;
use crate::statements::{close, post_at};

const JO: Maker<'static> = Maker { operator: "jo", reason: "changed by hand", evidence: "INC-17" };

/// Every row of the projections.
const STORED: &str = "select jsonb_build_object( \
     'balances', (select jsonb_agg(to_jsonb(t) order by to_jsonb(t)) from account_balance t), \
     'closings', (select jsonb_agg(to_jsonb(t) order by to_jsonb(t)) from ledger_closing t), \
     'fees', (select jsonb_agg(to_jsonb(t) order by to_jsonb(t)) from ledger_fee_day t), \
     'closed', (select jsonb_agg(to_jsonb(t)) from ledger_closed t))";

async fn stored(harness: &Harness) -> Value {
    sqlx::query_scalar(STORED).fetch_one(harness.pool()).await.unwrap()
}

async fn run(harness: &Harness, sql: &'static str) {
    assert!(harness.run(sql).await > 0, "{sql}");
}

/// Adds entries past the database's checks.
async fn plant(harness: &Harness, sql: &'static str) {
    let mut tx = harness.pool().begin().await.unwrap();
    for sql in
        ["alter table ledger_entry disable trigger user", sql, "alter table ledger_entry enable trigger user"]
    {
        sqlx::query(sql).execute(&mut *tx).await.unwrap();
    }
    tx.commit().await.unwrap();
}

/// Four closed days with fees, and money of a provider and a partner.
async fn harness() -> (Harness, sqlx::pool::PoolConnection<sqlx::Postgres>) {
    let harness = scenes::harness_with(1_000).await;
    harness.deposit("USD", 500).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    for (n, day) in ["2026-10-02", "2026-10-03", "2026-10-04", "2026-10-07"].into_iter().enumerate() {
        post_at(&mut conn, &format!("op-{n}"), &format!("{day}T12:00:00Z"), 1 << n).await.unwrap();
    }
    let sql = "insert into ledger_entry (reference, step, line, reason, owner_kind, owner, part, asset, amount, recorded_at) \
         values ('d', 1, 1, 'deposit', 'external', 'provider:south', 'total', 'USD', -70, '2026-10-03T10:00:00Z'), \
                ('d', 1, 2, 'deposit', 'provider', 'south', 'available', 'USD', 70, '2026-10-03T10:00:00Z')";
    harness.run(sql).await;
    close(&harness, "2026-10-08").await;
    (harness, conn)
}

fn places(changes: &[Change]) -> BTreeSet<String> {
    let place = |change: &Change| {
        let Change { projection, owner_kind, owner, part, asset, at, field, before, after } = change;
        format!("{projection} {owner_kind}:{owner}:{part} {asset} {at} {field} {before:?} {after:?}")
    };
    changes.iter().map(place).collect()
}

async fn rebuilt(conn: &mut PgConnection) -> Vec<Change> {
    rebuild(conn, JO).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_balances_and_closings_are_found_and_put_right() {
    let (harness, mut conn) = harness().await;
    let right = stored(&harness).await;
    for sql in [
        "update account_balance set available = available + 7, reserved = 3 where owner = 'north' and asset = 'USD'",
        "delete from account_balance where owner = 'south' and asset = 'USD'",
        "insert into account_balance values ('provider', 'nobody', 'USD', 9, 0)",
        "update ledger_closing set amount = amount + 5 where owner_kind = 'fees' and until = '2026-10-03 13:00Z'",
        "update ledger_closing set accounts = 4 where owner = 'recipients' and until = '2026-10-04 13:00Z'",
        "delete from ledger_closing where owner = 'south'",
        "insert into ledger_closing values ('fees', '', 'total', 'USD', '2026-10-06', 1)",
        "update ledger_fee_day set earned = 40 where day = '2026-10-03'",
    ] {
        run(&harness, sql).await;
    }
    let wrong = stored(&harness).await;
    let found = compare(&mut conn).await.unwrap();
    assert_eq!(stored(&harness).await, wrong, "a comparison changes nothing");
    let nobody = rebuild(&mut conn, Maker { operator: " ", ..JO }).await.unwrap_err();
    assert_eq!(nobody.code(), "ledger_rebuild_no_reason");

    let changes = rebuilt(&mut conn).await;
    assert_eq!(changes, found);
    let expected = [
        r#"account_balance provider:nobody:available USD  amount Some("9") None"#,
        r#"account_balance provider:nobody:reserved USD  amount Some("0") None"#,
        r#"account_balance provider:north:available USD  amount Some("1007") Some("1000")"#,
        r#"account_balance provider:north:reserved USD  amount Some("3") Some("0")"#,
        r#"account_balance provider:south:available USD  amount None Some("70")"#,
        r#"account_balance provider:south:reserved USD  amount None Some("0")"#,
        r#"ledger_closing external:recipients:total USD 2026-10-04T13:00:00Z accounts Some("4") Some("3")"#,
        r#"ledger_closing fees::total USD 2026-10-03T13:00:00Z amount Some("8") Some("3")"#,
        r#"ledger_closing fees::total USD 2026-10-06T00:00:00Z accounts Some("1") None"#,
        r#"ledger_closing fees::total USD 2026-10-06T00:00:00Z amount Some("1") None"#,
        r#"ledger_closing provider:south:available USD 2026-10-03T11:00:00Z accounts None Some("1")"#,
        r#"ledger_closing provider:south:available USD 2026-10-03T11:00:00Z amount None Some("70")"#,
        r#"ledger_fee_day fees::total USD 2026-10-03 adjust earned Some("40") Some("2")"#,
    ];
    assert_eq!(places(&changes), expected.map(str::to_owned).into());
    assert_eq!(stored(&harness).await, right);
    harness.check_books().await;
    let (operator, reason, kept): (String, String, Value) = harness
        .row("select operator, reason, evidence from operator_action where action = 'rebuild_ledger'")
        .await;
    assert_eq!((operator.as_str(), reason.as_str()), ("jo", "changed by hand"));
    assert_eq!((&kept["evidence"], &kept["count"]), (&"INC-17".into(), &expected.len().into()));
    assert_eq!(kept["changes"][2]["account"], "provider:north:available");
    assert_eq!(
        (&kept["changes"][2]["before"], &kept["changes"][2]["after"]),
        (&"1007".into(), &"1000".into())
    );

    assert_eq!(rebuilt(&mut conn).await, [], "there is nothing left to do");
    assert_eq!(
        harness.count("select count(*) from operator_action where action = 'rebuild_ledger'").await,
        1
    );
    // The service goes on posting.
    post_at(&mut conn, "op-9", &Utc::now().to_rfc3339(), 1).await.unwrap();
    assert_eq!(compare(&mut conn).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_without_closings_is_rebuilt_from_all_entries() {
    let harness = scenes::harness_with(1_000).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let right = stored(&harness).await;
    assert_eq!(rebuilt(&mut conn).await, []);
    run(&harness, "delete from account_balance where owner = 'north' and asset = 'USD'").await;
    run(&harness, "insert into ledger_closing values ('fees', '', 'total', 'USD', '2026-10-06', 1)").await;
    assert_eq!(rebuilt(&mut conn).await.len(), 4);
    assert_eq!(stored(&harness).await, right);
}

/// Everything is refused with a code, and nothing changes.
async fn is_refused(harness: &Harness, code: &str) -> RebuildError {
    run(harness, "update account_balance set available = available + 7 where owner = 'north'").await;
    let before = stored(harness).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let compared = compare(&mut conn).await.unwrap_err();
    let error = rebuild(&mut conn, JO).await.unwrap_err();
    assert_eq!((compared.code(), error.code()), (code, code), "{error}");
    assert_eq!(stored(harness).await, before);
    assert_eq!(harness.count("select count(*) from operator_action").await, 0);
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_do_not_balance_are_refused() {
    let (harness, _conn) = harness().await;
    plant(
        &harness,
        "insert into ledger_entry (reference, step, line, reason, owner_kind, owner, part, asset, amount) \
         values ('x', 1, 1, 'pay', 'fees', '', 'total', 'USD', 1), ('y', 1, 1, 'pay', 'fees', '', 'total', 'USD', -1)",
    )
    .await;
    let error = is_refused(&harness, "ledger_unbalanced").await;
    assert!(error.to_string().starts_with("the entries of x step 1 do not balance: 1 USD"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_balance_below_zero_by_its_entries_is_refused() {
    let (harness, _conn) = harness().await;
    plant(
        &harness,
        "insert into ledger_entry (reference, step, line, reason, owner_kind, owner, part, asset, amount) \
         values ('x', 1, 1, 'pay', 'provider', 'north', 'available', 'USD', -1001), \
                ('x', 1, 2, 'pay', 'house', '', 'total', 'USD', 1001)",
    )
    .await;
    let error = is_refused(&harness, "ledger_balance_negative").await;
    assert!(error.to_string().starts_with("provider:north:available would hold -1 USD"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_posting_in_flight_is_waited_for() {
    let (harness, mut conn) = harness().await;
    run(&harness, "update account_balance set available = available + 7 where owner = 'north'").await;
    let posting = deposited(Owner::Provider("north".into()), "USD", Minor::new(20));
    let new = NewPosting { reference: "late".into(), step: 1, posting };
    let mut late = harness.pool().begin().await.unwrap();
    insert_once(&mut late, &new).await.unwrap();
    // It does not end.
    let before = stored(&harness).await;
    let busy = rebuild(&mut conn, JO).await.unwrap_err();
    assert_eq!(busy.code(), "ledger_busy");
    assert_eq!(stored(&harness).await, before);
    // It ends while the rebuild waits.
    let rebuilding = tokio::spawn(async move { rebuild(&mut conn, JO).await });
    let waiting =
        "select count(*) from pg_locks where relation = 'account_balance'::regclass and not granted";
    harness.wait_for_count(waiting, 1).await;
    late.commit().await.unwrap();
    assert_eq!(rebuilding.await.unwrap().unwrap().len(), 1);
    assert_eq!(harness.balance(&Owner::Provider("north".into()), "USD").await, (1_020, 0));
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_go_on_before_between_and_after_rebuilds() {
    const PAID: Terms<'static> = Terms { input: ("USD", 10_000), output: "EUR", account: "000123456789" };
    let harness = scenes::harness().await;
    harness.fund("north", "EUR", 100_000_000).await;
    harness.deposit("USD", 100_000_000).await;
    harness.start_workers();
    let is_over = AtomicBool::new(false);
    let ordering = async || {
        let mut accepted = 0_i64;
        while !is_over.load(Ordering::SeqCst) {
            harness.accept(order_for(&PAID)).await;
            accepted += 1;
        }
        accepted
    };
    let rebuilding = async {
        let mut conn = harness.pool().acquire().await.unwrap();
        for _ in 0..6 {
            let changed = "update account_balance set available = available + 7 where owner = 'north'";
            run(&harness, changed).await;
            // A busy moment is no failure: it says so and changes nothing.
            while let Err(error) = rebuild(&mut conn, JO).await {
                assert_eq!(error.code(), "ledger_busy", "{error}");
            }
            let done = harness.count("select count(*) from execution").await;
            dvp_testing::wait::wait_for("more orders", || async {
                (harness.count("select count(*) from execution").await > done).then_some(())
            })
            .await;
        }
        is_over.store(true, Ordering::SeqCst);
    };
    let (a, b, c, ()) = tokio::join!(ordering(), ordering(), ordering(), rebuilding);
    assert_eq!(harness.count("select count(*) from execution").await, a + b + c);
    harness.wait_for_count("select count(*) from execution where state_name <> 'completed'", 0).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    assert_eq!(compare(&mut conn).await.unwrap(), []);
    harness.check_books().await;
}
