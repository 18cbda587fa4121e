//! All SQL of dvp, one module per subject.
//!
//! **Architecture invariant:** of the workspace's crates this one depends on the domain only; every other crate reads
//! and writes the database through its functions.
//!
//! One statement takes a connection, several take a transaction; no function commits unless its documentation says so.
//! Rows become domain types here; a row that violates a rule is [`StoreError::Corrupt`], not a panic.

pub mod approvals;
pub mod archive;
pub mod audit;
pub mod bands;
pub mod beneficiaries;
pub mod chain;
pub mod changes;
pub mod controls;
pub mod database;
pub mod deployment;
pub mod fault;
pub mod figures;
pub mod fix;
pub mod ids;
pub mod insert_batch;
pub mod lease;
pub mod ledger;
pub mod limits;
pub mod makers;
pub mod moves;
pub mod notify;
pub mod operators;
pub mod order_views;
pub mod orders;
pub mod overview;
pub mod partitions;
pub mod partners;
pub mod pauses;
pub mod personal;
pub mod pool;
pub mod pools;
pub mod reconcile;
pub mod retention;
pub mod search;
pub mod secrets;
pub mod transfers;
pub mod webhooks;

pub use self::fault::Fault;

use sqlx::migrate::Migrator;
pub use sqlx::{Acquire, Error as DatabaseError, PgConnection, PgPool};

/// A connection of a pool, returned when this is dropped.
pub type PoolConnection = sqlx::pool::PoolConnection<sqlx::Postgres>;

/// The schema, embedded in the binary.
pub static MIGRATOR: Migrator = sqlx::migrate!("../../migrations");

/// Why a store function failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
    #[error("migration: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    #[error("table {table} holds a row that breaks a rule: {reason}")]
    Corrupt { table: &'static str, reason: String },
    /// The row was changed concurrently: load it again.
    #[error("{what} was changed concurrently")]
    Stale { what: &'static str },
}

impl StoreError {
    pub fn corrupt(table: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::Corrupt { table, reason: reason.to_string() }
    }

    /// Whether a row with the same key exists already.
    pub fn is_unique_violation(&self) -> bool {
        matches!(self, Self::Database(sqlx::Error::Database(error)) if error.is_unique_violation())
    }

    /// The name of the violated constraint.
    pub fn constraint(&self) -> Option<&str> {
        match self {
            Self::Database(sqlx::Error::Database(error)) => error.constraint(),
            Self::Database(_) | Self::Migrate(_) | Self::Corrupt { .. } | Self::Stale { .. } => None,
        }
    }
}
