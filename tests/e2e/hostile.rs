//! The short forms of the drill among hostile peers.

use std::time::Duration;

use clap::ValueEnum as _;
use dvp_benches::drill::{Drill as _, Program};
use dvp_benches::hostile::{HostileDrill, Limits, Load, PeerKind};

const POISONED: [PeerKind; 3] = [PeerKind::PoisonedRest, PeerKind::PoisonedFix, PeerKind::Receivers];

fn drill() -> HostileDrill {
    HostileDrill {
        seconds: 9,
        quiet: Some(Duration::from_secs(2)),
        rate: 4,
        settling: 1,
        load: Load { slower: 3, volley: 40, burst: 4, long_polls: 50, half_open: 20, poisoned: 0 },
        only: Vec::new(),
        bank_files: false,
        // Other work shares the machine with the tests.
        limits: Limits {
            ratio_max: None,
            answer_max: Duration::from_secs(20),
            ends_within: Duration::from_secs(120),
        },
        program: Program::at(env!("CARGO_BIN_EXE_dvp")),
    }
}

async fn check(drill: HostileDrill) {
    let report = drill.run(1).await.unwrap_or_else(|error| panic!("{error:#}"));
    assert!(report.broken.is_empty(), "{}", report.broken.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_peers_do_not_affect_a_well_behaved_partner() {
    let all = PeerKind::value_variants().iter().copied();
    let only = all.filter(|kind| !POISONED.contains(kind)).collect();
    check(HostileDrill { only, ..drill() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn poisoned_orders_end_or_are_listed_and_hold_up_no_others() {
    let load = Load { poisoned: 60, ..drill().load };
    check(HostileDrill { only: POISONED.into(), seconds: 20, rate: 1, load, ..drill() }).await;
}
