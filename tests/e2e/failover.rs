//! The short form of the fail-over drill.

use dvp_benches::failover::{FailoverPlan, run};

#[tokio::test(flavor = "multi_thread")]
async fn orders_over_both_interfaces_survive_the_fail_over_of_the_database() {
    let plan =
        FailoverPlan { binary: env!("CARGO_BIN_EXE_dvp").into(), seed: 1, rounds: 2, asynchronous: false };
    let report = run(&plan).await.unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(report.rounds.values().sum::<u32>(), 2);
    assert!(report.orders > 0 && report.completed > 0 && report.fix_messages > 0, "{report:?}");
    assert!(report.payments > 0 && report.events_delivered > 0, "{report:?}");
}
