//! Everything that is encrypted or hashed under master keys.

use dvp_domain::names::names;
use sqlx::{PgConnection, Row as _};

use crate::{StoreError, statement};

/// The secret of the service with a name; inserts the given one when there is none. Encrypted.
pub async fn ensure_secret(
    conn: &mut PgConnection,
    name: &str,
    sealed: &[u8],
) -> Result<Vec<u8>, StoreError> {
    let sql = "insert into service_secret (name, sealed) values ($1, $2) \
         on conflict on constraint service_secret_pkey do nothing";
    statement::execute(conn, sql, (name, sealed)).await?;
    let sql = "select sealed from service_secret where name = $1";
    statement::load_value(conn, sql, (name,)).await
}

names! {
    /// A column of encrypted secrets. The owner, which is bound to the encryption, is the row's key after `prefix`.
    pub enum Sealed {
        ServiceSecret = "service secrets",
        SigningSecret = "signing secrets of API keys",
        LogonSecret = "FIX logon secrets",
        WebhookSecret = "webhook secrets",
        WebhookNextSecret = "webhook secrets that follow",
        OperatorTotp = "one-time codes of operators",
    }
}

impl Sealed {
    const fn list(self) -> &'static str {
        match self {
            Self::ServiceSecret => {
                "select name, sealed from service_secret where name > $1 order by name limit $2"
            }
            Self::SigningSecret => {
                "select id, sealed_secret from api_key where revoked_at is null and id > $1 order by id limit $2"
            }
            Self::LogonSecret => {
                "select session_id, logon_secret from fix_session \
                 where logon_secret is not null and session_id > $1 order by session_id limit $2"
            }
            Self::WebhookSecret => {
                "select id, sealed_secret from webhook_endpoint where id > $1 order by id limit $2"
            }
            Self::WebhookNextSecret => {
                "select id, sealed_next from webhook_endpoint \
                 where sealed_next is not null and id > $1 order by id limit $2"
            }
            Self::OperatorTotp => {
                "select operator_id, sealed_totp from operator_password where operator_id > $1 \
                 order by operator_id limit $2"
            }
        }
    }

    const fn replace(self) -> &'static str {
        match self {
            Self::ServiceSecret => "update service_secret set sealed = $3 where name = $1 and sealed = $2",
            Self::SigningSecret => {
                "update api_key set sealed_secret = $3 where id = $1 and sealed_secret = $2"
            }
            Self::LogonSecret => {
                "update fix_session set logon_secret = $3 where session_id = $1 and logon_secret = $2"
            }
            Self::WebhookSecret => {
                "update webhook_endpoint set sealed_secret = $3 where id = $1 and sealed_secret = $2"
            }
            Self::WebhookNextSecret => {
                "update webhook_endpoint set sealed_next = $3 where id = $1 and sealed_next = $2"
            }
            Self::OperatorTotp => {
                "update operator_password set sealed_totp = $3 where operator_id = $1 and sealed_totp = $2"
            }
        }
    }
}

/// Owners after `after` with their encrypted secrets.
pub async fn list_sealed(
    conn: &mut PgConnection,
    column: Sealed,
    after: &str,
    limit: i64,
) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
    statement::list(conn, column.list(), (after, limit)).await
}

/// Replaces one encrypted secret. `false`: the secret was changed meanwhile.
pub async fn replace_seal(
    conn: &mut PgConnection,
    column: Sealed,
    owner: &str,
    before: &[u8],
    after: &[u8],
) -> Result<bool, StoreError> {
    Ok(statement::affected(conn, column.replace(), (owner, before, after)).await? == 1)
}

/// The number of API keys and FIX passwords hashed under each master key.
pub async fn count_hashes(conn: &mut PgConnection) -> Result<Vec<(&'static str, String, i64)>, StoreError> {
    let sql = "select 'API keys' as what, hash_key as key, count(*) as rows from api_key where revoked_at is null \
         group by 2 union all select 'FIX passwords', password_key, count(*) from fix_session group by 2";
    let rows = statement::list_rows(conn, sql, ()).await?;
    let count = |row: &sqlx::postgres::PgRow| {
        let what = if row.try_get::<&str, _>("what")? == "API keys" { "API keys" } else { "FIX passwords" };
        Ok((what, row.try_get("key")?, row.try_get("rows")?))
    };
    rows.iter().map(count).collect()
}

/// Lists executions with references greater than `after` whose preimage may still have to be revealed, with their
/// hashlocks.
pub async fn list_hashlocks(
    conn: &mut PgConnection,
    after: &str,
    limit: i64,
) -> Result<Vec<(String, String)>, StoreError> {
    let sql = "select reference, terms ->> 'hashlock' from execution e \
         where (terminal_at is null or held_until is not null \
                or (select bool_or(c.state in ('pending', 'sent')) from chain_command c \
                    where c.reference = e.reference and c.kind = 'settle')) \
           and reference > $1 order by reference limit $2";
    statement::list(conn, sql, (after, limit)).await
}

/// Signed bytes of transactions that are not final, encrypted.
pub async fn list_live_attempts(conn: &mut PgConnection) -> Result<Vec<Vec<u8>>, StoreError> {
    let sql = "select a.sealed from tx_attempt a join nonce_slot s using (chain_id, signer, nonce) \
         where s.state in ('signed', 'broadcast', 'mined')";
    statement::list_values(conn, sql, ()).await
}
