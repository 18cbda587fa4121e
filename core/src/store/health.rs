//! What an operator's check asks of the database.

use sqlx::PgConnection;

use super::StoreError;

pub async fn server_version(conn: &mut PgConnection) -> Result<String, StoreError> {
    let row: (String,) = sqlx::query_as("select current_setting('server_version')").fetch_one(conn).await?;
    Ok(row.0)
}

/// The newest migration that was applied whole. `None`: there is no schema.
pub async fn applied_version(conn: &mut PgConnection) -> Result<Option<i64>, StoreError> {
    let there: (bool,) =
        sqlx::query_as("select to_regclass('_sqlx_migrations') is not null").fetch_one(&mut *conn).await?;
    if !there.0 {
        return Ok(None);
    }
    let row: (Option<i64>,) =
        sqlx::query_as("select max(version) from _sqlx_migrations where success").fetch_one(conn).await?;
    Ok(row.0)
}

/// Some key's id with its sealed secret, to try the master key on.
pub async fn any_sealed_secret(conn: &mut PgConnection) -> Result<Option<(String, Vec<u8>)>, StoreError> {
    let row =
        sqlx::query_as("select id, sealed_secret from api_key where revoked_at is null order by id limit 1")
            .fetch_optional(conn)
            .await?;
    Ok(row)
}
