//! `dvp partner …`: partners, their standing instructions, and deposits.

use anyhow::ensure;
use dvp_core::instructions;
use dvp_core::partners::{self as partner_rules, switch as switch_partner};
use dvp_core::requests::Maker;
use dvp_domain::ledger::Owner;
use dvp_store::moves;
use dvp_store::orders::intents::Tenant;
use dvp_store::partners::{self, PartnerAction, PartnerRow};
use serde_json::{Value, json};

use super::approval::{instruction_notes, print_requested_instruction};
use super::{deposit, named_partner, partner_move};
use crate::access::Access;
use crate::cli::{
    PartnerCommand, PartnerCreate, PartnerDeposit, PartnerInstruct, PartnerName, PartnerSwitch, PlaceArgs,
};
use crate::output::print;

const PAGE: i64 = 500;

pub(crate) async fn run(command: PartnerCommand) -> anyhow::Result<()> {
    match command {
        PartnerCommand::Create(args) => create(args).await,
        PartnerCommand::Instruct(args) => instruct(args).await,
        PartnerCommand::Deposit(args) => deposit(args).await,
        PartnerCommand::Disable(args) => switch(args, false).await,
        PartnerCommand::Enable(args) => switch(args, true).await,
        PartnerCommand::History(args) => history(args).await,
        PartnerCommand::Move(command) => partner_move::run(command).await,
        PartnerCommand::List(place) => list(place).await,
    }
}

async fn create(args: PartnerCreate) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let id = partner_rules::create(&mut access.conn, &args.name, args.tier.into(), args.limit).await?;
    print(args.place.json, &json!({"partnerId": id}), || vec![format!("partner {id}")])
}

async fn instruct(args: PartnerInstruct) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let partner = named_partner(&mut access.conn, &args.name).await?;
    let tenant = Tenant { partner_id: partner.id, livemode: access.environment(args.env)?.is_live() };
    let PartnerInstruct { asset, account, operator, reason, evidence, place, .. } = args;
    let to = (asset.as_str(), account.as_str());
    if let Some(evidence) = evidence {
        let maker = Maker { operator: operator.trim(), reason: reason.trim(), evidence: evidence.trim() };
        let requested = instructions::request(&mut access.conn, &tenant, to, maker).await?;
        let others = moves::list_other_cells(&mut access.conn, &tenant.partner_id).await?;
        return print_requested_instruction(place.json, &requested, &others);
    }
    ensure!(!tenant.livemode, "this takes two operators: give --evidence, too; another one approves it");
    let by = (operator.trim(), reason.trim());
    let waiting_only = instructions::set_at_once(&mut access.conn, &tenant, to, by).await?;
    let others = moves::list_other_cells(&mut access.conn, &tenant.partner_id).await?;
    let value = json!({
        "partnerId": tenant.partner_id, "asset": asset, "account": account, "waitingOnly": waiting_only,
        "alsoInCells": others,
    });
    print(place.json, &value, || {
        let mut lines = vec![format!("{asset} goes to {account}")];
        lines.extend(instruction_notes(waiting_only.as_deref(), &others));
        lines
    })
}

async fn deposit(args: PartnerDeposit) -> anyhow::Result<()> {
    let mut access = Access::open(&args.deposit.place).await?;
    let partner = named_partner(&mut access.conn, &args.name).await?;
    let owner = Owner::Partner { id: partner.id.clone(), livemode: access.environment(args.env)?.is_live() };
    deposit::post(&mut access, &args.deposit, &owner, ("partnerId", &partner.id)).await
}

async fn switch(args: PartnerSwitch, enabled: bool) -> anyhow::Result<()> {
    let PartnerSwitch { partner: PartnerName { name, place }, operator, reason } = args;
    let (operator, reason) = (operator.trim(), reason.trim());
    let mut access = Access::open(&place).await?;
    let (partner, changed) = switch_partner(&mut access.conn, &name, enabled, operator, reason).await?;
    let word = if enabled { "enabled" } else { "disabled" };
    let others = moves::list_other_cells(&mut access.conn, &partner.id).await?;
    let value = json!({"partnerId": partner.id, "status": word, "changed": changed, "alsoInCells": others});
    print(place.json, &value, || {
        let also = |cell| format!("Cell {cell} has the partner, too: do the same there.");
        let done = format!("{name} is {word}{}", if changed { "" } else { " already" });
        std::iter::once(done).chain(others.iter().map(also)).collect()
    })
}

async fn history(PartnerName { name, place }: PartnerName) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let partner = named_partner(&mut access.conn, &name).await?;
    let actions = partners::list_actions(&mut access.conn, &partner.id, PAGE).await?;
    let view = |one: &PartnerAction| json!({"action": one.action, "operator": one.operator, "reason": one.reason, "at": one.at.to_rfc3339()});
    let value = json!({"partnerId": partner.id, "actions": actions.iter().map(view).collect::<Vec<_>>()});
    print(place.json, &value, || {
        let line = |one: &PartnerAction| {
            format!("{}  {}  {} ({})", one.at.to_rfc3339(), one.action, one.operator, one.reason)
        };
        actions.iter().map(line).collect()
    })
}

async fn list(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let mut all: Vec<PartnerRow> = Vec::new();
    loop {
        let after = all.last().map(|row| row.name.clone()).unwrap_or_default();
        let page = partners::list_partners(&mut access.conn, &after, PAGE).await?;
        if page.is_empty() {
            break;
        }
        all.extend(page);
    }
    let partners: Vec<Value> = all.iter().map(view).collect();
    print(place.json, &json!({"partners": partners}), || {
        let line = |row: &PartnerRow| {
            let (limit, status) = (row.limit_per_minute, status(row));
            let closed = row.closed_by.as_ref().map(|id| format!(", closed by the move {id}"));
            let closed = closed.unwrap_or_default();
            format!("{}  {}  {}  {limit} a minute  {status}{closed}", row.id, row.name, row.tier)
        };
        all.iter().map(line).collect()
    })
}

fn view(row: &PartnerRow) -> Value {
    json!({
        "partnerId": row.id, "name": row.name, "tier": row.tier, "limitPerMinute": row.limit_per_minute,
        "createdAt": row.created_at.to_rfc3339(), "status": status(row), "closedBy": row.closed_by,
    })
}

const fn status(row: &PartnerRow) -> &'static str {
    if row.disabled_at.is_some() { "disabled" } else { "enabled" }
}
