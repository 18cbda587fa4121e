//! `dvp partner …`

use clap::{Args, Subcommand, ValueEnum};

use dvp_core::partners::{LIMIT_MAX, NAME, Tier, is_name};
use dvp_domain::beneficiary::Beneficiary;
use dvp_domain::intent::is_address;
use dvp_domain::money::Minor;

use super::PlaceArgs;
use super::cell::MoveCommand;
use super::key::EnvArg;

#[derive(Debug, Subcommand)]
pub(crate) enum PartnerCommand {
    /// Create a partner.
    #[command(after_help = "Example:\n  dvp partner create --name acme --tier standard --dir .dvp --json")]
    Create(PartnerCreate),
    /// Say where a partner's outputs of an asset go, when an order of the older surface does not. With --evidence it holds
    /// when another operator has approved it, which a live deployment needs.
    #[command(
        after_help = "Example:\n  dvp partner instruct --name acme --env test --asset EUR --account bene_…:dest_… \
    --operator jo --reason 'letter of the partner' --dir .dvp"
    )]
    Instruct(PartnerInstruct),
    /// Note money that a partner has sent ahead. The same id again changes nothing.
    #[command(
        after_help = "Example:\n  dvp partner deposit --name acme --env test --asset USD --amount-minor 1000000 --id wire-1 --dir .dvp"
    )]
    Deposit(PartnerDeposit),
    /// Accept nothing new from a partner from now on: its API keys are refused, its FIX sessions logged out, orders
    /// that wait are rejected. Accepted orders and webhooks continue.
    #[command(
        after_help = "Example:\n  dvp partner disable --name acme --operator jo --reason 'contract ended' --dir .dvp"
    )]
    Disable(PartnerSwitch),
    /// Let a disabled partner work again.
    #[command(
        after_help = "Example:\n  dvp partner enable --name acme --operator jo --reason 'contract renewed' --dir .dvp"
    )]
    Enable(PartnerSwitch),
    /// List the operators that disabled and enabled a partner, and their reasons.
    #[command(after_help = "Example:\n  dvp partner history --name acme --dir .dvp --json")]
    History(PartnerName),
    /// Move a partner to another cell, while its orders flow.
    #[command(subcommand)]
    Move(MoveCommand),
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
    #[arg(long, value_name = "PER_MINUTE", value_parser = clap::value_parser!(i64).range(1..=LIMIT_MAX))]
    pub limit: Option<i64>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PartnerName {
    /// The partner's name.
    #[arg(long)]
    pub name: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PartnerSwitch {
    #[command(flatten)]
    pub partner: PartnerName,
    /// The operator.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    /// Why.
    #[arg(long)]
    pub reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct PartnerInstruct {
    /// The partner's name.
    #[arg(long)]
    pub name: String,
    /// The deployment's own when not given; the other one is refused.
    #[arg(long, value_enum)]
    pub env: Option<EnvArg>,
    /// The asset's symbol.
    #[arg(long)]
    pub asset: String,
    /// `bene_…:dest_…` for money, a wallet's address for a token.
    #[arg(long, value_parser = account)]
    pub account: String,
    /// The operator.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    /// Why.
    #[arg(long)]
    pub reason: String,
    /// What shows that the partner asked for it: the change is requested, and another operator approves it.
    #[arg(long)]
    pub evidence: Option<String>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PartnerDeposit {
    /// The partner's name.
    #[arg(long)]
    pub name: String,
    /// The deployment's own when not given; the other one is refused.
    #[arg(long, value_enum)]
    pub env: Option<EnvArg>,
    #[command(flatten)]
    pub deposit: DepositArgs,
}

/// Money received for a partner.
#[derive(Debug, Args)]
pub(crate) struct DepositArgs {
    /// The asset's symbol.
    #[arg(long)]
    pub asset: String,
    /// In minor units.
    #[arg(long, value_parser = amount)]
    pub amount_minor: Minor,
    /// The unique id of the deposit: the bank's reference.
    #[arg(long)]
    pub id: String,
    /// The recording operator.
    #[arg(long, visible_alias = "as", env = "USER", default_value = "cli")]
    pub operator: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

fn account(text: &str) -> Result<String, String> {
    let beneficiary = Beneficiary { account: Some(text.to_owned()), ..Beneficiary::default() };
    if beneficiary.is_reference() || is_address(text) {
        Ok(text.to_owned())
    } else {
        Err("bene_…:dest_… or 0x and 40 hex digits".to_owned())
    }
}

pub(super) fn amount(text: &str) -> Result<Minor, String> {
    match Minor::parse(text) {
        Ok(amount) if amount.is_zero() => Err("must be above zero".to_owned()),
        Ok(amount) => Ok(amount),
        Err(error) => Err(error.to_string()),
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum TierArg {
    Standard,
    Enterprise,
}

impl From<TierArg> for Tier {
    fn from(tier: TierArg) -> Self {
        match tier {
            TierArg::Standard => Self::Standard,
            TierArg::Enterprise => Self::Enterprise,
        }
    }
}

pub(super) fn name(text: &str) -> Result<String, String> {
    if is_name(text) { Ok(text.to_owned()) } else { Err(NAME.to_owned()) }
}
