//! `dvp maker …`: the makers of providers, and their resting orders.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use dvp_core::operators::makers::{self, MakerChange, Placing};
use dvp_core::operators::requests::Maker;
use dvp_domain::ledger::Owner;
use dvp_domain::money::Minor;
use dvp_store::operators::makers as store;
use dvp_store::orders::resting_orders::{self, RestingOrderRow};
use serde_json::{Value, json};

use super::approval::print_requested;
use super::named_partner;
use crate::access::Access;
use crate::chains;
use crate::cli::PlaceArgs;
use crate::commands::deposit::amount;
use crate::output::{print, print_list};

#[derive(Debug, Subcommand)]
pub(crate) enum MakerCommand {
    /// Request that a partner may place resting orders of a provider; another operator approves it.
    #[command(
        after_help = "Example:\n  dvp maker set --partner acme --provider quorum --wallet 0x9965507D1a55bcC2695C58ba16FB37d819B0A4dc --operator jo --reason 'agreement' --evidence 'contract 4' --dir .dvp"
    )]
    Set(MakerSet),
    /// Request that a partner may do so no more; another operator approves it. Its orders stay until they are
    /// cancelled.
    #[command(
        after_help = "Example:\n  dvp maker end --partner acme --operator jo --reason 'agreement ended' --evidence 'letter 9' --dir .dvp"
    )]
    End(MakerWho),
    /// Show the makers.
    #[command(after_help = "Example:\n  dvp maker list --dir .dvp --json")]
    List(PlaceArgs),
    /// Place a resting order: the provider's balance is offered at a rate. The same id again changes nothing.
    #[command(
        after_help = "Example:\n  dvp maker place --partner acme --id R-1 --pair USDC/USD --rate 0.9991 --amount-minor 5000000 --dir .dvp"
    )]
    Place(MakerPlace),
    /// Cancel the remainder of a resting order. Amounts that takers return later stay with the provider.
    #[command(after_help = "Example:\n  dvp maker cancel --partner acme --order 17 --dir .dvp")]
    Cancel(MakerCancel),
    /// Show a maker's resting orders, newest first.
    #[command(after_help = "Example:\n  dvp maker orders --partner acme --open --dir .dvp --json")]
    Orders(MakerOrders),
}

#[derive(Debug, Args)]
pub(crate) struct MakerSet {
    /// The provider whose balance its orders offer.
    #[arg(long)]
    pub provider: String,
    /// The wallet that funds of its fills are released to, on the escrow's allow-list.
    #[arg(long)]
    pub wallet: String,
    #[command(flatten)]
    pub who: MakerWho,
}

#[derive(Debug, Args)]
pub(crate) struct MakerWho {
    /// The partner's name.
    #[arg(long)]
    pub partner: String,
    /// The requesting operator.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[arg(long)]
    pub reason: String,
    #[arg(long)]
    pub evidence: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MakerPlace {
    /// The maker's name.
    #[arg(long)]
    pub partner: String,
    /// The maker's own id of the order.
    #[arg(long)]
    pub id: String,
    /// INPUT/OUTPUT, as takers pay and get.
    #[arg(long)]
    pub pair: String,
    /// Output per one input.
    #[arg(long)]
    pub rate: String,
    /// The most that is given, in the output's minor units.
    #[arg(long, value_parser = amount)]
    pub amount_minor: Minor,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MakerCancel {
    /// The maker's name.
    #[arg(long)]
    pub partner: String,
    /// The order's number, as `place` and `orders` print it.
    #[arg(long)]
    pub order: i64,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MakerOrders {
    /// The maker's name.
    #[arg(long)]
    pub partner: String,
    /// Only those with a remaining amount.
    #[arg(long)]
    pub open: bool,
    /// How many at most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=1_000))]
    pub limit: i64,
    #[command(flatten)]
    pub place: PlaceArgs,
}

pub(crate) async fn run(command: MakerCommand) -> anyhow::Result<()> {
    match command {
        MakerCommand::Set(MakerSet { provider, wallet, who }) => change(who, Some((provider, wallet))).await,
        MakerCommand::End(who) => change(who, None).await,
        MakerCommand::List(place) => list(place).await,
        MakerCommand::Place(args) => place(args).await,
        MakerCommand::Cancel(args) => cancel(args).await,
        MakerCommand::Orders(args) => orders(args).await,
    }
}

async fn change(who: MakerWho, provider: Option<(String, String)>) -> anyhow::Result<()> {
    let MakerWho { partner, operator, reason, evidence, place } = who;
    let mut access = Access::open(&place).await?;
    let partner_id = named_partner(&mut access.conn, &partner).await?.id;
    let is_ended = provider.is_none();
    let (provider_id, wallet) = match provider {
        Some((provider_id, wallet)) => {
            access.check_provider(&Owner::Provider(provider_id.clone())).await?;
            (provider_id, wallet)
        }
        None => {
            let known = makers::find(&mut access.conn, &partner_id).await?;
            (known.provider_id, known.wallet)
        }
    };
    let contracts = chains::contracts(&access.place)?;
    let change = MakerChange { partner_id, provider_id, wallet, is_ended };
    let maker = Maker { operator: &operator, reason: &reason, evidence: &evidence };
    print_requested(place.json, &makers::request(&mut access.conn, &change, maker, &contracts).await?)
}

async fn list(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let rows = store::list(&mut access.conn).await?;
    let view = |row: &store::Maker| {
        json!({"partnerId": row.partner_id, "provider": row.provider_id, "wallet": row.wallet,
               "approval": row.approval, "setAt": row.set_at.to_rfc3339()})
    };
    let line = |row: &store::Maker| {
        format!("{} for {}  to {}  by {}", row.partner_id, row.provider_id, row.wallet, row.approval)
    };
    print_list(place.json, "makers", &rows, view, line)
}

/// The service that a command is for, and the maker of this name.
async fn maker(place: &PlaceArgs, partner: &str) -> anyhow::Result<(Access, store::Maker)> {
    let mut access = Access::open(place).await?;
    let id = named_partner(&mut access.conn, partner).await?.id;
    let maker = makers::find(&mut access.conn, &id).await?;
    Ok((access, maker))
}

async fn place(args: MakerPlace) -> anyhow::Result<()> {
    let (mut access, maker) = maker(&args.place, &args.partner).await?;
    let (input, output) = args.pair.split_once('/').context("--pair: a pair is INPUT/OUTPUT")?;
    for asset in [input, output] {
        access.check_asset(asset).await?;
    }
    let placing = Placing {
        client_order_id: args.id,
        input: input.to_owned(),
        output: output.to_owned(),
        rate: makers::parse_rate(&args.rate)
            .context("--rate: a rate is a positive price of at most 18 places")?,
        amount: args.amount_minor,
    };
    let (order, is_new) = makers::place(&mut access.conn, &maker, &placing).await?;
    let mut value = view(&order);
    value["repeated"] = json!(!is_new);
    print(args.place.json, &value, || vec![line(&order)])
}

async fn cancel(args: MakerCancel) -> anyhow::Result<()> {
    let (mut access, maker) = maker(&args.place, &args.partner).await?;
    let order = makers::cancel(&mut access.conn, &maker, args.order).await?;
    print(args.place.json, &view(&order), || vec![line(&order)])
}

async fn orders(args: MakerOrders) -> anyhow::Result<()> {
    let (mut access, maker) = maker(&args.place, &args.partner).await?;
    let rows = resting_orders::list_of(&mut access.conn, maker.placer(), args.open, None, args.limit).await?;
    print_list(args.place.json, "orders", &rows, view, line)
}

fn view(row: &RestingOrderRow) -> Value {
    json!({"order": row.id, "clientOrderId": row.client_order_id, "pair": format!("{}/{}", row.input_asset, row.output_asset),
           "rate": row.rate, "amountMinor": row.placed, "remainingMinor": row.remaining,
           "cancelledMinor": row.cancelled, "placedAt": row.placed_at.to_rfc3339(),
           "cancelledAt": row.cancelled_at.map(|at| at.to_rfc3339())})
}

fn line(row: &RestingOrderRow) -> String {
    let cancelled = row.cancelled.as_ref().map(|rest| format!("  {rest} cancelled")).unwrap_or_default();
    format!(
        "{}  {}/{} at {}  {} of {} left{cancelled}",
        row.id, row.input_asset, row.output_asset, row.rate, row.remaining, row.placed
    )
}
