//! The holds of live settlements on the paying wallets: permit nonces, and amounts of tokens.

use dvp_domain::terms::Terms;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres};

use crate::{StoreError, statement};

/// A permit nonce that a settlement holds, and the amount it locks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermitHold {
    pub chain_id: i64,
    /// Lowercase address.
    pub owner: String,
    pub nonce: u128,
    /// The token's contract, `0x` and lowercase hex.
    pub token: String,
    /// Token units.
    pub amount: u128,
    pub reference: String,
}

impl PermitHold {
    /// The hold of an accepted order, if its input is pulled with a permit, on its chain.
    pub fn of(terms: &Terms, chain_id: i64) -> Option<Self> {
        let permit = terms.request.permit.as_ref().filter(|_| terms.locks())?;
        Some(Self {
            chain_id,
            owner: terms.request.user.to_lowercase(),
            nonce: permit.nonce.get(),
            token: permit.token.to_lowercase(),
            amount: terms.input.amount.get(),
            reference: terms.reference.to_string(),
        })
    }

    pub fn wallet(&self) -> (i64, String) {
        (self.chain_id, self.owner.clone())
    }
}

/// The holds of wallets, each from a nonce on, and whether its order rests. The cost is proportional to the holds of
/// each wallet's pending orders. `offset 0` keeps the planner from scanning all holds.
pub async fn list_held(
    conn: &mut PgConnection,
    wallets: &[((i64, &str), u128)],
) -> Result<Vec<(PermitHold, bool)>, StoreError> {
    let (of, from): (Vec<(i64, &str)>, Vec<String>) =
        wallets.iter().map(|(wallet, from)| (*wallet, from.to_string())).unzip();
    let (chains, owners): (Vec<i64>, Vec<&str>) = of.into_iter().unzip();
    let sql = "select c, held.owner, held.nonce, held.token, held.amount, held.reference, \
                exists (select from resting_range r where r.reference = held.reference) \
         from unnest($1::int8[], $2::text[], $3::text[]) as requested (c, o, n), lateral \
              (select owner, nonce::text, token, amount::text, reference from permit_use \
               where chain_id = c and owner = o and nonce >= n::numeric offset 0) as held";
    let rows: Vec<(i64, String, String, String, String, String, bool)> =
        statement::list(conn, sql, (chains, owners, from)).await?;
    let number = |text: &str| text.parse::<u128>().map_err(|error| StoreError::corrupt("permit_use", error));
    rows.into_iter()
        .map(|(chain_id, owner, nonce, token, amount, reference, rests)| {
            let (nonce, amount) = (number(&nonce)?, number(&amount)?);
            Ok((PermitHold { chain_id, owner, nonce, token, amount, reference }, rests))
        })
        .collect()
}

/// Deletes the holds of settlements that ended without a lock. A hold that now belongs to another settlement stays.
pub async fn delete(conn: &mut PgConnection, held: &[PermitHold]) -> Result<(), StoreError> {
    let delete = of_holds(
        "delete from permit_use p \
         using unnest($1::int8[], $2::text[], $3::text[], $4::text[]) as u (chain, owner, nonce, reference) \
         where p.chain_id = u.chain and p.owner = u.owner and p.nonce = u.nonce::numeric and p.reference = u.reference",
        held,
    );
    delete.execute(conn).await?;
    Ok(())
}

/// Sets what the holds of filled range orders lock: they held the order's cap.
pub async fn set_amounts(conn: &mut PgConnection, held: &[PermitHold]) -> Result<(), StoreError> {
    let update = of_holds(
        "update permit_use p set amount = u.amount::numeric \
         from unnest($1::int8[], $2::text[], $3::text[], $4::text[], $5::text[]) \
              as u (chain, owner, nonce, reference, amount) \
         where p.chain_id = u.chain and p.owner = u.owner and p.nonce = u.nonce::numeric and p.reference = u.reference",
        held,
    );
    let amounts = held.iter().map(|hold| hold.amount.to_string()).collect::<Vec<_>>();
    update.bind(amounts).execute(conn).await?;
    Ok(())
}

/// Marks the holds of settlements whose lock was indexed.
pub async fn mark_locked(conn: &mut PgConnection, held: &[PermitHold]) -> Result<(), StoreError> {
    let update = of_holds(
        "update permit_use p set locked_at = now() \
         from unnest($1::int8[], $2::text[], $3::text[], $4::text[]) as u (chain, owner, nonce, reference) \
         where p.chain_id = u.chain and p.owner = u.owner and p.nonce = u.nonce::numeric and p.reference = u.reference",
        held,
    );
    update.execute(conn).await?;
    Ok(())
}

/// A statement whose first parameters are the keys of holds: chains, owners, nonces and references.
fn of_holds<'a>(sql: &'static str, held: &'a [PermitHold]) -> Query<'a, Postgres, PgArguments> {
    sqlx::query(sql)
        .bind(held.iter().map(|hold| hold.chain_id).collect::<Vec<_>>())
        .bind(held.iter().map(|hold| hold.owner.as_str()).collect::<Vec<_>>())
        .bind(held.iter().map(|hold| hold.nonce.to_string()).collect::<Vec<_>>())
        .bind(held.iter().map(|hold| hold.reference.as_str()).collect::<Vec<_>>())
}
