//! The internal order book's resting orders.

use std::collections::HashMap;

use dvp_domain::money::Minor;
use rust_decimal::Decimal;
use sqlx::PgConnection;

use crate::StoreError;

/// A new resting order.
#[derive(Debug, Clone)]
pub struct NewRestingOrder {
    pub provider_id: String,
    /// The provider's wallet for released funds.
    pub wallet: String,
    pub input_asset: String,
    pub output_asset: String,
    /// Output per one input, in whole units.
    pub rate: Decimal,
    /// Output in minor units.
    pub amount: Minor,
}

/// A resting order with a remaining amount.
#[derive(Debug, Clone)]
pub struct RestingOrder {
    pub id: i64,
    pub provider_id: String,
    pub wallet: String,
    pub input_asset: String,
    pub output_asset: String,
    pub rate: Decimal,
    pub remaining: Minor,
}

/// The number of open orders that are read: the oldest, so that a flood of new ones hides none.
const LEVELS_MAX: i64 = 1_000;

fn minor(text: &str) -> Result<Minor, StoreError> {
    Minor::parse(text).map_err(|error| StoreError::corrupt("resting_order", error))
}

/// Inserts a resting order and returns its id.
pub async fn insert(conn: &mut PgConnection, new: &NewRestingOrder) -> Result<i64, StoreError> {
    let (id,) = sqlx::query_as(
        "insert into resting_order (provider_id, wallet, input_asset, output_asset, rate, placed, remaining) \
         values ($1, $2, $3, $4, $5::text::numeric, $6::text::numeric, $6::text::numeric) \
         returning id",
    )
    .bind(&new.provider_id)
    .bind(&new.wallet)
    .bind(&new.input_asset)
    .bind(&new.output_asset)
    .bind(new.rate.to_string())
    .bind(new.amount.to_string())
    .fetch_one(conn)
    .await?;
    Ok(id)
}

/// The orders with a remaining amount, oldest first.
pub async fn list_open(conn: &mut PgConnection) -> Result<Vec<RestingOrder>, StoreError> {
    let rows: Vec<(i64, String, String, String, String, String, String)> = sqlx::query_as(
        "select id, provider_id, wallet, input_asset, output_asset, rate::text, remaining::text \
         from resting_order \
         where remaining > 0 \
         order by id \
         limit $1",
    )
    .bind(LEVELS_MAX)
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|(id, provider_id, wallet, input_asset, output_asset, rate, remaining)| {
            let rate = Decimal::from_str_exact(&rate);
            Ok(RestingOrder {
                id,
                provider_id,
                wallet,
                input_asset,
                output_asset,
                rate: rate.map_err(|error| StoreError::corrupt("resting_order", error))?,
                remaining: minor(&remaining)?,
            })
        })
        .collect()
}

/// Locks orders in id order and returns the remaining amount of each.
pub async fn lock(conn: &mut PgConnection, ids: &[i64]) -> Result<HashMap<i64, Minor>, StoreError> {
    let rows: Vec<(i64, String)> = sqlx::query_as(
        "select id, remaining::text from resting_order where id = any($1::int8[]) order by id for update",
    )
    .bind(ids)
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(|(id, remaining)| Ok((id, minor(&remaining)?))).collect()
}

/// Takes amounts from locked orders; each order at most once.
pub async fn take(conn: &mut PgConnection, taken: &HashMap<i64, Minor>) -> Result<(), StoreError> {
    let (ids, amounts): (Vec<i64>, Vec<String>) =
        taken.iter().map(|(id, amount)| (*id, amount.to_string())).unzip();
    sqlx::query(
        "update resting_order o set remaining = o.remaining - t.amount::numeric \
         from unnest($1::int8[], $2::text[]) as t (id, amount) \
         where o.id = t.id",
    )
    .bind(ids)
    .bind(amounts)
    .execute(conn)
    .await?;
    Ok(())
}
