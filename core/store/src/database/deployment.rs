//! The environment and the cell of a database: written once, compared at every start.
//!
//! Triggers refuse keys and sessions of another environment, and a live configuration with a simulated rail does not
//! start.
//!
//! Kept by `core/tests/it/cells.rs::a_cell_is_stamped_once_and_never_changes`,
//! `tests/e2e/every_control.rs::disabled_partners_and_the_other_environment_are_refused` and
//! `src/config/tests.rs::a_live_deployment_has_no_simulated_rails`.

use dvp_domain::cell::CellId;
use dvp_domain::environment::Environment;
use sqlx::PgConnection;

use crate::{StoreError, known, statement};

/// The database belongs to the other environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the database belongs to a {} deployment, and the configuration says environment = \"{}\"", .stamped.as_str(), .configured.as_str())]
pub struct EnvironmentMismatch {
    pub stamped: Environment,
    pub configured: Environment,
}

/// The database belongs to another cell, or to none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}, and {}", stamped_text(.stamped), configured_text(.configured))]
pub struct CellMismatch {
    pub stamped: Option<CellId>,
    pub configured: Option<CellId>,
}

fn stamped_text(stamped: &Option<CellId>) -> String {
    match stamped {
        Some(cell) => format!("the database belongs to cell {cell}"),
        None => "the database belongs to no cell yet (dvp migrate stamps it)".to_owned(),
    }
}

fn configured_text(configured: &Option<CellId>) -> String {
    match configured {
        Some(cell) => format!("the configuration says [cell] id = \"{cell}\""),
        None => "the configuration has no section [cell]".to_owned(),
    }
}

/// The database's environment. `None`: it has none yet.
pub async fn find_environment(conn: &mut PgConnection) -> Result<Option<Environment>, StoreError> {
    let stamped: Option<String> =
        statement::find_value(conn, "select environment from deployment", ()).await?;
    stamped.map(|text| known("deployment", &text, Environment::parse)).transpose()
}

/// Writes the environment into a database that has none, and compares it in one that has.
pub async fn stamp(
    conn: &mut PgConnection,
    configured: Environment,
) -> Result<Result<(), EnvironmentMismatch>, StoreError> {
    let sql = "insert into deployment (environment) values ($1) on conflict do nothing";
    statement::execute(conn, sql, (configured.as_str(),)).await?;
    let stamped = find_environment(conn).await?.unwrap_or(configured);
    Ok(if stamped == configured { Ok(()) } else { Err(EnvironmentMismatch { stamped, configured }) })
}

/// The database's cell. `None`: it has none.
pub async fn find_cell(conn: &mut PgConnection) -> Result<Option<CellId>, StoreError> {
    let stamped: Option<Option<String>> =
        statement::find_value(conn, "select cell from deployment", ()).await?;
    let cell = stamped.flatten();
    cell.map(|text| {
        text.parse().map_err(|error| StoreError::corrupt("deployment", format_args!("cell {text}: {error}")))
    })
    .transpose()
}

/// Writes the cell into a stamped database that has none, and compares it in one that has.
pub async fn stamp_cell(
    conn: &mut PgConnection,
    configured: Option<CellId>,
) -> Result<Result<(), CellMismatch>, StoreError> {
    if let Some(cell) = configured {
        statement::execute(conn, "update deployment set cell = $1 where cell is null", (cell.to_string(),))
            .await?;
    }
    check_cell(conn, configured).await
}

/// Compares the database's cell with the configured one.
pub async fn check_cell(
    conn: &mut PgConnection,
    configured: Option<CellId>,
) -> Result<Result<(), CellMismatch>, StoreError> {
    let stamped = find_cell(conn).await?;
    Ok(if stamped == configured { Ok(()) } else { Err(CellMismatch { stamped, configured }) })
}
