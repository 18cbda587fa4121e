//! A recipient of the registry is paid once two operators stand for it: over REST and over FIX alike.

use serde_json::{Value, json};

use crate::cli::{refused, said};
use crate::fix::FixClient;
use crate::partner::Partner;
use crate::sandbox::Sandbox;

const ENTER: [&str; 18] = [
    "beneficiary",
    "create",
    "--partner",
    "acme",
    "--name",
    "Jane Doe",
    "--country",
    "US",
    "--account",
    "000123456789",
    "--currency",
    "USD",
    "--method",
    "ach",
    "--bank",
    "USABA021000021",
    "--operator",
    "jo",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_recipient_is_verified_before_payment_and_can_be_disabled() {
    let sandbox = Sandbox::start().await;
    let entered = said(&sandbox, &ENTER);
    let (account, destination) = (text(&entered, "account"), text(&entered, "destinationId"));
    assert_eq!(entered["status"], "unverified");

    let partner = Partner::of(&sandbox);
    let mut fix = FixClient::log_on(&sandbox).await;
    let code = "(beneficiary_not_verified)";
    refused_over_both(&sandbox, &partner, &mut fix, &account, "ORD-1", code).await;

    let verify = ["beneficiary", "verify", "--destination", &destination, "--evidence", "call of 3 May"];
    let complaint = refused(&sandbox, &[&verify[..], &["--operator", "jo"]].concat());
    assert!(complaint.contains("another operator has to verify it"), "{complaint}");
    assert_eq!(said(&sandbox, &[&verify[..], &["--operator", "kim"]].concat())["changed"], true);

    let order = partner.order(&sandbox, 0, &account).await;
    let (status, accepted) = partner.submit(&order).await;
    assert_eq!(status, 202, "{accepted}");
    let permit = partner.order(&sandbox, 1, &account).await["permit"].clone();
    fix.new_order("ORD-2", &account, &permit).await;
    let report = fix.report(|report| report.get(11) == "ORD-2").await;
    assert_eq!(report.get(150), "0", "{}", report.get(58));

    let disable =
        ["beneficiary", "disable", "--destination", &destination, "--operator", "kim", "--reason", "closed"];
    assert_eq!(said(&sandbox, &disable)["status"], "disabled");
    refused_over_both(&sandbox, &partner, &mut fix, &account, "ORD-3", "(beneficiary_disabled)").await;
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
    cl_ord_id: &str,
    code: &str,
) {
    let order = partner.order(sandbox, 2, account).await;
    let (status, answer) = partner.submit(&order).await;
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert_eq!(status, 400, "{answer}");
    assert!(message.starts_with("beneficiary: ") && message.contains(code), "{answer}");
    fix.new_order(cl_ord_id, account, &order["permit"]).await;
    let report = fix.report(|report| report.get(11) == cl_ord_id).await;
    assert_eq!(report.get(150), "8", "{}", report.get(58));
    assert!(report.get(58).contains(code), "{}", report.get(58));
}
