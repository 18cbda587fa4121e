//! `dvp ledger …`: operators' postings, and the ledger's contents.

use std::process::ExitCode;

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use dvp_core::ledger::rebuild;
use dvp_core::ledger::statements::account_name;
use dvp_core::operators::ledger_operations::LEDGER;
use dvp_core::operators::requests::Maker;
use dvp_ops::{line, view};
use dvp_store::ledger::check::{Compared, Findings, compare};
use dvp_store::ledger::closings::{BalanceAt, list_balances_before};
use dvp_store::ledger::rebuild::Change;
use dvp_store::operators::approvals::{self, Approval, Filter};
use serde_json::{Value, json};

use crate::access::{Access, account};
use crate::cli::PlaceArgs;
use crate::output::{print, print_list};

#[derive(Debug, Subcommand)]
pub(crate) enum LedgerCommand {
    /// List operations, newest first.
    #[command(after_help = "Example:\n  dvp ledger list --dir .dvp --json")]
    List(LedgerList),
    /// Show an operation.
    #[command(after_help = "Example:\n  dvp ledger show --id W-17 --dir .dvp --json")]
    Show(LedgerShow),
    /// Every account's balance: the trial balance, with the claims between providers and the house.
    #[command(after_help = "Example:\n  dvp ledger balances --dir .dvp --json")]
    Balances(PlaceArgs),
    /// Hold every kept balance against its entries, the entries of each asset against zero, and what is in transit to and
    /// from other cells against the transfers. Exit code 1 when anything differs.
    #[command(after_help = "Example:\n  dvp ledger check --dir .dvp --json")]
    Check(PlaceArgs),
    /// Make kept balances, closings and the fees of closed days again from the entries.
    ///
    /// Changes what differs, in one transaction, and reports it. Entries are never changed: entries that do not balance,
    /// or a balance below zero by them, are refused with an error. The service may run; its postings wait while balances
    /// are compared.
    #[command(
        after_help = "Example:\n  dvp ledger rebuild --dry-run --config dvp.toml\n  dvp ledger rebuild --reason 'INC-17: balance changed by hand' --config dvp.toml"
    )]
    Rebuild(LedgerRebuild),
}

#[derive(Debug, Args)]
pub(crate) struct LedgerRebuild {
    /// Report what differs and change nothing.
    #[arg(long, conflicts_with_all = ["reason", "evidence"])]
    pub dry_run: bool,
    #[arg(long, required_unless_present = "dry_run", default_value = "", hide_default_value = true)]
    pub reason: String,
    /// The evidence: an incident, a ticket.
    #[arg(long, default_value = "")]
    pub evidence: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LedgerList {
    /// How many at most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    pub limit: i64,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LedgerShow {
    /// The operation's id.
    #[arg(long)]
    pub id: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

pub(crate) async fn run(command: LedgerCommand) -> anyhow::Result<ExitCode> {
    match command {
        LedgerCommand::List(args) => list(args).await?,
        LedgerCommand::Show(args) => show(args).await?,
        LedgerCommand::Balances(place) => balances(place).await?,
        LedgerCommand::Check(place) => return check(place).await,
        LedgerCommand::Rebuild(args) => rebuild(args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The newest request of an operation.
async fn find(access: &mut Access, id: &str) -> anyhow::Result<Approval> {
    let found = approvals::find_newest(&mut access.conn, LEDGER, id).await?;
    found.with_context(|| format!("there is no operation {id}"))
}

async fn list(args: LedgerList) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let filter = Filter { state: None, kind: Some(LEDGER), before: None, limit: args.limit };
    let found = approvals::list(&mut access.conn, &filter).await?;
    print_list(args.place.json, "operations", &found, view, line)
}

async fn show(args: LedgerShow) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let found = find(&mut access, &args.id).await?;
    print(args.place.json, &view(&found), || vec![line(&found), found.details.to_string()])
}

async fn balances(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let found = list_balances_before(&mut access.conn, DateTime::<Utc>::MAX_UTC).await?;
    let view = |row: &BalanceAt| {
        json!({"kind": row.owner_kind, "owner": row.owner, "part": row.part, "asset": row.asset,
               "amount": row.amount, "accounts": row.accounts})
    };
    let line = |row: &BalanceAt| {
        format!("{}  {}:{}:{}  {}", row.asset, row.owner_kind, row.owner, row.part, row.amount)
    };
    print_list(place.json, "balances", &found, view, line)
}

async fn check(place: PlaceArgs) -> anyhow::Result<ExitCode> {
    let mut access = Access::open(&place).await?;
    let Findings { disagreements, unbalanced } = compare(&mut access.conn, Compared::Whole).await?;
    let is_right = disagreements.is_empty() && unbalanced.is_empty();
    let differing: Vec<Value> = disagreements
        .iter()
        .map(|one| {
            json!({"kind": one.owner_kind, "owner": one.owner, "asset": one.asset, "kept": one.kept,
                   "posted": one.posted})
        })
        .collect();
    let sums: Vec<Value> =
        unbalanced.iter().map(|(asset, sum)| json!({"asset": asset, "sum": sum})).collect();
    let value = json!({"ok": is_right, "disagreements": differing, "unbalanced": sums});
    print(place.json, &value, || {
        let mut lines: Vec<String> = disagreements
            .iter()
            .map(|one| {
                format!(
                    "{} {} {}: {} is kept, {} posted",
                    one.owner_kind, one.owner, one.asset, one.kept, one.posted
                )
            })
            .collect();
        lines.extend(unbalanced.iter().map(|(asset, sum)| format!("{asset}: all entries sum to {sum}")));
        if is_right {
            lines.push("every balance is the sum of its entries, and all entries sum to zero".to_owned());
        }
        lines
    })?;
    Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn rebuild(args: LedgerRebuild) -> anyhow::Result<()> {
    let LedgerRebuild { dry_run, reason, evidence, place } = args;
    let mut access = Access::open(&place).await?;
    let changes = if dry_run {
        rebuild::compare(&mut access.conn).await
    } else {
        let operator = account();
        let maker = Maker { operator: &operator, reason: &reason, evidence: &evidence };
        rebuild::rebuild(&mut access.conn, maker).await
    };
    let changes = changes.map_err(|error| {
        let code = error.code();
        anyhow::Error::new(error).context(code)
    })?;
    let all: Vec<Value> = changes.iter().map(rebuild::view).collect();
    print(place.json, &json!({"dryRun": dry_run, "changes": all}), || {
        if changes.is_empty() {
            return vec!["nothing differs: balances and closings are the sums of their entries".to_owned()];
        }
        let end = if dry_run { "differ, nothing was changed" } else { "were put right" };
        changes.iter().map(changed).chain([format!("{} values {end}", changes.len())]).collect()
    })
}

fn changed(change: &Change) -> String {
    let Change { projection, owner_kind, owner, part, asset, at, field, before, after } = change;
    let account = account_name(owner_kind, owner, part);
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
    let at = if at.is_empty() { String::new() } else { format!(" {at}") };
    format!("{projection}{at}  {account}  {asset}  {field}: {} -> {}", value(before), value(after))
}
