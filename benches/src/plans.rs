//! The plans of all statements of a database, as `auto_explain` writes them to the server's log, and which of them read
//! what grows with history.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use serde_json::Value;
use sqlx::PgPool;

/// New connections explain every statement, those within functions and triggers included.
pub async fn explain_everything(pool: &PgPool) -> sqlx::Result<()> {
    sqlx::query("load 'auto_explain'").execute(pool).await?;
    for setting in [
        "session_preload_libraries = 'auto_explain'",
        "auto_explain.log_min_duration = 0",
        "auto_explain.log_format = 'json'",
        "auto_explain.log_analyze = on",
        "auto_explain.log_timing = off",
        "auto_explain.log_buffers = on",
        "auto_explain.log_nested_statements = on",
    ] {
        // The settings are constants.
        sqlx::query(sqlx::AssertSqlSafe(format!("alter database dvp set {setting}"))).execute(pool).await?;
    }
    Ok(())
}

/// A statement with the tables that it read, each in its worst plan.
#[derive(Debug, Clone)]
pub struct Explained {
    pub statement: String,
    pub runs: u64,
    /// The server began processes of its own for it, which takes milliseconds.
    pub is_parallel: bool,
    pub tables: BTreeMap<String, Read>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Read {
    pub is_scan: bool,
    /// The most rows of one run, those that were filtered out included.
    pub rows: u64,
    /// The most pages of an index that one run read beyond those of its rows: entries that lie between its bounds and
    /// that it passes over are no rows.
    pub passed_over: u64,
}

/// More than the levels of any of the indexes, and the pages on both sides of a place in it.
const TREE_PAGES: u64 = 8;
/// Fewer than a page of any of the indexes has.
const ROWS_OF_PAGE: u64 = 16;

/// The statements of a server's log, in the order of their first run.
pub fn read_log(log: &Path) -> std::io::Result<Vec<Explained>> {
    let mut found: BTreeMap<String, (usize, Explained)> = BTreeMap::new();
    let mut plan = String::new();
    let mut is_plan = false;
    let mut take = |plan: &mut String| {
        if let Ok(explained) = serde_json::from_str::<Value>(plan) {
            add(&mut found, &explained);
        }
        plan.clear();
    };
    for line in BufReader::new(std::fs::File::open(log)?).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        // Further lines of an entry begin with a tab.
        if let Some(more) = line.strip_prefix('\t') {
            if is_plan {
                plan.push_str(more);
                plan.push('\n');
            }
            continue;
        }
        take(&mut plan);
        is_plan = line.contains("LOG:  duration: ") && line.contains("plan:");
    }
    take(&mut plan);
    let mut all: Vec<_> = found.into_values().collect();
    all.sort_by_key(|(first, _)| *first);
    Ok(all.into_iter().map(|(_, explained)| explained).collect())
}

fn add(found: &mut BTreeMap<String, (usize, Explained)>, explained: &Value) {
    let Some(statement) = explained.get("Query Text").and_then(Value::as_str) else { return };
    let (mut tables, mut is_parallel) = (BTreeMap::new(), false);
    if let Some(plan) = explained.get("Plan") {
        is_parallel = visit(plan, &mut tables);
    }
    let first = found.len();
    let (_, known) = found.entry(statement.to_owned()).or_insert_with(|| {
        (
            first,
            Explained {
                statement: statement.to_owned(),
                runs: 0,
                is_parallel: false,
                tables: BTreeMap::new(),
            },
        )
    });
    known.runs = known.runs.saturating_add(1);
    known.is_parallel |= is_parallel;
    for (table, read) in tables {
        let worst = known.tables.entry(table).or_default();
        worst.is_scan |= read.is_scan;
        worst.rows = worst.rows.max(read.rows);
        worst.passed_over = worst.passed_over.max(read.passed_over);
    }
}

/// Adds what a node of a plan reads, and the nodes below it. Whether one of them is parallel.
fn visit(node: &Value, tables: &mut BTreeMap<String, Read>) -> bool {
    // Newer servers write averages with decimals.
    let number = |name: &str| {
        let text = node.get(name).map(Value::to_string).unwrap_or_default();
        text.split('.').next().and_then(|whole| whole.parse::<u64>().ok()).unwrap_or_default()
    };
    let kind = node.get("Node Type").and_then(Value::as_str).unwrap_or_default();
    if let Some(table) = node.get("Relation Name").and_then(Value::as_str)
        && kind != "ModifyTable"
    {
        let each = number("Actual Rows")
            .saturating_add(number("Rows Removed by Filter"))
            .saturating_add(number("Rows Removed by Index Recheck"));
        let read = tables.entry(table.to_owned()).or_default();
        read.is_scan |= kind.ends_with("Seq Scan");
        let loops = number("Actual Loops");
        let rows = each.saturating_mul(loops);
        read.rows = read.rows.saturating_add(rows);
        if kind == "Index Only Scan" {
            // A way down the tree for each loop, a page of the table for each row that may be new, and dense pages.
            let needed = loops.saturating_mul(TREE_PAGES).saturating_add(number("Heap Fetches"));
            let needed = needed.saturating_add(rows / ROWS_OF_PAGE);
            let pages = number("Shared Hit Blocks").saturating_add(number("Shared Read Blocks"));
            read.passed_over = read.passed_over.max(pages.saturating_sub(needed));
        }
    }
    let mut is_parallel = kind.starts_with("Gather");
    for below in node.get("Plans").and_then(Value::as_array).into_iter().flatten() {
        is_parallel |= visit(below, tables);
    }
    is_parallel
}

/// Tables whose rows come with configuration and with people, not with orders: each stays small.
pub const SMALL: [(&str, &str); 67] = [
    ("_sqlx_migrations", "one row a migration"),
    ("account_balance", "one row an owner and asset"),
    ("api_key", "keys of partners"),
    ("audit_anchor", "one row a day"),
    ("audit_head", "one row"),
    ("bank_comparison", "one row an account at the bank"),
    ("bank_statement", "a few rows a day and account"),
    ("bank_received_recall", "answered by operators"),
    ("audit_erasure", "entries of operators that were erased"),
    ("beneficiary", "entered by operators"),
    ("chain_deleted", "one row a contract"),
    ("chain_cursor", "one row a chain"),
    ("chain_fees", "one row a chain"),
    ("chain_status", "one row a chain"),
    ("chain_token", "tokens of a chain"),
    ("deployment", "one row"),
    ("destination", "entered by operators"),
    ("endpoint_lease", "one row an endpoint"),
    ("feed_counter", "one row"),
    ("fix_erasure", "sessions whose messages are read for an erased account"),
    ("fix_parked", "orders that wait for a look-up of their wallet"),
    ("fix_process", "one row a process"),
    ("fix_session", "sessions of partners"),
    ("fix_session_command", "operators' commands for sessions"),
    ("fix_session_status", "one row a session"),
    ("lease", "one row a job, session or chain"),
    ("ledger_check", "one row"),
    ("bank_folder", "one row"),
    ("bank_upload", "entered by operators"),
    ("bank_outage", "one row a process of the last hour"),
    ("closed_break", "made by operators"),
    ("ledger_closed", "one row"),
    ("ledger_closing", "one row for each hour in which an account had entries"),
    ("ledger_fee_day", "one row a day, asset and reason"),
    ("limit_usage", "one row a day and key, for 90 days"),
    ("maker", "one row a maker"),
    ("open_change", "merged to one row a key"),
    ("operator", "people"),
    ("operator_attempt", "failed sign-ins of the last minutes"),
    ("operator_challenge", "challenges that are not answered"),
    ("operator_identity", "people"),
    ("operator_link", "links of people"),
    ("operator_passkey", "keys of people"),
    ("operator_password", "people"),
    ("operator_session", "sessions of people, for 90 days"),
    ("order_limit", "set by operators"),
    ("process", "one row a process"),
    ("saved_view", "saved by operators"),
    ("partner", "partners"),
    ("partner_action", "made by operators"),
    ("pause", "set by operators"),
    ("pause_change", "made by operators"),
    ("price_band", "set by operators"),
    ("provider_wallet", "wallets of providers"),
    ("rate_window", "one row a partner and environment"),
    ("reconciliation_count", "one row a contract"),
    ("reconciliation_open", "what the chain has open"),
    ("reconciliation_point", "one row a chain"),
    ("reconciliation_break", "breaks of the last runs"),
    ("reconciliation_run", "the last 200 runs a chain"),
    ("relayer_account", "accounts of a chain"),
    ("service_secret", "secrets of the service"),
    ("set_aside", "items that fail"),
    ("settlement_instruction", "set by operators"),
    ("wallet_balance", "one row a wallet and token"),
    ("webhook_dispatcher", "one row"),
    ("webhook_endpoint", "endpoints of partners"),
];

/// Tables of work under way: rows are deleted when it ends.
pub const TRANSIENT: [&str; 8] = [
    "effect",
    "permit_use",
    "quote_hold",
    "resting_range",
    "webhook_queue",
    "webhook_replay",
    "webhook_sender",
    "webhook_idempotency",
];

/// The tables that grow with orders, with their rows by the statistics. A partition counts as its table.
pub async fn growing(pool: &PgPool) -> sqlx::Result<BTreeMap<String, i64>> {
    let tables: Vec<(String, i64)> = sqlx::query_as(
        "select c.relname, greatest(c.reltuples, 0)::int8 from pg_class c \
         where c.relnamespace = 'public'::regnamespace and c.relkind = 'r'",
    )
    .fetch_all(pool)
    .await?;
    let small: BTreeSet<&str> = SMALL.iter().map(|(name, _)| *name).chain(TRANSIENT).collect();
    let growing = tables.into_iter().filter(|(name, _)| !small.contains(name.as_str()));
    Ok(growing.collect())
}
