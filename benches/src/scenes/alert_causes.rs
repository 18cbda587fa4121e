//! The causes of `alert_table`, one after the other in a sandbox under a real Prometheus.
//!
//! The database, the chain, the bank, the signer and the peers are broken from outside of the service. Each cause must
//! raise its alerts; those that may follow from it are listed, and any other is a failure. Then the page of each alert is
//! carried out as it is written, its check and its remedy, and the alerts must end.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;

use super::alert_prometheus::{Prometheus, Threshold};
use super::alert_scene::Scene;
use super::alert_table::{CAUSES, Cause, Expected, SceneKind};

/// Ages are shorter, and latencies longer: those of a loaded machine are no faults.
const THRESHOLDS: [Threshold; 13] = [
    ("DvpAcceptanceSlow", "> 0.5", "> 1.5"),
    ("DvpCommitSlow", "> 0.1", "> 1"),
    ("DvpCommitSlow", "> 2", "> 8"),
    ("DvpPoolExhausted", "> 0 unless", "> 3 unless"),
    ("DvpChainStalled", "> 90", "> 20"),
    ("DvpAnchorBacklog", "> 3600", "> 15"),
    ("DvpSettlementSlow", "> 900", "> 20"),
    ("DvpCommandsWaiting", "> 120", "> 8"),
    ("DvpRelayerStuck", "> 300", "> 8"),
    ("DvpFiguresStale", "> 120", "> 15"),
    ("DvpWebhooksBehind", "> 300", "> 5"),
    ("DvpFeedBehind", "> 60", "> 5"),
    ("DvpLedgerUnchecked", "> 7200", "> 100"),
];

pub fn expected_of(cause: Cause) -> &'static Expected {
    CAUSES.iter().find(|one| one.cause == cause).unwrap()
}

/// One cause after the other, each in the sandbox that it needs. Returns how long each alert took, and the pages.
pub async fn run(causes: &[Cause]) -> String {
    let mut run = Run::default();
    for ground in [SceneKind::Plain, SceneKind::Equipped] {
        let causes = causes.iter().map(|cause| expected_of(*cause));
        let causes: Vec<&Expected> = causes.filter(|one| one.ground == ground).collect();
        if !causes.is_empty() {
            run.on(ground, &causes).await;
        }
    }
    let Run { mut said, pages, missed } = run;
    let pages: Vec<&str> = pages.into_iter().collect();
    writeln!(said, "{} pages carried out: {}", pages.len(), pages.join(", ")).unwrap();
    assert!(missed.is_empty(), "{said}not as expected: {missed:?}");
    said
}

async fn begin(ground: SceneKind) -> (Scene, Prometheus) {
    let scene = Scene::on(ground).await;
    let prometheus = Prometheus::start(&scene.sandbox.text("/metrics"), &THRESHOLDS).await;
    scene.partner.is_served().await;
    (scene, prometheus)
}

#[derive(Default)]
struct Run {
    said: String,
    pages: BTreeSet<&'static str>,
    missed: Vec<&'static str>,
}

impl Run {
    /// One sandbox and one Prometheus, and new ones after a cause that was not as expected.
    async fn on(&mut self, ground: SceneKind, causes: &[&Expected]) {
        let (mut scene, mut prometheus) = begin(ground).await;
        let mut standing = BTreeSet::new();
        for one in causes {
            // One that raises nothing does not hide the others.
            match AssertUnwindSafe(scene.one(one, &standing, &prometheus)).catch_unwind().await {
                Ok(line) => {
                    let _ = writeln!(std::io::stderr(), "{line}");
                    writeln!(self.said, "{line}").unwrap();
                    self.pages.extend(one.alerts);
                    standing.extend(one.stays);
                }
                Err(_) => {
                    let _ = writeln!(std::io::stderr(), "{}: not as expected", one.name);
                    self.missed.push(one.name);
                    // One that hangs is killed.
                    let _ = AssertUnwindSafe(scene.sandbox.stop()).catch_unwind().await;
                    (scene, prometheus) = begin(ground).await;
                    standing.clear();
                }
            }
        }
        drop(prometheus);
        scene.sandbox.stop().await;
    }
}
