//! `dvp maker …`: the makers of providers, and their resting orders.

use anyhow::Context as _;
use dvp_core::makers::{self, MakerChange, Placing};
use dvp_core::requests::Maker;
use dvp_domain::ledger::Owner;
use dvp_store::makers as store;
use dvp_store::orders::resting_orders::{self, RestingOrderRow};
use serde_json::{Value, json};

use super::approval::print_requested;
use super::named_partner;
use crate::access::Access;
use crate::cli::{
    MakerCancel, MakerCommand, MakerEnd, MakerOrders, MakerPlace, MakerSet, MakerWho, PlaceArgs,
};
use crate::output::print;

pub(crate) async fn run(command: MakerCommand) -> anyhow::Result<()> {
    match command {
        MakerCommand::Set(MakerSet { provider, wallet, who }) => change(who, Some((provider, wallet))).await,
        MakerCommand::End(MakerEnd { who }) => change(who, None).await,
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
    let change = MakerChange { partner_id, provider_id, wallet, is_ended };
    let maker = Maker { operator: &operator, reason: &reason, evidence: &evidence };
    print_requested(place.json, &makers::request(&mut access.conn, &change, maker).await?)
}

async fn list(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let rows = store::list(&mut access.conn).await?;
    let all: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({"partnerId": row.partner_id, "provider": row.provider_id, "wallet": row.wallet,
                   "approval": row.approval, "setAt": row.set_at.to_rfc3339()})
        })
        .collect();
    print(place.json, &json!({ "makers": all }), || {
        rows.iter()
            .map(|row| {
                format!("{} for {}  to {}  by {}", row.partner_id, row.provider_id, row.wallet, row.approval)
            })
            .collect()
    })
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
    if let Some(fields) = value.as_object_mut() {
        fields.insert("repeated".into(), json!(!is_new));
    }
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
    let all: Vec<Value> = rows.iter().map(view).collect();
    print(args.place.json, &json!({ "orders": all }), || rows.iter().map(line).collect())
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
