//! The short form of the drill on order management systems.

use dvp_benches::drill::Drill as _;
use dvp_benches::oms::OmsDrill;

#[tokio::test(flavor = "multi_thread")]
async fn books_of_order_management_systems_agree_with_the_ledger() {
    let profiles = ["tt-gateway", "equity-oms", "apama"].map(str::to_owned).into();
    let report = OmsDrill { profiles }.run(1).await.unwrap_or_else(|error| panic!("{error:#}"));
    assert!(report.broken.is_empty(), "{:?}", report.broken);
    report.expect_some(&[
        "orders",
        "deliveredMinor",
        "replacementsRefused",
        "statusRequests",
        "cancelRequests",
    ]);
    assert_eq!(report.get("profiles"), 3);
}
