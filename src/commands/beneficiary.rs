//! `dvp beneficiary …`: recipients that orders name as `bene_…:dest_…`.

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use dvp_core::operators::requests::is_same_operator;
use dvp_domain::beneficiary::destination::DestinationStatus;
use dvp_domain::beneficiary::{BeneficiaryAddress, PayoutMethod};
use dvp_domain::money::Minor;
use dvp_domain::text;
use dvp_rails::PayoutOrder;
use dvp_rails::iso20022::instruction::check_payout;
use dvp_rails::iso20022::schema::exponent;
use dvp_store::database::ids;
use dvp_store::partners::beneficiaries::{self, DestinationRow, NewBeneficiary, NewDestination};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};

use super::named_partner;
use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::{print, print_list};

#[derive(Debug, Subcommand)]
pub(crate) enum BeneficiaryCommand {
    /// Enter a recipient and its first destination: an account in one currency. It is paid once another operator has
    /// verified it.
    #[command(
        after_help = "Example:\n  dvp beneficiary create --partner acme --name 'Jane Doe' --country DE --account DE89370400440532013000 --currency EUR --method sepa --operator jo --dir .dvp"
    )]
    Create(BeneficiaryCreate),
    /// Enter one more destination of a recipient.
    #[command(
        after_help = "Example:\n  dvp beneficiary add-destination --beneficiary bene_… --account 000123456789 --currency USD --method ach --bank 026009593 --operator jo --dir .dvp"
    )]
    AddDestination(DestinationAdd),
    /// Record that a destination was verified with its owner, by another operator than the one that entered it.
    #[command(
        after_help = "Example:\n  dvp beneficiary verify --destination dest_… --operator kim --evidence 'call of 3 May, ticket 118' --dir .dvp"
    )]
    Verify(DestinationVerify),
    /// Pay a destination nothing from now on: new orders are refused, and payouts that were not sent yet fail.
    #[command(
        after_help = "Example:\n  dvp beneficiary disable --destination dest_… --operator kim --reason 'account closed' --dir .dvp"
    )]
    Disable(DestinationDisable),
    /// List the destinations of a partner's recipients, or of all.
    #[command(after_help = "Example:\n  dvp beneficiary list --partner acme --dir .dvp --json")]
    List(BeneficiaryList),
}

#[derive(Debug, Args)]
pub(crate) struct BeneficiaryCreate {
    /// The name of the partner whose orders may name it.
    #[arg(long)]
    pub partner: String,
    /// The recipient's name.
    #[arg(long)]
    pub name: String,
    /// ISO 3166-1 alpha-2.
    #[arg(long, value_parser = country)]
    pub country: String,
    /// Of the address: all four parts or none. Payments by wire and SWIFT need it.
    #[arg(long, requires_all = ["city", "state", "postal_code"])]
    pub line1: Option<String>,
    #[arg(long, requires = "line1")]
    pub city: Option<String>,
    #[arg(long, requires = "line1")]
    pub state: Option<String>,
    #[arg(long, requires = "line1")]
    pub postal_code: Option<String>,
    #[command(flatten)]
    pub destination: DestinationArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DestinationAdd {
    /// The recipient's id, bene_….
    #[arg(long)]
    pub beneficiary: String,
    #[command(flatten)]
    pub destination: DestinationArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DestinationArgs {
    /// An IBAN or an account number.
    #[arg(long)]
    pub account: String,
    /// ISO 4217: the currency that the account takes.
    #[arg(long, value_parser = currency)]
    pub currency: String,
    /// wire, swift, ach or sepa.
    #[arg(long, value_parser = method)]
    pub method: PayoutMethod,
    /// The BIC of the account's bank.
    #[arg(long)]
    pub swift_code: Option<String>,
    /// The account's bank: its name, or its number in a national clearing system.
    #[arg(long)]
    pub bank: Option<String>,
    /// The operator that enters it.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DestinationVerify {
    /// dest_….
    #[arg(long)]
    pub destination: String,
    /// The verifying operator, other than the one that entered it.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    /// How it was verified.
    #[arg(long)]
    pub evidence: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DestinationDisable {
    /// dest_….
    #[arg(long)]
    pub destination: String,
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[arg(long)]
    pub reason: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BeneficiaryList {
    /// A partner's name; all partners when not given.
    #[arg(long)]
    pub partner: Option<String>,
    #[command(flatten)]
    pub place: PlaceArgs,
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

pub(crate) async fn run(command: BeneficiaryCommand) -> anyhow::Result<()> {
    match command {
        BeneficiaryCommand::Create(args) => create(args).await,
        BeneficiaryCommand::AddDestination(args) => add_destination(args).await,
        BeneficiaryCommand::Verify(args) => verify(args).await,
        BeneficiaryCommand::Disable(args) => disable(args).await,
        BeneficiaryCommand::List(args) => list(args).await,
    }
}

async fn create(args: BeneficiaryCreate) -> anyhow::Result<()> {
    let BeneficiaryCreate { partner, name, country, line1, city, state, postal_code, destination } = args;
    let address =
        line1.zip(city).zip(state).zip(postal_code).map(|(((line1, city), state), postal_code)| {
            BeneficiaryAddress { line1, city, state, postal_code }
        });
    check_text("--name", &name)?;
    for part in address.iter().flat_map(|a| [&a.line1, &a.city, &a.state, &a.postal_code]) {
        check_text("the address", part)?;
    }
    let mut access = Access::open(&destination.place).await?;
    let partner = named_partner(&mut access.conn, &partner).await?;
    let id = format!("bene_{}", ids::draw_here(&mut access.conn).await?.simple());
    let new = NewBeneficiary {
        id: &id,
        partner_id: &partner.id,
        name: name.trim(),
        country: &country,
        address: address.as_ref(),
        operator: given("--operator", &destination.operator)?,
    };
    let mut tx = access.conn.begin().await?;
    beneficiaries::insert_beneficiary(&mut tx, &new).await?;
    let destination_id = insert_destination(&mut tx, &id, &destination).await?;
    tx.commit().await?;
    entered(&destination, &id, &destination_id)
}

async fn add_destination(args: DestinationAdd) -> anyhow::Result<()> {
    let DestinationAdd { beneficiary, destination } = args;
    let mut access = Access::open(&destination.place).await?;
    ensure!(
        beneficiaries::has_beneficiary(&mut access.conn, &beneficiary).await?,
        "there is no beneficiary {beneficiary}"
    );
    let mut tx = access.conn.begin().await?;
    let destination_id = insert_destination(&mut tx, &beneficiary, &destination).await?;
    tx.commit().await?;
    entered(&destination, &beneficiary, &destination_id)
}

async fn insert_destination(
    conn: &mut PgConnection,
    beneficiary_id: &str,
    args: &DestinationArgs,
) -> anyhow::Result<String> {
    check_text("--account", &args.account)?;
    for part in [&args.swift_code, &args.bank].into_iter().flatten() {
        check_text("the bank", part)?;
    }
    let id = format!("dest_{}", ids::draw_here(conn).await?.simple());
    let account = args.account.trim();
    let new = NewDestination {
        id: &id,
        beneficiary_id,
        account,
        currency: &args.currency,
        method: args.method,
        swift_code: args.swift_code.as_deref().map(str::trim),
        bank: args.bank.as_deref().map(str::trim),
        operator: given("--operator", &args.operator)?,
    };
    beneficiaries::insert_destination(conn, &new).await?;
    let row = beneficiaries::lock_destination(conn, &id).await?.context("the destination is gone")?;
    row.destination.details.check().context("no bank could be ordered to pay this destination")?;
    let order = PayoutOrder {
        beneficiary: Some(&row.destination.details),
        amount: Minor::new(1),
        currency: &args.currency,
        exponent: exponent(&args.currency),
    };
    check_payout(&order).context("no bank could be ordered to pay this destination")?;
    Ok(id)
}

fn entered(args: &DestinationArgs, beneficiary: &str, destination: &str) -> anyhow::Result<()> {
    let account = format!("{beneficiary}:{destination}");
    let value = json!({
        "beneficiaryId": beneficiary, "destinationId": destination, "account": account,
        "status": DestinationStatus::Unverified.as_str(),
    });
    print(args.place.json, &value, || {
        vec![format!("{account} is entered; another operator has to verify it")]
    })
}

async fn verify(args: DestinationVerify) -> anyhow::Result<()> {
    let (operator, evidence) = (given("--operator", &args.operator)?, given("--evidence", &args.evidence)?);
    let mut access = Access::open(&args.place).await?;
    let mut tx = access.conn.begin().await?;
    let row = locked(&mut tx, &args.destination).await?;
    if is_same_operator(&row.created_by, operator) {
        bail!("{operator} has entered {}: another operator has to verify it", args.destination);
    }
    if row.destination.status == DestinationStatus::Disabled {
        bail!("{} is disabled", args.destination);
    }
    let changed = beneficiaries::verify_destination(&mut tx, &args.destination, operator, evidence).await?;
    tx.commit().await?;
    let id = &args.destination;
    let value = json!({"destinationId": id, "status": "verified", "changed": changed});
    print(args.place.json, &value, || {
        vec![format!("{id} is verified{}", if changed { "" } else { " already" })]
    })
}

async fn disable(args: DestinationDisable) -> anyhow::Result<()> {
    let (operator, reason) = (given("--operator", &args.operator)?, given("--reason", &args.reason)?);
    let mut access = Access::open(&args.place).await?;
    let mut tx = access.conn.begin().await?;
    locked(&mut tx, &args.destination).await?;
    let changed = beneficiaries::disable_destination(&mut tx, &args.destination, operator, reason).await?;
    tx.commit().await?;
    let id = &args.destination;
    let value = json!({"destinationId": id, "status": "disabled", "changed": changed});
    print(args.place.json, &value, || {
        vec![format!("{id} is disabled{}", if changed { "" } else { " already" })]
    })
}

async fn list(args: BeneficiaryList) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let partner = match &args.partner {
        Some(name) => Some(named_partner(&mut access.conn, name).await?.id),
        None => None,
    };
    let rows = beneficiaries::list_destinations(&mut access.conn, partner.as_deref()).await?;
    let line = |row: &DestinationRow| {
        let details = &row.destination.details;
        format!(
            "{}:{}  {}  {}  {}  …{}",
            row.beneficiary_id,
            row.destination_id,
            row.destination.status.as_str(),
            row.destination.currency,
            details.name_masked().unwrap_or_default(),
            details.account_last4().unwrap_or_default()
        )
    };
    print_list(args.place.json, "destinations", &rows, view, line)
}

/// Names and accounts are masked; the partner's own documents have them in full.
fn view(row: &DestinationRow) -> Value {
    let details = &row.destination.details;
    json!({
        "account": format!("{}:{}", row.beneficiary_id, row.destination_id), "partnerId": row.partner_id,
        "status": row.destination.status.as_str(), "currency": row.destination.currency,
        "nameMasked": details.name_masked(), "accountLast4": details.account_last4(), "country": details.country,
        "method": details.payout_method, "createdBy": row.created_by, "createdAt": row.created_at.to_rfc3339(),
        "verifiedBy": row.verified_by, "evidence": row.evidence,
        "verifiedAt": row.verified_at.map(|at| at.to_rfc3339()), "disabledBy": row.disabled_by,
        "disabledReason": row.disabled_reason, "disabledAt": row.disabled_at.map(|at| at.to_rfc3339()),
    })
}

async fn locked(conn: &mut PgConnection, destination: &str) -> anyhow::Result<DestinationRow> {
    beneficiaries::lock_destination(conn, destination)
        .await?
        .with_context(|| format!("there is no destination {destination}"))
}

fn check_text(name: &str, text: &str) -> anyhow::Result<()> {
    ensure!(!text.trim().is_empty(), "{name} is empty");
    text::check_line(text, text::TEXT_MAX).map_err(|fault| anyhow::anyhow!("{name} {fault}"))
}

fn given<'a>(name: &str, text: &'a str) -> anyhow::Result<&'a str> {
    check_text(name, text)?;
    Ok(text.trim())
}
