//! `dvp approval …`

use clap::{Args, Subcommand, ValueEnum};

use super::PlaceArgs;

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
