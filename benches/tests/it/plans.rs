//! No statement of an interface, a job or a screen reads what grows with history.

#![expect(clippy::unwrap_used, reason = "helpers of a test fail it")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use dvp_benches::fix_orders::Gateway;
use dvp_benches::harness::{DurableHarness, order};
use dvp_benches::history::{self, HistorySize};
use dvp_benches::http::Served;
use dvp_benches::interfaces::Reads;
use dvp_benches::screens::{self, Browser};
use dvp_benches::{interfaces, plans};
use dvp_core::engine::SubmitCommand;
use dvp_core::ledger::reconciliation::{PATIENCE, compare_bank};
use dvp_core::legacy;
use dvp_core::operators::approvals::approve;
use dvp_core::operators::personal_data::{self, Erasure};
use dvp_core::operators::requests::Maker;
use dvp_core::ranges;
use dvp_core::workflow::retention::{self, Ages};
use dvp_core::workflow::{ledger_check, ledger_closings};
use dvp_core::writer::Outcome;
use dvp_store::ledger::check::Compared;
use dvp_testing::wait::wait_for;

/// A page of rows, several times over: what a statement may read of a table that grows.
const ROWS_MAX: u64 = 5_000;

/// Pages of an index that a statement may read without a row of them.
const PASSED_OVER_MAX: u64 = 16;

/// Fewer rows than an index is worth: a table of a history must have more, or be listed here.
const FEW: i64 = 400;
const THIN: [(&str, &str); 9] = [
    ("bank_recall", "made by operators"),
    ("cool_down", "who cools down at the moment, read as a whole"),
    ("deposit_wait", "orders of a coin that nobody has paid yet, of which a partner has a limited number"),
    ("idempotency", "kept for a day"),
    ("operator_token", "made by operators, for an hour or for automation"),
    ("permit_published", "of orders that failed before their lock, until the permit expires"),
    ("request_nonce", "kept for an hour"),
    ("simulated_rail", "the books of the simulated rails, which stand for the world outside"),
    ("webhook_notice", "made when an endpoint fails"),
];

/// Partitions of a day: what a page reads of each is bounded by its own index.
const DAYS: [&str; 3] = ["fix_message_", "webhook_delivery_log_", "webhook_attempt_log_"];

/// Parts of statements that read more, and why they may.
const EXCEPTIONS: [(&str, &str); 12] = [
    ("/* the whole history */", "a comparison with the chain, once a day"),
    ("/* the whole ledger */", "the ledger check, once a day"),
    (
        "as covered, erased_at is not null as is_erased from audit_entry where seq > $1",
        "the audit log as a file: ten thousand entries a page",
    ),
    (
        "with last as (select until, amount from ledger_closing",
        "a balance: the entries since the last closed hour",
    ),
    ("with recursive known as", "balances: the entries since the last closed hour"),
    // They are due in a run that goes past a quarter of an hour.
    ("insert into ledger_closed", "the entries since the last closed hour"),
    ("with span as ( select until, announced from ledger_closed", "a closing: the entries of its hours"),
    (
        "over (order by recorded_at, reference, step, line)",
        "a statement: the entries of one day of an account",
    ),
    ("delete from fix_outbound where ctid", "the oldest thousand rows of a session, which few sessions have"),
    ("from (select from execution limit 1) e", "whether there is a history"),
    ("from ledger_entry where recorded_at >= $1", "the archive reads the entries of a day"),
    ("from legacy_intent l left join execution e", "the legacy list has numbers of pages, and a total"),
];

/// So many that the ledger has a million entries.
const ORDERS: i64 = 75_000;

/// Once, and once more with what the first time has left.
const ROUNDS: usize = 2;
/// PostgreSQL plans the first five executions of a statement on a connection for their values; from the sixth on it may
/// use one plan for all values.
const REQUESTS: usize = 8;

async fn erase_one(harness: &DurableHarness) {
    let mut conn = harness.pool().acquire().await.unwrap();
    let (maker, mut erased) = (Maker { operator: "jo", reason: "asked", evidence: "ticket" }, false);
    let young: Vec<String> = sqlx::query_scalar(
        "select reference from execution where terminal_at is not null and personal_erased_at is null \
         order by terminal_at desc limit 50",
    )
    .fetch_all(&mut *conn)
    .await
    .unwrap();
    for reference in young {
        let erasure = Erasure::Order { reference, client_reference: true };
        let Ok(requested) = personal_data::request(&mut conn, &erasure, maker).await else { continue };
        approve(&mut conn, &requested.approval.id, "kim", "").await.unwrap();
        erased = true;
        break;
    }
    assert!(erased, "no order of the history can be erased");
}

async fn jobs(harness: &DurableHarness) {
    let now = harness.engine.context().clock.now();
    compare_bank(harness.pool(), now, PATIENCE).await.unwrap();
    erase_one(harness).await;
    let ages = Ages { personal_data: Some(Duration::from_secs(27 * 86_400)), ..Ages::default() };
    assert_eq!(retention::round(harness.pool(), &ages).await.failed, Vec::<&str>::new());
    for compared in [Compared::Whole, Compared::SinceClosing] {
        ledger_check::check(&harness.engine, compared).await.unwrap();
    }
    ledger_closings::close_hours(&harness.engine).await.unwrap();
    interfaces::reconcile(harness.pool(), Reads::Whole).await.unwrap();
    interfaces::reconcile(harness.pool(), Reads::Since).await.unwrap();
    interfaces::relay(harness.pool()).await.unwrap();
    interfaces::commands(harness).await.unwrap();
}

/// Opens many commands, alarms and effects, as when the chain and the bank are behind, while the statistics say that none
/// is open. The planner then prefers an index of open rows, and may read all of it for each order of a page.
async fn make_busy(harness: &DurableHarness) {
    let pool = harness.pool();
    let run = async |statement: &'static str, at_least: u64| {
        let done = sqlx::query(statement).execute(pool).await.unwrap();
        assert!(done.rows_affected() >= at_least, "{statement}");
    };
    run("create table open_command as select id from chain_command where state = 'pending'", 1).await;
    run("update chain_command set state = 'done' where id in (select id from open_command)", 1).await;
    run("analyze chain_command, bank_payment, effect", 0).await;
    run(
        "update chain_command set state = 'pending' where id in ( \
             (select id from open_command) union all \
             (select id from chain_command where state = 'done' and done_at is not null order by id limit 1000))",
        1_000,
    )
    .await;
    run(
        "update bank_payment set alarm = 'late' where end_to_end_id in ( \
             select end_to_end_id from bank_payment where alarm is null order by ordered_at limit 1000)",
        1_000,
    )
    .await;
    run(
        "insert into effect (reference, kind, run_at) \
         select reference, 'timelock', now() + interval '30 days' from execution \
         where terminal_at is not null order by accepted_at limit 1000 \
         on conflict on constraint effect_reference_kind_key do nothing",
        0,
    )
    .await;
    run("drop table open_command", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_statement_scans_what_grows() {
    let orders = std::env::var("DVP_HISTORY_ORDERS").map_or(ORDERS, |orders| orders.parse().unwrap());
    // Kept in DVP_HISTORY_DIR for the next time, where it is given.
    let temporary = tempfile::tempdir().unwrap();
    let given = std::env::var_os("DVP_HISTORY_DIR").map(PathBuf::from);
    let dir = given.as_deref().unwrap_or(temporary.path());
    let harness = history::open(dir, HistorySize::of(orders), &[]).await.unwrap();
    let screens = screens::list(&harness).await.unwrap();
    make_busy(&harness).await;
    plans::explain_everything(harness.pool()).await.unwrap();
    harness.stop().await.unwrap();

    let harness = history::open(dir, HistorySize::of(orders), &[]).await.unwrap();
    let workers = harness.start_workers();
    tokio::spawn(legacy::run(harness.engine.clone(), harness.stopped()));
    tokio::spawn(ranges::run(harness.engine.clone(), harness.stopped()));
    let browser = Browser::open(&harness).await.unwrap();
    for screen in &screens {
        for _ in 0..REQUESTS {
            browser.get(screen).await.unwrap();
        }
    }
    every_page_is_read(&screens);
    let served = Served::start(&harness).await.unwrap();
    for _ in 0..REQUESTS {
        interfaces::rest(&harness, &served).await.unwrap();
    }
    for _ in 0..ROUNDS {
        jobs(&harness).await;
    }
    let gateway = Gateway::start(&harness, true).await.unwrap();
    gateway.fill(20).await.unwrap();
    gateway.stop().await.unwrap();
    let growing = plans::growing(harness.pool()).await.unwrap();
    assert!(orders < ORDERS || growing["ledger_entry"] >= 1_000_000, "{growing:?}");
    let log = harness.database.postgres.log().to_owned();
    // Figures are counted when the workers start.
    wait_for("the figures", || async {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("webhook_seconds")).then_some(())
    })
    .await;
    workers.abort();
    tokio::time::timeout(Duration::from_secs(60), harness.stop()).await.unwrap().unwrap();
    judge(&plans::read_log(&log).unwrap(), &growing);
}

/// In a new database, of whose tables the planner knows nothing.
#[tokio::test(flavor = "multi_thread")]
async fn no_processes_are_begun_to_accept_an_order() {
    let dir = tempfile::tempdir().unwrap();
    let harness = DurableHarness::start(dir.path()).await.unwrap();
    plans::explain_everything(harness.pool()).await.unwrap();
    // With connections of its own.
    let engine = harness.another_engine();
    let (tenant, request) = (harness.tenant.clone(), order());
    let command = SubmitCommand { tenant, request, idempotency: None, fix: None };
    let done = engine.submit(command).await.unwrap();
    assert!(matches!(done.outcome, Outcome::Accepted(_)), "{:?}", done.outcome);
    let log = harness.database.postgres.log().to_owned();
    harness.stop().await.unwrap();
    let statements = plans::read_log(&log).unwrap();
    let written = |part: &str| statements.iter().any(|one| one.statement.contains(part));
    assert!(written("insert into intent") && written("from pause"), "{} statements", statements.len());
    let parallel: Vec<&plans::Explained> = statements.iter().filter(|one| one.is_parallel).collect();
    assert!(parallel.is_empty(), "{parallel:?}");
}

fn every_page_is_read(screens: &[screens::Screen]) {
    let read: BTreeSet<&str> = screens.iter().map(|screen| screen.route).collect();
    // The stream of changes never ends; the page of a login reads nothing.
    let others = ["/live", "/account/login"];
    for (method, path, _, _) in dvp_console::permissions() {
        // Of the forms of actions one of each kind is read: they differ in the names that they propose.
        let is_other = others.contains(&&*path) || path.starts_with("/act/");
        assert!(method != "GET" || read.contains(&*path) || is_other, "{path} is not read");
    }
}

fn judge(statements: &[plans::Explained], growing: &BTreeMap<String, i64>) {
    let is_day = |table: &str| DAYS.iter().any(|log| table.starts_with(log));
    let is_listed = |table: &str| THIN.iter().any(|(name, _)| *name == table) || is_day(table);
    let thin: Vec<_> = growing.iter().filter(|(table, rows)| **rows < FEW && !is_listed(table)).collect();
    assert!(thin.is_empty(), "no plan of these says anything: {thin:?}");
    assert!(statements.len() > 200, "{} statements", statements.len());
    let mut found = Vec::new();
    for explained in statements {
        for (table, read) in &explained.tables {
            let Some(rows) = growing.get(table).filter(|_| !is_listed(table)) else { continue };
            let is_excepted = EXCEPTIONS.iter().any(|(part, _)| explained.statement.contains(part));
            let is_too_much = read.rows > ROWS_MAX || read.passed_over > PASSED_OVER_MAX;
            if (read.is_scan || is_too_much) && !is_excepted {
                found.push(format!(
                    "{table} of {rows} rows: {} {} rows, {} pages passed over, {} runs: {}",
                    if read.is_scan { "scanned," } else { "by an index," },
                    read.rows,
                    read.passed_over,
                    explained.runs,
                    explained.statement.split_whitespace().collect::<Vec<_>>().join(" ")
                ));
            }
        }
    }
    found.sort();
    assert!(found.is_empty(), "{} of {} statements:\n{}", found.len(), statements.len(), found.join("\n\n"));
}
