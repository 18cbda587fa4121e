//! Everything that is encrypted or hashed under master keys.

use sqlx::{PgConnection, Row as _};

use crate::StoreError;

/// The secret of the service with a name; inserts the given one when there is none. Encrypted.
pub async fn ensure_secret(
    conn: &mut PgConnection,
    name: &str,
    sealed: &[u8],
) -> Result<Vec<u8>, StoreError> {
    sqlx::query(
        "insert into service_secret (name, sealed) values ($1, $2) \
         on conflict on constraint service_secret_pkey do nothing",
    )
    .bind(name)
    .bind(sealed)
    .execute(&mut *conn)
    .await?;
    let kept = sqlx::query_scalar("select sealed from service_secret where name = $1");
    Ok(kept.bind(name).fetch_one(conn).await?)
}

/// A column of encrypted secrets. The owner, which is bound to the encryption, is the row's key after `prefix`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sealed {
    ServiceSecret,
    SigningSecret,
    LogonSecret,
    WebhookSecret,
    WebhookNextSecret,
    OperatorTotp,
}

impl Sealed {
    pub const ALL: [Self; 6] = [
        Self::ServiceSecret,
        Self::SigningSecret,
        Self::LogonSecret,
        Self::WebhookSecret,
        Self::WebhookNextSecret,
        Self::OperatorTotp,
    ];

    /// The name for operators.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ServiceSecret => "service secrets",
            Self::SigningSecret => "signing secrets of API keys",
            Self::LogonSecret => "FIX logon secrets",
            Self::WebhookSecret => "webhook secrets",
            Self::WebhookNextSecret => "webhook secrets that follow",
            Self::OperatorTotp => "one-time codes of operators",
        }
    }

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
    Ok(sqlx::query_as(column.list()).bind(after).bind(limit).fetch_all(conn).await?)
}

/// Replaces one encrypted secret. `false`: the secret was changed meanwhile.
pub async fn replace_seal(
    conn: &mut PgConnection,
    column: Sealed,
    owner: &str,
    before: &[u8],
    after: &[u8],
) -> Result<bool, StoreError> {
    let done = sqlx::query(column.replace()).bind(owner).bind(before).bind(after).execute(conn).await?;
    Ok(done.rows_affected() == 1)
}

/// The number of API keys and FIX passwords hashed under each master key.
pub async fn count_hashes(conn: &mut PgConnection) -> Result<Vec<(&'static str, String, i64)>, StoreError> {
    let rows = sqlx::query(
        "select 'API keys' as what, hash_key as key, count(*) as rows from api_key where revoked_at is null group by 2 \
         union all select 'FIX passwords', password_key, count(*) from fix_session group by 2",
    )
    .fetch_all(conn)
    .await?;
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
    let rows = sqlx::query_as(
        "select reference, terms ->> 'hashlock' from execution e \
         where (terminal_at is null or held_until is not null \
                or (select bool_or(c.state in ('pending', 'sent')) from chain_command c \
                    where c.reference = e.reference and c.kind = 'settle')) \
           and reference > $1 order by reference limit $2",
    );
    Ok(rows.bind(after).bind(limit).fetch_all(conn).await?)
}

/// Signed bytes of transactions that are not final, encrypted.
pub async fn list_live_attempts(conn: &mut PgConnection) -> Result<Vec<Vec<u8>>, StoreError> {
    let rows = sqlx::query_scalar(
        "select a.sealed from tx_attempt a join nonce_slot s using (chain_id, signer, nonce) \
         where s.state in ('signed', 'broadcast', 'mined')",
    );
    Ok(rows.fetch_all(conn).await?)
}
