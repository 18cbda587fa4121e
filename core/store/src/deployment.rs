//! The environment of a database: written once, compared at every start.

use dvp_domain::environment::Environment;
use sqlx::PgConnection;

use super::StoreError;

/// The database belongs to the other environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the database belongs to a {} deployment, and the configuration says environment = \"{}\"", .stamped.as_str(), .configured.as_str())]
pub struct EnvironmentMismatch {
    pub stamped: Environment,
    pub configured: Environment,
}

/// The database's environment. `None`: it has none yet.
pub async fn find_environment(conn: &mut PgConnection) -> Result<Option<Environment>, StoreError> {
    let row: Option<(String,)> =
        sqlx::query_as("select environment from deployment").fetch_optional(conn).await?;
    row.map(|(text,)| {
        let corrupt = || StoreError::corrupt("deployment", format_args!("environment {text}"));
        Environment::parse(&text).ok_or_else(corrupt)
    })
    .transpose()
}

/// Writes the environment into a database that has none, and compares it in one that has.
pub async fn stamp(
    conn: &mut PgConnection,
    configured: Environment,
) -> Result<Result<(), EnvironmentMismatch>, StoreError> {
    sqlx::query("insert into deployment (environment) values ($1) on conflict do nothing")
        .bind(configured.as_str())
        .execute(&mut *conn)
        .await?;
    let stamped = find_environment(conn).await?.unwrap_or(configured);
    Ok(if stamped == configured { Ok(()) } else { Err(EnvironmentMismatch { stamped, configured }) })
}
