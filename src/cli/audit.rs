//! `dvp audit …`

use clap::{Args, Subcommand};

use super::PlaceArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Check every entry of the log against the hash before it, and the heads that were anchored.
    ///
    /// Exit code 1 when an entry was changed, added or taken out.
    #[command(after_help = "Example:\n  dvp audit verify --dir .dvp --json")]
    Verify(PlaceArgs),
    /// List entries, oldest first.
    #[command(after_help = "Example:\n  dvp audit list --after 1200 --limit 50 --dir .dvp --json")]
    List(AuditList),
    /// Print every entry with its hashes, a JSON object a line, so that the log can be checked elsewhere.
    #[command(after_help = "Example:\n  dvp audit export --dir .dvp > audit.jsonl")]
    Export(PlaceArgs),
    /// Hand today's head to the relayer to be anchored now. The service does it once a day by itself.
    #[command(after_help = "Example:\n  dvp audit anchor --chain-id 31337 --dir .dvp")]
    Anchor(AuditAnchor),
}

#[derive(Debug, Args)]
pub(crate) struct AuditList {
    /// After this entry.
    #[arg(long, default_value_t = 0)]
    pub after: i64,
    /// How many at most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    pub limit: i64,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AuditAnchor {
    /// The chain whose relayer anchors it.
    #[arg(long)]
    pub chain_id: i64,
    #[command(flatten)]
    pub place: PlaceArgs,
}
