//! Passkeys of operators.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::SignedIn;
use crate::{StoreError, statement};

/// A passkey as its operator sees it.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct PasskeyRow {
    pub id: String,
    pub name: String,
    pub credential_id: Vec<u8>,
    pub transports: i16,
    pub created_at: DateTime<Utc>,
    pub last_used_at: Option<DateTime<Utc>>,
}

/// A new passkey.
#[derive(Debug, Clone, Copy)]
pub struct NewPasskey<'a> {
    pub id: &'a str,
    pub operator_id: &'a str,
    pub name: &'a str,
    pub credential_id: &'a [u8],
    pub static_state: &'a [u8],
    pub dynamic_state: &'a [u8],
    pub transports: i16,
}

/// Adds a passkey. [`StoreError::constraint`] is `operator_passkey_credential_key` when it is registered already.
pub async fn insert(conn: &mut PgConnection, passkey: &NewPasskey<'_>) -> Result<(), StoreError> {
    let sql = "insert into operator_passkey (id, operator_id, name, credential_id, static_state, dynamic_state, \
         transports) values ($1, $2, $3, $4, $5, $6, $7)";
    let parameters = (
        passkey.id,
        passkey.operator_id,
        passkey.name,
        passkey.credential_id,
        passkey.static_state,
        passkey.dynamic_state,
        passkey.transports,
    );
    statement::execute(conn, sql, parameters).await
}

/// An operator's passkeys, the oldest first.
pub async fn list(
    conn: &mut PgConnection,
    operator_id: &str,
    limit: i64,
) -> Result<Vec<PasskeyRow>, StoreError> {
    let sql = "select id, name, credential_id, transports, created_at, last_used_at from operator_passkey \
         where operator_id = $1 order by created_at, id limit $2";
    statement::list(conn, sql, (operator_id, limit)).await
}

/// What authenticators store of an operator. `None`: it does not exist, or is disabled.
pub async fn find_handle(conn: &mut PgConnection, operator_id: &str) -> Result<Option<Uuid>, StoreError> {
    let sql = "select handle from operator where id = $1 and disabled_at is null";
    statement::find_value(conn, sql, (operator_id,)).await
}

/// Locks an operator, so that its ways to sign in change one after another. `false`: it does not exist, or is disabled.
pub async fn lock_operator(conn: &mut PgConnection, operator_id: &str) -> Result<bool, StoreError> {
    let sql = "select from operator where id = $1 and disabled_at is null for update";
    let row: Option<()> = statement::find(conn, sql, (operator_id,)).await?;
    Ok(row.is_some())
}

/// A passkey with its operator.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct FoundPasskey {
    pub id: String,
    pub name: String,
    pub handle: Uuid,
    pub static_state: Vec<u8>,
    pub dynamic_state: Vec<u8>,
    #[sqlx(flatten)]
    pub operator: SignedIn,
}

/// A passkey by its credential, locked. `None`: it does not exist, or its operator is disabled.
pub async fn lock_by_credential(
    conn: &mut PgConnection,
    credential_id: &[u8],
) -> Result<Option<FoundPasskey>, StoreError> {
    let sql = "select p.id, p.name, o.handle, p.static_state, p.dynamic_state, o.id as operator_id, \
                o.name as operator_name, o.roles \
         from operator_passkey p join operator o on o.id = p.operator_id \
         where p.credential_id = $1 and o.disabled_at is null for update of p for share of o";
    statement::find(conn, sql, (credential_id,)).await
}

/// Records a use of a passkey.
pub async fn update_used(conn: &mut PgConnection, id: &str, dynamic_state: &[u8]) -> Result<(), StoreError> {
    let sql =
        "update operator_passkey set dynamic_state = $2, last_used_at = clock_timestamp() where id = $1";
    statement::execute(conn, sql, (id, dynamic_state)).await
}

/// Removes a passkey of an operator and returns its name. `None`: the operator has no such passkey.
pub async fn delete(
    conn: &mut PgConnection,
    operator_id: &str,
    id: &str,
) -> Result<Option<String>, StoreError> {
    let sql = "delete from operator_passkey where operator_id = $1 and id = $2 returning name";
    statement::find_value(conn, sql, (operator_id, id)).await
}
