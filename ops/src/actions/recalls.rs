//! Payments that the bank is asked to give back.

use clap::builder::PossibleValue;
use clap::{Args, Subcommand};
use dvp_core::operators::operations::Action;
use dvp_domain::recall::RecallReason;

use crate::actions::{Why, executions, one_of};
use crate::desk::Desk;
use crate::outcome::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum RecallAction {
    /// Request that the bank gives the payment of an order back; another operator approves it.
    ///
    /// The service then sends the request to the bank (camt.056), once. Nothing moves by the bank's answer alone: what
    /// comes back is a return of the payment. A payment that the bank does not have is not recalled: cancel the order,
    /// or fail its payout.
    #[command(
        after_help = "Example:\n  dvp recall request --id exe_… --reason DUPL --evidence 'ticket 17' --config dvp.toml"
    )]
    Request(Request),
    /// Close the open recall of an order whose end is known outside of the service, or that is not to be sent: two
    /// operators.
    #[command(
        after_help = "Example:\n  dvp recall close --id exe_… --reason 'the bank let it drop' --evidence 'mail of 3 May' --config dvp.toml"
    )]
    Close(Close),
}

#[derive(Debug, Args)]
pub(crate) struct Request {
    /// The execution.
    #[arg(long, value_name = "EXECUTION")]
    id: String,
    /// Why, as the bank is told.
    #[arg(long, value_parser = one_of(RecallReason::ALL.map(told), RecallReason::parse))]
    reason: RecallReason,
    /// What else the bank is told, in 105 characters.
    #[arg(long)]
    information: Option<String>,
    /// Why, for our own records; the reason's meaning when not given.
    #[arg(long)]
    note: Option<String>,
    /// The evidence: a ticket, a report.
    #[arg(long)]
    evidence: String,
}

#[derive(Debug, Args)]
pub(crate) struct Close {
    /// The execution.
    #[arg(long, value_name = "EXECUTION")]
    id: String,
    #[command(flatten)]
    why: Why,
}

fn told(reason: RecallReason) -> PossibleValue {
    PossibleValue::new(reason.as_str()).help(reason.describe())
}

impl RecallAction {
    pub(super) async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        let (reference, action, reason, evidence) = match self {
            Self::Request(Request { id, reason, information, note, evidence }) => {
                let note = note.unwrap_or_else(|| reason.describe().to_owned());
                (id, Action::Recall { reason, information }, note, evidence)
            }
            Self::Close(Close { id, why }) => (id, Action::CloseRecall, why.reason, why.evidence),
        };
        executions::decide(desk, &reference, action, (&reason, &evidence), "is approved", false).await
    }
}
