//! Personal data of what has ended is erased by two operators.

use anyhow::bail;
use clap::{Args, Subcommand};
use dvp_core::operators::personal_data::{self, Erasure};

use crate::actions::Why;
use crate::desk::Desk;
use crate::outcome::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum PersonalDataAction {
    /// Request that personal data is erased; another operator approves it, and then it is gone.
    ///
    /// Of an order that has ended: the beneficiary's details, the metadata, and copies of both. Of a registered
    /// beneficiary whose destinations are disabled: its name, address and accounts. Amounts, references, hashes and times
    /// stay.
    #[command(
        after_help = "Example:\n  dvp personal-data request --order exe_… --reason 'asked by mail' --evidence 'ticket 17' --config dvp.toml"
    )]
    Request(Request),
}

/// Whose personal data.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Person {
    /// An order's execution.
    #[arg(long, value_name = "EXECUTION")]
    pub order: Option<String>,
    /// A registered beneficiary.
    #[arg(long, value_name = "BENEFICIARY")]
    pub beneficiary: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Request {
    #[command(flatten)]
    of: Person,
    /// Of an order over REST: also the partner's clientReference. The receipt then says that it was erased, and states
    /// the hash that was anchored.
    #[arg(long, conflicts_with = "beneficiary")]
    client_reference: bool,
    /// Why, without what is to be erased.
    #[command(flatten)]
    why: Why,
}

impl Person {
    /// # Errors
    /// Neither or both are given.
    pub fn erasure(self, client_reference: bool) -> anyhow::Result<Erasure> {
        match (self.order, self.beneficiary) {
            (Some(reference), None) => Ok(Erasure::Order { reference, client_reference }),
            (None, Some(id)) => Ok(Erasure::Beneficiary { id }),
            (None, None) | (Some(_), Some(_)) => bail!("give --order or --beneficiary"),
        }
    }
}

impl PersonalDataAction {
    pub(super) async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        let Self::Request(Request { of, client_reference, why }) = self;
        let erasure = of.erasure(client_reference)?;
        let maker = desk.maker(&why.reason, &why.evidence);
        Ok(Outcome::requested(&personal_data::request(desk.conn, &erasure, maker).await?))
    }
}
