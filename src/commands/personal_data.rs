//! `dvp personal-data request|show`: personal data of what has ended is erased by two operators.

use anyhow::bail;
use dvp_core::personal_data::{self, Erasure};
use dvp_core::requests::Maker;
use serde_json::json;

use super::approval::print_requested;
use crate::access::Access;
use crate::cli::{PersonArgs, PersonalDataCommand, PersonalDataRequest, PersonalDataShow};
use crate::output::print;

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
        &json!({"subject": subject, "erased": found.is_erased, "keptBecause": found.unended,
                "alsoInCells": found.also_in_cells}),
        || {
            let state = match &found.unended {
                _ if found.is_erased => format!("{subject}: erased"),
                Some(why) => format!("{subject}: kept, {why}"),
                None => format!("{subject}: kept, and may be erased"),
            };
            let also = |cell| format!("Cell {cell} may have a copy: show and erase it there, too.");
            std::iter::once(state).chain(found.also_in_cells.iter().map(also)).collect()
        },
    )
}
