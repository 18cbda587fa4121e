//! A history: any number of orders of every outcome, with all their records, on a database that had none.
//!
//! A few orders of each partner are settled by the engine and its workers ([`templates`]). Statements then copy their
//! rows under new ids, wallets and times (`copies`), and write what stands around them (`outside`): the chain's blocks
//! and the relayer's transactions, payments and statements of the bank, messages of a FIX session, webhook deliveries,
//! operators' actions. Constraints and triggers are on throughout, so that the ledger is checked as it is written.
//!
//! What the copies share with their templates are amounts, prices, and the times within documents; times in columns are
//! spread over the past weeks. The chain knows nothing of the copies.

mod copies;
mod outside;
pub mod templates;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use dvp_core::workflow::ledger_closings::close_hours;
use dvp_sandbox::embedded::Options;
use dvp_testing::Harness;
use dvp_testing::harness::Database;
use sqlx::{Connection as _, PgConnection};

use crate::harness::DurableHarness;

pub use self::outside::{ENDPOINT, SESSION};
pub use self::templates::market;

/// The past over which orders are spread.
pub const DAYS: i64 = 28;
/// Orders that one transaction writes.
const CHUNK: i64 = 10_000;

#[derive(Debug, Clone, Copy)]
pub struct HistorySize {
    pub ended: i64,
    /// Orders that have not: waiting, locking, or stuck for days.
    pub open: i64,
}

impl HistorySize {
    /// A few hundred open orders beside the ended ones.
    pub const fn of(ended: i64) -> Self {
        Self { ended, open: 300 }
    }
}

/// Fills the database of a harness over [`market`], which has no orders yet. Returns the time of the copies.
pub async fn fill<D: Database>(harness: &Harness<D>, size: HistorySize) -> anyhow::Result<Duration> {
    let templates = templates::settle(harness).await?;
    // One connection, which the temporary tables belong to.
    let mut conn = harness.pool().acquire().await?.detach();
    let began = Instant::now();
    sqlx::query("set synchronous_commit = off").execute(&mut conn).await?;
    copies::prepare(&mut conn, &templates).await?;
    outside::prepare(&mut conn).await?;
    let ended = Lot { is_open: false, of: size.ended, after: 0 };
    for lot in [ended, Lot { is_open: true, of: size.open, after: size.ended }] {
        for (first, last) in chunks(lot.of) {
            let mut tx = conn.begin().await?;
            copies::write(&mut tx, first + lot.after, last + lot.after, lot).await?;
            outside::write(&mut tx).await?;
            tx.commit().await?;
        }
    }
    outside::finish(&mut conn).await?;
    let took = began.elapsed();
    // The index of days leads to every page that no vacuum has summarized; a service's autovacuum keeps up with it.
    sqlx::query("vacuum analyze ledger_entry").execute(&mut conn).await?;
    close_hours(&harness.engine).await.context("closing the ledger's hours")?;
    outside::statements(&mut conn).await?;
    sqlx::query("vacuum analyze").execute(&mut conn).await?;
    conn.close().await?;
    Ok(took)
}

/// Copies of the open or of the other templates, so many in all, after so many others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lot {
    is_open: bool,
    of: i64,
    after: i64,
}

async fn run_all(conn: &mut PgConnection, statements: &[&'static str]) -> anyhow::Result<()> {
    for statement in statements {
        sqlx::query(*statement).execute(&mut *conn).await.context(*statement)?;
    }
    Ok(())
}

/// Pieces of 1 to `count`, each with its first and last number.
fn chunks(count: i64) -> impl Iterator<Item = (i64, i64)> {
    let chunks = count.saturating_add(CHUNK - 1) / CHUNK;
    (0..chunks).map(move |n| (n.saturating_mul(CHUNK) + 1, count.min((n + 1).saturating_mul(CHUNK))))
}

/// The memory of a server with a large history: most of the pages of the indexes that a filling inserts into.
pub const MEMORY: &str = "shared_buffers=8GB";

/// The settings of a server while it is filled: whatever is written goes out once.
const FILLING: [&str; 4] = [
    "alter system set full_page_writes = off",
    "alter system set max_wal_size = '8GB'",
    "alter system set checkpoint_timeout = '1h'",
    "select pg_reload_conf()",
];

/// A harness over the history that is kept in `dir`, which is filled if it is not there yet. A power cut may lose it.
/// `settings` are the server's, as [`MEMORY`].
pub async fn open(dir: &Path, size: HistorySize, settings: &[&str]) -> anyhow::Result<DurableHarness> {
    std::fs::create_dir_all(dir)?;
    let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
    let options = Options { durable: false, settings, ..Options::default() };
    let harness = DurableHarness::start_under(dir, market(), options).await?;
    if harness.count("select count(*) from (select from execution limit 1) e").await == 0 {
        let mut admin = harness.pool().acquire().await?;
        run_all(&mut admin, &FILLING).await?;
        fill(&harness, size).await?;
        run_all(&mut admin, &["alter system reset all", "select pg_reload_conf()"]).await?;
    }
    Ok(harness)
}
