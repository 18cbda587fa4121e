//! Partners, their standing instructions, and their deposits.

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use dvp_core::operators::instructions;
use dvp_core::operators::partners::{self, LIMIT_MAX, NAME, Tier, is_name, switch};
use dvp_domain::address::{AddressFault, OwnContracts};
use dvp_domain::beneficiary::Beneficiary;
use dvp_domain::ledger::Owner;
use dvp_store::orders::intents::Tenant;
use serde_json::json;

use crate::actions::deposits::{self, DepositArgs};
use crate::actions::{EnvArg, IfLive, Reason, one_of};
use crate::desk::Desk;
use crate::outcome::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum PartnerAction {
    /// Create a partner.
    #[command(after_help = "Example:\n  dvp partner create --name acme --tier standard --config dvp.toml")]
    Create(Create),
    /// Say where a partner's outputs of an asset go, when an order of the older surface does not. With --evidence it holds
    /// when another operator has approved it, which a live deployment needs.
    #[command(
        after_help = "Example:\n  dvp partner instruct --name acme --env test --asset EUR --account bene_…:dest_… --reason 'letter of the partner' --config dvp.toml"
    )]
    Instruct(Instruct),
    /// Credit money that a partner has sent ahead. The same id again changes nothing.
    ///
    /// One operator credits what a statement of the bank has booked under the id, with the same amount. Without such an
    /// entry a live deployment takes two, with --reason and --evidence.
    #[command(
        after_help = "Example:\n  dvp partner deposit --name acme --env test --asset USD --amount-minor 1000000 --id wire-1 --config dvp.toml"
    )]
    Deposit(Deposit),
    /// Accept nothing new from a partner from now on: its API keys are refused, its FIX sessions logged out, orders
    /// that wait are rejected. Accepted orders and webhooks continue.
    #[command(
        after_help = "Example:\n  dvp partner disable --name acme --reason 'contract ended' --config dvp.toml"
    )]
    Disable(Which),
    /// Let a disabled partner work again.
    #[command(
        after_help = "Example:\n  dvp partner enable --name acme --reason 'contract renewed' --config dvp.toml"
    )]
    Enable(Enabling),
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Its name: 1 to 64 of the characters a-z, A-Z, 0-9, '.', '_' and '-'.
    #[arg(long, value_parser = name)]
    name: String,
    /// Its class of service, which sets the requests a minute.
    #[arg(long, value_parser = one_of(Tier::ALL.map(Tier::as_str), Tier::parse))]
    tier: Tier,
    /// Requests a minute; 100 for standard and 1000 for enterprise when not given.
    #[arg(long, value_name = "PER_MINUTE", value_parser = clap::value_parser!(i64).range(1..=LIMIT_MAX))]
    limit: Option<i64>,
}

#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The partner's name.
    #[arg(long)]
    name: String,
    #[command(flatten)]
    why: Reason,
}

#[derive(Debug, Args)]
pub(crate) struct Enabling {
    #[command(flatten)]
    which: Which,
    /// Only if it was disabled then and not again since (RFC 3339).
    #[arg(long, value_name = "TIME")]
    disabled_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Args)]
pub(crate) struct Instruct {
    /// The partner's name.
    #[arg(long)]
    name: String,
    /// The deployment's own when not given; the other one is refused.
    #[arg(long, value_enum)]
    env: Option<EnvArg>,
    /// The asset's symbol.
    #[arg(long)]
    asset: String,
    /// `bene_…:dest_…` for money, a wallet's address for a token.
    #[arg(long, value_parser = account)]
    account: String,
    #[command(flatten)]
    why: IfLive,
}

#[derive(Debug, Args)]
pub(crate) struct Deposit {
    /// The partner's name.
    #[arg(long)]
    name: String,
    /// The deployment's own when not given; the other one is refused.
    #[arg(long, value_enum)]
    env: Option<EnvArg>,
    #[command(flatten)]
    deposit: DepositArgs,
}

fn account(text: &str) -> Result<String, String> {
    let beneficiary = Beneficiary { account: Some(text.to_owned()), ..Beneficiary::default() };
    if beneficiary.is_reference() {
        return Ok(text.to_owned());
    }
    match OwnContracts::default().check_wallet(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(AddressFault::Form) => Err("bene_…:dest_… or 0x and 40 hex digits".to_owned()),
        Err(fault) => Err(fault.to_string()),
    }
}

fn name(text: &str) -> Result<String, String> {
    if is_name(text) { Ok(text.to_owned()) } else { Err(NAME.to_owned()) }
}

impl PartnerAction {
    pub(super) async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        match self {
            Self::Create(Create { name, tier, limit }) => {
                let id = partners::create(desk.conn, &name, tier, limit).await?;
                Ok(Outcome::done(json!({"partnerId": id}), format!("partner {id}")))
            }
            Self::Instruct(args) => instruct(desk, args).await,
            Self::Deposit(Deposit { name, env, deposit }) => {
                let partner = desk.partner(&name).await?;
                let owner =
                    Owner::Partner { id: partner.id.clone(), livemode: desk.environment(env)?.is_live() };
                deposits::post(desk, deposit, owner, ("partnerId", &partner.id)).await
            }
            Self::Disable(which) => enable(desk, &which, false).await,
            Self::Enable(Enabling { which, disabled_at: None }) => enable(desk, &which, true).await,
            Self::Enable(Enabling { which: Which { name, why }, disabled_at: Some(at) }) => {
                partners::enable_seen(desk.conn, &name, at, &desk.by.name, why.given()?).await?;
                Ok(Outcome::done(json!({"name": name, "status": "enabled"}), format!("{name} is enabled")))
            }
        }
    }
}

async fn instruct(desk: &mut Desk<'_>, args: Instruct) -> anyhow::Result<Outcome> {
    let Instruct { name, env, asset, account, why } = args;
    let partner = desk.partner(&name).await?;
    let tenant = Tenant { partner_id: partner.id, livemode: desk.environment(env)?.is_live() };
    let (to, contracts) = ((asset.as_str(), account.as_str()), &desk.house.contracts);
    if let Some(maker) = desk.second(&why)? {
        return Ok(Outcome::requested(
            &instructions::request(desk.conn, &tenant, to, maker, contracts).await?,
        ));
    }
    let by = (desk.by.name.as_str(), why.reason.as_deref().unwrap_or("a test"));
    instructions::set_at_once(desk.conn, &tenant, to, by, contracts).await?;
    let value = json!({"partnerId": tenant.partner_id, "asset": asset, "account": account});
    Ok(Outcome::done(value, format!("{asset} goes to {account}")))
}

async fn enable(desk: &mut Desk<'_>, which: &Which, enabled: bool) -> anyhow::Result<Outcome> {
    let (name, reason) = (&which.name, which.why.given()?);
    let (partner, changed) = switch(desk.conn, name, enabled, &desk.by.name, reason).await?;
    let word = if enabled { "enabled" } else { "disabled" };
    let value = json!({"partnerId": partner.id, "status": word, "changed": changed});
    Ok(Outcome::done(value, format!("{name} is {word}{}", if changed { "" } else { " already" })))
}
