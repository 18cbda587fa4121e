//! `dvp partner list|history`: the partners.

use clap::{Args, Subcommand};
use dvp_store::partners::registry::{self, PartnerAction, PartnerRow};
use serde_json::{Value, json};

use super::named_partner;
use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::{all_pages, print, print_list};

#[derive(Debug, Subcommand)]
pub(crate) enum PartnerCommand {
    /// List the operators that disabled and enabled a partner, and their reasons.
    #[command(after_help = "Example:\n  dvp partner history --name acme --dir .dvp --json")]
    History(PartnerName),
    /// List the partners.
    #[command(after_help = "Example:\n  dvp partner list --dir .dvp --json")]
    List(PlaceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PartnerName {
    /// The partner's name.
    #[arg(long)]
    pub name: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

const PAGE: i64 = 500;

pub(crate) async fn run(command: PartnerCommand) -> anyhow::Result<()> {
    match command {
        PartnerCommand::History(args) => history(args).await,
        PartnerCommand::List(place) => list(place).await,
    }
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
