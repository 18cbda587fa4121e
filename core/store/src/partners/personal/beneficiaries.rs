//! Personal data of registered beneficiaries.

use sqlx::PgConnection;

use super::{Words, trail};
use crate::StoreError;

/// A beneficiary, locked by the caller's transaction with its destinations.
#[derive(Debug, Clone)]
pub struct LockedBeneficiary {
    pub partner_id: String,
    pub is_erased: bool,
    /// Its destinations that are not disabled.
    pub payable: i64,
    /// The orders of its partner that name it and have not ended.
    pub open_orders: i64,
    pub words: Words,
}

#[derive(sqlx::FromRow)]
struct Row {
    partner_id: String,
    name: String,
    line1: Option<String>,
    is_erased: bool,
}

pub async fn lock(conn: &mut PgConnection, id: &str) -> Result<Option<LockedBeneficiary>, StoreError> {
    let found: Option<Row> = sqlx::query_as(
        "select partner_id, name, address ->> 'line1' as line1, erased_at is not null as is_erased \
         from beneficiary where id = $1 for update",
    )
    .bind(id)
    .fetch_optional(&mut *conn)
    .await?;
    let Some(Row { partner_id, name, line1, is_erased }) = found else { return Ok(None) };
    let destinations: Vec<(String, bool)> = sqlx::query_as(
        "select account, disabled_at is null from destination where beneficiary_id = $1 order by id for update",
    )
    .bind(id)
    .fetch_all(&mut *conn)
    .await?;
    let open_orders = sqlx::query_scalar(
        "select count(*) from execution e \
         where e.terminal_at is null and e.partner_id = $1 \
           and split_part(e.terms #>> '{request,beneficiary,account}', ':', 1) = $2",
    )
    .bind(&partner_id)
    .bind(id)
    .fetch_one(conn)
    .await?;
    let mut words = Words::default();
    let accounts = destinations.iter().map(|(account, _)| account);
    words.add_name(&name);
    line1.iter().chain(accounts).for_each(|word| words.add(word));
    let payable = destinations.iter().filter(|(_, is_payable)| *is_payable).count();
    let payable = i64::try_from(payable).unwrap_or(i64::MAX);
    Ok(Some(LockedBeneficiary { partner_id, is_erased, payable, open_orders, words }))
}

/// Erases a beneficiary, its destinations, and what the audit log has of both.
pub async fn erase(conn: &mut PgConnection, id: &str, words: &Words) -> Result<(), StoreError> {
    sqlx::query(
        "update beneficiary set name = '[erased]', address = null, erased_at = now() \
         where id = $1 and erased_at is null",
    )
    .bind(id)
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "update destination set account = '[erased]', swift_code = null, bank = null, \
                evidence = erase_words(evidence, $2), disabled_reason = erase_words(disabled_reason, $2) \
         where beneficiary_id = $1 and account <> '[erased]'",
    )
    .bind(id)
    .bind(words.json())
    .execute(&mut *conn)
    .await?;
    trail::erase_audited(conn, id, words).await
}
