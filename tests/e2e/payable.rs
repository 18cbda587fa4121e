//! Orders that the payout's rail could not pay are refused at acceptance, over both interfaces, and reserve nothing.

use serde_json::json;
use sqlx::Row as _;

use crate::fix::FixClient;
use crate::partner::Partner;
use crate::sandbox::Sandbox;

#[tokio::test(flavor = "multi_thread")]
async fn an_unpayable_beneficiary_is_refused_over_both_interfaces() {
    let sandbox = Sandbox::start_with(&["--bank-files"]).await;
    let partner = Partner::of(&sandbox);
    // It is not in the registry.
    let account = "bene_a:dest_10000000";
    let order = partner.order(&sandbox, 0, account).await;
    let (status, refused) = partner.submit(&order).await;
    assert_eq!((status, &refused["error"]["code"]), (400, &json!("INVALID_PARAMETER")), "{refused}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("beneficiary: ") && message.contains("beneficiary_unknown"), "{message}");
    let mut fix = FixClient::log_on(&sandbox).await;
    fix.new_order("ORD-1", account, &order["permit"]).await;
    let report = fix.report(|report| report.get(11) == "ORD-1").await;
    assert_eq!(report.get(150), "8");
    assert!(report.get(58).contains("beneficiary_unknown"), "{}", report.get(58));
    let reserved = sqlx::query("select count(*) from account_balance where reserved <> 0")
        .fetch_one(&mut sandbox.database().await)
        .await
        .unwrap();
    assert_eq!(reserved.get::<i64, _>(0), 0);
    // The permit is free for an order that can be paid.
    let mut payable = partner.order(&sandbox, 0, "000123456789").await;
    payable["beneficiary"]["bank"] = json!("USABA021000021");
    let (status, accepted) = partner.submit(&payable).await;
    assert_eq!(status, 202, "{accepted}");
    sandbox.stop().await;
}
