//! Entering recipients that orders name as `bene_…:dest_…`: by an operator or by the partner itself, to be verified by
//! an operator who has not entered it.

use dvp_domain::beneficiary::{Beneficiary, BeneficiaryFault};
use dvp_domain::money::Minor;
use dvp_rails::iso20022::instruction::check_payout;
use dvp_rails::iso20022::schema::exponent;
use dvp_rails::{PayoutOrder, Unpayable};
use dvp_store::database::ids;
use dvp_store::partners::beneficiaries::{self, DestinationRow, NewBeneficiary, NewDestination};
use dvp_store::{PgConnection, StoreError};
use sqlx::Connection as _;

/// A partner with this many unverified destinations enters no more itself.
const UNVERIFIED_MAX: i64 = 1_000;

/// Why a destination is not entered.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// Names the field as an intent's beneficiary does.
    #[error("{0} is required")]
    Missing(&'static str),
    #[error("no bank could be ordered to pay this destination: {0}")]
    Fault(BeneficiaryFault),
    #[error("no bank could be ordered to pay this destination: {0}")]
    Unpayable(#[from] Unpayable),
    #[error("at most {UNVERIFIED_MAX} recipients wait for their verification")]
    TooMany,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Enters a recipient without an account; [`enter_destination`] adds one. Returns its id.
pub async fn enter(
    conn: &mut PgConnection,
    partner_id: &str,
    details: &Beneficiary,
    by: &str,
) -> Result<String, EntryError> {
    let id = format!("bene_{}", ids::draw_here(conn).await?.simple());
    let new = NewBeneficiary {
        id: &id,
        partner_id,
        name: required("name", details.name.as_deref())?,
        country: required("country", details.country.as_deref())?,
        address: details.address.as_ref(),
        operator: by,
    };
    beneficiaries::insert_beneficiary(conn, &new).await?;
    Ok(id)
}

/// Enters a destination of a recipient: an account in one currency.
pub async fn enter_destination(
    conn: &mut PgConnection,
    beneficiary_id: &str,
    details: &Beneficiary,
    currency: &str,
    by: &str,
) -> Result<DestinationRow, EntryError> {
    let id = format!("dest_{}", ids::draw_here(conn).await?.simple());
    let new = NewDestination {
        id: &id,
        beneficiary_id,
        account: required("account", details.account.as_deref())?,
        currency,
        method: details.payout_method.ok_or(EntryError::Missing("payoutMethod"))?,
        swift_code: details.swift_code.as_deref(),
        bank: details.bank.as_deref(),
        operator: by,
    };
    beneficiaries::insert_destination(conn, &new).await?;
    let row = beneficiaries::lock_destination(conn, &id).await?;
    let row = row.ok_or_else(|| StoreError::corrupt("destination", "it was entered and is not there"))?;
    row.destination.details.check().map_err(EntryError::Fault)?;
    check_payout(&PayoutOrder {
        beneficiary: Some(&row.destination.details),
        amount: Minor::new(1),
        currency,
        exponent: exponent(currency),
        reference: None,
    })?;
    Ok(row)
}

/// Enters a recipient for the partner that asks for it. If the same one is there and not disabled, it is returned.
/// `true`: it is new.
pub async fn enter_by_partner(
    conn: &mut PgConnection,
    partner_id: &str,
    details: &Beneficiary,
    currency: &str,
    by: &str,
) -> Result<(DestinationRow, bool), EntryError> {
    let mut tx = conn.begin().await.map_err(StoreError::from)?;
    let waiting = beneficiaries::lock_unverified(&mut tx, partner_id).await?;
    if let Some(row) = beneficiaries::find_same(&mut tx, partner_id, details, currency).await? {
        return Ok((row, false));
    }
    if waiting >= UNVERIFIED_MAX {
        return Err(EntryError::TooMany);
    }
    let id = enter(&mut tx, partner_id, details, by).await?;
    let row = enter_destination(&mut tx, &id, details, currency, by).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok((row, true))
}

fn required<'a>(field: &'static str, text: Option<&'a str>) -> Result<&'a str, EntryError> {
    text.filter(|text| !text.trim().is_empty()).ok_or(EntryError::Missing(field))
}
