//! Personal data of registered beneficiaries.

use sqlx::PgConnection;

use super::{Words, trail};
use crate::{StoreError, statement};

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
    let sql = "select partner_id, name, address ->> 'line1' as line1, erased_at is not null as is_erased \
         from beneficiary where id = $1 for update";
    let found: Option<Row> = statement::find(conn, sql, (id,)).await?;
    let Some(Row { partner_id, name, line1, is_erased }) = found else { return Ok(None) };
    let sql = "select account, disabled_at is null from destination where beneficiary_id = $1 \
         order by id for update";
    let destinations: Vec<(String, bool)> = statement::list(conn, sql, (id,)).await?;
    let sql = "select count(*) from execution e \
         where e.terminal_at is null and e.partner_id = $1 \
           and split_part(e.terms #>> '{request,beneficiary,account}', ':', 1) = $2";
    let open_orders = statement::load_value(conn, sql, (&partner_id, id)).await?;
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
    let sql = "update beneficiary set name = '[erased]', address = null, erased_at = now() \
         where id = $1 and erased_at is null";
    statement::execute(conn, sql, (id,)).await?;
    let sql = "update destination set account = '[erased]', swift_code = null, bank = null, \
                evidence = erase_words(evidence, $2), disabled_reason = erase_words(disabled_reason, $2) \
         where beneficiary_id = $1 and account <> '[erased]'";
    statement::execute(conn, sql, (id, words.json())).await?;
    trail::erase_audited(conn, id, words).await
}
