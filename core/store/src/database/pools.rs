//! The connections of a process, divided so that no kind of work can use up another's.
//!
//! | pool | for | a flood of |
//! |---|---|---|
//! | `orders` | submissions, cancels, FIX sessions; the writer's connection has the same bounds | orders meets the queue's bound |
//! | `reads` | what partners read over REST, and their webhook endpoints | long-polls and reports leaves orders alone |
//! | `lookups` | callers that are not known yet: API keys, FIX Logons | guesses leaves known callers alone |
//! | `background` | workflow, webhook delivery, chains, reconciliation, retention | work leaves all callers alone |
//!
//! Kept by `core/tests/it/pools.rs::an_exhausted_pool_takes_nothing_from_the_others`.

use std::time::Duration;

use sqlx::postgres::PgPoolOptions;
use sqlx::{PgConnection, PgPool};
use tracing::{info, warn};

use crate::database::pool::pool_options;
use crate::database::{Availability, Database, Primary, Timeouts};
use crate::{StoreError, statement};

/// Beside the pools: the writer's connection, the status cache's, and the availability check's.
const BESIDE: u32 = 3;

/// How many connections of each pool are open before they are needed, so that a first caller does not wait for them.
const READY: u32 = 6;

/// How often the log says that there is no primary.
const REMIND_EVERY: Duration = Duration::from_secs(10);

/// The pools of a process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Pools {
    pub orders: PgPool,
    pub reads: PgPool,
    pub lookups: PgPool,
    pub background: PgPool,
    availability: Availability,
}

/// The maximum number of connections of each pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSizes {
    pub orders: u32,
    pub reads: u32,
    pub lookups: u32,
    pub background: u32,
}

impl PoolSizes {
    /// The minimum that gives every pool its permanent connections.
    pub const LEAST: u32 = 20;

    /// A fifth for orders, a fifth for reads, a tenth for look-ups, and half for background work.
    pub fn of(connections: u32) -> Self {
        let part = |percent| connections.saturating_mul(percent) / 100;
        let (orders, reads, lookups) = (part(20), part(20), part(10));
        Self { orders, reads, lookups, background: connections - orders - reads - lookups }
    }

    /// Including those beside the pools.
    pub const fn connections(&self) -> u32 {
        self.orders + self.reads + self.lookups + self.background + BESIDE
    }
}

struct Use {
    bounds: Timeouts,
    /// How long to wait for a connection of the pool.
    acquire: Duration,
}

const fn secs(statement: u64, lock: u64, idle_in_transaction: u64, acquire: u64) -> Use {
    let bounds = Timeouts {
        statement: Duration::from_secs(statement),
        lock: Duration::from_secs(lock),
        idle_in_transaction: Duration::from_secs(idle_in_transaction),
    };
    Use { bounds, acquire: Duration::from_secs(acquire) }
}

const ORDERS: Use = secs(5, 3, 10, 3);
const READS: Use = secs(9, 3, 10, 3);
const LOOKUPS: Use = secs(2, 2, 5, 2);
/// Reconciliation, backfills and retention take minutes. The idle time between two statements of a transaction stays
/// short; a transaction that must wait sets its own limit.
const BACKGROUND: Use = secs(600, 30, 15, 30);
const WATCH: Use = secs(3, 3, 5, 3);

/// The watch logs why no server is the primary.
async fn wait_for_primary(primary: &Primary, servers: &str) {
    info!(servers, "looking for the database's primary");
    while tokio::time::timeout(REMIND_EVERY, primary.found()).await.is_err() {
        warn!(servers, "no server is the primary yet; waiting for one");
    }
}

/// Opens the first connections of a pool. A server that is too slow for it now has them open later.
async fn open_first(pool: &PgPool) {
    let mut opened = Vec::new();
    for _ in 0..READY.min(pool.options().get_max_connections()) {
        match pool.acquire().await {
            Ok(connection) => opened.push(connection),
            Err(error) => return warn!(%error, "a connection could not be opened before it is needed"),
        }
    }
}

impl From<PgPool> for Pools {
    /// One pool for everything, without a watch: for tests and measurements.
    fn from(pool: PgPool) -> Self {
        Self {
            orders: pool.clone(),
            reads: pool.clone(),
            lookups: pool.clone(),
            background: pool,
            availability: Availability::unwatched(),
        }
    }
}

impl Pools {
    /// Connects, and starts the watch over the database. With several servers it waits for one that is the primary.
    ///
    /// # Errors
    /// Fails when the database does not accept a connection.
    pub async fn open(database: &Database, sizes: PoolSizes) -> Result<Self, StoreError> {
        let (tell, availability) = Availability::reported();
        let primary = database.primary();
        let open = |size: u32, used: &Use| {
            let options = database.bounded(&used.bounds, &primary)?;
            let pool: PgPoolOptions = pool_options().max_connections(size).min_connections(READY.min(size));
            Ok::<_, sqlx::Error>(pool.acquire_timeout(used.acquire).connect_lazy_with(options))
        };
        let pools = Self {
            orders: open(sizes.orders, &ORDERS)?,
            reads: open(sizes.reads, &READS)?,
            lookups: open(sizes.lookups, &LOOKUPS)?,
            background: open(sizes.background, &BACKGROUND)?,
            availability: availability.clone(),
        };
        tokio::spawn(database.watch(&WATCH.bounds, &primary)?.run(tell));
        if database.has_alternatives() {
            wait_for_primary(&primary, &database.place()).await;
        }
        drop(pools.background.acquire().await?);
        for pool in [&pools.orders, &pools.reads, &pools.lookups, &pools.background] {
            open_first(pool).await;
        }
        Ok(pools)
    }

    /// For the service's own work: every pool is the one of background work.
    #[must_use]
    pub fn in_background(&self) -> Self {
        let Self { lookups, background, availability, .. } = self.clone();
        Self { orders: background.clone(), reads: background.clone(), lookups, background, availability }
    }

    pub const fn availability(&self) -> &Availability {
        &self.availability
    }

    pub async fn close(&self) {
        tokio::join!(self.orders.close(), self.reads.close(), self.lookups.close(), self.background.close());
    }
}

/// The number of connections that the server allows to non-superusers.
pub async fn connections_allowed(conn: &mut PgConnection) -> Result<i32, StoreError> {
    let reserved = "select coalesce(sum(setting::int) filter (where name = 'max_connections'), 0)::int
        - coalesce(sum(setting::int) filter (where name <> 'max_connections'), 0)::int
        from pg_settings
        where name in ('max_connections', 'superuser_reserved_connections', 'reserved_connections')";
    statement::load_value(conn, reserved, ()).await
}
