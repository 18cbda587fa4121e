//! `dvp limit list|cool-downs`: how much orders may be.

use clap::Subcommand;
use dvp_store::operators::limits::{self, LimitRow};
use dvp_store::orders::abandonments::{self, CoolDownRow};
use serde_json::json;

use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::print_list;

#[derive(Debug, Subcommand)]
pub(crate) enum LimitCommand {
    /// Show the limits in force, with today's accepted and open amounts.
    #[command(after_help = "Example:\n  dvp limit list --dir .dvp --json")]
    List(PlaceArgs),
    /// Show whose orders and firm quotes are refused for now, because too many were let go before.
    #[command(after_help = "Example:\n  dvp limit cool-downs --dir .dvp --json")]
    CoolDowns(PlaceArgs),
}

pub(crate) async fn run(command: LimitCommand) -> anyhow::Result<()> {
    match command {
        LimitCommand::List(place) => list(place).await,
        LimitCommand::CoolDowns(place) => list_cool_downs(place).await,
    }
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
