//! `dvp ledger …`: operators' postings, and the ledger's contents.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand, ValueEnum};
use dvp_core::ledger::rebuild;
use dvp_core::ledger::statements::account_name;
use dvp_core::operators::approvals::{approve, deny};
use dvp_core::operators::ledger_operations::{LEDGER, request};
use dvp_core::operators::requests::{Maker, RequestedChange};
use dvp_domain::ledger::operation::{Adjusted, Direction, Operation};
use dvp_domain::ledger::{Claimant, Owner};
use dvp_domain::money::Minor;
use dvp_store::ledger::check::{Compared, Findings, compare};
use dvp_store::ledger::closings::{BalanceAt, list_balances_before};
use dvp_store::ledger::rebuild::Change;
use dvp_store::operators::approvals::{self, Approval, Filter};
use serde_json::{Value, json};

use super::approval::{line, view};
use super::named_partner;
use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::commands::deposit::amount;
use crate::output::{print, print_list};

#[derive(Debug, Subcommand)]
pub(crate) enum LedgerCommand {
    /// Request an operation of the ledger; another operator approves it. The same id again changes nothing.
    #[command(subcommand)]
    Request(LedgerRequest),
    /// Approve and post another operator's request.
    #[command(
        after_help = "Example:\n  dvp ledger approve --id W-17 --operator kim --note 'wire sent' --dir .dvp"
    )]
    Approve(LedgerApprove),
    /// End a request without posting it. Its maker may, too.
    #[command(
        after_help = "Example:\n  dvp ledger reject --id W-17 --operator kim --reason 'no such wire' --dir .dvp"
    )]
    Reject(LedgerReject),
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
        after_help = "Example:\n  dvp ledger rebuild --dry-run --config dvp.toml\n  dvp ledger rebuild --operator jo --reason 'INC-17: balance changed by hand' --config dvp.toml"
    )]
    Rebuild(LedgerRebuild),
}

#[derive(Debug, Subcommand)]
pub(crate) enum LedgerRequest {
    /// An owner took money out.
    #[command(
        after_help = "Example:\n  dvp ledger request withdrawal --provider northwind --asset USD --amount-minor 5000 --id W-17 --operator jo --reason 'requested by mail' --evidence 'wire 17' --dir .dvp"
    )]
    Withdrawal {
        #[command(flatten)]
        owner: OwnerArgs,
        #[command(flatten)]
        what: OperationArgs,
    },
    /// A deposit was sent back, or a part of it.
    #[command(
        after_help = "Example:\n  dvp ledger request return --partner acme --deposit wire-1 --asset USD --amount-minor 5000 --id R-3 --operator jo --reason 'wrong account' --evidence 'wire 18' --dir .dvp"
    )]
    Return {
        #[command(flatten)]
        owner: OwnerArgs,
        /// The deposit's id.
        #[arg(long)]
        deposit: String,
        #[command(flatten)]
        what: OperationArgs,
    },
    /// An account is put right, against the house.
    #[command(
        after_help = "Example:\n  dvp ledger request adjustment --account available --provider northwind --direction credit --asset USD --amount-minor 12 --id A-2 --operator jo --reason 'interest' --evidence 'statement 17' --dir .dvp"
    )]
    Adjustment {
        #[arg(long, value_enum)]
        account: AdjustedArg,
        /// Of `available` and `owed`: the provider.
        #[arg(long, conflicts_with = "partner")]
        provider: Option<String>,
        /// Of `available`: the partner's name.
        #[arg(long)]
        partner: Option<String>,
        /// Credit: the account has more than before.
        #[arg(long, value_parser = direction)]
        direction: Direction,
        #[command(flatten)]
        what: OperationArgs,
    },
    /// Earned fees were moved to an account of the service's own.
    #[command(
        after_help = "Example:\n  dvp ledger request fee-sweep --asset USD --amount-minor 5000 --id F-11 --operator jo --reason 'month end' --evidence 'transfer 9' --dir .dvp"
    )]
    FeeSweep {
        #[command(flatten)]
        what: OperationArgs,
    },
    /// The bank has charged a fee, which the house bears: a debit of a statement that is about no order. The id is the
    /// bank's reference of the entry.
    #[command(
        after_help = "Example:\n  dvp ledger request charge --id BK2611-77 --asset USD --amount-minor 350 --operator jo --reason 'fee of November' --evidence 'statement 17, line 4' --dir .dvp"
    )]
    Charge {
        #[command(flatten)]
        what: OperationArgs,
    },
    /// Inventory changed hands between providers.
    #[command(
        after_help = "Example:\n  dvp ledger request transfer --from northwind --to meridian --asset USD --amount-minor 5000 --id T-4 --operator jo --reason 'rebalanced' --evidence 'mail of both' --dir .dvp"
    )]
    Transfer {
        #[arg(long)]
        from: String,
        #[arg(long)]
        to: String,
        #[command(flatten)]
        what: OperationArgs,
    },
    /// Somebody has sent tokens to the escrow, for no order: the surplus of the break `balance_differs`. The id is the
    /// hash of their transaction.
    #[command(
        after_help = "Example:\n  dvp ledger request gift --id 0x5d… --asset USDC --amount-minor 1 --operator jo --reason 'sent by a stranger' --evidence 'block 91' --dir .dvp"
    )]
    Gift {
        #[command(flatten)]
        what: OperationArgs,
    },
    /// A debtor's wallet has paid a claimant's funds to the claimant: `house`, or a provider's id.
    #[command(
        after_help = "Example:\n  dvp ledger request claim-settlement --debtor northwind --claimant house --asset USDC --amount-minor 5000 --id C-8 --operator jo --reason 'monthly' --evidence '0x…' --dir .dvp"
    )]
    ClaimSettlement {
        #[arg(long, value_parser = claimant)]
        debtor: Claimant,
        #[arg(long, value_parser = claimant)]
        claimant: Claimant,
        #[command(flatten)]
        what: OperationArgs,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AdjustedArg {
    Available,
    Owed,
    Fees,
}

/// Whose available balance.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct OwnerArgs {
    /// The provider's id.
    #[arg(long)]
    pub provider: Option<String>,
    /// The partner's name.
    #[arg(long)]
    pub partner: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct OperationArgs {
    /// The unique id of the operation.
    #[arg(long)]
    pub id: String,
    /// The asset's symbol.
    #[arg(long)]
    pub asset: String,
    /// In minor units.
    #[arg(long, value_parser = amount)]
    pub amount_minor: Minor,
    /// The requesting operator.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[arg(long)]
    pub reason: String,
    /// The evidence: a line of a bank statement, a transaction, a ticket.
    #[arg(long)]
    pub evidence: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LedgerApprove {
    /// The operation's id.
    #[arg(long)]
    pub id: String,
    /// The approving operator, other than the requester.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[arg(long, default_value = "")]
    pub note: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LedgerReject {
    /// The operation's id.
    #[arg(long)]
    pub id: String,
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[arg(long)]
    pub reason: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LedgerRebuild {
    /// Report what differs and change nothing.
    #[arg(long, conflicts_with_all = ["operator", "reason", "evidence"])]
    pub dry_run: bool,
    #[arg(
        long,
        visible_alias = "as",
        required_unless_present = "dry_run",
        default_value = "",
        hide_default_value = true
    )]
    pub operator: String,
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

fn direction(text: &str) -> Result<Direction, String> {
    match text {
        "credit" => Ok(Direction::Credit),
        "debit" => Ok(Direction::Debit),
        _ => Err("credit or debit".to_owned()),
    }
}

fn claimant(text: &str) -> Result<Claimant, String> {
    match text {
        "" => Err("house, or a provider's id".to_owned()),
        "house" => Ok(Claimant::House),
        provider => Ok(Claimant::Provider(provider.to_owned())),
    }
}

pub(crate) async fn run(command: LedgerCommand) -> anyhow::Result<ExitCode> {
    match command {
        LedgerCommand::Request(operation) => make(operation).await?,
        LedgerCommand::Approve(args) => approve_one(args).await?,
        LedgerCommand::Reject(args) => reject(args).await?,
        LedgerCommand::List(args) => list(args).await?,
        LedgerCommand::Show(args) => show(args).await?,
        LedgerCommand::Balances(place) => balances(place).await?,
        LedgerCommand::Check(place) => return check(place).await,
        LedgerCommand::Rebuild(args) => rebuild(args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn make(wanted: LedgerRequest) -> anyhow::Result<()> {
    let what = match &wanted {
        LedgerRequest::Withdrawal { what, .. }
        | LedgerRequest::Return { what, .. }
        | LedgerRequest::Adjustment { what, .. }
        | LedgerRequest::FeeSweep { what }
        | LedgerRequest::Charge { what }
        | LedgerRequest::Gift { what }
        | LedgerRequest::Transfer { what, .. }
        | LedgerRequest::ClaimSettlement { what, .. } => what,
    };
    let mut access = Access::open(&what.place).await?;
    let operation = operation(&mut access, &wanted).await?;
    let OperationArgs { id, operator, reason, evidence, place, .. } = what;
    let maker = Maker { operator, reason, evidence };
    let RequestedChange { approval, repeated } = request(&mut access.conn, id, &operation, maker).await?;
    let mut value = view(&approval);
    value["repeated"] = json!(repeated);
    print(place.json, &value, || {
        vec![line(&approval), format!("another operator posts it: dvp ledger approve --id {id}")]
    })
}

async fn operation(access: &mut Access, wanted: &LedgerRequest) -> anyhow::Result<Operation> {
    let asset = |what: &OperationArgs| what.asset.clone();
    Ok(match wanted {
        LedgerRequest::Withdrawal { owner: OwnerArgs { provider, partner }, what } => {
            let owner = owner(access, provider.as_ref(), partner.as_ref()).await?;
            Operation::Withdrawal { owner, asset: asset(what), amount: what.amount_minor }
        }
        LedgerRequest::Return { owner: OwnerArgs { provider, partner }, deposit, what } => {
            let owner = owner(access, provider.as_ref(), partner.as_ref()).await?;
            let deposit = deposit.clone();
            Operation::Return { owner, asset: asset(what), amount: what.amount_minor, deposit }
        }
        LedgerRequest::Adjustment { account, provider, partner, direction, what } => {
            let account = match account {
                AdjustedArg::Available => {
                    Adjusted::Available(owner(access, provider.as_ref(), partner.as_ref()).await?)
                }
                AdjustedArg::Owed => Adjusted::Owed(provider.clone().context("--provider is needed")?),
                AdjustedArg::Fees => Adjusted::Fees,
            };
            let direction = *direction;
            Operation::Adjustment { account, direction, asset: asset(what), amount: what.amount_minor }
        }
        LedgerRequest::FeeSweep { what } => {
            Operation::FeeSweep { asset: asset(what), amount: what.amount_minor }
        }
        LedgerRequest::Charge { what } => {
            Operation::Charge { asset: asset(what), amount: what.amount_minor, entry: what.id.clone() }
        }
        LedgerRequest::Gift { what } => Operation::Gift { asset: asset(what), amount: what.amount_minor },
        LedgerRequest::Transfer { from, to, what } => Operation::Transfer {
            from: from.clone(),
            to: to.clone(),
            asset: asset(what),
            amount: what.amount_minor,
        },
        LedgerRequest::ClaimSettlement { debtor, claimant, what } => Operation::ClaimSettlement {
            debtor: debtor.clone(),
            claimant: claimant.clone(),
            asset: asset(what),
            amount: what.amount_minor,
        },
    })
}

pub(super) async fn owner(
    access: &mut Access,
    provider: Option<&String>,
    partner: Option<&String>,
) -> anyhow::Result<Owner> {
    match (provider, partner) {
        (Some(provider), None) => Ok(Owner::Provider(provider.clone())),
        (None, Some(name)) => {
            let id = named_partner(&mut access.conn, name).await?.id;
            Ok(Owner::Partner { id, livemode: access.environment(None)?.is_live() })
        }
        _ => bail!("--provider or --partner is needed"),
    }
}

/// The newest request of an operation.
async fn find(access: &mut Access, id: &str) -> anyhow::Result<Approval> {
    let found = approvals::find_newest(&mut access.conn, LEDGER, id).await?;
    found.with_context(|| format!("there is no operation {id}"))
}

async fn approve_one(args: LedgerApprove) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let request = find(&mut access, &args.id).await?;
    let approved = approve(&mut access.conn, &request.id, &args.operator, &args.note).await?;
    print(args.place.json, &view(&approved), || vec![line(&approved)])
}

async fn reject(args: LedgerReject) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let request = find(&mut access, &args.id).await?;
    let denied = deny(&mut access.conn, &request.id, &args.operator, &args.reason).await?;
    print(args.place.json, &view(&denied), || vec![line(&denied)])
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
    let LedgerRebuild { dry_run, operator, reason, evidence, place } = args;
    let mut access = Access::open(&place).await?;
    let changes = if dry_run {
        rebuild::compare(&mut access.conn).await
    } else {
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
