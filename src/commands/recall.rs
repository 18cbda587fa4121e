//! `dvp recall list|show`: payments that the bank is asked to give back.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use dvp_domain::recall::RecallReason;
use dvp_store::orders::recalls::{self, Recall, RecallFilter};
use serde_json::{Value, json};

use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::{print, print_list};

#[derive(Debug, Subcommand)]
pub(crate) enum RecallCommand {
    /// List recalls, newest first. Those that wait for approval: `dvp approval list --state pending`.
    #[command(after_help = "Example:\n  dvp recall list --open --dir .dvp --json")]
    List(RecallList),
    /// Show a recall: when it was sent, and what the bank answered.
    #[command(after_help = "Example:\n  dvp recall show --id rcl_… --dir .dvp --json")]
    Show(RecallShow),
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

pub(crate) async fn run(command: RecallCommand) -> anyhow::Result<()> {
    match command {
        RecallCommand::List(args) => list(args).await,
        RecallCommand::Show(args) => show(args).await,
    }
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
