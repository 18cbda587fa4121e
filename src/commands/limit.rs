//! `dvp limit …`: how much orders may be. Two operators change it.

use clap::{Args, Subcommand};
use dvp_core::operators::limits::{LimitChange, request};
use dvp_core::operators::requests::Maker;
use dvp_domain::limit::{LimitScope, Period};
use dvp_domain::money::Minor;
use dvp_store::operators::limits::{self, LimitRow};
use dvp_store::orders::abandonments::{self, CoolDownRow};
use serde_json::json;

use super::approval::print_requested;
use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::commands::deposit::amount;
use crate::output::print_list;

#[derive(Debug, Subcommand)]
pub(crate) enum LimitCommand {
    /// Request a limit; another operator approves it with `dvp approval approve`.
    #[command(
        after_help = "Example:\n  dvp limit set --scope partner --target acme --asset USDC --per day --amount-minor 5000000000 --operator jo --reason 'new partner' --evidence 'risk memo 7' --dir .dvp"
    )]
    Set(LimitSet),
    /// Request that a limit is taken away; another operator approves it.
    #[command(
        after_help = "Example:\n  dvp limit remove --scope partner --target acme --asset USDC --per day --operator jo --reason 'a year without a break' --evidence 'risk memo 9' --dir .dvp"
    )]
    Remove(LimitWhich),
    /// Show the limits in force, with today's accepted and open amounts.
    #[command(after_help = "Example:\n  dvp limit list --dir .dvp --json")]
    List(PlaceArgs),
    /// Show whose orders and firm quotes are refused for now, because too many were let go before.
    #[command(after_help = "Example:\n  dvp limit cool-downs --dir .dvp --json")]
    CoolDowns(PlaceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LimitSet {
    #[command(flatten)]
    pub which: LimitWhich,
    /// The most that is accepted, in the asset's minor units.
    #[arg(long, value_parser = amount)]
    pub amount_minor: Minor,
}

#[derive(Debug, Args)]
pub(crate) struct LimitWhich {
    /// everything, partner, pair, provider, rail or chain.
    #[arg(long, value_parser = scope)]
    pub scope: LimitScope,
    /// A partner's name, INPUT/OUTPUT, a provider's id, offramp or payout, a chain's name; nothing for everything.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub target: String,
    /// The input of orders, or the output of the provider.
    #[arg(long)]
    pub asset: String,
    /// order, day (of UTC), or open (accepted and not ended).
    #[arg(long, value_parser = period)]
    pub per: Period,
    /// The requesting operator.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[arg(long)]
    pub reason: String,
    #[arg(long)]
    pub evidence: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

fn scope(text: &str) -> Result<LimitScope, String> {
    let all = || LimitScope::ALL.map(LimitScope::as_str).join(", ");
    LimitScope::parse(text).ok_or_else(|| format!("the scopes are {}", all()))
}

fn period(text: &str) -> Result<Period, String> {
    Period::parse(text)
        .ok_or_else(|| format!("a limit is per one of {}", Period::ALL.map(Period::as_str).join(", ")))
}

pub(crate) async fn run(command: LimitCommand) -> anyhow::Result<()> {
    match command {
        LimitCommand::Set(LimitSet { which, amount_minor }) => make(which, Some(amount_minor)).await,
        LimitCommand::Remove(which) => make(which, None).await,
        LimitCommand::List(place) => list(place).await,
        LimitCommand::CoolDowns(place) => list_cool_downs(place).await,
    }
}

async fn make(which: LimitWhich, amount_minor: Option<Minor>) -> anyhow::Result<()> {
    let LimitWhich { scope, target, asset, per: period, operator, reason, evidence, place } = which;
    let mut access = Access::open(&place).await?;
    let change = LimitChange { scope, target, asset, period, amount_minor };
    let maker = Maker { operator: &operator, reason: &reason, evidence: &evidence };
    print_requested(place.json, &request(&mut access.conn, &access.targets, &change, maker).await?)
}

/// The most cool-downs of the list.
const COOL_DOWNS: i64 = 500;

async fn list_cool_downs(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let rows = abandonments::list_cooling(&mut access.conn, COOL_DOWNS).await?;
    let view = |row: &CoolDownRow| {
        json!({"scope": row.scope, "subject": row.subject, "providerId": row.provider_id, "asset": row.asset,
               "orders": row.orders, "since": row.since.to_rfc3339(), "until": row.until.to_rfc3339()})
    };
    let line = |row: &CoolDownRow| {
        let CoolDownRow { scope, subject, provider_id, asset, since, until, orders } = row;
        let (since, until) = (since.to_rfc3339(), until.to_rfc3339());
        match scope.as_str() {
            "quotes" => format!("{scope} {subject}  {provider_id} {asset}, since {since}, until {until}"),
            _ => format!("{scope} {subject}  {orders} orders let go, since {since}, until {until}"),
        }
    };
    print_list(place.json, "coolDowns", &rows, view, line)
}

async fn list(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let rows = limits::list(&mut access.conn).await?;
    let view = |row: &LimitRow| {
        json!({"scope": row.scope, "target": row.target, "asset": row.asset, "per": row.period,
               "amountMinor": row.amount, "usedTodayMinor": row.used, "openMinor": row.open,
               "approval": row.approval, "setAt": row.set_at.to_rfc3339()})
    };
    let line = |row: &LimitRow| {
        let LimitRow { scope, target, asset, amount, period, used, open, approval, .. } = row;
        format!(
            "{scope} {target} {asset}  {amount} per {period}, {used} accepted today, {open} open  by {approval}"
        )
    };
    print_list(place.json, "limits", &rows, view, line)
}
