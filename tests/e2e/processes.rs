//! The short form of the drill of several processes: with this seed one is killed between staging and moving a payment's
//! file, then each is restarted.

use dvp_benches::processes::{ProcessesPlan, run};

#[tokio::test(flavor = "multi_thread")]
async fn orders_and_payments_survive_processes_that_are_killed_and_restarted() {
    let binary = env!("CARGO_BIN_EXE_dvp").into();
    let plan = ProcessesPlan { binary, seed: 1, processes: 2, rounds: 2, handover: None };
    let report = run(&plan).await.unwrap_or_else(|error| panic!("{error:#}"));
    let rounds: Vec<&str> = report.rounds.keys().copied().collect();
    assert_eq!(rounds, ["killedWhileGiving", "restartedInTurn"]);
    assert!(report.orders > 0 && report.completed > 0 && report.fix_messages > 0, "{report:?}");
    assert!(report.payments > 0 && report.returned > 0 && report.repeated_answers > 0, "{report:?}");
    assert!(report.handovers.contains_key("fix") && report.handovers.contains_key("chain"), "{report:?}");
    assert!(report.forwarded > 0 && report.events_delivered > 0, "{report:?}");
}
