//! `dvp recall …`

use clap::{Args, Subcommand};
use dvp_domain::recall::RecallReason;

use super::PlaceArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum RecallCommand {
    /// Request that the bank gives the payment of an order back; another operator approves it (`dvp approval approve`).
    ///
    /// The service then sends the request to the bank (camt.056), once. Nothing moves by the bank's answer alone: what
    /// comes back is a return of the payment. A payment that the bank does not have is not recalled: cancel the order,
    /// or fail its payout.
    #[command(
        after_help = "Example:\n  dvp recall request --id exe_… --reason DUPL --operator jo --evidence 'ticket 17' --dir .dvp"
    )]
    Request(RecallRequest),
    /// List recalls, newest first. Those that wait for approval: `dvp approval list --state pending`.
    #[command(after_help = "Example:\n  dvp recall list --open --dir .dvp --json")]
    List(RecallList),
    /// Show a recall: when it was sent, and what the bank answered.
    #[command(after_help = "Example:\n  dvp recall show --id rcl_… --dir .dvp --json")]
    Show(RecallShow),
    /// Close the open recall of an order whose end is known outside of the service, or that is not to be sent: two
    /// operators.
    #[command(
        after_help = "Example:\n  dvp recall close --id exe_… --operator jo --reason 'the bank let it drop' --evidence 'mail of 3 May' --dir .dvp"
    )]
    Close(RecallClose),
}

#[derive(Debug, Args)]
pub(crate) struct RecallRequest {
    /// The execution.
    #[arg(long, value_name = "EXECUTION")]
    pub id: String,
    /// Why, as the bank is told: DUPL (ordered twice), FRAD (fraud), TECH (technical problem), CUST (the customer asks),
    /// AM09 (wrong amount), AC03 (wrong account).
    #[arg(long)]
    pub reason: RecallReason,
    /// What else the bank is told, in 105 characters.
    #[arg(long)]
    pub information: Option<String>,
    /// The requesting operator.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    /// Why, for our own records; the reason's meaning when not given.
    #[arg(long)]
    pub note: Option<String>,
    /// The evidence: a ticket, a report.
    #[arg(long)]
    pub evidence: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RecallList {
    /// Only those whose end is not known, or whose answer is contradicted.
    #[arg(long)]
    pub open: bool,
    /// Only those of one execution.
    #[arg(long)]
    pub execution: Option<String>,
    /// How many at most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    pub limit: i64,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RecallShow {
    /// The recall.
    #[arg(long)]
    pub id: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RecallClose {
    /// The execution.
    #[arg(long, value_name = "EXECUTION")]
    pub id: String,
    /// The operator.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[arg(long)]
    pub reason: String,
    #[arg(long)]
    pub evidence: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}
