//! The registry of beneficiaries: recipients that an order names as `bene_…:dest_…`.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use dvp_domain::beneficiary::destination::{Destination, DestinationStatus};
use dvp_domain::beneficiary::{Beneficiary, BeneficiaryAddress, PayoutMethod};
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{FromRow, PgConnection, Row as _};

use crate::{StoreError, read, statement};

#[derive(Debug, Clone)]
pub struct NewBeneficiary<'a> {
    pub id: &'a str,
    pub partner_id: &'a str,
    pub name: &'a str,
    pub country: &'a str,
    pub address: Option<&'a BeneficiaryAddress>,
    pub operator: &'a str,
}

#[derive(Debug, Clone)]
pub struct NewDestination<'a> {
    pub id: &'a str,
    pub beneficiary_id: &'a str,
    pub account: &'a str,
    pub currency: &'a str,
    pub method: PayoutMethod,
    pub swift_code: Option<&'a str>,
    pub bank: Option<&'a str>,
    pub operator: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationRow {
    pub beneficiary_id: String,
    pub destination_id: String,
    pub partner_id: String,
    pub destination: Destination,
    pub created_by: String,
    pub created_at: DateTime<Utc>,
    pub verified_by: Option<String>,
    pub evidence: Option<String>,
    pub verified_at: Option<DateTime<Utc>>,
    pub disabled_by: Option<String>,
    pub disabled_reason: Option<String>,
    pub disabled_at: Option<DateTime<Utc>>,
}

impl DestinationRow {
    /// As `beneficiary.account` of an intent names it.
    pub fn account(&self) -> String {
        format!("{}:{}", self.beneficiary_id, self.destination_id)
    }
}

const COLUMNS: &str = "select b.id as beneficiary_id, d.id as destination_id, b.partner_id, b.name, b.country, b.address, \
            d.account, d.currency, d.payout_method, d.swift_code, d.bank, d.created_by, d.created_at, \
            d.verified_by, d.evidence, d.verified_at, d.disabled_by, d.disabled_reason, d.disabled_at \
     from destination d join beneficiary b on b.id = d.beneficiary_id ";

impl FromRow<'_, PgRow> for DestinationRow {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let method = |text: &str| PayoutMethod::parse(text).ok_or("is unknown");
        let (verified_at, disabled_at) = (row.try_get("verified_at")?, row.try_get("disabled_at")?);
        let status = match (verified_at, disabled_at) {
            (_, Some(_)) => DestinationStatus::Disabled,
            (Some(_), None) => DestinationStatus::Verified,
            (None, None) => DestinationStatus::Unverified,
        };
        let details = Beneficiary {
            account: Some(row.try_get("account")?),
            name: Some(row.try_get("name")?),
            country: Some(row.try_get("country")?),
            payout_method: Some(read(row, ("destination", "payout_method"), method)?),
            swift_code: row.try_get("swift_code")?,
            bank: row.try_get("bank")?,
            address: row.try_get::<Option<Json<_>>, _>("address")?.map(|Json(address)| address),
            travel_rule_data: None,
        };
        Ok(Self {
            beneficiary_id: row.try_get("beneficiary_id")?,
            destination_id: row.try_get("destination_id")?,
            partner_id: row.try_get("partner_id")?,
            destination: Destination { details, currency: row.try_get("currency")?, status },
            created_by: row.try_get("created_by")?,
            created_at: row.try_get("created_at")?,
            verified_by: row.try_get("verified_by")?,
            evidence: row.try_get("evidence")?,
            verified_at,
            disabled_by: row.try_get("disabled_by")?,
            disabled_reason: row.try_get("disabled_reason")?,
            disabled_at,
        })
    }
}

pub async fn insert_beneficiary(conn: &mut PgConnection, new: &NewBeneficiary<'_>) -> Result<(), StoreError> {
    let sql = "insert into beneficiary (id, partner_id, name, country, address, created_by) \
         values ($1, $2, $3, $4, $5, $6)";
    let parameters = (new.id, new.partner_id, new.name, new.country, new.address.map(Json), new.operator);
    statement::execute(conn, sql, parameters).await
}

pub async fn insert_destination(conn: &mut PgConnection, new: &NewDestination<'_>) -> Result<(), StoreError> {
    let sql = "insert into destination (id, beneficiary_id, account, currency, payout_method, swift_code, bank, \
         created_by) values ($1, $2, $3, $4, $5, $6, $7, $8)";
    let parameters = (
        new.id,
        new.beneficiary_id,
        new.account,
        new.currency,
        new.method.as_str(),
        new.swift_code,
        new.bank,
        new.operator,
    );
    statement::execute(conn, sql, parameters).await
}

pub async fn has_beneficiary(conn: &mut PgConnection, id: &str) -> Result<bool, StoreError> {
    let sql = "select exists (select 1 from beneficiary where id = $1)";
    statement::load_value(conn, sql, (id,)).await
}

/// The destinations of recipients that were looked up, by partner and `bene_…:dest_…`; `None`: it is not registered.
pub type Destinations = HashMap<(String, String), Option<Destination>>;

/// The destinations that the partners' orders name.
pub async fn find_destinations(
    conn: &mut PgConnection,
    named: &[(&str, &str, &str)],
) -> Result<Destinations, StoreError> {
    let sql = sqlx::AssertSqlSafe(format!(
        "{COLUMNS} where (b.partner_id, b.id, d.id) in (select * from unnest($1::text[], $2::text[], $3::text[]))"
    ));
    let parameters = (
        named.iter().map(|(partner, _, _)| *partner).collect::<Vec<_>>(),
        named.iter().map(|(_, beneficiary, _)| *beneficiary).collect::<Vec<_>>(),
        named.iter().map(|(_, _, destination)| *destination).collect::<Vec<_>>(),
    );
    let rows: Vec<DestinationRow> = statement::list(conn, sql, parameters).await?;
    let key = |partner: &str, beneficiary: &str, destination: &str| {
        (partner.to_owned(), format!("{beneficiary}:{destination}"))
    };
    let mut found: Destinations = named.iter().map(|(partner, b, d)| (key(partner, b, d), None)).collect();
    for row in rows {
        let key = key(&row.partner_id, &row.beneficiary_id, &row.destination_id);
        found.insert(key, Some(row.destination));
    }
    Ok(found)
}

/// A destination by its id, locked until the transaction ends.
pub async fn lock_destination(
    conn: &mut PgConnection,
    destination_id: &str,
) -> Result<Option<DestinationRow>, StoreError> {
    let sql = format!("{COLUMNS} where d.id = $1 for update of d");
    statement::find(conn, sqlx::AssertSqlSafe(sql), (destination_id,)).await
}

/// How many destinations of a partner wait for their verification; until the transaction ends no other one enters any.
pub async fn lock_unverified(conn: &mut PgConnection, partner_id: &str) -> Result<i64, StoreError> {
    let sql = "select id from partner where id = $1 for no key update";
    statement::execute(conn, sql, (partner_id,)).await?;
    let sql = "select count(*) from destination d join beneficiary b on b.id = d.beneficiary_id \
         where b.partner_id = $1 and d.verified_at is null and d.disabled_at is null";
    statement::load_value(conn, sql, (partner_id,)).await
}

/// The partner's destination with these details that is not disabled.
pub async fn find_same(
    conn: &mut PgConnection,
    partner_id: &str,
    details: &Beneficiary,
    currency: &str,
) -> Result<Option<DestinationRow>, StoreError> {
    let sql = format!(
        "{COLUMNS} where b.partner_id = $1 and d.currency = $2 and d.disabled_at is null and b.erased_at is null \
             and (b.name, b.country, d.account, d.payout_method) = ($3, $4, $5, $6) \
             and (b.address, d.swift_code, d.bank) is not distinct from ($7, $8, $9) \
         order by d.created_at, d.id limit 1"
    );
    let parameters = (
        partner_id,
        currency,
        &details.name,
        &details.country,
        &details.account,
        details.payout_method.map(PayoutMethod::as_str),
        details.address.as_ref().map(Json),
        &details.swift_code,
        &details.bank,
    );
    statement::find(conn, sqlx::AssertSqlSafe(sql), parameters).await
}

/// The destinations of one partner, or of all, the oldest first.
pub async fn list_destinations(
    conn: &mut PgConnection,
    partner_id: Option<&str>,
) -> Result<Vec<DestinationRow>, StoreError> {
    let sql = format!("{COLUMNS} where $1::text is null or b.partner_id = $1 order by d.created_at, d.id");
    statement::list(conn, sqlx::AssertSqlSafe(sql), (partner_id,)).await
}

/// Records who verified a destination, and by which evidence. `false`: it is verified or disabled already.
pub async fn verify_destination(
    conn: &mut PgConnection,
    destination_id: &str,
    operator: &str,
    evidence: &str,
) -> Result<bool, StoreError> {
    let sql = "update destination set verified_by = $2, evidence = $3, verified_at = clock_timestamp() \
         where id = $1 and verified_at is null and disabled_at is null";
    Ok(statement::affected(conn, sql, (destination_id, operator, evidence)).await? == 1)
}

/// Records who disabled a destination, and why. `false`: it is disabled already.
pub async fn disable_destination(
    conn: &mut PgConnection,
    destination_id: &str,
    operator: &str,
    reason: &str,
) -> Result<bool, StoreError> {
    let sql = "update destination set disabled_by = $2, disabled_reason = $3, disabled_at = clock_timestamp() \
         where id = $1 and disabled_at is null";
    Ok(statement::affected(conn, sql, (destination_id, operator, reason)).await? == 1)
}
