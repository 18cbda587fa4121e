//! Recipients that orders name as `bene_…:dest_…`.

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use dvp_core::operators::beneficiaries as entry;
use dvp_core::operators::requests::is_same_operator;
use dvp_domain::beneficiary::destination::DestinationStatus;
use dvp_domain::beneficiary::{Beneficiary, BeneficiaryAddress, PayoutMethod};
use dvp_domain::text;
use dvp_store::partners::beneficiaries::{self, DestinationRow};
use serde_json::json;

use crate::actions::Reason;
use crate::desk::Desk;
use crate::outcome::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum BeneficiaryAction {
    /// Enter a recipient and its first destination: an account in one currency. It is paid once another operator has
    /// verified it.
    #[command(
        after_help = "Example:\n  dvp beneficiary create --partner acme --name 'Jane Doe' --country DE --account DE89370400440532013000 --currency EUR --method sepa --config dvp.toml"
    )]
    Create(Create),
    /// Enter one more destination of a recipient.
    #[command(
        after_help = "Example:\n  dvp beneficiary add-destination --beneficiary bene_… --account 000123456789 --currency USD --method ach --bank 026009593 --config dvp.toml"
    )]
    AddDestination(Add),
    /// Record that a destination was verified with its owner, by another operator than the one that entered it.
    #[command(
        after_help = "Example:\n  dvp beneficiary verify --destination dest_… --evidence 'call of 3 May, ticket 118' --config dvp.toml"
    )]
    Verify(Verify),
    /// Pay a destination nothing from now on: new orders are refused, and payouts that were not sent yet fail.
    #[command(
        after_help = "Example:\n  dvp beneficiary disable --destination dest_… --reason 'account closed' --config dvp.toml"
    )]
    Disable(Disable),
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// The name of the partner whose orders may name it.
    #[arg(long)]
    partner: String,
    /// The recipient's name.
    #[arg(long)]
    name: String,
    /// ISO 3166-1 alpha-2.
    #[arg(long, value_parser = country)]
    country: String,
    /// Of the address: all four parts or none. Payments by wire and SWIFT need it.
    #[arg(long, requires_all = ["city", "state", "postal_code"])]
    line1: Option<String>,
    #[arg(long, requires = "line1")]
    city: Option<String>,
    #[arg(long, requires = "line1")]
    state: Option<String>,
    #[arg(long, requires = "line1")]
    postal_code: Option<String>,
    #[command(flatten)]
    destination: Destination,
}

#[derive(Debug, Args)]
pub(crate) struct Add {
    /// The recipient's id, bene_….
    #[arg(long)]
    beneficiary: String,
    #[command(flatten)]
    destination: Destination,
}

#[derive(Debug, Args)]
pub(crate) struct Destination {
    /// An IBAN or an account number.
    #[arg(long)]
    account: String,
    /// ISO 4217: the currency that the account takes.
    #[arg(long, value_parser = currency)]
    currency: String,
    /// wire, swift, ach or sepa.
    #[arg(long, value_parser = method)]
    method: PayoutMethod,
    /// The BIC of the account's bank.
    #[arg(long)]
    swift_code: Option<String>,
    /// The account's bank: its name, or its number in a national clearing system.
    #[arg(long)]
    bank: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// dest_….
    #[arg(long)]
    destination: String,
    /// How it was verified.
    #[arg(long)]
    evidence: String,
}

#[derive(Debug, Args)]
pub(crate) struct Disable {
    /// dest_….
    #[arg(long)]
    destination: String,
    #[command(flatten)]
    why: Reason,
}

fn country(text: &str) -> Result<String, String> {
    letters(text, 2, "a country is two letters, as of ISO 3166-1")
}

fn currency(text: &str) -> Result<String, String> {
    letters(text, 3, "a currency is three letters, as of ISO 4217")
}

fn letters(text: &str, length: usize, otherwise: &str) -> Result<String, String> {
    let is_code = text.len() == length && text.bytes().all(|byte| byte.is_ascii_alphabetic());
    if is_code { Ok(text.to_ascii_uppercase()) } else { Err(otherwise.to_owned()) }
}

fn method(text: &str) -> Result<PayoutMethod, String> {
    PayoutMethod::parse(text)
        .ok_or_else(|| format!("the methods are {}", PayoutMethod::ALL.map(PayoutMethod::as_str).join(", ")))
}

impl BeneficiaryAction {
    pub(super) async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        match self {
            Self::Create(args) => create(desk, args).await,
            Self::AddDestination(Add { beneficiary, destination }) => {
                ensure!(
                    beneficiaries::has_beneficiary(desk.conn, &beneficiary).await?,
                    "there is no beneficiary {beneficiary}"
                );
                entered(desk, &beneficiary, &destination).await
            }
            Self::Verify(args) => verify(desk, &args).await,
            Self::Disable(Disable { destination, why }) => {
                locked(desk, &destination).await?;
                let (operator, reason) = (&desk.by.name, given("--reason", &why.reason)?);
                let changed =
                    beneficiaries::disable_destination(desk.conn, &destination, operator, reason).await?;
                Ok(changed_to(&destination, "disabled", changed))
            }
        }
    }
}

async fn create(desk: &mut Desk<'_>, args: Create) -> anyhow::Result<Outcome> {
    let Create { partner, name, country, line1, city, state, postal_code, destination } = args;
    let address =
        line1.zip(city).zip(state).zip(postal_code).map(|(((line1, city), state), postal_code)| {
            BeneficiaryAddress { line1, city, state, postal_code }
        });
    for part in address.iter().flat_map(|a| [&a.line1, &a.city, &a.state, &a.postal_code]) {
        given("the address", part)?;
    }
    let partner = desk.partner(&partner).await?;
    let name = Some(given("--name", &name)?.to_owned());
    let details = Beneficiary { name, country: Some(country), address, ..Beneficiary::default() };
    let id = entry::enter(desk.conn, &partner.id, &details, &desk.by.name).await?;
    entered(desk, &id, &destination).await
}

/// Enters a destination.
async fn entered(desk: &mut Desk<'_>, beneficiary_id: &str, args: &Destination) -> anyhow::Result<Outcome> {
    for part in [&args.swift_code, &args.bank].into_iter().flatten() {
        given("the bank", part)?;
    }
    let trimmed = |text: &Option<String>| text.as_deref().map(|text| text.trim().to_owned());
    let details = Beneficiary {
        account: Some(given("--account", &args.account)?.to_owned()),
        payout_method: Some(args.method),
        swift_code: trimmed(&args.swift_code),
        bank: trimmed(&args.bank),
        ..Beneficiary::default()
    };
    let by = &desk.by.name;
    let row = entry::enter_destination(desk.conn, beneficiary_id, &details, &args.currency, by).await?;
    let (account, id) = (row.account(), row.destination_id);
    let value = json!({
        "beneficiaryId": beneficiary_id, "destinationId": id, "account": account,
        "status": DestinationStatus::Unverified.as_str(),
    });
    Ok(Outcome::done(value, format!("{account} is entered; another operator has to verify it")))
}

async fn verify(desk: &mut Desk<'_>, args: &Verify) -> anyhow::Result<Outcome> {
    let (id, operator) = (&args.destination, &desk.by.name);
    let row = locked(desk, id).await?;
    if is_same_operator(&row.created_by, operator) {
        bail!("{operator} has entered {id}: another operator has to verify it");
    }
    if row.destination.status == DestinationStatus::Disabled {
        bail!("{id} is disabled");
    }
    let evidence = given("--evidence", &args.evidence)?;
    let changed = beneficiaries::verify_destination(desk.conn, id, operator, evidence).await?;
    Ok(changed_to(id, "verified", changed))
}

fn changed_to(id: &str, status: &str, changed: bool) -> Outcome {
    let value = json!({"destinationId": id, "status": status, "changed": changed});
    Outcome::done(value, format!("{id} is {status}{}", if changed { "" } else { " already" }))
}

async fn locked(desk: &mut Desk<'_>, destination: &str) -> anyhow::Result<DestinationRow> {
    beneficiaries::lock_destination(desk.conn, destination)
        .await?
        .with_context(|| format!("there is no destination {destination}"))
}

fn given<'a>(name: &str, text: &'a str) -> anyhow::Result<&'a str> {
    ensure!(!text.trim().is_empty(), "{name} is empty");
    text::check_line(text, text::TEXT_MAX).map_err(|fault| anyhow::anyhow!("{name} {fault}"))?;
    Ok(text.trim())
}
