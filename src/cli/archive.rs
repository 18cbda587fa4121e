//! `dvp archive …`

use std::path::PathBuf;

use chrono::NaiveDate;
use clap::{Args, Subcommand};

use super::PlaceArgs;

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
