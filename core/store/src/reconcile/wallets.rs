//! The wallets and tokens of a chain, and their balances in the ledger and on the chain.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use dvp_domain::ledger::{Account, Claimant, Owner};
use dvp_domain::money::Minor;
use dvp_domain::reconcile::wallets::{Moved, TokenHolder};
use sqlx::{PgConnection, PgTransaction};

use crate::ledger::balances;
use crate::ledger::closings::load_balance_before;
use crate::{StoreError, statement};

/// Makes providers' wallets and a chain's tokens known. Addresses are lowercase hex; known ones stay.
pub async fn register(
    conn: &mut PgConnection,
    wallets: &[(String, String)],
    tokens: &[(i64, String, String)],
) -> Result<(), StoreError> {
    let (providers, addresses): (Vec<&str>, Vec<String>) =
        wallets.iter().map(|(id, address)| (id.as_str(), address.to_lowercase())).unzip();
    let sql = "insert into provider_wallet (provider_id, address) \
         select * from unnest($1::text[], $2::text[]) on conflict on constraint provider_wallet_pkey do nothing";
    statement::execute(conn, sql, (providers, addresses)).await?;
    let sql = "insert into chain_token (chain_id, asset, address) \
         select * from unnest($1::int8[], $2::text[], $3::text[]) \
         on conflict on constraint chain_token_pkey do update set address = excluded.address";
    let parameters = (
        tokens.iter().map(|token| token.0).collect::<Vec<_>>(),
        tokens.iter().map(|token| token.1.as_str()).collect::<Vec<_>>(),
        tokens.iter().map(|token| token.2.to_lowercase()).collect::<Vec<_>>(),
    );
    statement::execute(conn, sql, parameters).await
}

/// Providers with their wallets: those of the configuration, and those that makers have or had.
pub async fn list_wallets(conn: &mut PgConnection) -> Result<Vec<(String, String)>, StoreError> {
    let sql = "select provider_id, address from provider_wallet order by 1, 2";
    statement::list(conn, sql, ()).await
}

/// A chain's tokens with their assets.
pub async fn list_tokens(
    conn: &mut PgConnection,
    chain_id: i64,
) -> Result<Vec<(String, String)>, StoreError> {
    let sql = "select asset, address from chain_token where chain_id = $1 order by 1";
    statement::list(conn, sql, (chain_id,)).await
}

fn minor(text: &str) -> Result<i128, StoreError> {
    text.parse().map_err(|error| StoreError::corrupt("ledger_entry", error))
}

/// What the ledger says a holder has of a token: a provider's available and reserved balance less its claim.
pub async fn load_position(
    conn: &mut PgConnection,
    holder: &TokenHolder,
    asset: &str,
) -> Result<i128, StoreError> {
    let end = DateTime::<Utc>::MAX_UTC;
    match holder {
        TokenHolder::Escrow => {
            minor(&load_balance_before(conn, &(&Account::Escrow).into(), asset, end).await?)
        }
        TokenHolder::Provider(id) => {
            let balance = balances::find(conn, &Owner::Provider(id.clone()), asset).await?;
            let held = balance.available.get().saturating_add(balance.reserved.get());
            let held = i128::try_from(held).map_err(|error| StoreError::corrupt("account_balance", error))?;
            let claim = Account::Claim(Claimant::Provider(id.clone()));
            Ok(held.saturating_sub(minor(&load_balance_before(conn, &(&claim).into(), asset, end).await?)?))
        }
    }
}

/// What the postings of executions have moved of each holder's tokens.
pub async fn list_posted(conn: &mut PgConnection, references: &[String]) -> Result<Vec<Moved>, StoreError> {
    let sql = "select owner_kind, owner, asset, \
                sum(case when part = 'claim' then -amount else amount end)::numeric(39, 0)::text \
         from ledger_entry \
         where reference = any($1) \
           and (owner_kind = 'escrow' or (owner_kind = 'provider' and part in ('available', 'reserved', 'claim'))) \
         group by 1, 2, 3";
    let rows: Vec<(String, String, String, String)> = statement::list(conn, sql, (references,)).await?;
    rows.into_iter()
        .map(|(kind, owner, asset, amount)| {
            let holder = if kind == "escrow" { TokenHolder::Escrow } else { TokenHolder::Provider(owner) };
            Ok(Moved { holder, asset, amount: minor(&amount)? })
        })
        .collect()
}

/// Since when balances of a chain have differed, by account and asset.
pub async fn list_differing(
    conn: &mut PgConnection,
    chain_id: i64,
) -> Result<HashMap<(String, String), DateTime<Utc>>, StoreError> {
    let sql = "select account, asset, differs_since from wallet_balance where chain_id = $1 \
         and differs_since is not null";
    let rows: Vec<(String, String, DateTime<Utc>)> = statement::list(conn, sql, (chain_id,)).await?;
    Ok(rows.into_iter().map(|(account, asset, since)| ((account, asset), since)).collect())
}

/// What was posted as gifts to the escrow.
pub async fn load_gifts(conn: &mut PgConnection, asset: &str) -> Result<i128, StoreError> {
    let given = Account::External("gift".to_owned());
    let given = minor(&load_balance_before(conn, &(&given).into(), asset, DateTime::<Utc>::MAX_UTC).await?)?;
    Ok(given.saturating_neg())
}

/// Whether the escrow had so much more of a token than the ledger, when they were compared last, and than was posted as
/// gifts that this comparison has not seen. A gift may be posted while one is made: no time tells them apart.
pub async fn is_surplus(conn: &mut PgConnection, asset: &str, amount: Minor) -> Result<bool, StoreError> {
    let gifts = load_gifts(conn, asset).await?;
    let found = sqlx::query_scalar(
        "select held - ledger - in_flight - ($3::text::numeric - gifts) >= $2::text::numeric \
         from wallet_balance where account = 'escrow' and asset = $1 and differs_since is not null",
    );
    let found = found.bind(asset).bind(amount.to_string()).bind(gifts.to_string());
    let found: Option<bool> = found.fetch_optional(conn).await?;
    Ok(found.unwrap_or(false))
}

#[derive(Debug, Clone)]
pub struct NewWalletBalance {
    pub account: String,
    pub asset: String,
    pub held: i128,
    pub ledger: i128,
    pub in_flight: i128,
    /// What `ledger` has of gifts to the escrow.
    pub gifts: i128,
    pub differs_since: Option<DateTime<Utc>>,
}

/// Replaces a chain's balances by those of a newer block.
pub async fn replace_balances(
    tx: &mut PgTransaction<'_>,
    (chain_id, number, hash): (i64, i64, &[u8]),
    all: &[NewWalletBalance],
) -> Result<(), StoreError> {
    statement::execute(tx, "delete from wallet_balance where chain_id = $1", (chain_id,)).await?;
    let text =
        |of: fn(&NewWalletBalance) -> i128| all.iter().map(|one| of(one).to_string()).collect::<Vec<_>>();
    let sql = "insert into wallet_balance (chain_id, block_number, block_hash, account, asset, held, ledger, \
                                     in_flight, gifts, differs_since) \
         select $1, $2, $3, account, asset, held::numeric, ledger::numeric, in_flight::numeric, gifts::numeric, \
                differs_since \
         from unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::timestamptz[]) \
              as b (account, asset, held, ledger, in_flight, gifts, differs_since)";
    let parameters = (
        chain_id,
        number,
        hash,
        all.iter().map(|one| one.account.as_str()).collect::<Vec<_>>(),
        all.iter().map(|one| one.asset.as_str()).collect::<Vec<_>>(),
        text(|one| one.held),
        text(|one| one.ledger),
        text(|one| one.in_flight),
        text(|one| one.gifts),
        all.iter().map(|one| one.differs_since).collect::<Vec<_>>(),
    );
    statement::execute(tx, sql, parameters).await
}
