//! Alarms about the bank's payments and files.

use clap::{Args, Subcommand};
use dvp_core::operators::operations::bank_alarms::clear;
use serde_json::json;

use crate::actions::Reason;
use crate::desk::Desk;
use crate::outcome::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum BankAction {
    /// Clear an alarm that was dealt with. A later alarm about the same opens it again.
    #[command(
        after_help = "Example:\n  dvp bank clear-alarm --subject exe_… --reason 'the bank corrected it' --config dvp.toml"
    )]
    ClearAlarm(ClearAlarm),
}

#[derive(Debug, Args)]
pub(crate) struct ClearAlarm {
    /// As `dvp bank alarms` lists it: an execution, or a file's SHA-256.
    #[arg(long)]
    subject: String,
    #[command(flatten)]
    why: Reason,
}

impl BankAction {
    pub(super) async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        let Self::ClearAlarm(ClearAlarm { subject, why }) = self;
        clear(desk.conn, &subject, &desk.by.name, &why.reason).await?;
        Ok(Outcome::done(json!({"cleared": subject}), format!("cleared {subject}")))
    }
}
