//! `dvp approval list|show|approve|deny`: requests of one operator that another one approves.

use anyhow::Context as _;
use dvp_core::approvals::{approve, deny};
use dvp_core::requests::RequestedChange;
use dvp_store::approvals::{self, Approval, Filter};
use serde_json::{Value, json};

use crate::access::Access;
use crate::cli::{ApprovalApprove, ApprovalCommand, ApprovalDeny, ApprovalList, ApprovalShow, ApprovalState};
use crate::output::print;

pub(crate) async fn run(command: ApprovalCommand) -> anyhow::Result<()> {
    match command {
        ApprovalCommand::List(args) => list(args).await,
        ApprovalCommand::Show(args) => show(args).await,
        ApprovalCommand::Approve(args) => approve_one(args).await,
        ApprovalCommand::Deny(args) => deny_one(args).await,
    }
}

async fn list(args: ApprovalList) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let state = args.state.map(ApprovalState::as_str);
    let filter = Filter { state, kind: None, before: None, limit: args.limit };
    let found = approvals::list(&mut access.conn, &filter).await?;
    let all: Vec<Value> = found.iter().map(view).collect();
    print(args.place.json, &json!({"approvals": all}), || found.iter().map(line).collect())
}

async fn show(args: ApprovalShow) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let found = approvals::find(&mut access.conn, &args.id).await?;
    let found = found.with_context(|| format!("there is no request {}", args.id))?;
    print(args.place.json, &view(&found), || vec![line(&found), found.details.to_string()])
}

async fn approve_one(args: ApprovalApprove) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let approved = approve(&mut access.conn, &args.id, &args.operator, &args.note).await?;
    print(args.place.json, &view(&approved), || vec![line(&approved)])
}

async fn deny_one(args: ApprovalDeny) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let denied = deny(&mut access.conn, &args.id, &args.operator, &args.reason).await?;
    print(args.place.json, &view(&denied), || vec![line(&denied)])
}

/// Prints a request of a change, and how it is approved.
pub(super) fn print_requested(is_json: bool, requested: &RequestedChange) -> anyhow::Result<()> {
    let RequestedChange { approval, repeated } = requested;
    let mut value = view(approval);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("repeated".into(), json!(repeated));
    }
    print(is_json, &value, || {
        let approve = format!("another operator approves it: dvp approval approve --id {}", approval.id);
        vec![line(approval), approve]
    })
}

pub(super) fn view(row: &Approval) -> Value {
    json!({
        "id": row.id, "kind": row.kind, "subject": row.subject, "action": row.action, "details": row.details,
        "version": row.version, "maker": row.maker, "reason": row.reason, "evidence": row.evidence,
        "requestedAt": row.requested_at.to_rfc3339(), "expiresAt": row.expires_at.to_rfc3339(), "state": row.state,
        "checker": row.checker, "note": row.note, "decidedAt": row.decided_at.map(|at| at.to_rfc3339()),
    })
}

pub(super) fn line(row: &Approval) -> String {
    let decided = row.checker.as_deref().map(|checker| format!(" by {checker}")).unwrap_or_default();
    format!(
        "{}  {}  {} {}  by {} ({}; {})  {}{decided}",
        row.id,
        row.requested_at.to_rfc3339(),
        row.action,
        row.subject,
        row.maker,
        row.reason,
        row.evidence,
        row.state
    )
}
