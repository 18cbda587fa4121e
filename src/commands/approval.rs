//! `dvp approval list|show|approve|deny`: requests of one operator that another one approves.

use anyhow::Context as _;
use dvp_core::approvals::{approve, deny};
use dvp_core::instructions::find_other_cells;
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
    let others = find_other_cells(&mut access.conn, &approved).await?;
    let mut value = view(&approved);
    if let Some(others) = &others {
        value["alsoInCells"] = json!(others);
    }
    print(args.place.json, &value, || {
        let mut lines = vec![line(&approved)];
        lines.extend(others.iter().flat_map(|others| instruction_notes(waiting_only(&approved), others)));
        lines
    })
}

async fn deny_one(args: ApprovalDeny) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let denied = deny(&mut access.conn, &args.id, &args.operator, &args.reason).await?;
    print(args.place.json, &view(&denied), || vec![line(&denied)])
}

/// Prints a request of a change, and how it is approved.
pub(super) fn print_requested(is_json: bool, requested: &RequestedChange) -> anyhow::Result<()> {
    print(is_json, &requested_view(requested), || requested_lines(requested))
}

/// The same of a standing instruction, with the cells where it is needed, too.
pub(super) fn print_requested_instruction(
    is_json: bool,
    requested: &RequestedChange,
    others: &[String],
) -> anyhow::Result<()> {
    let mut value = requested_view(requested);
    value["alsoInCells"] = json!(others);
    print(is_json, &value, || {
        let mut lines = requested_lines(requested);
        lines.extend(instruction_notes(waiting_only(&requested.approval), others));
        lines
    })
}

fn requested_view(requested: &RequestedChange) -> Value {
    let mut value = view(&requested.approval);
    value["repeated"] = json!(requested.repeated);
    value
}

fn requested_lines(requested: &RequestedChange) -> Vec<String> {
    let approval = &requested.approval;
    let approve = format!("another operator approves it: dvp approval approve --id {}", approval.id);
    vec![line(approval), approve]
}

/// The cell to which the partner of a requested instruction has moved.
fn waiting_only(approval: &Approval) -> Option<&str> {
    approval.details["waitingOnly"].as_str()
}

/// What an instruction does not change, of a partner that has moved.
pub(super) fn instruction_notes(waiting_only: Option<&str>, others: &[String]) -> Vec<String> {
    let left = waiting_only.map(|cell| {
        format!("The partner has moved to cell {cell}: here it only rejects the orders that wait for the account before.")
    });
    let also = |cell| {
        format!(
            "Cell {cell} has an instruction of its own, and may have waiting orders: change it there, too."
        )
    };
    left.into_iter().chain(others.iter().map(also)).collect()
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
