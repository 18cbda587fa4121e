//! The short form of the crash drill.

use dvp_benches::crash::{CrashPlan, run};

#[tokio::test(flavor = "multi_thread")]
async fn orders_through_both_doors_survive_kills_at_any_moment() {
    let plan = CrashPlan { binary: env!("CARGO_BIN_EXE_dvp").into(), seed: 1, kills: 4 };
    let report = run(&plan).await.unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(report.kills, 4);
    assert!(report.orders > 0 && report.completed > 0 && report.fix_messages > 0, "{report:?}");
}
