//! The short form of the crash drill.

use dvp_benches::crash::{CrashDrill, CrashRails};
use dvp_benches::drill::{Drill as _, Program, Report};

async fn drill(rails: CrashRails) -> Report {
    let program = Program::at(env!("CARGO_BIN_EXE_dvp"));
    let drill = CrashDrill { kills: 4, rails: Some(rails), program };
    let report = drill.run(1).await.unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(report.get("kills"), 4);
    report.expect_some(&["orders", "completed", "fixMessages", "eventsDelivered"]);
    report
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_over_both_interfaces_survive_kills_at_any_moment() {
    drill(CrashRails::Simulated).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_kill_makes_a_bank_pay_or_a_desk_convert_twice() {
    drill(CrashRails::BankAndDesk).await.expect_some(&["payments", "conversions"]);
}
