//! `dvp statement` and `dvp report …`

use chrono::{DateTime, NaiveDate, NaiveTime, Utc};
use clap::{ArgGroup, Args, Subcommand};

use super::PlaceArgs;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("whose").required(true).args(["account", "partner", "provider"])))]
#[command(group(ArgGroup::new("when").required(true).multiple(true).args(["day", "from", "to"])))]
pub(crate) struct StatementArgs {
    /// One account: `kind:owner:part`, as `dvp report balances` names it.
    #[arg(long)]
    pub account: Option<String>,
    /// Every account of a partner, by its name.
    #[arg(long)]
    pub partner: Option<String>,
    /// Every account of a provider, by its id.
    #[arg(long)]
    pub provider: Option<String>,
    /// One asset only.
    #[arg(long)]
    pub asset: Option<String>,
    #[command(flatten)]
    pub range: RangeArgs,
    /// Print CSV.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// Which time: a day, or from a time on and before another one.
#[derive(Debug, Args)]
pub(crate) struct RangeArgs {
    /// One day (UTC).
    #[arg(long, value_name = "YYYY-MM-DD", conflicts_with_all = ["from", "to"])]
    pub day: Option<NaiveDate>,
    /// From this time on: RFC 3339, or a date for its beginning (UTC).
    #[arg(long, value_name = "TIME", value_parser = time, requires = "to")]
    pub from: Option<DateTime<Utc>>,
    /// Before this time: RFC 3339, or a date for its beginning (UTC).
    #[arg(long, value_name = "TIME", value_parser = time, requires = "from")]
    pub to: Option<DateTime<Utc>>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReportCommand {
    /// Fees earned, and fees borne by the house, by day, asset and reason of the posting.
    #[command(
        after_help = "Example:\n  dvp report fees --from 2026-11-01 --to 2026-12-01 --csv --config dvp.toml"
    )]
    Fees(ReportFees),
    /// Amounts reserved, in transit or owed: reserved balances, claims, escrow, clearing, debts.
    #[command(after_help = "Example:\n  dvp report exposure --dir .dvp --json")]
    Exposure(ReportAt),
    /// Every account's balance.
    #[command(after_help = "Example:\n  dvp report balances --at 2026-12-01 --csv --config dvp.toml")]
    Balances(ReportAt),
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("when").required(true).multiple(true).args(["day", "from", "to"])))]
pub(crate) struct ReportFees {
    #[command(flatten)]
    pub range: RangeArgs,
    /// Print CSV.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReportAt {
    /// As of this time: postings before it. RFC 3339, or a date for its beginning (UTC); now, if left out.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub at: Option<DateTime<Utc>>,
    /// Print CSV.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    #[command(flatten)]
    pub place: PlaceArgs,
}

fn time(text: &str) -> Result<DateTime<Utc>, String> {
    if let Ok(day) = text.parse::<NaiveDate>() {
        return Ok(day.and_time(NaiveTime::MIN).and_utc());
    }
    let time = DateTime::parse_from_rfc3339(text).map_err(|_| "YYYY-MM-DD, or RFC 3339".to_owned())?;
    Ok(time.to_utc())
}
