//! Limited balances: the available and reserved amounts of providers and partners.
//!
//! This module changes no balance: the database does, by postings to the ledger.
//!
//! Every fill is reserved from a provider's balance at the commit, whether its price comes from a pool, an order book
//! or a provider.
//!
//! Kept by `core/tests/it/races.rs::no_interleaving_of_processes_reserves_more_than_the_balance`.

use std::collections::{BTreeMap, BTreeSet};

use dvp_domain::ledger::{self, Owner};
use dvp_domain::money::Minor;
use sqlx::PgConnection;

use crate::ledger::{Deposited, NewPosting};
use crate::{StoreError, statement};

/// Owner and asset.
pub type BalanceKey = (Owner, String);

/// Available and reserved minor units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Balance {
    pub available: Minor,
    pub reserved: Minor,
}

fn minor(text: &str) -> Result<Minor, StoreError> {
    Minor::parse(text).map_err(|error| StoreError::corrupt("account_balance", error))
}

/// The balance of an owner in an asset, as last committed; zero without one.
pub async fn find(conn: &mut PgConnection, owner: &Owner, asset: &str) -> Result<Balance, StoreError> {
    let sql = "select available::text, reserved::text from account_balance \
         where owner_kind = $1 and owner = $2 and asset = $3";
    let row: Option<(String, String)> =
        statement::find(conn, sql, (owner.kind(), owner.name(), asset)).await?;
    row.map_or(Ok(Balance::default()), |(available, reserved)| {
        Ok(Balance { available: minor(&available)?, reserved: minor(&reserved)? })
    })
}

/// A balance as it is listed, in minor units.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct BalanceRow {
    pub owner_kind: String,
    pub owner: String,
    pub asset: String,
    pub available: String,
    pub reserved: String,
}

/// Every balance of a provider or a partner that is not zero, by owner and asset.
pub async fn list(conn: &mut PgConnection, limit: i64) -> Result<Vec<BalanceRow>, StoreError> {
    let sql = "select owner_kind, owner, asset, available::text as available, reserved::text as reserved \
         from account_balance where available + reserved > 0 \
         order by owner_kind desc, owner, asset limit $1";
    statement::list(conn, sql, (limit,)).await
}

/// Balances of providers that are not zero, those first of which orders hold most.
pub async fn list_held_by_providers(
    conn: &mut PgConnection,
    limit: i64,
) -> Result<Vec<BalanceRow>, StoreError> {
    let sql = "select owner_kind, owner, asset, available::text as available, reserved::text as reserved \
         from account_balance where owner_kind = 'provider' and available + reserved > 0 \
         order by reserved / (available + reserved) desc, owner, asset limit $1";
    statement::list(conn, sql, (limit,)).await
}

/// An owner's balances that are not zero, by asset.
pub async fn list_of(conn: &mut PgConnection, owner: &Owner) -> Result<Vec<BalanceRow>, StoreError> {
    let sql = "select owner_kind, owner, asset, available::text as available, reserved::text as reserved \
         from account_balance where owner_kind = $1 and owner = $2 and available + reserved > 0 order by asset";
    statement::list(conn, sql, (owner.kind(), owner.name())).await
}

/// Every provider's available balances, by provider and asset. There are as many rows as providers times assets.
pub async fn list_available(conn: &mut PgConnection) -> Result<Vec<((String, String), Minor)>, StoreError> {
    let sql = "select owner, asset, available::text from account_balance where owner_kind = 'provider'";
    let rows: Vec<(String, String, String)> = statement::list(conn, sql, ()).await?;
    let rows = rows.into_iter();
    rows.map(|(provider, asset, available)| Ok(((provider, asset), minor(&available)?))).collect()
}

/// The providers that ever had a balance, and those of makers.
pub async fn list_providers(conn: &mut PgConnection) -> Result<Vec<String>, StoreError> {
    let sql = "select owner from account_balance where owner_kind = 'provider' \
         union select provider_id from maker order by 1";
    statement::list_values(conn, sql, ()).await
}

/// Whether a balance exists for an owner, or for an asset.
pub async fn is_known(
    conn: &mut PgConnection,
    owner: Option<&Owner>,
    asset: Option<&str>,
) -> Result<bool, StoreError> {
    let known = sqlx::query_scalar(
        "select exists (select from account_balance \
                        where ($1::text is null or (owner_kind = $1 and owner = $2)) and ($3::text is null or asset = $3))",
    );
    let known = known.bind(owner.map(Owner::kind)).bind(owner.map(Owner::name)).bind(asset);
    Ok(known.fetch_one(conn).await?)
}

/// Locks the rows of `keys` in key order, so that two writers never deadlock. A key without a row has a zero balance;
/// its row is created by its first entry.
pub async fn lock(
    conn: &mut PgConnection,
    keys: &BTreeSet<BalanceKey>,
) -> Result<BTreeMap<BalanceKey, Balance>, StoreError> {
    if keys.is_empty() {
        return Ok(BTreeMap::new());
    }
    let kinds: Vec<&str> = keys.iter().map(|(owner, _)| owner.kind()).collect();
    let names: Vec<String> = keys.iter().map(|(owner, _)| owner.name()).collect();
    let assets: Vec<&str> = keys.iter().map(|(_, asset)| asset.as_str()).collect();
    let sql = "select owner_kind, owner, asset, available::text, reserved::text from account_balance \
             where (owner_kind, owner, asset) in (select * from unnest($1::text[], $2::text[], $3::text[])) \
             order by owner_kind, owner, asset for update";
    let rows: Vec<(String, String, String, String, String)> =
        statement::list(conn, sql, (kinds, &names, assets)).await?;
    let mut held: BTreeMap<BalanceKey, Balance> =
        keys.iter().map(|key| (key.clone(), Balance::default())).collect();
    for (kind, name, asset, available, reserved) in rows {
        let balance = Balance { available: minor(&available)?, reserved: minor(&reserved)? };
        let key = held.keys().find(|(owner, a)| owner.kind() == kind && owner.name() == name && *a == asset);
        if let Some(key) = key.cloned() {
            held.insert(key, balance);
        }
    }
    Ok(held)
}

/// Posts a deposit; call it in a transaction. A repeated id changes nothing and reports whether the deposit was the same.
pub async fn deposit(
    conn: &mut PgConnection,
    deposit_id: &str,
    owner: &Owner,
    asset: &str,
    amount: Minor,
) -> Result<Deposited, StoreError> {
    let posting = ledger::deposited(owner.clone(), asset, amount);
    let new = NewPosting { reference: format!("deposit:{deposit_id}"), step: 1, posting };
    super::insert_once(conn, &new).await
}

/// Gives a provider an opening balance; an existing one stays.
pub async fn insert_opening(
    conn: &mut PgConnection,
    provider: &str,
    asset: &str,
    amount: Minor,
) -> Result<(), StoreError> {
    let posting = ledger::deposited(Owner::Provider(provider.to_owned()), asset, amount);
    let new = NewPosting { reference: format!("opening:{provider}:{asset}"), step: 1, posting };
    super::insert_once(conn, &new).await.map(|_| ())
}
