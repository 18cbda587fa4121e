//! Pauses of parts of the service.

use chrono::{DateTime, Utc};
use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};
use dvp_core::operators::pauses::{PauseSwitch, Switched, switch};
use dvp_domain::pause::Scope;
use serde_json::json;

use crate::actions::{Reason, one_of};
use crate::desk::Desk;
use crate::outcome::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum PauseAction {
    /// Stop new orders, or legs that were never called, from now on and in every process.
    #[command(
        after_help = "Example:\n  dvp pause add --scope pair --target USDC/USD --reason 'price feed wrong' --config dvp.toml"
    )]
    Add(Which),
    /// Let them go on.
    #[command(
        after_help = "Example:\n  dvp pause remove --scope pair --target USDC/USD --reason 'feed is right again' --config dvp.toml"
    )]
    Remove(Removal),
}

#[derive(Debug, Args)]
pub(crate) struct Which {
    /// What it is about.
    #[arg(long, value_parser = scope())]
    scope: Scope,
    /// A partner's name, INPUT/OUTPUT, a provider's id, offramp or payout, a chain's name; nothing for everything.
    #[arg(long, default_value = "", hide_default_value = true)]
    target: String,
    #[command(flatten)]
    why: Reason,
}

#[derive(Debug, Args)]
pub(crate) struct Removal {
    #[command(flatten)]
    which: Which,
    /// Only the pause of this moment (RFC 3339), not a later one.
    #[arg(long, value_name = "TIME")]
    paused_at: Option<DateTime<Utc>>,
}

pub(super) fn scope() -> impl TypedValueParser<Value = Scope> {
    one_of(Scope::ALL.map(Scope::as_str), Scope::parse)
}

impl PauseAction {
    pub(super) async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        let (Which { scope, target, why }, change) = match self {
            Self::Add(which) => (which, PauseSwitch::Pause),
            Self::Remove(Removal { which, paused_at }) => {
                (which, paused_at.map_or(PauseSwitch::Resume, PauseSwitch::ResumeSeen))
            }
        };
        let is_paused = change == PauseSwitch::Pause;
        let (targets, operator) = (&desk.house.targets, &desk.by.name);
        let switched = switch(desk.conn, targets, change, scope, &target, operator, &why.reason).await?;
        let Switched { target, is_changed } = switched;
        let value =
            json!({"scope": scope.as_str(), "target": target, "paused": is_paused, "changed": is_changed});
        let what = [scope.as_str(), &target].join(" ");
        let state = if is_paused { "paused" } else { "not paused" };
        let already = if is_changed { "" } else { " already" };
        Ok(Outcome::done(value, format!("{} is {state}{already}", what.trim_end())))
    }
}
