//! A short month of business; `drill month` runs a whole one.

use dvp_testing::month::{MonthPlan, run};

#[tokio::test(flavor = "multi_thread")]
async fn statements_ledger_chain_and_bank_agree_after_a_week_of_business() {
    let report = run(MonthPlan { seed: 7, orders: 300, days: 5 }).await;
    assert_eq!((report.orders, report.rejected), (300, 0));
    let count =
        |state: &str| report.ended.iter().find(|(name, _)| name == state).map_or(0, |(_, count)| *count);
    for state in ["completed", "payout_failed", "conversion_failed", "failed", "reversed"] {
        assert!(count(state) > 0, "{state}: {report:?}");
    }
    assert!(report.fickle > 10, "{report:?}");
    assert!(report.unused > report.closed && report.closed > 0 && report.given_up > 0, "{report:?}");
    assert!(report.split > 0 && report.operations > 5, "{report:?}");
}
