//! The rotation of the master key: lists which values need which key, and re-encrypts values of earlier keys.
//!
//! The first key of the list is the current one. Hashes of API keys and FIX passwords are renewed when the secret is
//! next presented, encrypted values by [`reseal`]; preimages and signed bytes need their key until the order has ended.
//! A key that [`usage`] does not list can be removed.

use std::collections::BTreeMap;

use dvp_store::StoreError;
use dvp_store::secrets::{self, Sealed};
use sqlx::PgConnection;

use crate::secrets::{SealBroken, Vault, seal_key};

const PAGE: i64 = 500;
const ACCOUNT_KEY: &str = "account_hash_key";

/// An encrypted secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    #[error("{what} of {owner} does not open with the master keys that are listed")]
    Sealed { what: &'static str, owner: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The vault with the key of account hashes that the database stores; at the first start the vault's own key is stored.
pub async fn with_kept_secrets(conn: &mut PgConnection, vault: Vault) -> Result<Vault, RotationError> {
    let broken = |_: SealBroken| RotationError::Sealed { what: "the secret", owner: ACCOUNT_KEY.to_owned() };
    let sealed = vault.seal(ACCOUNT_KEY, vault.account_key()).map_err(broken)?;
    let kept = secrets::ensure_secret(conn, ACCOUNT_KEY, &sealed).await?;
    let key = vault.open(ACCOUNT_KEY, &kept).map_err(broken)?;
    let key = key.try_into().map_err(|_| StoreError::corrupt("service_secret", "account_hash_key"))?;
    Ok(vault.with_account_key(key))
}

/// Re-encrypts the values of earlier keys. Returns their number.
pub async fn reseal(conn: &mut PgConnection, vault: &Vault) -> Result<u64, RotationError> {
    let mut count = 0;
    for column in Sealed::ALL {
        let mut after = String::new();
        loop {
            let page = secrets::list_sealed(conn, column, &after, PAGE).await?;
            let Some((last, _)) = page.last() else { break };
            after.clone_from(last);
            for (owner, before) in &page {
                if seal_key(before) == Some(vault.current_id()) {
                    continue;
                }
                let broken =
                    |_: SealBroken| RotationError::Sealed { what: column.as_str(), owner: owner.clone() };
                let secret = vault.open(owner, before).map_err(broken)?;
                let sealed = vault.seal(owner, &secret).map_err(broken)?;
                count += u64::from(secrets::replace_seal(conn, column, owner, before, &sealed).await?);
            }
        }
    }
    Ok(count)
}

/// How many values need each master key: by key id, then by kind. `?`: none of the listed keys.
pub type Usage = BTreeMap<String, BTreeMap<&'static str, u64>>;

/// Counts the values of each master key, the current one included.
pub async fn usage(conn: &mut PgConnection, vault: &Vault) -> Result<Usage, RotationError> {
    let mut usage = Usage::new();
    let mut add = |key: Option<&str>, what: &'static str, rows: u64| {
        let key = key.unwrap_or("?").to_owned();
        *usage.entry(key).or_default().entry(what).or_default() += rows;
    };
    for column in Sealed::ALL {
        let mut after = String::new();
        loop {
            let page = secrets::list_sealed(conn, column, &after, PAGE).await?;
            let Some((last, _)) = page.last() else { break };
            after.clone_from(last);
            for (_, sealed) in &page {
                add(seal_key(sealed), column.as_str(), 1);
            }
        }
    }
    for (what, key, rows) in secrets::count_hashes(conn).await? {
        add(Some(&key), what, u64::try_from(rows).unwrap_or(0));
    }
    let mut after = String::new();
    loop {
        let page = secrets::list_hashlocks(conn, &after, PAGE).await?;
        let Some((last, _)) = page.last() else { break };
        after.clone_from(last);
        for (reference, hashlock) in &page {
            let bytes = hashlock.strip_prefix("0x").and_then(|digits| hex::decode(digits).ok());
            let bytes: Option<[u8; 32]> = bytes.and_then(|bytes| bytes.try_into().ok());
            let key = bytes.and_then(|bytes| vault.hashlock_key(reference, &bytes));
            add(key, "live executions", 1);
        }
    }
    for sealed in secrets::list_live_attempts(conn).await? {
        add(seal_key(&sealed), "transactions in progress", 1);
    }
    Ok(usage)
}
