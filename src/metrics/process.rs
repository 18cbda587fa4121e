//! What a process reports of itself: its build, memory, threads, open files, tasks, pools and its schema's state.

use std::fs;
use std::time::{Duration, Instant};

use ::metrics::{counter, gauge, histogram};
use dvp_core::workflow::figures::unix_seconds;
use dvp_store::PgPool;
use dvp_store::database::pools::Pools;
use dvp_store::database::{Availability, health};
use tokio::time::timeout;

use crate::config::Role;
use crate::readiness::Readiness;

/// The interval of the checks of pools and schema.
const EVERY: Duration = Duration::from_secs(5);
/// The time limit of one check.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of a page and clock ticks of a second, as Linux has them on every machine that this service is built for.
const PAGE_BYTES: u64 = 4096;
const TICKS_PER_SECOND: u64 = 100;
/// What the role `worker` repeats, by when it last succeeded.
const LAST_SUCCESSES: [&str; 3] = [
    "dvp_figures_last_success_timestamp_seconds",
    "dvp_ledger_check_last_success_timestamp_seconds",
    "dvp_ledger_whole_check_last_success_timestamp_seconds",
];

/// Shows the gauges that alerts compare before there is anything to report. An alert about a gauge that does not exist
/// never fires: neither for a process that waits for the database at its start, nor for work that never succeeds.
pub(super) fn preset(roles: &[Role]) {
    gauge!("dvp_database_available").set(0.0);
    gauge!("dvp_writer_available").set(0.0);
    if roles.contains(&Role::Worker) {
        for name in LAST_SUCCESSES {
            gauge!(name).set(unix_seconds());
        }
    }
}

/// Reads what the system and the runtime know of this process. For each scrape.
pub(super) fn sample() {
    gauge!("dvp_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    if let Ok(handle) = tokio::runtime::Handle::try_current() {
        let runtime = handle.metrics();
        gauge!("tokio_workers").set(number(runtime.num_workers()));
        gauge!("tokio_alive_tasks").set(number(runtime.num_alive_tasks()));
        gauge!("tokio_global_queue_depth").set(number(runtime.global_queue_depth()));
        let busy: Duration =
            (0..runtime.num_workers()).map(|worker| runtime.worker_total_busy_duration(worker)).sum();
        counter!("tokio_busy_seconds_total").absolute(busy.as_secs());
    }
    let _ = sample_system();
}

/// `None` on a system without `/proc`.
fn sample_system() -> Option<()> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may contain spaces.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let ticks = field(14)?.checked_add(field(15)?)?;
    counter!("process_cpu_seconds_total").absolute(ticks / TICKS_PER_SECOND);
    gauge!("process_threads").set(whole(field(20)?));
    gauge!("process_resident_memory_bytes").set(whole(field(24)?.saturating_mul(PAGE_BYTES)));
    gauge!("process_open_fds").set(number(fs::read_dir("/proc/self/fd").ok()?.count()));
    Some(())
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// The nearest floating point number.
fn whole(count: u64) -> f64 {
    count.to_string().parse().unwrap_or(f64::MAX)
}

/// Shows the check of every second, which needs no traffic, until dropped. From the time on when the database was found.
pub(crate) fn follow(mut availability: Availability) -> impl Future<Output = ()> {
    // The writer reports from its own start on: a start that takes long is no outage.
    gauge!("dvp_writer_available").set(1.0);
    let shown = gauge!("dvp_database_available");
    async move {
        loop {
            availability.available().await;
            shown.set(1.0);
            availability.lost().await;
            shown.set(0.0);
            counter!("dvp_database_outages_total").increment(1);
        }
    }
}

/// Checks pools and schema until dropped.
pub(crate) async fn watch(pools: Pools, readiness: Readiness) {
    gauge!("process_start_time_seconds").set(unix_seconds());
    let named = [
        ("orders", &pools.orders),
        ("reads", &pools.reads),
        ("lookups", &pools.lookups),
        ("background", &pools.background),
    ];
    loop {
        // First, so that nothing is measured while the process starts.
        tokio::time::sleep(EVERY).await;
        for (name, pool) in named {
            show(name, pool);
            probe(name, pool).await;
        }
        if let Some(current) = schema_is_current(&pools.background).await {
            readiness.schema(current);
        }
    }
}

fn show(name: &'static str, pool: &PgPool) {
    let (all, idle) = (usize::try_from(pool.size()).unwrap_or(usize::MAX), pool.num_idle());
    let state = |state: &'static str, count: usize| {
        gauge!("db_client_connection_count", "db_client_connection_pool_name" => name, "db_client_connection_state" => state)
            .set(number(count));
    };
    state("idle", idle);
    state("used", all.saturating_sub(idle));
    gauge!("db_client_connection_max", "db_client_connection_pool_name" => name)
        .set(f64::from(pool.options().get_max_connections()));
}

/// Waits for a connection as any user of the pool does.
async fn probe(name: &'static str, pool: &PgPool) {
    let began = Instant::now();
    let acquired = timeout(PATIENCE, pool.acquire()).await;
    histogram!("db_client_connection_wait_time_seconds", "db_client_connection_pool_name" => name)
        .record(began.elapsed());
    if !matches!(acquired, Ok(Ok(_))) {
        counter!("db_client_connection_timeouts_total", "db_client_connection_pool_name" => name)
            .increment(1);
    }
}

/// `None`: the database did not answer.
async fn schema_is_current(pool: &PgPool) -> Option<bool> {
    let read = async {
        let mut conn = pool.acquire().await.ok()?;
        health::schema(&mut conn).await.ok()
    };
    let schema = timeout(PATIENCE, read).await.ok()??;
    Some(schema.complaint().is_none())
}
