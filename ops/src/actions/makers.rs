//! Makers of providers, and their resting orders.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use dvp_core::operators::makers::{self, MakerChange, Placing, parse_rate};
use dvp_core::secrets::{RESTING_ORDER, Vault};
use dvp_domain::money::Minor;
use dvp_store::operators::makers::Maker;
use dvp_store::orders::resting_orders::RestingOrderRow;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::actions::{Reason, Why, amount};
use crate::desk::Desk;
use crate::outcome::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum MakerAction {
    /// Request that a partner may place resting orders of a provider; another operator approves it.
    #[command(
        after_help = "Example:\n  dvp maker set --partner acme --provider quorum --wallet 0x9965507D1a55bcC2695C58ba16FB37d819B0A4dc --reason 'agreement' --evidence 'contract 4' --config dvp.toml"
    )]
    Set(Set),
    /// Request that a partner may do so no more; another operator approves it. Its orders stay until they are
    /// cancelled.
    #[command(
        after_help = "Example:\n  dvp maker end --partner acme --reason 'agreement ended' --evidence 'letter 9' --config dvp.toml"
    )]
    End(Who),
    /// Place a resting order: the provider's balance is offered at a rate. The same id again changes nothing.
    #[command(
        after_help = "Example:\n  dvp maker place --partner acme --id R-1 --pair USDC/USD --rate 0.9991 --amount-minor 5000000 --reason 'ordered by phone' --config dvp.toml"
    )]
    Place(Place),
    /// Cancel the remainder of a resting order. Amounts that takers return later stay with the provider.
    #[command(
        after_help = "Example:\n  dvp maker cancel --partner acme --order rst_… --reason 'ordered by phone' --config dvp.toml"
    )]
    Cancel(Cancel),
}

#[derive(Debug, Args)]
pub(crate) struct Set {
    /// The provider whose balance its orders offer.
    #[arg(long)]
    provider: String,
    /// The wallet that funds of its fills are released to, on the escrow's allow-list.
    #[arg(long)]
    wallet: String,
    #[command(flatten)]
    who: Who,
}

#[derive(Debug, Args)]
pub(crate) struct Who {
    /// The partner's name.
    #[arg(long)]
    partner: String,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The maker's name.
    #[arg(long)]
    partner: String,
    /// The maker's own id of the order.
    #[arg(long)]
    id: String,
    /// INPUT/OUTPUT, as takers pay and get.
    #[arg(long)]
    pair: String,
    /// Output per one input.
    #[arg(long, value_parser = rate)]
    rate: Decimal,
    /// The most that is given, in the output's minor units.
    #[arg(long, value_parser = amount)]
    amount_minor: Minor,
    #[command(flatten)]
    why: Reason,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// The maker's name.
    #[arg(long)]
    partner: String,
    /// The order's id, as `place`, `dvp maker orders` and REST have it: rst_….
    #[arg(long)]
    order: String,
    #[command(flatten)]
    why: Reason,
}

fn rate(text: &str) -> Result<Decimal, String> {
    parse_rate(text).ok_or_else(|| "a rate is a positive price of at most 18 places".to_owned())
}

impl MakerAction {
    pub(super) async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        match self {
            Self::Set(Set { provider, wallet, who }) => change(desk, who, Some((provider, wallet))).await,
            Self::End(who) => change(desk, who, None).await,
            Self::Place(args) => place(desk, args).await,
            Self::Cancel(args) => {
                args.why.given()?;
                let maker = maker(desk, &args.partner).await?;
                let id = desk.house.vault.id_behind(RESTING_ORDER, &args.order);
                let id = id.with_context(|| format!("there is no resting order {}", args.order))?;
                let order = makers::cancel(desk.conn, &maker, id).await?;
                Ok(done(desk, &order))
            }
        }
    }
}

async fn change(
    desk: &mut Desk<'_>,
    who: Who,
    provider: Option<(String, String)>,
) -> anyhow::Result<Outcome> {
    let Who { partner, why } = who;
    let partner_id = desk.partner(&partner).await?.id;
    let is_ended = provider.is_none();
    let (provider_id, wallet) = match provider {
        Some((provider_id, wallet)) => {
            desk.house.targets.check_provider(desk.conn, &provider_id).await?;
            (provider_id, wallet)
        }
        None => {
            let known = makers::find(desk.conn, &partner_id).await?;
            (known.provider_id, known.wallet)
        }
    };
    let change = MakerChange { partner_id, provider_id, wallet, is_ended };
    let maker = desk.maker(&why.reason, &why.evidence);
    Ok(Outcome::requested(&makers::request(desk.conn, &change, maker, &desk.house.contracts).await?))
}

async fn maker(desk: &mut Desk<'_>, partner: &str) -> anyhow::Result<Maker> {
    let id = desk.partner(partner).await?.id;
    Ok(makers::find(desk.conn, &id).await?)
}

async fn place(desk: &mut Desk<'_>, args: Place) -> anyhow::Result<Outcome> {
    let Place { partner, id: client_order_id, pair, rate, amount_minor: amount, why } = args;
    why.given()?;
    let maker = maker(desk, &partner).await?;
    let (input, output) = pair.split_once('/').context("--pair: a pair is INPUT/OUTPUT")?;
    for asset in [input, output] {
        desk.house.targets.check_asset(desk.conn, asset).await?;
    }
    let (input, output) = (input.to_owned(), output.to_owned());
    let placing = Placing { client_order_id, input, output, rate, amount };
    let (order, is_new) = makers::place(desk.conn, &maker, &placing).await?;
    let mut value = view(&desk.house.vault, &order);
    value["repeated"] = json!(!is_new);
    Ok(Outcome::done(value, line(&desk.house.vault, &order)))
}

fn done(desk: &Desk<'_>, order: &RestingOrderRow) -> Outcome {
    Outcome::done(view(&desk.house.vault, order), line(&desk.house.vault, order))
}

/// A resting order.
pub fn view(vault: &Vault, row: &RestingOrderRow) -> Value {
    json!({"order": vault.opaque_id(RESTING_ORDER, row.id), "clientOrderId": row.client_order_id, "pair": format!("{}/{}", row.input_asset, row.output_asset),
           "rate": row.rate, "amountMinor": row.placed, "remainingMinor": row.remaining,
           "cancelledMinor": row.cancelled, "placedAt": row.placed_at.to_rfc3339(),
           "cancelledAt": row.cancelled_at.map(|at| at.to_rfc3339())})
}

/// A resting order as a line.
pub fn line(vault: &Vault, row: &RestingOrderRow) -> String {
    let cancelled = row.cancelled.as_ref().map(|rest| format!("  {rest} cancelled")).unwrap_or_default();
    format!(
        "{}  {}/{} at {}  {} of {} left{cancelled}",
        vault.opaque_id(RESTING_ORDER, row.id),
        row.input_asset,
        row.output_asset,
        row.rate,
        row.remaining,
        row.placed
    )
}
