//! The short form of the fail-over drill.

use dvp_benches::drill::{Drill as _, Program};
use dvp_benches::failover::FailoverDrill;

#[tokio::test(flavor = "multi_thread")]
async fn orders_over_both_interfaces_survive_the_fail_over_of_the_database() {
    let program = Program::at(env!("CARGO_BIN_EXE_dvp"));
    let drill = FailoverDrill { rounds: 2, asynchronous: false, program };
    let report = drill.run(1).await.unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(report.get("rounds"), 2);
    report.expect_some(&["orders", "completed", "fixMessages", "payments", "eventsDelivered"]);
}
