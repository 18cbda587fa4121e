//! Passwords of operators with the secrets of their codes, and the attempts to guess them.

use std::time::Duration;

use dvp_domain::names::names;
use sqlx::PgConnection;

use super::SignedIn;
use crate::{StoreError, statement};

/// An operator's password and code.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct FoundPassword {
    #[sqlx(flatten)]
    pub operator: SignedIn,
    pub hash: String,
    /// Encrypted for the operator's id.
    pub sealed_totp: Vec<u8>,
}

/// The password of an operator by its name. `None`: there is no such operator, it has none, or it is disabled.
pub async fn find_by_name(conn: &mut PgConnection, name: &str) -> Result<Option<FoundPassword>, StoreError> {
    select(conn, Some(name), None).await
}

/// The password of an operator by its id. `None`: there is no such operator, it has none, or it is disabled.
pub async fn find(conn: &mut PgConnection, operator_id: &str) -> Result<Option<FoundPassword>, StoreError> {
    select(conn, None, Some(operator_id)).await
}

async fn select(
    conn: &mut PgConnection,
    name: Option<&str>,
    operator_id: Option<&str>,
) -> Result<Option<FoundPassword>, StoreError> {
    let sql = "select o.id as operator_id, o.name as operator_name, o.roles, p.hash, p.sealed_totp \
         from operator o join operator_password p on p.operator_id = o.id \
         where (lower(o.name) = lower($1) or o.id = $2) and o.disabled_at is null";
    statement::find(conn, sql, (name, operator_id)).await
}

/// Sets an operator's password. Codes up to `last_step` are not accepted any more.
pub async fn upsert(
    conn: &mut PgConnection,
    operator_id: &str,
    hash: &str,
    sealed_totp: &[u8],
    last_step: i64,
) -> Result<(), StoreError> {
    let sql = "insert into operator_password (operator_id, hash, sealed_totp, last_step) values ($1, $2, $3, $4) \
         on conflict on constraint operator_password_pkey do update \
         set hash = excluded.hash, sealed_totp = excluded.sealed_totp, last_step = excluded.last_step, \
             created_at = clock_timestamp()";
    statement::execute(conn, sql, (operator_id, hash, sealed_totp, last_step)).await
}

/// Uses the code of an interval. `false`: it, or a later one, was used before.
pub async fn use_step(conn: &mut PgConnection, operator_id: &str, step: i64) -> Result<bool, StoreError> {
    let sql = "update operator_password p set last_step = $2 from operator o \
         where p.operator_id = $1 and p.last_step < $2 and o.id = p.operator_id and o.disabled_at is null";
    Ok(statement::affected(conn, sql, (operator_id, step)).await? == 1)
}

/// Whether an operator has a password.
pub async fn exists(conn: &mut PgConnection, operator_id: &str) -> Result<bool, StoreError> {
    let sql = "select exists (select from operator_password where operator_id = $1)";
    statement::load_value(conn, sql, (operator_id,)).await
}

/// Removes an operator's password. `false`: it has none.
pub async fn delete(conn: &mut PgConnection, operator_id: &str) -> Result<bool, StoreError> {
    let sql = "delete from operator_password where operator_id = $1";
    Ok(statement::affected(conn, sql, (operator_id,)).await? == 1)
}

names! {
    /// What attempts are counted by.
    pub enum AttemptKind {
        Name = "name",
        Source = "source",
    }
}

/// Counts an attempt and returns the number of those within `window`, this one included.
pub async fn count_attempt(
    conn: &mut PgConnection,
    kind: AttemptKind,
    subject: &[u8; 32],
    window: Duration,
) -> Result<i32, StoreError> {
    let counted = sqlx::query_scalar(
        "insert into operator_attempt as a (kind, subject, attempts, since) values ($1, $2, 1, clock_timestamp()) \
         on conflict on constraint operator_attempt_pkey do update set \
             attempts = case when a.since > clock_timestamp() - make_interval(secs => $3) \
                             then least(a.attempts, 1000000) + 1 else 1 end, \
             since = case when a.since > clock_timestamp() - make_interval(secs => $3) \
                          then a.since else clock_timestamp() end \
         returning attempts",
    );
    let counted = counted.bind(kind.as_str()).bind(&subject[..]).bind(window.as_secs_f64());
    Ok(counted.fetch_one(conn).await?)
}

/// Forgets the attempts with a name, after one of them succeeded.
pub async fn forget_attempts(conn: &mut PgConnection, subject: &[u8; 32]) -> Result<(), StoreError> {
    let sql = "delete from operator_attempt where kind = 'name' and subject = $1";
    statement::execute(conn, sql, (&subject[..],)).await
}
