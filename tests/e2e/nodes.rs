//! The short form of the drill on nodes as they are.

use dvp_benches::drill::{Drill as _, Program};
use dvp_benches::nodes::{NodeKind, NodesDrill};

#[tokio::test(flavor = "multi_thread")]
async fn orders_end_on_nodes_that_word_limit_and_leave_out() {
    let profiles = ["zksync", "hosted-small"].map(str::to_owned).into();
    let program = Program::at(env!("CARGO_BIN_EXE_dvp"));
    let drill = NodesDrill { profiles, node: NodeKind::Anvil, program };
    let report = drill.run(1).await.unwrap_or_else(|error| panic!("{error:#}"));
    assert!(report.broken.is_empty(), "{:?}", report.broken);
    report.expect_some(&["orders", "refused"]);
    assert_eq!(report.get("profiles"), 2);
}
