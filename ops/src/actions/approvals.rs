//! Requests of one operator that another one approves.

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use dvp_core::operators::approvals::{approve, deny};
use dvp_core::operators::ledger_operations::LEDGER;
use dvp_core::operators::requests::is_same_operator;
use dvp_store::operators::approvals::{self as store, Approval};

use crate::actions::Reason;
use crate::desk::Desk;
use crate::outcome::{Outcome, line, view};
use crate::table::APPROVAL;

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalAction {
    /// Approve and carry out another operator's request, if its subject is unchanged.
    #[command(
        after_help = "Example:\n  dvp approval approve --id apr_… --note 'seen on the statement' --config dvp.toml"
    )]
    Approve(Approve),
    /// End a request without carrying it out. Its maker may, too.
    #[command(
        after_help = "Example:\n  dvp approval deny --id apr_… --reason 'no such line' --config dvp.toml"
    )]
    Deny(Deny),
}

#[derive(Debug, Args)]
pub(crate) struct Approve {
    /// The request's id; of an operation of the ledger, the operation's.
    #[arg(long)]
    id: String,
    #[arg(long, default_value = "")]
    note: String,
    #[command(flatten)]
    seen: Seen,
}

/// What the operator saw.
#[derive(Debug, Args)]
pub(crate) struct Seen {
    /// Only if the request is about this version of its subject.
    #[arg(long, value_name = "VERSION")]
    seen_version: Option<i64>,
}

#[derive(Debug, Args)]
pub(crate) struct Deny {
    /// The request's id; of an operation of the ledger, the operation's.
    #[arg(long)]
    id: String,
    #[command(flatten)]
    seen: Seen,
    #[command(flatten)]
    why: Reason,
}

impl ApprovalAction {
    pub(super) async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        match self {
            Self::Approve(args) => approved(desk, &args.id, &args).await,
            Self::Deny(args) => denied(desk, &args.id, &args).await,
        }
    }
}

impl Approve {
    /// Of an operation of the ledger.
    pub(super) async fn operation(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        let id = operation(desk, &self.id).await?;
        approved(desk, &id, &self).await
    }
}

impl Deny {
    pub(super) async fn operation(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        let id = operation(desk, &self.id).await?;
        denied(desk, &id, &self).await
    }
}

/// The newest request of an operation.
async fn operation(desk: &mut Desk<'_>, id: &str) -> anyhow::Result<String> {
    let found = store::find_newest(desk.conn, LEDGER, id).await?;
    found.map(|found| found.id).ok_or_else(|| anyhow::anyhow!("there is no operation {id}"))
}

/// The request, as the operator saw it.
async fn seen(desk: &mut Desk<'_>, id: &str, seen: &Seen) -> anyhow::Result<Approval> {
    let found = store::find(desk.conn, id).await?;
    let found = found.with_context(|| format!("there is no request {id}"))?;
    let is_seen = seen.seen_version.is_none_or(|version| version == found.version);
    ensure!(is_seen, "the request is about another version than the one you saw: look again");
    Ok(found)
}

async fn approved(desk: &mut Desk<'_>, id: &str, args: &Approve) -> anyhow::Result<Outcome> {
    seen(desk, id, &args.seen).await?;
    Ok(shown(&approve(desk.conn, id, &desk.by.name, args.note.trim()).await?))
}

async fn denied(desk: &mut Desk<'_>, id: &str, args: &Deny) -> anyhow::Result<Outcome> {
    let found = seen(desk, id, &args.seen).await?;
    let may = desk.by.may(APPROVAL) || is_same_operator(&found.maker, &desk.by.name);
    ensure!(may, "an approver ends another operator's request");
    Ok(shown(&deny(desk.conn, id, &desk.by.name, args.why.given()?).await?))
}

fn shown(request: &Approval) -> Outcome {
    Outcome::done(view(request), line(request))
}
