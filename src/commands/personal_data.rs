//! `dvp personal-data show`: whether personal data was erased.

use clap::{Args, Subcommand};
use dvp_core::operators::personal_data;
use dvp_ops::actions::personal_data::Person;
use serde_json::json;

use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::print;

#[derive(Debug, Subcommand)]
pub(crate) enum PersonalDataCommand {
    /// Show whether personal data was erased, and what keeps it from being erased.
    #[command(after_help = "Example:\n  dvp personal-data show --order exe_… --dir .dvp --json")]
    Show(PersonalDataShow),
}

#[derive(Debug, Args)]
pub(crate) struct PersonalDataShow {
    #[command(flatten)]
    pub of: Person,
    #[command(flatten)]
    pub place: PlaceArgs,
}

pub(crate) async fn run(command: PersonalDataCommand) -> anyhow::Result<()> {
    match command {
        PersonalDataCommand::Show(args) => show(args).await,
    }
}

async fn show(args: PersonalDataShow) -> anyhow::Result<()> {
    let PersonalDataShow { of, place } = args;
    let mut access = Access::open(&place).await?;
    let erasure = of.erasure(false)?;
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
