//! The short form of the crash drill.

use dvp_benches::crash::{CrashPlan, CrashRails, CrashReport, run};

async fn drill(rails: CrashRails) -> CrashReport {
    let plan = CrashPlan { binary: env!("CARGO_BIN_EXE_dvp").into(), seed: 1, kills: 4, rails };
    let report = run(&plan).await.unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(report.kills, 4);
    assert!(report.orders > 0 && report.completed > 0 && report.fix_messages > 0, "{report:?}");
    report
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_over_both_interfaces_survive_kills_at_any_moment() {
    drill(CrashRails::Simulated).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_kill_makes_a_bank_pay_or_a_desk_convert_twice() {
    let report = drill(CrashRails::BankAndDesk).await;
    assert!(report.payments > 0 && report.conversions > 0, "{report:?}");
}
