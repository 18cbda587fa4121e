//! Compares the bank's statements with the ledger: every twenty seconds, one process at a time, and for `dvp reconcile`. [`wallets`] compares the chain's balances; the chain side runs it at a final block.
//!
//! A comparison takes in what was posted since the last one, finds pairs among what has none yet, and keeps the rest as a
//! run with its breaks. What a later statement or posting explains is gone from the next run.

pub mod wallets;

use std::time::{Duration, Instant};

use dvp_domain::reconcile::bank::{Comparison, compare};
use dvp_domain::reconcile::{Break, BreakKind};
use dvp_domain::time::Timestamp;
use dvp_store::StoreError;
use dvp_store::database::lease::Lease;
use dvp_store::reconcile::bank as store;
use dvp_store::reconcile::{NewRun, delete_old_runs, find_last_run, insert_run, keep_breaks, list_breaks};
use dvp_store::workers::{self, ItemError, Items, Step, Worker, guarded as guarded_item, pause};
use metrics::gauge;
use sqlx::{Acquire as _, PgPool, PgTransaction};
use tokio::sync::watch;
use tracing::{error, info};
use uuid::Uuid;

use crate::engine::Engine;

const LEASE: &str = "reconcile:bank";
const LEASE_TIME: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_secs(20);
/// The longest time for a comparison, and for one account of it.
const COMPARE_MAX: Duration = Duration::from_secs(50);
const ACCOUNT_MAX: Duration = Duration::from_secs(10);
/// Accounts that have failed are compared after the others, and none of them begins later than this.
const FAILING_UNTIL: Duration = Duration::from_secs(15);
const BOOKS: &str = "books";
/// Runs kept.
const RUNS: i64 = 200;
/// A transaction that can write, and sees one moment.
const SNAPSHOT: &str = "begin isolation level repeatable read";
/// How long a posting may have no entry at the bank, and an entry no posting, before it is a break: over a weekend and a
/// holiday.
pub const PATIENCE: Duration = Duration::from_secs(4 * 86_400);

/// What a comparison came to.
#[derive(Debug, Clone)]
pub struct BankReport {
    pub run_id: i64,
    pub accounts: usize,
    /// Postings and entries that have found each other.
    pub pairs: usize,
    /// Postings and entries on their way.
    pub in_transit: usize,
    pub breaks: Vec<Break>,
    /// The accounts, with their currencies.
    pub compared: Vec<String>,
    /// Accounts that could not be compared, and why; open breaks stay open meanwhile.
    pub failed: Vec<(String, String)>,
    /// Whether accounts that have failed were left to a later comparison.
    pub is_partial: bool,
}

/// Compares again and again until `stop` turns true.
pub async fn run(engine: Engine, patience: Duration, mut stop: watch::Receiver<bool>) {
    let (pool, owner) = (engine.pool(), Uuid::new_v4());
    let items = Items::new(pool.clone(), Worker::BankComparison, COMPARE_MAX);
    loop {
        let now = engine.context().clock.now();
        let compared = items.attend(BOOKS, BOOKS, guarded(pool, now, patience, owner, &items)).await;
        if let Some(Some(report)) = compared.done() {
            note_accounts(&items, report).await;
        }
        if !pause(EVERY, &mut stop).await {
            return;
        }
    }
}

/// Sets aside the accounts that could not be compared.
async fn note_accounts(items: &Items, report: BankReport) {
    let BankReport { run_id, accounts, pairs, in_transit, breaks, compared, failed, .. } = &report;
    info!(run_id, accounts, pairs, in_transit, breaks = breaks.len(), "bank statements compared");
    for account in compared {
        items.note(account, account, Ok(())).await;
    }
    for (account, why) in failed {
        items.note(account, account, Err(why.clone())).await;
    }
}

async fn guarded(
    pool: &PgPool,
    now: Timestamp,
    patience: Duration,
    owner: Uuid,
    items: &Items,
) -> Result<Option<BankReport>, StoreError> {
    let Some(lease) = Lease::acquire(pool, LEASE, owner, LEASE_TIME).await? else { return Ok(None) };
    let report = compare_apart(pool, now, patience, Some(items)).await;
    lease.release(pool).await?;
    report
}

/// Compares once and keeps the run. `None`: the bank has sent no statement so far.
pub async fn compare_bank(
    pool: &PgPool,
    now: Timestamp,
    patience: Duration,
) -> Result<Option<BankReport>, StoreError> {
    compare_apart(pool, now, patience, None).await
}

/// The accounts that are set aside come last, and only those that are due.
async fn compare_apart(
    pool: &PgPool,
    now: Timestamp,
    patience: Duration,
    items: Option<&Items>,
) -> Result<Option<BankReport>, StoreError> {
    let (started_at, began) = (now.to_utc(), Instant::now());
    let mut tx = pool.begin_with(SNAPSHOT).await?;
    store::begin_comparison(&mut tx).await?;
    let mut accounts = store::list_accounts(&mut tx).await?;
    if accounts.is_empty() {
        tx.rollback().await?;
        return Ok(None);
    }
    let mut report = BankReport {
        run_id: 0,
        accounts: 0,
        pairs: 0,
        in_transit: 0,
        breaks: Vec::new(),
        compared: Vec::new(),
        failed: Vec::new(),
        is_partial: false,
    };
    let name = |(account, currency): &(String, String)| format!("{account} {currency}");
    accounts.sort_by_key(|account| items.is_some_and(|items| items.is_set_aside(&name(account))));
    let mut subjects = 0;
    for one in &accounts {
        let ((account, currency), name) = (one, name(one));
        let is_failing = items.is_some_and(|items| items.is_set_aside(&name));
        let is_waiting = items.is_some_and(|items| items.is_waiting(&name));
        if is_waiting || is_failing && began.elapsed() > FAILING_UNTIL {
            report.is_partial = true;
            continue;
        }
        match apart(&mut tx, account, currency, now, patience).await {
            Ok(compared) => {
                report.accounts += 1;
                report.pairs += compared.pairs;
                report.in_transit += compared.in_transit;
                report.breaks.extend(compared.breaks);
                subjects += compared.subjects;
                report.compared.push(name);
            }
            Err(error) => report.failed.push((name, error.to_string())),
        }
    }
    let last = find_last_run(&mut tx, None).await?;
    let before = match &last {
        Some(run) => list_breaks(&mut tx, run.id).await?,
        None => Vec::new(),
    };
    let run = NewRun {
        at: None,
        subjects: i64::try_from(subjects).unwrap_or(i64::MAX),
        queries: 0,
        started_at,
        breaks: report.breaks.clone(),
    };
    report.run_id = insert_run(&mut tx, &run).await?;
    report.is_partial |= !report.failed.is_empty();
    if let (Some(last), true) = (&last, report.is_partial) {
        let ordinals: Vec<i64> = before.iter().map(|one| one.ordinal).collect();
        keep_breaks(&mut tx, last.id, report.run_id, &ordinals).await?;
    }
    delete_old_runs(&mut tx, None, RUNS).await?;
    tx.commit().await?;
    for found in &report.breaks {
        let is_new =
            !before.iter().any(|one| one.kind == found.kind.as_str() && one.reference == found.reference);
        if is_new {
            let (kind, action) = (found.kind.as_str(), found.action.as_str());
            error!(kind, action, reference = found.reference, detail = found.detail, "break");
        }
    }
    for one in &before {
        let is_open = |found: &Break| found.kind.as_str() == one.kind && found.reference == one.reference;
        if !report.is_partial && !report.breaks.iter().any(is_open) {
            info!(kind = one.kind, reference = one.reference, detail = one.detail, "break resolved");
        }
    }
    count_breaks("bank", &report.breaks);
    gauge!("dvp_reconciliation_in_transit", "compared" => "bank").set(number(report.in_transit));
    Ok(Some(report))
}

/// What one account's comparison comes to.
struct ComparedAccount {
    /// Postings and entries that were compared.
    subjects: usize,
    pairs: usize,
    in_transit: usize,
    breaks: Vec<Break>,
}

/// Compares an account in a savepoint of its own: one that cannot be compared takes nothing from the others.
async fn apart(
    tx: &mut PgTransaction<'_>,
    account: &str,
    currency: &str,
    now: Timestamp,
    patience: Duration,
) -> Result<ComparedAccount, ItemError<StoreError>> {
    guarded_item(ACCOUNT_MAX, async {
        let mut part = tx.begin().await?;
        workers::at(Step::BankAccountCompare, account).await?;
        let compared = compare_account(&mut part, account, currency, now, patience).await?;
        part.commit().await?;
        Ok(compared)
    })
    .await
}

async fn compare_account(
    tx: &mut PgTransaction<'_>,
    account: &str,
    currency: &str,
    now: Timestamp,
    patience: Duration,
) -> Result<ComparedAccount, StoreError> {
    store::take_postings(tx, account, currency).await?;
    let reopened = store::reopen_postings(tx, account, currency, patience).await?;
    if reopened > 0 {
        info!(account, currency, reopened, "an earlier bank statement came, compares postings with it");
    }
    let loaded = store::load_account(tx, account, currency).await?;
    let Comparison { breaks, paired_postings, paired_entries, of_the_opening, in_transit } =
        compare(&loaded, now, millis(patience));
    store::mark_paired(tx, &paired_postings, &paired_entries).await?;
    store::mark_of_opening(tx, &of_the_opening).await?;
    let subjects = loaded.ledger.len() + loaded.entries.len();
    Ok(ComparedAccount { subjects, pairs: paired_entries.len(), in_transit, breaks })
}

fn millis(patience: Duration) -> i64 {
    i64::try_from(patience.as_millis()).unwrap_or(i64::MAX)
}

/// Shows how many breaks of each kind the last comparison with the bank or a chain has found.
pub fn count_breaks(compared: &str, breaks: &[Break]) {
    for kind in BreakKind::ALL {
        let count = breaks.iter().filter(|found| found.kind == kind).count();
        gauge!("dvp_reconciliation_breaks", "compared" => compared.to_owned(), "kind" => kind.as_str())
            .set(number(count));
    }
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
