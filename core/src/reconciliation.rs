//! Compares the bank's statements, and transfers between cells, with the ledger: every twenty seconds, one process at a
//! time, and for `dvp reconcile`. [`wallets`] compares the chain's balances; the chain side runs it at a final block.
//!
//! A comparison takes in what was posted since the last one, finds pairs among what has none yet, and keeps the rest as a
//! run with its breaks. What a later statement or posting explains is gone from the next run.

mod transfers;
pub mod wallets;

use std::time::Duration;

use dvp_domain::reconcile::bank::{Comparison, compare};
use dvp_domain::reconcile::{Break, BreakKind};
use dvp_domain::time::Timestamp;
use dvp_store::StoreError;
use dvp_store::lease::Lease;
use dvp_store::reconcile::bank as store;
use dvp_store::reconcile::{NewRun, delete_old_runs, find_last_run, insert_run, list_breaks};
use metrics::gauge;
use sqlx::{PgPool, PgTransaction};
use tokio::sync::watch;
use tracing::{error, info, warn};
use uuid::Uuid;

use crate::engine::Engine;

const LEASE: &str = "reconcile:bank";
const LEASE_TIME: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_secs(20);
/// Runs kept.
const RUNS: i64 = 200;
/// A transaction that can write, and sees one moment.
const SNAPSHOT: &str = "begin isolation level repeatable read";
/// How long something may be on its way before it is a break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BooksPatience {
    /// A posting without an entry at the bank, and an entry without a posting.
    pub bank: Duration,
    /// A transfer to or from another cell without an end.
    pub transfer: Duration,
}

/// Over a weekend and a holiday.
pub const PATIENCE: BooksPatience =
    BooksPatience { bank: Duration::from_secs(4 * 86_400), transfer: Duration::from_secs(4 * 86_400) };

/// What a comparison came to.
#[derive(Debug, Clone)]
pub struct BankReport {
    pub run_id: i64,
    /// The bank accounts that were compared.
    pub accounts: usize,
    /// Postings and entries that have found each other.
    pub pairs: usize,
    /// Postings and entries on their way.
    pub in_transit: usize,
    /// Transfers between cells on their way.
    pub transfers: usize,
    pub breaks: Vec<Break>,
}

/// Compares again and again until `stop` turns true.
pub async fn run(engine: Engine, patience: BooksPatience, mut stop: watch::Receiver<bool>) {
    let owner = Uuid::new_v4();
    while !*stop.borrow() {
        let (pool, now) = (engine.pool(), engine.context().clock.now());
        if let Err(error) = guarded(pool, now, patience, owner).await {
            warn!(%error, "comparing the bank's statements and transfers with the ledger failed, will retry");
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = stop.changed() => {}
        }
    }
}

async fn guarded(
    pool: &PgPool,
    now: Timestamp,
    patience: BooksPatience,
    owner: Uuid,
) -> Result<(), StoreError> {
    let Some(lease) = Lease::acquire(pool, LEASE, owner, LEASE_TIME).await? else { return Ok(()) };
    let report = compare_bank(pool, now, patience).await;
    lease.release(pool).await?;
    let Some(report) = report? else { return Ok(()) };
    let BankReport { run_id, accounts, pairs, in_transit, transfers, breaks } = &report;
    info!(run_id, accounts, pairs, in_transit, transfers, breaks = breaks.len(), "bank statements compared");
    Ok(())
}

/// Compares once and keeps the run. `None`: the bank has sent no statement so far, and no cell a transfer.
pub async fn compare_bank(
    pool: &PgPool,
    now: Timestamp,
    patience: BooksPatience,
) -> Result<Option<BankReport>, StoreError> {
    let started_at = now.to_utc();
    let mut tx = pool.begin_with(SNAPSHOT).await?;
    store::begin_comparison(&mut tx).await?;
    let accounts = store::list_accounts(&mut tx).await?;
    let transfers = transfers::compare(&mut tx, now, millis(patience.transfer)).await?;
    if accounts.is_empty() && transfers.accounts == 0 {
        tx.rollback().await?;
        return Ok(None);
    }
    let mut report = BankReport {
        run_id: 0,
        accounts: 0,
        pairs: 0,
        in_transit: 0,
        transfers: transfers.open,
        breaks: transfers.breaks,
    };
    let mut subjects = transfers.accounts;
    for (account, currency) in &accounts {
        subjects += compare_account(&mut tx, account, currency, now, patience.bank, &mut report).await?;
    }
    let before = match find_last_run(&mut tx, None).await? {
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
        if !report.breaks.iter().any(is_open) {
            info!(kind = one.kind, reference = one.reference, detail = one.detail, "break resolved");
        }
    }
    count_breaks("bank", &report.breaks);
    gauge!("dvp_reconciliation_in_transit", "compared" => "bank").set(number(report.in_transit));
    Ok(Some(report))
}

/// Adds what an account's comparison comes to. Returns the number of postings and entries that were compared.
async fn compare_account(
    tx: &mut PgTransaction<'_>,
    account: &str,
    currency: &str,
    now: Timestamp,
    patience: Duration,
    report: &mut BankReport,
) -> Result<usize, StoreError> {
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
    report.accounts += 1;
    report.pairs += paired_entries.len();
    report.in_transit += in_transit;
    report.breaks.extend(breaks);
    Ok(loaded.ledger.len() + loaded.entries.len())
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
