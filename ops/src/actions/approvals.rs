//! Requests of one operator that another one approves.

use clap::{Args, Subcommand};
use dvp_core::operators::approvals::{approve, deny};
use dvp_core::operators::ledger_operations::LEDGER;
use dvp_store::operators::approvals::{self as store, Approval};

use crate::actions::Reason;
use crate::desk::Desk;
use crate::outcome::{Outcome, line, view};

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
}

#[derive(Debug, Args)]
pub(crate) struct Deny {
    /// The request's id; of an operation of the ledger, the operation's.
    #[arg(long)]
    id: String,
    #[command(flatten)]
    why: Reason,
}

impl ApprovalAction {
    pub(super) async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        match self {
            Self::Approve(args) => approved(desk, &args.id, &args.note).await,
            Self::Deny(args) => denied(desk, &args.id, &args.why.reason).await,
        }
    }
}

impl Approve {
    /// Of an operation of the ledger.
    pub(super) async fn operation(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        let id = operation(desk, &self.id).await?;
        approved(desk, &id, &self.note).await
    }
}

impl Deny {
    pub(super) async fn operation(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        let id = operation(desk, &self.id).await?;
        denied(desk, &id, &self.why.reason).await
    }
}

/// The newest request of an operation.
async fn operation(desk: &mut Desk<'_>, id: &str) -> anyhow::Result<String> {
    let found = store::find_newest(desk.conn, LEDGER, id).await?;
    found.map(|found| found.id).ok_or_else(|| anyhow::anyhow!("there is no operation {id}"))
}

async fn approved(desk: &mut Desk<'_>, id: &str, note: &str) -> anyhow::Result<Outcome> {
    Ok(shown(&approve(desk.conn, id, &desk.by.name, note).await?))
}

async fn denied(desk: &mut Desk<'_>, id: &str, reason: &str) -> anyhow::Result<Outcome> {
    Ok(shown(&deny(desk.conn, id, &desk.by.name, reason).await?))
}

fn shown(request: &Approval) -> Outcome {
    Outcome::done(view(request), line(request))
}
