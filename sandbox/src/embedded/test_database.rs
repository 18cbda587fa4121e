//! A database of its own for every test, in milliseconds.
//!
//! Every database is a copy of one migrated template in the cluster of the test process (`test_cluster`).

use std::time::Duration;

use parking_lot::Mutex;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, PgPool};
use tokio::sync::OnceCell;

use dvp_store::database::pool::pool_options;

use super::test_cluster::TestCluster;
use super::{EmbeddedError, random_hex};

/// Long enough for a slow machine under load, short enough that a leaked connection shows.
const ACQUIRE_DEADLINE: Duration = Duration::from_secs(30);

/// The cluster that this process uses until it ends.
static CLUSTER: OnceCell<TestCluster> = OnceCell::const_new();
/// Databases of finished tests. They are dropped by the next test, because a destructor cannot await; the last ones go
/// with the cluster.
static FINISHED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// An empty database of its own, with all migrations applied.
#[derive(Debug)]
pub struct TestDatabase {
    name: String,
    url: String,
    options: PgConnectOptions,
    pool: PgPool,
}

impl TestDatabase {
    /// Makes one, in the cluster of the test process; the first starts that.
    ///
    /// # Panics
    /// When there is no PostgreSQL to be had: a test that cannot run has failed. [`Self::try_create`] returns the
    /// error instead.
    pub async fn create() -> Self {
        match Self::try_create().await {
            Ok(database) => database,
            Err(error) => panic!("no database for this test: {}", with_sources(&error)),
        }
    }

    /// Makes one, in the cluster of the test process; the first starts that.
    pub async fn try_create() -> Result<Self, EmbeddedError> {
        let cluster = CLUSTER.get_or_try_init(TestCluster::start).await?;
        let name = format!("t_{}", random_hex(8));
        let mut admin = PgConnection::connect_with(&cluster.connect_options()).await?;
        // Our own names of hex digits: nothing to quote. One statement each, for they cannot share a transaction.
        let finished = std::mem::take(&mut *FINISHED.lock());
        for old in finished {
            admin.execute(AssertSqlSafe(format!("drop database if exists {old} with (force)"))).await?;
        }
        admin.execute(AssertSqlSafe(format!("create database {name} {}", cluster.template()))).await?;
        admin.close().await?;
        let options = cluster.connect_options().database(&name);
        let pool = pool_options()
            .max_connections(10)
            .acquire_timeout(ACQUIRE_DEADLINE)
            .connect_lazy_with(options.clone());
        Ok(Self { url: cluster.url_of(&name), name, options, pool })
    }

    /// A pool of at most 10 connections.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// The connection string over TCP, for other processes.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// For a pool of another size.
    pub fn connect_options(&self) -> PgConnectOptions {
        self.options.clone()
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        FINISHED.lock().push(std::mem::take(&mut self.name));
    }
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
