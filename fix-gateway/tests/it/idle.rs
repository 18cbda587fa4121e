//! Sessions that have nothing to report cost the database nothing.

use std::time::{Duration, Instant};

use dvp_store::partners::registry;

use super::harness::{FixHarness, add_session_of, place};

const SESSIONS: usize = 40;
const ORDERS: usize = 20;

/// Another partner with many sessions.
async fn add_idle_sessions(harness: &FixHarness) {
    let mut conn = harness.pool().acquire().await.unwrap();
    let partner_id = registry::ensure_partner(&mut conn, "ptn_idle", "idle", "standard", 100).await.unwrap();
    for n in 0..SESSIONS {
        add_session_of(harness, &partner_id, "FIX.4.4", &format!("IDLE{n}")).await;
    }
}

/// How often the feed was read, as far as the database has counted.
const READS: &str =
    "select coalesce(seq_scan, 0) + coalesce(idx_scan, 0) from pg_stat_user_tables where relname = 'event'";
/// The database counts a second late, and what an idle connection did up to ten.
const COUNTED: Duration = Duration::from_secs(12);

/// The count once the database's statistics include all earlier statements.
async fn reads(harness: &FixHarness) -> i64 {
    let began = Instant::now();
    let mut most = 0;
    while began.elapsed() < COUNTED {
        most = most.max(harness.count(READS).await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    most
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_sessions_do_not_query_for_other_partners_events() {
    let harness = FixHarness::new().await;
    add_idle_sessions(&harness).await;
    let gateway = harness.gateway().await;
    let held = "select count(*) from lease where name like 'fix:%' and expires_at > clock_timestamp()";
    harness.wait_for_count(held, i64::try_from(SESSIONS).unwrap() + 3).await;
    let mut client = gateway.client().await;
    let before = reads(&harness).await;
    for n in 0..ORDERS {
        let id = format!("o{n}");
        place(&mut client, &id, "00000008", "40=2|44=0.99").await;
    }
    let reads = reads(&harness).await - before;
    // The follower, and the partner's own three sessions.
    let orders = i64::try_from(ORDERS).unwrap();
    assert!((orders..orders * 15).contains(&reads), "{reads} reads");
    gateway.stop().await;
}
