//! `dvp beneficiary …`

use clap::{Args, Subcommand};
use dvp_domain::beneficiary::PayoutMethod;

use super::PlaceArgs;

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
