//! The archive of days that were lived through: what it has, what it refuses, and what changes are found.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use alloy::signers::local::PrivateKeySigner;
use chrono::{DateTime, Days, NaiveDate, Utc};
use dvp_archive::ArchiveError;
use dvp_archive::books::{Of, find_receipt, statement, verify};
use dvp_archive::export::{Exported, export_day, first_day};
use dvp_archive::manifest::{Manifest, begin, folder};
use dvp_archive::schema::{EVENTS, ORDERS};
use dvp_archive::table::{Cell, read};
use dvp_core::workflow::ledger_closings::close_hours;
use dvp_store::ledger::statements::{StatementAccount, TimeRange, load_balance_before};
use dvp_store::reconcile::snapshot;
use dvp_testing::disk::{Fault, SmallDisk};
use dvp_testing::market::pair;
use dvp_testing::orders::{Terms, order_at};
use dvp_testing::wait::wait_for;
use dvp_testing::{Harness, Market};
use serde_json::Value;

const START: &str = "2032-03-12T20:00:00Z";
const FIRST: &str = "2032-03-12";
const NORTH: Of<'_> = Of { kind: "provider", owner: "north", part: "available", asset: "USD" };

fn day(text: &str) -> NaiveDate {
    text.parse().unwrap()
}

async fn settle(harness: &Harness) -> String {
    let terms = Terms { input: ("USDC", 100_000_000), output: "USD", account: "000123456789" };
    let at = harness.clock().now();
    let reference = harness.accept(order_at(at, &PrivateKeySigner::random(), 0, &terms)).await.reference;
    harness.play_chain(&reference).await;
    harness.wait_for_state(&reference, "completed").await;
    let unanchored = "select count(*) from execution where state ->> 'finality' is null";
    harness.wait_for_count(unanchored, 0).await;
    reference
}

async fn finish_commands(harness: &Harness) {
    // As the indexer does with the anchors' events.
    sqlx::query("update chain_command set state = 'done', done_at = now()")
        .execute(harness.pool())
        .await
        .unwrap();
}

async fn export(harness: &Harness, archive: &Path, day: NaiveDate) -> Result<Exported, ArchiveError> {
    let mut tx = snapshot(harness.pool()).await.unwrap();
    let exported = export_day(&mut tx, archive, day, harness.clock().now().to_utc()).await;
    tx.rollback().await.unwrap();
    exported
}

/// Two days with an order each; the third has begun.
async fn two_days() -> (Harness, [String; 2]) {
    let market = Market::new(vec![pair("USDC", "USD", "1")]).with_funds("north", "USD", 10_000_000);
    let start: DateTime<Utc> = START.parse().unwrap();
    let harness = Harness::in_virtual_time(market, start.into()).await;
    harness.start_workers();
    let first = settle(&harness).await;
    harness.advance(Duration::from_secs(86_400)).await;
    let second = settle(&harness).await;
    harness.advance(Duration::from_secs(86_400)).await;
    (harness, [first, second])
}

async fn close(harness: &Harness) {
    let first = day(FIRST) + Days::new(2);
    let until = format!("select count(*) from ledger_closed where until >= '{first}'");
    wait_for("the days to be closed", || async {
        close_hours(&harness.engine).await.unwrap();
        let closed: i64 =
            sqlx::query_scalar(sqlx::AssertSqlSafe(until.clone())).fetch_one(harness.pool()).await.unwrap();
        (closed == 1).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn receipts_and_statements_come_from_the_files_and_say_what_the_database_says() {
    let (harness, [first, second]) = two_days().await;
    let archive = tempfile::tempdir().unwrap();
    let archive = archive.path();
    assert!(matches!(export(&harness, archive, day(FIRST)).await, Err(ArchiveError::NoArchive(_))));
    begin(archive).unwrap();
    assert!(matches!(export(&harness, archive, day(FIRST)).await.unwrap(), Exported::NotClosed));
    close(&harness).await;
    assert!(matches!(export(&harness, archive, day(FIRST)).await.unwrap(), Exported::Unended(1)));
    assert!(!folder(archive, day(FIRST)).exists());
    finish_commands(&harness).await;
    // A process died while it wrote the day.
    fs::create_dir(archive.join(format!(".{FIRST}.partial"))).unwrap();
    fs::write(archive.join(format!(".{FIRST}.partial")).join("orders.parquet"), "PAR1").unwrap();

    let mut conn = harness.pool().acquire().await.unwrap();
    let mut due = first_day(&mut conn).await.unwrap().unwrap();
    let next = day(FIRST) + Days::new(1);
    while due <= next {
        let exported = export(&harness, archive, due).await.unwrap();
        assert!(matches!(exported, Exported::Written(_)), "{due}: {exported:?}");
        assert!(matches!(export(&harness, archive, due).await.unwrap(), Exported::Kept(_)));
        due = due + Days::new(1);
    }
    let verified = verify(archive).unwrap();
    assert_eq!((verified.orders, verified.gaps.is_empty()), (2, true), "{verified:?}");
    let postings: i64 =
        sqlx::query_scalar("select count(*) from ledger_entry").fetch_one(&mut *conn).await.unwrap();
    assert_eq!(verified.postings, postings.unsigned_abs(), "every entry is in the archive");

    for reference in [&first, &second] {
        let body: String = sqlx::query_scalar("select body from receipt where reference = $1")
            .bind(reference)
            .fetch_one(&mut *conn)
            .await
            .unwrap();
        let found = find_receipt(archive, reference).unwrap();
        assert_eq!(found, serde_json::from_str::<Value>(&body).unwrap());
    }
    assert!(matches!(find_receipt(archive, "exe_none"), Err(ArchiveError::Missing(_))));

    let account =
        StatementAccount { kind: "provider".into(), owner: "north".into(), part: "available".into() };
    let range = TimeRange {
        from: day(FIRST).and_hms_opt(0, 0, 0).unwrap().and_utc(),
        to: (next + Days::new(1)).and_hms_opt(0, 0, 0).unwrap().and_utc(),
    };
    let made = statement(archive, NORTH, (day(FIRST), next)).unwrap();
    let opening = load_balance_before(&mut conn, &account, "USD", range.from).await.unwrap();
    let closing = load_balance_before(&mut conn, &account, "USD", range.to).await.unwrap();
    assert_eq!((&made.opening, &made.closing), (&opening, &closing));
    assert!(made.lines.len() >= 2, "{made:?}");
    let recipient = Of { kind: "external", owner: &first, part: "total", asset: "USD" };
    assert!(matches!(statement(archive, recipient, (next, next)), Err(ArchiveError::SummedUp)));
    let beyond = statement(archive, NORTH, (next, next + Days::new(1)));
    assert!(matches!(beyond, Err(ArchiveError::Missing(_))), "{beyond:?}");

    // Nobody's personal data.
    for table in [ORDERS, EVENTS] {
        read(&folder(archive, day(FIRST)), table, |cells| {
            for cell in cells {
                let Cell::Text(Some(text)) = cell else { continue };
                assert!(
                    !text.contains("Jane Doe") && !text.contains("000123456789") && !text.contains("J***"),
                    "{text}"
                );
            }
            Ok(())
        })
        .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_fault_of_the_disk_leaves_a_part_of_a_day_and_the_day_is_written_when_it_is_over() {
    let (harness, _) = two_days().await;
    close(&harness).await;
    finish_commands(&harness).await;
    let archive = tempfile::tempdir().unwrap();
    let disk = SmallDisk::mount(archive.path(), 1024);
    begin(archive.path()).unwrap();
    for fault in Fault::ALL {
        disk.strike(fault);
        for _ in 0..2 {
            let why = export(&harness, archive.path(), day(FIRST)).await.unwrap_err().to_string();
            assert!(why.contains(fault.cause().unwrap_or("is no archive")), "{fault:?}: {why}");
        }
        assert!(!folder(&disk.other_side(), day(FIRST)).exists(), "{fault:?}");
        assert!(
            fault != Fault::Gone || verify(archive.path()).is_err(),
            "an empty mount point is no archive"
        );
        disk.mend(fault);
    }
    assert!(matches!(export(&harness, archive.path(), day(FIRST)).await.unwrap(), Exported::Written(_)));
    assert_eq!(verify(&disk.other_side()).unwrap().days, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_file_and_a_day_that_does_not_follow_are_found() {
    let (harness, _) = two_days().await;
    close(&harness).await;
    finish_commands(&harness).await;
    let archive = tempfile::tempdir().unwrap();
    let archive = archive.path();
    begin(archive).unwrap();
    let next = day(FIRST) + Days::new(1);
    for day in [day(FIRST), next] {
        assert!(matches!(export(&harness, archive, day).await.unwrap(), Exported::Written(_)));
    }
    let manifest = Manifest::find(archive, next).unwrap().unwrap();
    assert!(manifest.rows("postings") > 0);
    let postings = folder(archive, next).join("postings.parquet");
    let whole = fs::read(&postings).unwrap();
    let mut changed = whole.clone();
    *changed.get_mut(whole.len() / 2).unwrap() ^= 1;
    fs::write(&postings, &changed).unwrap();
    for found in [
        verify(archive).map(|_| ()),
        statement(archive, NORTH, (next, next)).map(|_| ()),
        export(&harness, archive, next).await.map(|_| ()),
    ] {
        assert!(matches!(found, Err(ArchiveError::Changed { .. })), "{found:?}");
    }
    fs::write(&postings, &whole).unwrap();
    verify(archive).unwrap();
    // A day whose openings are another archive's: its own files agree, and the days do not.
    let openings = folder(archive, day(FIRST)).join("openings.parquet");
    fs::copy(&openings, folder(archive, next).join("openings.parquet")).unwrap();
    let path = folder(archive, next).join("manifest.json");
    let mut forged: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let first: Value =
        serde_json::from_slice(&fs::read(folder(archive, day(FIRST)).join("manifest.json")).unwrap())
            .unwrap();
    let at = |files: &Value| {
        files.as_array().unwrap().iter().position(|file| file["name"] == "openings.parquet").unwrap()
    };
    let (theirs, ours) = (at(&first["files"]), at(&forged["files"]));
    forged["files"][ours] = first["files"][theirs].clone();
    fs::write(&path, forged.to_string()).unwrap();
    let found = verify(archive);
    assert!(
        matches!(&found, Err(ArchiveError::Changed { why, .. }) if why.contains("does not begin")),
        "{found:?}"
    );
}
