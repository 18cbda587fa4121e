//! `dvp beneficiary …`: recipients that orders name as `bene_…:dest_…`.

use anyhow::{Context as _, bail, ensure};
use dvp_core::requests::is_same_operator;
use dvp_domain::beneficiary::BeneficiaryAddress;
use dvp_domain::beneficiary::destination::DestinationStatus;
use dvp_domain::money::Minor;
use dvp_domain::text;
use dvp_rails::PayoutOrder;
use dvp_rails::iso20022::instruction::check_payout;
use dvp_rails::iso20022::schema::exponent;
use dvp_store::beneficiaries::{self, DestinationRow, NewBeneficiary, NewDestination};
use dvp_store::{ids, moves};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};

use super::named_partner;
use crate::access::Access;
use crate::cli::{
    BeneficiaryCommand, BeneficiaryCreate, BeneficiaryList, DestinationAdd, DestinationArgs,
    DestinationDisable, DestinationVerify,
};
use crate::output::print;

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
    let row = locked(&mut tx, &args.destination).await?;
    let changed = beneficiaries::disable_destination(&mut tx, &args.destination, operator, reason).await?;
    let others = moves::list_other_cells(&mut tx, &row.partner_id).await?;
    tx.commit().await?;
    let id = &args.destination;
    let value = json!({"destinationId": id, "status": "disabled", "changed": changed, "alsoInCells": others});
    print(args.place.json, &value, || {
        let also = |cell| {
            format!("Cell {cell} may pay it for earlier orders of the partner: disable it there, too.")
        };
        let done = format!("{id} is disabled{}", if changed { "" } else { " already" });
        std::iter::once(done).chain(others.iter().map(also)).collect()
    })
}

async fn list(args: BeneficiaryList) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let partner = match &args.partner {
        Some(name) => Some(named_partner(&mut access.conn, name).await?.id),
        None => None,
    };
    let rows = beneficiaries::list_destinations(&mut access.conn, partner.as_deref()).await?;
    let all: Vec<Value> = rows.iter().map(view).collect();
    print(args.place.json, &json!({ "destinations": all }), || {
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
        rows.iter().map(line).collect()
    })
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
