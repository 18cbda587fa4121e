//! `dvp recall request|list|show|close`: payments that the bank is asked to give back.

use anyhow::Context as _;
use dvp_core::operations::{Action, OperatorDecision, Resolution, resolve};
use dvp_domain::recall::RecallReason;
use dvp_store::orders::recalls::{self, Recall, RecallFilter};
use serde_json::{Value, json};

use crate::access::Access;
use crate::cli::{PlaceArgs, RecallClose, RecallCommand, RecallList, RecallRequest, RecallShow};
use crate::output::print;

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
    let OperatorDecision { state, is_proposal, approval } = resolve(&mut access.conn, resolution).await?;
    let (reference, action) = (resolution.reference, resolution.action.as_str());
    let value = json!({"reference": reference, "action": action, "state": state, "isProposal": is_proposal,
                       "approval": approval});
    print(place.json, &value, || {
        let what = if is_proposal {
            let id = approval.as_deref().unwrap_or_default();
            format!("waits for another operator within a day: dvp approval approve --id {id}")
        } else {
            "is approved".to_owned()
        };
        vec![format!("{reference}: {action} {what}")]
    })
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
    let all: Vec<Value> = found.iter().map(view).collect();
    print(args.place.json, &json!({ "recalls": all }), || found.iter().map(line).collect())
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
