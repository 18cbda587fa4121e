//! A recipient of the registry is paid once two operators stand for it: over REST and over FIX alike. Orders that the
//! payout's rail could not pay are refused at acceptance and reserve nothing.

use serde_json::{Value, json};

use crate::fix::FixClient;
use crate::partner::Partner;
use crate::sandbox::{Sandbox, refused, said};

#[tokio::test(flavor = "multi_thread")]
async fn a_recipient_is_verified_before_payment_and_can_be_disabled() {
    let sandbox = Sandbox::start_with(&["--bank-files"]).await;
    let enter = ["beneficiary", "create", "--partner", "acme", "--name", "Jane Doe", "--country", "US"];
    let at_the_bank = ["--account", "000123456789", "--currency", "USD", "--method", "ach"];
    let enter = [&enter[..], &at_the_bank, &["--bank", "USABA021000021", "--as", "jo"]].concat();
    let entered = said(&sandbox, &enter);
    let (account, destination) = (text(&entered, "account"), text(&entered, "destinationId"));
    assert_eq!(entered["status"], "unverified");

    let partner = Partner::of(&sandbox);
    let mut fix = FixClient::log_on(&sandbox).await;
    for (id, account, code) in [
        ("ORD-0", "bene_a:dest_10000000", "beneficiary_unknown"),
        ("ORD-1", account.as_str(), "(beneficiary_not_verified)"),
    ] {
        refused_over_both(&sandbox, &partner, &mut fix, account, (2, id), code).await;
    }
    let reserved = "select count(*) from account_balance where reserved <> 0";
    assert_eq!(sandbox.one::<i64>(reserved).await, 0);

    let verify = ["beneficiary", "verify", "--destination", &destination, "--evidence", "call of 3 May"];
    let complaint = refused(&sandbox, &[&verify[..], &["--as", "jo"]].concat());
    assert!(complaint.contains("another operator has to verify it"), "{complaint}");
    assert_eq!(said(&sandbox, &[&verify[..], &["--as", "kim"]].concat())["changed"], true);

    // The permit of a refused order is free for one that can be paid.
    partner.submit_accepted(&partner.order(&sandbox, 2, &account).await).await;
    let permit = partner.order(&sandbox, 1, &account).await["permit"].clone();
    fix.new_order("ORD-2", &account, &permit).await;
    let report = fix.report(|report| report.get(11) == "ORD-2").await;
    assert_eq!(report.get(150), "0", "{}", report.get(58));

    let disable =
        ["beneficiary", "disable", "--destination", &destination, "--as", "kim", "--reason", "closed"];
    assert_eq!(said(&sandbox, &disable)["status"], "disabled");
    refused_over_both(&sandbox, &partner, &mut fix, &account, (3, "ORD-3"), "(beneficiary_disabled)").await;
    let listed = said(&sandbox, &["beneficiary", "list", "--partner", "acme"]);
    let row = &listed["destinations"][0];
    assert_eq!(
        (&row["status"], &row["createdBy"], &row["verifiedBy"], &row["disabledBy"], &row["accountLast4"]),
        (&json!("disabled"), &json!("jo"), &json!("kim"), &json!("kim"), &json!("6789"))
    );
    assert!(!listed.to_string().contains("000123456789"), "accounts are masked: {listed}");
    sandbox.stop().await;
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap().to_owned()
}

async fn refused_over_both(
    sandbox: &Sandbox,
    partner: &Partner,
    fix: &mut FixClient,
    account: &str,
    (wallet, cl_ord_id): (usize, &str),
    code: &str,
) {
    let order = partner.order(sandbox, wallet, account).await;
    let (status, answer) = partner.submit(&order).await;
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert_eq!(status, 400, "{answer}");
    assert!(message.starts_with("beneficiary: ") && message.contains(code), "{answer}");
    fix.new_order(cl_ord_id, account, &order["permit"]).await;
    let report = fix.report(|report| report.get(11) == cl_ord_id).await;
    assert_eq!(report.get(150), "8", "{}", report.get(58));
    assert!(report.get(58).contains(code), "{}", report.get(58));
}
