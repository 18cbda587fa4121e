//! `dvp bank …`

use clap::{Args, Subcommand};

use super::PlaceArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum BankCommand {
    /// List open alarms about the bank's payments and files, the oldest first.
    #[command(after_help = "Example:\n  dvp bank alarms --config dvp.toml --json")]
    Alarms(BankAlarms),
    /// Clear an alarm that was dealt with. A later alarm about the same opens it again.
    #[command(
        after_help = "Example:\n  dvp bank clear-alarm --subject exe_… --operator jo --reason 'the bank corrected it' --config dvp.toml"
    )]
    ClearAlarm(BankClearAlarm),
}

#[derive(Debug, Args)]
pub(crate) struct BankAlarms {
    /// So many at most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BankClearAlarm {
    /// As `dvp bank alarms` lists it: an execution, or a file's SHA-256.
    #[arg(long)]
    pub subject: String,
    /// The operator that clears it.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[arg(long)]
    pub reason: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}
