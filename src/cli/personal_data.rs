//! `dvp personal-data …`

use clap::{Args, Subcommand};

use super::PlaceArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum PersonalDataCommand {
    /// Request that personal data is erased; another operator approves it (`dvp approval approve`), and then it is gone.
    ///
    /// Of an order that has ended: the beneficiary's details, the metadata, and copies of both. Of a registered
    /// beneficiary whose destinations are disabled: its name, address and accounts. Amounts, references, hashes and times
    /// stay.
    #[command(
        after_help = "Example:\n  dvp personal-data request --order exe_… --operator jo --reason 'asked by mail' --evidence 'ticket 17' --dir .dvp"
    )]
    Request(PersonalDataRequest),
    /// Show whether personal data was erased, and what keeps it from being erased.
    #[command(after_help = "Example:\n  dvp personal-data show --order exe_… --dir .dvp --json")]
    Show(PersonalDataShow),
}

/// Whose personal data.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct PersonArgs {
    /// An order's execution.
    #[arg(long, value_name = "EXECUTION")]
    pub order: Option<String>,
    /// A registered beneficiary.
    #[arg(long, value_name = "BENEFICIARY")]
    pub beneficiary: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PersonalDataRequest {
    #[command(flatten)]
    pub of: PersonArgs,
    /// Of an order over REST: also the partner's clientReference. The receipt then says that it was erased, and states
    /// the hash that was anchored.
    #[arg(long, conflicts_with = "beneficiary")]
    pub client_reference: bool,
    /// The requesting operator.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    /// Why, without what is to be erased.
    #[arg(long)]
    pub reason: String,
    #[arg(long)]
    pub evidence: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PersonalDataShow {
    #[command(flatten)]
    pub of: PersonArgs,
    #[command(flatten)]
    pub place: PlaceArgs,
}
