//! The short form of the drill of several processes: with this seed one is frozen, then each is restarted.

use dvp_benches::processes::{ProcessesPlan, run};

#[tokio::test(flavor = "multi_thread")]
async fn orders_survive_processes_that_are_frozen_and_restarted() {
    let binary = env!("CARGO_BIN_EXE_dvp").into();
    let plan = ProcessesPlan { binary, seed: 1, processes: 2, rounds: 2, handover: None };
    let report = run(&plan).await.unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(report.rounds.values().sum::<u32>(), 2);
    assert!(report.orders > 0 && report.completed > 0 && report.fix_messages > 0, "{report:?}");
    assert!(report.handovers.contains_key("fix") && report.handovers.contains_key("chain"), "{report:?}");
    assert!(report.forwarded > 0 && report.events_delivered > 0, "{report:?}");
}
