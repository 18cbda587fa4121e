//! `dvp partner create|list`.

use anyhow::bail;
use dvp_core::keys;
use dvp_core::store::partners::{self, PartnerRow};
use serde_json::{Value, json};

use crate::access::Access;
use crate::cli::{PartnerCommand, PartnerCreate, PlaceArgs};
use crate::output::print;

const PAGE: i64 = 500;

pub(crate) async fn run(command: PartnerCommand) -> anyhow::Result<()> {
    match command {
        PartnerCommand::Create(args) => create(args).await,
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
