//! Balances as the liquidity sources read them for quotes.

use dvp_domain::money::Minor;
use sqlx::PgConnection;

use crate::StoreError;

/// Every provider's available balances, by provider and asset. There are as many rows as providers times assets.
pub async fn list_available(conn: &mut PgConnection) -> Result<Vec<((String, String), Minor)>, StoreError> {
    let rows: Vec<(String, String, String)> = sqlx::query_as(
        "select owner, asset, available::text from account_balance where owner_kind = 'provider'",
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|(provider, asset, available)| {
            let available =
                Minor::parse(&available).map_err(|error| StoreError::corrupt("account_balance", error))?;
            Ok(((provider, asset), available))
        })
        .collect()
}
