//! `dvp approval list|show|approve|deny`: requests of one operator that another one approves.

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use dvp_core::operators::approvals::{approve, deny};
use dvp_core::operators::requests::RequestedChange;
use dvp_store::operators::approvals::{self, Approval, Filter};
use serde_json::{Value, json};

use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::{print, print_list};

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalCommand {
    /// List operators' requests, newest first: those that wait for approval, or all.
    #[command(after_help = "Example:\n  dvp approval list --state pending --dir .dvp --json")]
    List(ApprovalList),
    /// Show a request: exactly the action that its approval carries out.
    #[command(after_help = "Example:\n  dvp approval show --id apr_… --dir .dvp --json")]
    Show(ApprovalShow),
    /// Approve and carry out another operator's request, if its subject is unchanged.
    #[command(
        after_help = "Example:\n  dvp approval approve --id apr_… --operator kim --note 'seen on the statement' --dir .dvp"
    )]
    Approve(ApprovalApprove),
    /// End a request without carrying it out. Its maker may, too.
    #[command(
        after_help = "Example:\n  dvp approval deny --id apr_… --operator kim --reason 'no such line' --dir .dvp"
    )]
    Deny(ApprovalDeny),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ApprovalState {
    Pending,
    Approved,
    Denied,
    Lapsed,
}

impl ApprovalState {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Lapsed => "lapsed",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ApprovalList {
    /// Only those in this state.
    #[arg(long, value_enum)]
    pub state: Option<ApprovalState>,
    /// How many at most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    pub limit: i64,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ApprovalShow {
    #[arg(long)]
    pub id: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ApprovalApprove {
    #[arg(long)]
    pub id: String,
    /// The approving operator, other than the requester.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[arg(long, default_value = "")]
    pub note: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ApprovalDeny {
    #[arg(long)]
    pub id: String,
    /// The operator.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[arg(long)]
    pub reason: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

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
    print_list(args.place.json, "approvals", &found, view, line)
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
    let approval = &requested.approval;
    let mut value = view(approval);
    value["repeated"] = json!(requested.repeated);
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
