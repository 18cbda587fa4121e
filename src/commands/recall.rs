//! `dvp recall list|received|show`: payments that the bank is asked to give back, and what it asks back from us.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use dvp_domain::ids::ReceivedRecallId;
use dvp_domain::recall::{RecallReason, RefusalReason};
use dvp_store::orders::recalls::{self, Recall, RecallFilter};
use dvp_store::orders::received_recalls::{self, ReceivedRecall};
use serde_json::{Value, json};

use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::{print, print_list};

#[derive(Debug, Subcommand)]
pub(crate) enum RecallCommand {
    /// List recalls, newest first. Those that wait for approval: `dvp approval list --state pending`.
    #[command(after_help = "Example:\n  dvp recall list --open --dir .dvp --json")]
    List(RecallList),
    /// List what banks ask back of the money that was paid to us, newest first.
    #[command(after_help = "Example:\n  dvp recall received --open --dir .dvp --json")]
    Received(ReceivedList),
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
pub(crate) struct ReceivedList {
    /// Only those that were not answered.
    #[arg(long)]
    pub open: bool,
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
        RecallCommand::Received(args) => list_received(args).await,
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
    if args.id.starts_with(ReceivedRecallId::PREFIX) {
        let found = received_recalls::find(&mut access.conn, &args.id).await?;
        let found = found.with_context(|| format!("there is no received recall {}", args.id))?;
        return print(args.place.json, &received_view(&found), || vec![received_line(&found)]);
    }
    let found = recalls::find(&mut access.conn, &args.id).await?;
    let found = found.with_context(|| format!("there is no recall {}", args.id))?;
    print(args.place.json, &view(&found), || vec![line(&found)])
}

async fn list_received(args: ReceivedList) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let found = received_recalls::list(&mut access.conn, args.open, args.limit).await?;
    print_list(args.place.json, "recalls", &found, received_view, received_line)
}

fn received_view(row: &ReceivedRecall) -> Value {
    let asked = &row.asked;
    json!({
        "id": row.id.as_str(), "assigner": asked.assigner, "request": asked.request, "case": asked.case_id,
        "endToEndId": asked.end_to_end_id, "uetr": asked.uetr, "transactionId": asked.transaction_id,
        "amount": asked.amount.map(|amount| amount.to_string()), "currency": asked.currency,
        "reason": asked.reason, "information": asked.information,
        "receivedAt": row.received_at.to_rfc3339(), "status": status(row),
        "refusal": row.answer.flatten().map(RefusalReason::as_str),
        "answeredAt": row.answered_at.map(|at| at.to_rfc3339()), "sentAt": row.sent_at.map(|at| at.to_rfc3339()),
    })
}

const fn status(row: &ReceivedRecall) -> &'static str {
    match row.answer {
        None => "open",
        Some(None) => "accepted",
        Some(Some(_)) => "rejected",
    }
}

fn received_line(row: &ReceivedRecall) -> String {
    let asked = &row.asked;
    let amount = match (asked.amount, asked.currency.as_deref()) {
        (Some(amount), Some(currency)) => format!("{amount} minor units of {currency}"),
        _ => "an amount that is not said".to_owned(),
    };
    let payment = if asked.end_to_end_id.is_empty() { "-" } else { &asked.end_to_end_id };
    let reason = asked.reason.as_deref().unwrap_or("no reason");
    format!(
        "{}  {}  {}  {payment}  {amount}  {reason}  {}",
        row.id,
        row.received_at.to_rfc3339(),
        asked.assigner,
        status(row)
    )
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
