//! What liquidity providers can still deliver.

use std::collections::BTreeMap;

use dvp_domain::money::Minor;
use sqlx::PgConnection;

use super::StoreError;

/// Provider and asset.
pub type BalanceKey = (String, String);

/// Free and reserved minor units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Balance {
    pub available: Minor,
    pub reserved: Minor,
}

fn minor(text: &str) -> Result<Minor, StoreError> {
    Minor::parse(text).map_err(|error| StoreError::corrupt("provider_balance", error))
}

/// The free balance of a provider in an asset, as last committed; zero where it has none.
pub async fn find_available(
    conn: &mut PgConnection,
    provider: &str,
    asset: &str,
) -> Result<Minor, StoreError> {
    let row: Option<(String,)> =
        sqlx::query_as("select available::text from provider_balance where provider_id = $1 and asset = $2")
            .bind(provider)
            .bind(asset)
            .fetch_optional(conn)
            .await?;
    row.map_or(Ok(Minor::ZERO), |(text,)| minor(&text))
}

/// Locks the rows of `keys` in key order, so that two writers never wait for each other.
pub async fn lock(
    conn: &mut PgConnection,
    keys: impl IntoIterator<Item = BalanceKey>,
) -> Result<BTreeMap<BalanceKey, Balance>, StoreError> {
    let (providers, assets): (Vec<String>, Vec<String>) = keys.into_iter().unzip();
    let rows: Vec<(String, String, String, String)> = sqlx::query_as(
        "select provider_id, asset, available::text, reserved::text from provider_balance \
         where (provider_id, asset) in (select * from unnest($1::text[], $2::text[])) \
         order by provider_id, asset for update",
    )
    .bind(providers)
    .bind(assets)
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|(provider, asset, available, reserved)| {
            Ok(((provider, asset), Balance { available: minor(&available)?, reserved: minor(&reserved)? }))
        })
        .collect()
}

/// Writes the balances of rows locked before.
pub async fn update(
    conn: &mut PgConnection,
    balances: &BTreeMap<BalanceKey, Balance>,
) -> Result<(), StoreError> {
    let (keys, values): (Vec<&BalanceKey>, Vec<&Balance>) = balances.iter().unzip();
    let (providers, assets): (Vec<&str>, Vec<&str>) =
        keys.iter().map(|k| (k.0.as_str(), k.1.as_str())).unzip();
    let available: Vec<String> = values.iter().map(|b| b.available.to_string()).collect();
    let reserved: Vec<String> = values.iter().map(|b| b.reserved.to_string()).collect();
    sqlx::query(
        "update provider_balance b set available = n.available::numeric, reserved = n.reserved::numeric \
         from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as n (provider_id, asset, available, reserved) \
         where b.provider_id = n.provider_id and b.asset = n.asset",
    )
    .bind(providers)
    .bind(assets)
    .bind(available)
    .bind(reserved)
    .execute(conn)
    .await?;
    Ok(())
}

/// Gives a provider an opening balance; one it already has stays as it is.
pub async fn insert_opening(
    conn: &mut PgConnection,
    provider: &str,
    asset: &str,
    amount: Minor,
) -> Result<(), StoreError> {
    sqlx::query(
        "insert into provider_balance (provider_id, asset, available) values ($1, $2, $3::text::numeric) \
         on conflict on constraint provider_balance_pkey do nothing",
    )
    .bind(provider)
    .bind(asset)
    .bind(amount.to_string())
    .execute(conn)
    .await?;
    Ok(())
}
