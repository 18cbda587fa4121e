//! `dvp archive export|verify|receipt|statement`: closed days as files, and receipts and statements from them.

use std::path::PathBuf;
use std::process::ExitCode;

use chrono::{Days, NaiveDate};
use clap::{Args, Subcommand};
use dvp_archive::ArchiveError;
use dvp_archive::books::{self, Of};
use dvp_archive::export::{Exported, export_day, first_day};
use dvp_archive::manifest::{begin, days};
use dvp_store::database::clock;
use dvp_store::reconcile::snapshot;
use serde_json::{Value, json};

use crate::access::ServiceLocation;
use crate::cli::PlaceArgs;
use crate::output::print;

#[derive(Debug, Subcommand)]
pub(crate) enum ArchiveCommand {
    /// Write the days before a day that are not in the archive yet: the orders that ended on each with events and
    /// receipts, the ledger's entries, and what accounts held at its beginning.
    ///
    /// A day is written when the ledger is closed for it and its orders have ended for good; the first one that is not
    /// ends the export. Personal data is left out. Nothing is deleted from the database.
    #[command(
        after_help = "Example:\n  dvp archive export --archive /var/lib/dvp/archive --before 2026-01-01 --config dvp.toml"
    )]
    Export(ArchiveExport),
    /// Compare every file with its manifest, and days with each other. Exit code 1 when something was changed.
    #[command(after_help = "Example:\n  dvp archive verify --archive /var/lib/dvp/archive")]
    Verify(ArchivePlace),
    /// Print an order's receipt from the archive, as it was issued.
    #[command(
        after_help = "Example:\n  dvp archive receipt --archive /var/lib/dvp/archive --reference exe_…"
    )]
    Receipt(ArchiveReceipt),
    /// Print an account's statement from the archive.
    #[command(
        after_help = "Example:\n  dvp archive statement --archive /var/lib/dvp/archive --account provider:northwind:available --asset USD --from 2025-12-01 --to 2025-12-31"
    )]
    Statement(ArchiveStatement),
}

#[derive(Debug, Args)]
pub(crate) struct ArchivePlace {
    /// The archive's folder.
    #[arg(long, value_name = "FOLDER")]
    pub archive: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ArchiveExport {
    /// The archive's folder.
    #[arg(long, value_name = "FOLDER")]
    pub archive: PathBuf,
    /// Days before this one (UTC).
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub before: NaiveDate,
    /// Make the folder an archive. Any other folder without a day is refused: its disk may not be mounted.
    #[arg(long)]
    pub new: bool,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ArchiveReceipt {
    #[command(flatten)]
    pub place: ArchivePlace,
    /// The execution's id.
    #[arg(long)]
    pub reference: String,
}

#[derive(Debug, Args)]
pub(crate) struct ArchiveStatement {
    #[command(flatten)]
    pub place: ArchivePlace,
    /// `kind:owner:part`, as `dvp report balances` names it.
    #[arg(long)]
    pub account: String,
    #[arg(long)]
    pub asset: String,
    /// The first day (UTC).
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub from: NaiveDate,
    /// The last day.
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub to: NaiveDate,
}

pub(crate) async fn run(command: ArchiveCommand) -> anyhow::Result<ExitCode> {
    match command {
        ArchiveCommand::Export(args) => export(args).await?,
        ArchiveCommand::Verify(place) => return verify(&place),
        ArchiveCommand::Receipt(args) => receipt(&args)?,
        ArchiveCommand::Statement(args) => statement(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn export(args: ArchiveExport) -> anyhow::Result<()> {
    let ArchiveExport { archive, before, new, place } = args;
    let pool = ServiceLocation::find(place.dir.as_deref(), place.config.as_deref())?.pool(1).await?;
    if new {
        begin(&archive)?;
    }
    // Without a due day it says so, too.
    days(&archive)?;
    let mut tx = snapshot(&pool).await?;
    let (mut written, mut ended) = (Vec::new(), None);
    let mut day = first_day(&mut tx).await?;
    tx.rollback().await?;
    while let Some(due) = day.filter(|day| *day < before) {
        // Each day has a snapshot of its own: a long one would hold the vacuum up.
        let mut tx = snapshot(&pool).await?;
        match export_day(&mut tx, &archive, due, clock::now().to_utc()).await? {
            Exported::Written(manifest) => written.push(manifest),
            Exported::Kept(_) => {}
            Exported::NotClosed => ended = Some(format!("the ledger is not closed for {due}")),
            Exported::Unended(orders) => {
                ended = Some(format!("{orders} orders that ended on {due} have something on their way"));
            }
        }
        tx.rollback().await?;
        day = ended.is_none().then(|| due.checked_add_days(Days::new(1))).flatten();
    }
    print(place.json, &json!({"written": written, "endedBecause": ended}), || {
        let lines = written.iter().map(|manifest| {
            format!(
                "{}: {} orders, {} entries",
                manifest.day,
                manifest.rows("orders"),
                manifest.rows("postings")
            )
        });
        lines.chain([format!("{} days written", written.len())]).chain(ended.clone()).collect()
    })
}

fn verify(place: &ArchivePlace) -> anyhow::Result<ExitCode> {
    let verified = match books::verify(&place.archive) {
        Ok(verified) => verified,
        Err(why @ ArchiveError::Changed { .. }) => {
            let why = why.to_string();
            print(place.json, &json!({"ok": false, "why": why}), || vec![why.clone()])?;
            return Ok(ExitCode::FAILURE);
        }
        Err(error) => return Err(error.into()),
    };
    let books::VerifiedArchive { days, orders, postings, gaps } = &verified;
    print(
        place.json,
        &json!({"ok": true, "days": days, "orders": orders, "postings": postings, "gaps": gaps}),
        || {
            let gaps = gaps.iter().map(|day| format!("the day after {day} is missing"));
            [format!("{days} days with {orders} orders and {postings} entries are as they were written")]
                .into_iter()
                .chain(gaps)
                .collect()
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

fn receipt(args: &ArchiveReceipt) -> anyhow::Result<()> {
    let found = books::find_receipt(&args.place.archive, &args.reference)?;
    print(args.place.json, &found, || vec![found.to_string()])
}

fn statement(args: &ArchiveStatement) -> anyhow::Result<()> {
    let mut names = args.account.splitn(3, ':');
    let (Some(kind), Some(owner), Some(part)) = (names.next(), names.next(), names.next()) else {
        anyhow::bail!("an account is kind:owner:part");
    };
    // An owner may have colons: the part is after the last one.
    let (owner, part) = match part.rsplit_once(':') {
        Some((more, part)) => (format!("{owner}:{more}"), part),
        None => (owner.to_owned(), part),
    };
    let of = Of { kind, owner: &owner, part, asset: &args.asset };
    let found = books::statement(&args.place.archive, of, (args.from, args.to))?;
    let lines: Vec<Value> = found
        .lines
        .iter()
        .map(|line| {
            json!({"recordedAt": line.recorded_at.to_rfc3339(), "reference": line.reference, "step": line.step,
                   "line": line.line, "reason": line.reason, "amount": line.amount, "balance": line.balance})
        })
        .collect();
    let value = json!({"account": args.account, "asset": args.asset, "opening": found.opening, "entries": lines,
                       "closing": found.closing});
    print(args.place.json, &value, || {
        let entries = found.lines.iter().map(|line| {
            let (at, reference) = (line.recorded_at.to_rfc3339(), &line.reference);
            format!("{at}  {reference}  {}  {}  {}", line.reason, line.amount, line.balance)
        });
        [format!("opening {}", found.opening)]
            .into_iter()
            .chain(entries)
            .chain([format!("closing {}", found.closing)])
            .collect()
    })
}
