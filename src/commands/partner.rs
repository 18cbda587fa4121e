//! `dvp partner …`: partners, their standing instructions, and deposits.

use anyhow::ensure;
use clap::{Args, Subcommand, ValueEnum};
use dvp_core::operators::instructions;
use dvp_core::operators::partners::{
    self as partner_rules, LIMIT_MAX, NAME, Tier, is_name, switch as switch_partner,
};
use dvp_core::operators::requests::Maker;
use dvp_domain::address::{AddressFault, OwnContracts};
use dvp_domain::beneficiary::Beneficiary;
use dvp_domain::ledger::Owner;
use dvp_store::orders::intents::Tenant;
use dvp_store::partners::registry::{self, PartnerAction, PartnerRow};
use serde_json::{Value, json};

use super::approval::print_requested;
use super::deposit::{self, DepositArgs};
use super::named_partner;
use crate::access::Access;
use crate::chains;
use crate::cli::{EnvArg, PlaceArgs};
use crate::output::{all_pages, print, print_list};

#[derive(Debug, Subcommand)]
pub(crate) enum PartnerCommand {
    /// Create a partner.
    #[command(after_help = "Example:\n  dvp partner create --name acme --tier standard --dir .dvp --json")]
    Create(PartnerCreate),
    /// Say where a partner's outputs of an asset go, when an order of the older surface does not. With --evidence it holds
    /// when another operator has approved it, which a live deployment needs.
    #[command(
        after_help = "Example:\n  dvp partner instruct --name acme --env test --asset EUR --account bene_…:dest_… \
    --operator jo --reason 'letter of the partner' --dir .dvp"
    )]
    Instruct(PartnerInstruct),
    /// Note money that a partner has sent ahead. The same id again changes nothing.
    #[command(
        after_help = "Example:\n  dvp partner deposit --name acme --env test --asset USD --amount-minor 1000000 --id wire-1 --dir .dvp"
    )]
    Deposit(PartnerDeposit),
    /// Accept nothing new from a partner from now on: its API keys are refused, its FIX sessions logged out, orders
    /// that wait are rejected. Accepted orders and webhooks continue.
    #[command(
        after_help = "Example:\n  dvp partner disable --name acme --operator jo --reason 'contract ended' --dir .dvp"
    )]
    Disable(PartnerSwitch),
    /// Let a disabled partner work again.
    #[command(
        after_help = "Example:\n  dvp partner enable --name acme --operator jo --reason 'contract renewed' --dir .dvp"
    )]
    Enable(PartnerSwitch),
    /// List the operators that disabled and enabled a partner, and their reasons.
    #[command(after_help = "Example:\n  dvp partner history --name acme --dir .dvp --json")]
    History(PartnerName),
    /// List the partners.
    #[command(after_help = "Example:\n  dvp partner list --dir .dvp --json")]
    List(PlaceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PartnerCreate {
    /// Its name: 1 to 64 of the characters a-z, A-Z, 0-9, '.', '_' and '-'.
    #[arg(long, value_parser = name)]
    pub name: String,
    #[arg(long, value_enum)]
    pub tier: TierArg,
    /// Requests a minute; 100 for standard and 1000 for enterprise when not given.
    #[arg(long, value_name = "PER_MINUTE", value_parser = clap::value_parser!(i64).range(1..=LIMIT_MAX))]
    pub limit: Option<i64>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PartnerName {
    /// The partner's name.
    #[arg(long)]
    pub name: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PartnerSwitch {
    #[command(flatten)]
    pub partner: PartnerName,
    /// The operator.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    /// Why.
    #[arg(long)]
    pub reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct PartnerInstruct {
    /// The partner's name.
    #[arg(long)]
    pub name: String,
    /// The deployment's own when not given; the other one is refused.
    #[arg(long, value_enum)]
    pub env: Option<EnvArg>,
    /// The asset's symbol.
    #[arg(long)]
    pub asset: String,
    /// `bene_…:dest_…` for money, a wallet's address for a token.
    #[arg(long, value_parser = account)]
    pub account: String,
    /// The operator.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    /// Why.
    #[arg(long)]
    pub reason: String,
    /// What shows that the partner asked for it: the change is requested, and another operator approves it.
    #[arg(long)]
    pub evidence: Option<String>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PartnerDeposit {
    /// The partner's name.
    #[arg(long)]
    pub name: String,
    /// The deployment's own when not given; the other one is refused.
    #[arg(long, value_enum)]
    pub env: Option<EnvArg>,
    #[command(flatten)]
    pub deposit: DepositArgs,
}

fn account(text: &str) -> Result<String, String> {
    let beneficiary = Beneficiary { account: Some(text.to_owned()), ..Beneficiary::default() };
    if beneficiary.is_reference() {
        return Ok(text.to_owned());
    }
    match OwnContracts::default().check_wallet(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(AddressFault::Form) => Err("bene_…:dest_… or 0x and 40 hex digits".to_owned()),
        Err(fault) => Err(fault.to_string()),
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum TierArg {
    Standard,
    Enterprise,
}

impl From<TierArg> for Tier {
    fn from(tier: TierArg) -> Self {
        match tier {
            TierArg::Standard => Self::Standard,
            TierArg::Enterprise => Self::Enterprise,
        }
    }
}

pub(super) fn name(text: &str) -> Result<String, String> {
    if is_name(text) { Ok(text.to_owned()) } else { Err(NAME.to_owned()) }
}

const PAGE: i64 = 500;

pub(crate) async fn run(command: PartnerCommand) -> anyhow::Result<()> {
    match command {
        PartnerCommand::Create(args) => create(args).await,
        PartnerCommand::Instruct(args) => instruct(args).await,
        PartnerCommand::Deposit(args) => deposit(args).await,
        PartnerCommand::Disable(args) => switch(args, false).await,
        PartnerCommand::Enable(args) => switch(args, true).await,
        PartnerCommand::History(args) => history(args).await,
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
    let (to, contracts) = ((asset.as_str(), account.as_str()), chains::contracts(&access.place)?);
    if let Some(evidence) = evidence {
        let maker = Maker { operator: operator.trim(), reason: reason.trim(), evidence: evidence.trim() };
        let requested = instructions::request(&mut access.conn, &tenant, to, maker, &contracts).await?;
        return print_requested(place.json, &requested);
    }
    ensure!(!tenant.livemode, "this takes two operators: give --evidence, too; another one approves it");
    let by = (operator.trim(), reason.trim());
    instructions::set_at_once(&mut access.conn, &tenant, to, by, &contracts).await?;
    let value = json!({"partnerId": tenant.partner_id, "asset": asset, "account": account});
    print(place.json, &value, || vec![format!("{asset} goes to {account}")])
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
    let value = json!({"partnerId": partner.id, "status": word, "changed": changed});
    print(place.json, &value, || vec![format!("{name} is {word}{}", if changed { "" } else { " already" })])
}

async fn history(PartnerName { name, place }: PartnerName) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let partner = named_partner(&mut access.conn, &name).await?;
    let actions = registry::list_actions(&mut access.conn, &partner.id, PAGE).await?;
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
    let page = async |after: &str| registry::list_partners(&mut access.conn, after, PAGE).await;
    let all = all_pages(|row: &PartnerRow| &row.name, page).await?;
    let line = |row: &PartnerRow| {
        let (limit, status) = (row.limit_per_minute, status(row));
        format!("{}  {}  {}  {limit} a minute  {status}", row.id, row.name, row.tier)
    };
    print_list(place.json, "partners", &all, view, line)
}

fn view(row: &PartnerRow) -> Value {
    json!({
        "partnerId": row.id, "name": row.name, "tier": row.tier, "limitPerMinute": row.limit_per_minute,
        "createdAt": row.created_at.to_rfc3339(), "status": status(row),
    })
}

const fn status(row: &PartnerRow) -> &'static str {
    if row.disabled_at.is_some() { "disabled" } else { "enabled" }
}
