//! All SQL of dvp, one module per subject.
//!
//! **Architecture invariant:** of the workspace's crates this one depends on the domain only; every other crate reads
//! and writes the database through its functions.
//!
//! One statement takes a connection, several take a transaction; no function commits unless its documentation says so.
//! `statement` runs them, each with its parameters in a tuple.
//! Rows become domain types here; a row that violates a rule is [`StoreError::Corrupt`], not a panic.

pub mod archive;
pub mod chain;
pub mod database;
pub mod durable;
pub mod figures;
pub mod fix;
pub mod insert_batch;
pub mod ledger;
pub mod operators;
pub mod orders;
pub mod partners;
pub mod reconcile;
pub mod secrets;
mod statement;
pub mod webhooks;
pub mod workers;

pub use self::database::fault::Fault;

use sqlx::Row as _;
use sqlx::migrate::Migrator;
use sqlx::postgres::PgRow;
pub use sqlx::{Acquire, Error as DatabaseError, PgConnection, PgPool};

/// A connection of a pool, returned when this is dropped.
pub type PoolConnection = sqlx::pool::PoolConnection<sqlx::Postgres>;

/// The schema, embedded in the binary.
pub static MIGRATOR: Migrator = sqlx::migrate!("../../migrations");

/// Why a store function failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("database: {0}")]
    Database(#[source] sqlx::Error),
    #[error("migration: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    #[error("table {table} holds a row that breaks a rule: {reason}")]
    Corrupt { table: &'static str, reason: String },
    /// The row was changed concurrently: load it again.
    #[error("{what} was changed concurrently")]
    Stale { what: &'static str },
}

/// A row that breaks a rule was found by the code that reads it (`read`).
impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Decode(source) => match source.downcast::<Self>() {
                Ok(corrupt) => *corrupt,
                Err(source) => Self::Database(sqlx::Error::Decode(source)),
            },
            other => Self::Database(other),
        }
    }
}

/// Reads a column of a row and makes a domain type of it, for implementations of `FromRow`.
fn read<'r, S, T, E: std::fmt::Display>(
    row: &'r PgRow,
    (table, column): (&'static str, &str),
    parse: impl FnOnce(S) -> Result<T, E>,
) -> sqlx::Result<T>
where
    S: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    let corrupt = |error| StoreError::corrupt(table, format_args!("{column}: {error}"));
    parse(row.try_get(column)?).map_err(|error| sqlx::Error::Decode(Box::new(corrupt(error))))
}

/// What a stored name stands for.
fn known<T>(table: &'static str, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, StoreError> {
    parse(name).ok_or_else(|| StoreError::corrupt(table, format_args!("{name} is unknown")))
}

impl StoreError {
    pub fn corrupt(table: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::Corrupt { table, reason: reason.to_string() }
    }

    /// Whether a row with the same key exists already.
    pub fn is_unique_violation(&self) -> bool {
        matches!(self, Self::Database(sqlx::Error::Database(error)) if error.is_unique_violation())
    }

    pub fn constraint(&self) -> Option<&str> {
        match self {
            Self::Database(sqlx::Error::Database(error)) => error.constraint(),
            Self::Database(_) | Self::Migrate(_) | Self::Corrupt { .. } | Self::Stale { .. } => None,
        }
    }
}
