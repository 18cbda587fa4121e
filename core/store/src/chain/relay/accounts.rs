//! The relayer's accounts: their nonces, their balances, and their shares of the commands.
//!
//! Invariant: a nonce is reserved under its account's row lock.

use super::super::{address, bigint, unsigned};
use crate::{StoreError, statement};
use alloy::primitives::Address;
use dvp_domain::names::names;
use sqlx::{PgConnection, PgTransaction, Row};

/// Locks the account and reserves its lowest free nonce: the lowest skipped one at or above the chain's count `mined`,
/// or the next. The lock is held until the transaction ends.
pub async fn reserve_nonce(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
    signer: Address,
    mined: u64,
) -> Result<u64, StoreError> {
    let sql = "insert into relayer_account (chain_id, signer, next_nonce)
         values ($1, $2, $3)
         on conflict on constraint relayer_account_pkey do nothing";
    statement::execute(tx, sql, (bigint(chain_id), signer.as_slice(), bigint(mined))).await?;
    let sql = "select from relayer_account where chain_id = $1 and signer = $2 for update";
    statement::execute(tx, sql, (bigint(chain_id), signer.as_slice())).await?;
    let nonce = find_next_nonce(tx, chain_id, signer, mined).await?;
    let sql = "update relayer_account
         set next_nonce = greatest(next_nonce, $3)
         where chain_id = $1 and signer = $2";
    statement::execute(tx, sql, (bigint(chain_id), signer.as_slice(), bigint(nonce + 1))).await?;
    Ok(nonce)
}

/// The account's next nonce as it is stored: every nonce below was signed here, or was used when the account was new.
pub async fn find_stored_nonce(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
) -> Result<Option<u64>, StoreError> {
    let sql = "select next_nonce from relayer_account where chain_id = $1 and signer = $2";
    let next: Option<i64> = statement::find_value(conn, sql, (bigint(chain_id), signer.as_slice())).await?;
    Ok(next.map(i64::cast_unsigned))
}

/// The nonce that [`reserve_nonce`] would reserve now.
pub async fn find_next_nonce(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
    mined: u64,
) -> Result<u64, StoreError> {
    let sql = "select coalesce(
             (select min(nonce)
              from generate_series($3::bigint, account.next_nonce - 1) as skipped (nonce)
              where not exists (
                  select from nonce_slot slot
                  where slot.chain_id = $1 and slot.signer = $2 and slot.nonce = skipped.nonce)),
             greatest(account.next_nonce, $3::bigint)) as nonce
         from relayer_account account
         where account.chain_id = $1 and account.signer = $2";
    let nonce: Option<i64> =
        statement::find_value(conn, sql, (bigint(chain_id), signer.as_slice(), bigint(mined))).await?;
    nonce.map_or(Ok(mined), |nonce| unsigned("relayer_account", nonce))
}

/// An account's share of the commands: those whose number modulo `count` is `index`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub index: i32,
    pub count: i32,
}

/// Records that an account can sign, and returns its share among the accounts that could in the last ten seconds. The
/// other accounts take over the share of an account that cannot sign.
pub async fn find_share(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
) -> Result<Share, StoreError> {
    let sql = "insert into relayer_account (chain_id, signer, next_nonce, able_at)
         values ($1, $2, 0, clock_timestamp())
         on conflict on constraint relayer_account_pkey do update set able_at = excluded.able_at
         where relayer_account.able_at is null or relayer_account.able_at < clock_timestamp() - interval '2 seconds'";
    statement::execute(conn, sql, (bigint(chain_id), signer.as_slice())).await?;
    let sql = "select count(*) filter (where signer < $2), count(*)
         from relayer_account
         where chain_id = $1 and (signer = $2 or able_at > clock_timestamp() - interval '10 seconds')";
    let (index, count): (i64, i64) =
        statement::load(conn, sql, (bigint(chain_id), signer.as_slice())).await?;
    let small = |count: i64| i32::try_from(count).unwrap_or(i32::MAX);
    Ok(Share { index: small(index), count: small(count).max(1) })
}

/// Records that an account cannot sign: from now on the other accounts share its commands.
pub async fn note_unable(conn: &mut PgConnection, chain_id: u64, signer: Address) -> Result<(), StoreError> {
    let sql = "update relayer_account set able_at = null where chain_id = $1 and signer = $2";
    statement::execute(conn, sql, (bigint(chain_id), signer.as_slice())).await
}

/// Records an account's balance, in wei. `true`: it has just become low, or stopped being low.
pub async fn note_balance(
    conn: &mut PgConnection,
    chain_id: u64,
    signer: Address,
    balance: u128,
    low: bool,
) -> Result<bool, StoreError> {
    let sql = "with before as (
             select balance_low from relayer_account where chain_id = $1 and signer = $2)
         insert into relayer_account (chain_id, signer, next_nonce, balance_wei, balance_low, balance_at)
         select $1, $2, 0, $3::text::numeric, $4, clock_timestamp()
         on conflict on constraint relayer_account_pkey do update
         set balance_wei = excluded.balance_wei, balance_low = excluded.balance_low,
             balance_at = excluded.balance_at
         returning (select balance_low from before)";
    let before: Option<bool> =
        statement::load_value(conn, sql, (bigint(chain_id), signer.as_slice(), balance.to_string(), low))
            .await?;
    Ok(before.unwrap_or(false) != low)
}

/// The accounts that have ever been in service on a chain. An account is recorded before it signs its first transaction.
pub async fn list_signers(conn: &mut PgConnection, chain_id: u64) -> Result<Vec<Address>, StoreError> {
    let sql = "select signer from relayer_account where chain_id = $1 order by signer";
    let signers: Vec<Vec<u8>> = statement::list_values(conn, sql, (bigint(chain_id),)).await?;
    signers.iter().map(|signer| address("relayer_account", signer)).collect()
}

names! {
    pub enum AccountState {
        /// A process uses it, or did in the last 30 seconds.
        InService = "in_service",
        /// No process uses it, and the outcome of one of its transactions is open: others broadcast them.
        Draining = "draining",
        /// No process uses it, and each of its transactions is in a final block, was given up, or lost its nonce to another.
        Drained = "drained",
    }
}

impl AccountState {
    const fn of(is_in_service: bool, is_unfinished: bool) -> Self {
        match (is_in_service, is_unfinished) {
            (true, _) => Self::InService,
            (false, true) => Self::Draining,
            (false, false) => Self::Drained,
        }
    }
}

/// An account of the relayer, as last recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayerAccount {
    pub chain_id: u64,
    pub signer: Address,
    /// Wei; `None` before its first reading.
    pub balance: Option<u128>,
    pub balance_low: bool,
    pub next_nonce: u64,
    /// Nonces signed and not mined.
    pub waiting: u64,
    pub state: AccountState,
}

impl RelayerAccount {
    /// Whether its balance is low and it still has to pay for gas.
    pub fn lacks_gas(&self) -> bool {
        self.balance_low && self.state != AccountState::Drained
    }
}

/// Every account, by chain and signer.
pub async fn list_accounts(conn: &mut PgConnection) -> Result<Vec<RelayerAccount>, StoreError> {
    let sql =
        "select account.chain_id, account.signer, account.next_nonce, account.balance_wei::text as balance_wei,
                account.balance_low,
                (select count(*) from nonce_slot slot
                 where slot.chain_id = account.chain_id and slot.signer = account.signer
                   and slot.state in ('signed', 'broadcast')) as waiting,
                exists (select from nonce_slot slot
                        where slot.chain_id = account.chain_id and slot.signer = account.signer
                          and slot.state in ('signed', 'broadcast', 'mined'))
                or exists (select from nonce_slot slot
                           where slot.chain_id = account.chain_id and slot.signer = account.signer
                             and slot.state in ('mined', 'final') and not slot.judged) as is_unfinished,
                exists (select from lease
                        where lower(lease.name) = 'relayer:' || account.chain_id::text || ':0x'
                                                  || encode(account.signer, 'hex')
                          and lease.expires_at > clock_timestamp() - interval '30 seconds') as is_in_service
         from relayer_account account
         order by account.chain_id, account.signer";
    let rows = statement::list_rows(conn, sql, ()).await?;
    let table = "relayer_account";
    rows.iter()
        .map(|row| {
            let balance: Option<&str> = row.try_get("balance_wei")?;
            let balance = balance.map(|text| text.parse().map_err(|error| StoreError::corrupt(table, error)));
            Ok(RelayerAccount {
                chain_id: unsigned(table, row.try_get("chain_id")?)?,
                signer: address(table, row.try_get("signer")?)?,
                balance: balance.transpose()?,
                balance_low: row.try_get("balance_low")?,
                next_nonce: unsigned(table, row.try_get("next_nonce")?)?,
                waiting: unsigned(table, row.try_get("waiting")?)?,
                state: AccountState::of(row.try_get("is_in_service")?, row.try_get("is_unfinished")?),
            })
        })
        .collect()
}
