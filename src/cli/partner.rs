//! `dvp partner …`

use clap::{Args, Subcommand, ValueEnum};

use super::PlaceArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum PartnerCommand {
    /// Create a partner.
    #[command(after_help = "Example:\n  dvp partner create --name acme --tier standard --dir .dvp --json")]
    Create(PartnerCreate),
    /// List the partners.
    #[command(after_help = "Example:\n  dvp partner list --dir .dvp --json")]
    List(PlaceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PartnerCreate {
    /// Its name: 1 to 64 of the characters a-z, A-Z, 0-9, '.', '_' and '-'.
    #[arg(long, value_parser = name)]
    pub name: String,
    #[arg(long, value_enum)]
    pub tier: TierArg,
    /// Requests a minute; 100 for standard and 1000 for enterprise when not given.
    #[arg(long, value_name = "PER_MINUTE", value_parser = clap::value_parser!(i64).range(1..=1_000_000_000))]
    pub limit: Option<i64>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum TierArg {
    Standard,
    Enterprise,
}

impl TierArg {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Enterprise => "enterprise",
        }
    }

    /// Requests a minute when nothing else was agreed.
    pub(crate) const fn usual_limit(self) -> i64 {
        match self {
            Self::Standard => 100,
            Self::Enterprise => 1000,
        }
    }
}

/// A partner's name, which becomes part of log lines and of a FIX user name.
pub(super) fn name(text: &str) -> Result<String, String> {
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if (1..=64).contains(&text.len()) && text.chars().all(known) {
        Ok(text.to_owned())
    } else {
        Err("1 to 64 of the characters a-z, A-Z, 0-9, '.', '_' and '-'".to_owned())
    }
}
