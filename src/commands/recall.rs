//! `dvp recall request|list|show|close`: payments that the bank is asked to give back.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use dvp_core::operators::operations::{Action, Resolution, resolve};
use dvp_domain::recall::RecallReason;
use dvp_store::orders::recalls::{self, Recall, RecallFilter};
use serde_json::{Value, json};

use super::execution::print_decision;
use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::{print, print_list};

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

pub(crate) async fn run(command: RecallCommand) -> anyhow::Result<()> {
    match command {
        RecallCommand::Request(args) => request(args).await,
        RecallCommand::List(args) => list(args).await,
        RecallCommand::Show(args) => show(args).await,
        RecallCommand::Close(args) => close(args).await,
    }
}

async fn request(args: RecallRequest) -> anyhow::Result<()> {
    let RecallRequest { id, reason, information, operator, note, evidence, place } = args;
    let note = note.unwrap_or_else(|| reason.describe().to_owned());
    let action = Action::Recall { reason, information };
    let resolution =
        Resolution { reference: &id, action, operator: &operator, reason: &note, evidence: &evidence };
    decide(&place, &resolution).await
}

async fn close(args: RecallClose) -> anyhow::Result<()> {
    let RecallClose { id, operator, reason, evidence, place } = args;
    let resolution = Resolution {
        reference: &id,
        action: Action::CloseRecall,
        operator: &operator,
        reason: &reason,
        evidence: &evidence,
    };
    decide(&place, &resolution).await
}

async fn decide(place: &PlaceArgs, resolution: &Resolution<'_>) -> anyhow::Result<()> {
    let mut access = Access::open(place).await?;
    let decision = resolve(&mut access.conn, resolution).await?;
    print_decision(place.json, resolution, &decision, "is approved", "")
}

async fn list(args: RecallList) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let filter = RecallFilter {
        is_open: args.open,
        execution: args.execution.as_deref(),
        before: None,
        limit: args.limit,
    };
    let found = recalls::list(&mut access.conn, &filter).await?;
    print_list(args.place.json, "recalls", &found, view, line)
}

async fn show(args: RecallShow) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let found = recalls::find(&mut access.conn, &args.id).await?;
    let found = found.with_context(|| format!("there is no recall {}", args.id))?;
    print(args.place.json, &view(&found), || vec![line(&found)])
}

fn view(row: &Recall) -> Value {
    json!({
        "id": row.id.as_str(), "execution": row.execution, "endToEndId": row.end_to_end_id,
        "reason": row.reason.map(RecallReason::as_str), "information": row.information,
        "status": row.status.as_str(), "approvedAt": row.approved_at.to_rfc3339(),
        "sentAt": row.sent_at.map(|at| at.to_rfc3339()), "answeredAt": row.answered_at.map(|at| at.to_rfc3339()),
        "answerReason": row.answer_reason, "answerText": row.answer_text, "contradicting": row.contradicting,
        "closedAt": row.closed_at.map(|at| at.to_rfc3339()),
    })
}

fn line(row: &Recall) -> String {
    let reason = row.reason.map_or("never requested", RecallReason::as_str);
    let answer = row.answer_reason.as_deref().map(|code| format!(" ({code})")).unwrap_or_default();
    let against =
        row.contradicting.as_deref().map(|word| format!("  CONTRADICTED {word}")).unwrap_or_default();
    let closed = if row.closed_at.is_some() { "  closed" } else { "" };
    format!(
        "{}  {}  {}  {reason}  {}{answer}{against}{closed}",
        row.id,
        row.approved_at.to_rfc3339(),
        row.execution,
        row.status.as_str()
    )
}
