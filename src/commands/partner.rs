//! `dvp partner create|list`.

use anyhow::bail;
use dvp_core::keys::{self, Env};
use dvp_core::store::intents::Tenant;
use dvp_core::store::legacy;
use dvp_core::store::partners::{self, PartnerRow};
use dvp_domain::ledger::Owner;
use serde_json::{Value, json};

use super::{deposit, named_partner};
use crate::access::Access;
use crate::cli::{PartnerCommand, PartnerCreate, PartnerDeposit, PartnerInstruct, PlaceArgs};
use crate::output::print;

const PAGE: i64 = 500;

pub(crate) async fn run(command: PartnerCommand) -> anyhow::Result<()> {
    match command {
        PartnerCommand::Create(args) => create(args).await,
        PartnerCommand::Instruct(args) => instruct(args).await,
        PartnerCommand::Deposit(args) => deposit(args).await,
        PartnerCommand::List(place) => list(place).await,
    }
}

async fn create(args: PartnerCreate) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let id = keys::new_partner_id();
    let limit = args.limit.unwrap_or(args.tier.usual_limit());
    let tier = args.tier.as_str();
    if !partners::insert_partner(&mut access.conn, &id, &args.name, tier, limit).await? {
        bail!("there is a partner {} already", args.name);
    }
    print(args.place.json, &json!({"partnerId": id}), || vec![format!("partner {id}")])
}

async fn instruct(args: PartnerInstruct) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let partner = named_partner(&mut access.conn, &args.name).await?;
    let tenant = Tenant { partner_id: partner.id, livemode: Env::from(args.env) == Env::Live };
    legacy::upsert_instruction(&mut access.conn, &tenant, &args.asset, &args.account).await?;
    let value = json!({"partnerId": tenant.partner_id, "asset": args.asset, "account": args.account});
    print(args.place.json, &value, || vec![format!("{} goes to {}", args.asset, args.account)])
}

async fn deposit(args: PartnerDeposit) -> anyhow::Result<()> {
    let mut access = Access::open(&args.deposit.place).await?;
    let partner = named_partner(&mut access.conn, &args.name).await?;
    let owner = Owner::Partner { id: partner.id.clone(), livemode: Env::from(args.env) == Env::Live };
    deposit::post(&mut access, &args.deposit, &owner, ("partnerId", &partner.id)).await
}

async fn list(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let mut all: Vec<PartnerRow> = Vec::new();
    loop {
        let after = all.last().map(|row| row.name.clone()).unwrap_or_default();
        let page = partners::list_partners(&mut access.conn, &after, PAGE).await?;
        if page.is_empty() {
            break;
        }
        all.extend(page);
    }
    let partners: Vec<Value> = all.iter().map(view).collect();
    print(place.json, &json!({"partners": partners}), || {
        let line = |row: &PartnerRow| {
            format!("{}  {}  {}  {} a minute", row.id, row.name, row.tier, row.limit_per_minute)
        };
        all.iter().map(line).collect()
    })
}

fn view(row: &PartnerRow) -> Value {
    json!({
        "partnerId": row.id, "name": row.name, "tier": row.tier, "limitPerMinute": row.limit_per_minute,
        "createdAt": row.created_at.to_rfc3339(),
    })
}
