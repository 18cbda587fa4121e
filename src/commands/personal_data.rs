//! `dvp personal-data request|show`: personal data of what has ended is erased by two operators.

use anyhow::bail;
use clap::{Args, Subcommand};
use dvp_core::operators::personal_data::{self, Erasure};
use dvp_core::operators::requests::Maker;
use serde_json::json;

use super::approval::print_requested;
use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::print;

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

pub(crate) async fn run(command: PersonalDataCommand) -> anyhow::Result<()> {
    match command {
        PersonalDataCommand::Request(args) => request(args).await,
        PersonalDataCommand::Show(args) => show(args).await,
    }
}

fn erasure(of: PersonArgs, client_reference: bool) -> anyhow::Result<Erasure> {
    match (of.order, of.beneficiary) {
        (Some(reference), None) => Ok(Erasure::Order { reference, client_reference }),
        (None, Some(id)) => Ok(Erasure::Beneficiary { id }),
        (None, None) | (Some(_), Some(_)) => bail!("give --order or --beneficiary"),
    }
}

async fn request(args: PersonalDataRequest) -> anyhow::Result<()> {
    let PersonalDataRequest { of, client_reference, operator, reason, evidence, place } = args;
    let mut access = Access::open(&place).await?;
    let maker = Maker { operator: &operator, reason: &reason, evidence: &evidence };
    let erasure = erasure(of, client_reference)?;
    print_requested(place.json, &personal_data::request(&mut access.conn, &erasure, maker).await?)
}

async fn show(args: PersonalDataShow) -> anyhow::Result<()> {
    let PersonalDataShow { of, place } = args;
    let mut access = Access::open(&place).await?;
    let erasure = erasure(of, false)?;
    let found = personal_data::status(&mut access.conn, &erasure).await?;
    let subject = erasure.subject();
    print(
        place.json,
        &json!({"subject": subject, "erased": found.is_erased, "keptBecause": found.unended}),
        || {
            vec![match &found.unended {
                _ if found.is_erased => format!("{subject}: erased"),
                Some(why) => format!("{subject}: kept, {why}"),
                None => format!("{subject}: kept, and may be erased"),
            }]
        },
    )
}
