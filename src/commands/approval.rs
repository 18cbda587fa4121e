//! `dvp approval list|show`: requests of one operator that another one approves.

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use dvp_ops::{line, view};
use dvp_store::operators::approvals::{self, Filter};

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

pub(crate) async fn run(command: ApprovalCommand) -> anyhow::Result<()> {
    match command {
        ApprovalCommand::List(args) => list(args).await,
        ApprovalCommand::Show(args) => show(args).await,
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
