//! `dvp ledger …`: operators' postings, and the ledger's contents.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use chrono::{DateTime, Utc};
use dvp_core::approvals::{approve, deny};
use dvp_core::ledger_operations::{LEDGER, Requested, request};
use dvp_core::ledger_rebuild;
use dvp_core::requests::Maker;
use dvp_core::statements::account_name;
use dvp_domain::ledger::Owner;
use dvp_domain::ledger::operation::{Adjusted, Operation};
use dvp_domain::reconcile::transfers::TransitBalance;
use dvp_store::approvals::{self, Approval, Filter};
use dvp_store::ledger::check::{Compared, Findings, compare};
use dvp_store::ledger::closings::{BalanceAt, list_balances_before};
use dvp_store::ledger::rebuild::Change;
use dvp_store::transfers::list_transit;
use serde_json::{Value, json};

use super::approval::{line, view};
use super::named_partner;
use crate::access::Access;
use crate::cli::{
    AdjustedArg, LedgerApprove, LedgerCommand, LedgerList, LedgerRebuild, LedgerReject, LedgerRequest,
    LedgerShow, OperationArgs, OwnerArgs, PlaceArgs,
};
use crate::output::print;

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
    let Requested { approval, repeated } = request(&mut access.conn, id, &operation, maker).await?;
    let mut value = view(&approval);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("repeated".into(), json!(repeated));
    }
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
    let all: Vec<Value> = found.iter().map(view).collect();
    print(args.place.json, &json!({"operations": all}), || found.iter().map(line).collect())
}

async fn show(args: LedgerShow) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let found = find(&mut access, &args.id).await?;
    print(args.place.json, &view(&found), || vec![line(&found), found.details.to_string()])
}

async fn balances(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let found = list_balances_before(&mut access.conn, DateTime::<Utc>::MAX_UTC).await?;
    let all: Vec<Value> = found
        .iter()
        .map(|row| {
            json!({"kind": row.owner_kind, "owner": row.owner, "part": row.part, "asset": row.asset,
                   "amount": row.amount, "accounts": row.accounts})
        })
        .collect();
    print(place.json, &json!({"balances": all}), || {
        let line = |row: &BalanceAt| {
            format!("{}  {}:{}:{}  {}", row.asset, row.owner_kind, row.owner, row.part, row.amount)
        };
        found.iter().map(line).collect()
    })
}

async fn check(place: PlaceArgs) -> anyhow::Result<ExitCode> {
    let mut access = Access::open(&place).await?;
    let Findings { disagreements, unbalanced } = compare(&mut access.conn, Compared::Whole).await?;
    let mut transit = list_transit(&mut access.conn).await?;
    transit.retain(|one| one.judge().is_some());
    let is_right = disagreements.is_empty() && unbalanced.is_empty() && transit.is_empty();
    let differing: Vec<Value> = disagreements
        .iter()
        .map(|one| {
            json!({"kind": one.owner_kind, "owner": one.owner, "asset": one.asset, "kept": one.kept,
                   "posted": one.posted})
        })
        .collect();
    let sums: Vec<Value> =
        unbalanced.iter().map(|(asset, sum)| json!({"asset": asset, "sum": sum})).collect();
    let moved: Vec<Value> = transit
        .iter()
        .map(|one| {
            json!({"cell": one.cell, "asset": one.asset, "ledger": one.ledger.to_string(),
                   "transfers": one.transfers.to_string()})
        })
        .collect();
    let value = json!({"ok": is_right, "disagreements": differing, "unbalanced": sums, "transit": moved});
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
        lines.extend(transit.iter().filter_map(TransitBalance::judge).map(|found| found.detail));
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
        ledger_rebuild::compare(&mut access.conn).await
    } else {
        let maker = Maker { operator: &operator, reason: &reason, evidence: &evidence };
        ledger_rebuild::rebuild(&mut access.conn, maker).await
    };
    let changes = changes.map_err(|error| {
        let code = error.code();
        anyhow::Error::new(error).context(code)
    })?;
    let all: Vec<Value> = changes.iter().map(ledger_rebuild::view).collect();
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
