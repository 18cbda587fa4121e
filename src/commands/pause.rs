//! `dvp pause …`: operators' pauses of parts of the service.

use clap::{Args, Subcommand};
use dvp_core::operators::pauses::{PauseSwitch, Switched, switch};
use dvp_domain::pause::Scope;
use dvp_store::operators::pauses::{self, PauseRow};
use serde_json::json;

use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::{print, print_list};

#[derive(Debug, Subcommand)]
pub(crate) enum PauseCommand {
    /// Stop new orders, or legs that were never called, from now on and in every process.
    #[command(
        after_help = "Example:\n  dvp pause add --scope pair --target USDC/USD --operator jo --reason 'price feed wrong' --dir .dvp"
    )]
    Add(PauseChange),
    /// Let them go on.
    #[command(
        after_help = "Example:\n  dvp pause remove --scope pair --target USDC/USD --operator kim --reason 'feed is right again' --dir .dvp"
    )]
    Remove(PauseChange),
    /// Show the pauses in force.
    #[command(after_help = "Example:\n  dvp pause list --dir .dvp --json")]
    List(PlaceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PauseChange {
    /// everything, partner, pair, provider, rail or chain.
    #[arg(long, value_parser = scope)]
    pub scope: Scope,
    /// A partner's name, INPUT/OUTPUT, a provider's id, offramp or payout, a chain's name; nothing for everything.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub target: String,
    /// The operator.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[arg(long)]
    pub reason: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

fn scope(text: &str) -> Result<Scope, String> {
    Scope::parse(text).ok_or_else(|| format!("the scopes are {}", Scope::ALL.map(Scope::as_str).join(", ")))
}

pub(crate) async fn run(command: PauseCommand) -> anyhow::Result<()> {
    match command {
        PauseCommand::Add(args) => change(args, PauseSwitch::Pause).await,
        PauseCommand::Remove(args) => change(args, PauseSwitch::Resume).await,
        PauseCommand::List(place) => list(place).await,
    }
}

async fn change(args: PauseChange, change: PauseSwitch) -> anyhow::Result<()> {
    let PauseChange { scope, target, operator, reason, place } = args;
    let mut access = Access::open(&place).await?;
    let switched =
        switch(&mut access.conn, &access.targets, change, scope, &target, &operator, &reason).await?;
    let Switched { target, is_changed } = switched;
    let is_paused = change == PauseSwitch::Pause;
    let value =
        json!({"scope": scope.as_str(), "target": target, "paused": is_paused, "changed": is_changed});
    print(place.json, &value, || {
        let what = [scope.as_str(), &target].join(" ");
        let state = if is_paused { "paused" } else { "not paused" };
        let already = if is_changed { "" } else { " already" };
        vec![format!("{} is {state}{already}", what.trim_end())]
    })
}

async fn list(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let rows = pauses::list(&mut access.conn).await?;
    let view = |row: &PauseRow| {
        json!({"scope": row.scope, "target": row.target, "operator": row.operator, "reason": row.reason,
               "pausedAt": row.paused_at})
    };
    let line = |row: &PauseRow| {
        format!("{} {}  since {} by {}: {}", row.scope, row.target, row.paused_at, row.operator, row.reason)
    };
    print_list(place.json, "pauses", &rows, view, line)
}
