//! The short form of the drill of several processes: with this seed one is killed between staging and moving a payment's
//! file, then each is restarted.

use dvp_benches::drill::{Drill as _, Program};
use dvp_benches::processes::ProcessesDrill;

/// Other work shares the machine with the tests.
const HANDOVER_MILLIS: u64 = 600_000;

#[tokio::test(flavor = "multi_thread")]
async fn orders_and_payments_survive_processes_that_are_killed_and_restarted() {
    let program = Program::at(env!("CARGO_BIN_EXE_dvp"));
    // As the next release, it migrates beside those that run.
    let next = Some(env!("CARGO_BIN_EXE_dvp").into());
    let drill = ProcessesDrill { processes: 2, rounds: 2, handover: HANDOVER_MILLIS, next, program };
    let report = drill.run(1).await.unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(report.kinds("rounds"), ["killedWhileGiving", "restartedInTurn"]);
    report.expect_some(&["orders", "completed", "fixMessages", "payments", "returned", "repeatedAnswers"]);
    report.expect_some(&["forwarded", "eventsDelivered", "updates"]);
    let handovers = report.kinds("handovers");
    assert!(handovers.contains(&"fix") && handovers.contains(&"chain"), "{report:?}");
}
