//! The short form of the drill among hostile peers.

use std::time::Duration;

use dvp_benches::hostile::{HostilePlan, Load, run};

#[tokio::test(flavor = "multi_thread")]
async fn hostile_peers_do_not_affect_a_well_behaved_partner() {
    let plan = HostilePlan {
        binary: env!("CARGO_BIN_EXE_dvp").into(),
        seed: 1,
        quiet: Duration::from_secs(2),
        hostile: Duration::from_secs(9),
        rate: 4,
        load: Load { slower: 3, volley: 40, burst: 4, long_polls: 50, half_open: 20 },
        // Other work shares the machine with the tests.
        only: Vec::new(),
        ratio_max: None,
        answer_max: Duration::from_secs(20),
    };
    let report = run(&plan).await.unwrap_or_else(|error| panic!("{error:#}"));
    assert!(report.broken.is_empty(), "seed 1:\n{}", report.broken.join("\n"));
}
