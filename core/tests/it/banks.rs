//! A few orders through each bank of the profiles; `drill banks` sends more.

use dvp_testing::banks::{PROFILES, profile, run};
use futures_util::future::join_all;

#[tokio::test(flavor = "multi_thread")]
async fn orders_end_as_each_bank_deals_with_them_to_the_minor_unit() {
    let runs = join_all(PROFILES.map(|(name, _)| run(profile(name).unwrap(), 1, 12))).await;
    let mut charges = 0;
    for (report, (name, _)) in runs.into_iter().zip(PROFILES) {
        for state in ["completed", "payout_failed", "reversed"] {
            assert!(report.ended.contains_key(state), "{name}: {report:?}");
        }
        assert!(report.statements > 0 && report.files > 12, "{name}: {report:?}");
        charges += report.charges;
    }
    assert!(charges > 0);
}
