//! Ledger entries. The database refuses a transaction that does not balance per asset.

use dvp_domain::ledger::{Account, Move};
use sqlx::PgConnection;

use super::StoreError;

/// The moves of one step of an execution: one ledger transaction.
#[derive(Debug, Clone)]
pub struct Posting {
    pub reference: String,
    /// The execution's version the step led to.
    pub step: i64,
    pub moves: Vec<Move>,
}

struct Entry<'a> {
    reference: &'a str,
    step: i64,
    account: String,
    asset: &'a str,
    amount: String,
}

pub async fn insert(conn: &mut PgConnection, postings: &[Posting]) -> Result<(), StoreError> {
    let mut rows: Vec<Entry<'_>> = Vec::new();
    for Posting { reference, step, moves } in postings {
        for Move { asset, from, to, amount } in moves {
            let amount = amount.to_numeric();
            let entry = |account: &Account, amount| Entry {
                reference,
                step: *step,
                account: account.to_string(),
                asset,
                amount,
            };
            rows.push(entry(from, format!("-{amount}")));
            rows.push(entry(to, amount));
        }
    }
    sqlx::query(
        "insert into ledger_entry (reference, step, account, asset, amount) \
         select r, s, c, a, m::numeric \
         from unnest($1::text[], $2::int8[], $3::text[], $4::text[], $5::text[]) as u (r, s, c, a, m)",
    )
    .bind(rows.iter().map(|row| row.reference).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.step).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.account.as_str()).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.asset).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.amount.as_str()).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    Ok(())
}
