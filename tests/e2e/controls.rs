//! Operators' actions beside a running sandbox: operations of the ledger, and their log.

use std::collections::BTreeMap;

use serde_json::json;

use crate::sandbox::{Sandbox, dvp, ran, refused, said};
use crate::wait::{answer, until};

const WHY: [&str; 4] = ["--reason", "requested by mail", "--evidence", "wire 17"];

fn operation<'a>(words: &[&'a str], id: &'a str, amount: &'a str, asset: &'a str) -> Vec<&'a str> {
    let amount = ["--amount-minor", amount, "--asset", asset, "--as", "jo"];
    [&["ledger", "request"][..], words, &["--id", id], &amount, &WHY].concat()
}

/// The sum of all accounts of an asset: minor units, and 10^-18 of one.
fn trial_balance(sandbox: &Sandbox) -> BTreeMap<String, (i128, i128)> {
    let mut sums = BTreeMap::<_, (i128, i128)>::new();
    for row in said(sandbox, &["ledger", "balances"])["balances"].as_array().unwrap() {
        let text = row["amount"].as_str().unwrap();
        let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        let (whole, fraction): (i128, i128) =
            (whole.parse().unwrap(), format!("{fraction:0<18}").parse().unwrap());
        let sum = sums.entry(row["asset"].as_str().unwrap().to_owned()).or_default();
        *sum = (sum.0 + sign * whole, sum.1 + sign * fraction);
        let carried = sum.1 / 1_000_000_000_000_000_000;
        *sum = (sum.0 + carried, sum.1 - carried * 1_000_000_000_000_000_000);
    }
    sums
}

fn available(sandbox: &Sandbox, provider: &str) -> u64 {
    let held = said(sandbox, &["provider", "balance", "--provider", provider, "--asset", "USD"]);
    held["availableMinor"].as_str().unwrap().parse().unwrap()
}

fn post(sandbox: &Sandbox, words: &[&str], id: &str) {
    let requested = said(sandbox, words);
    assert_eq!((&requested["state"], &requested["repeated"]), (&json!("pending"), &json!(false)));
    assert_eq!(said(sandbox, words)["repeated"], true);
    let approve = |operator| ["ledger", "approve", "--id", id, "--as", operator];
    assert!(refused(sandbox, &approve("jo")).contains("another operator"));
    assert_eq!(said(sandbox, &approve("kim"))["state"], "approved");
    assert!(refused(sandbox, &approve("kim")).contains("approved already"));
    assert!(trial_balance(sandbox).values().all(|sum| *sum == (0, 0)), "{:?}", trial_balance(sandbox));
}

fn operations_of_the_ledger(sandbox: &Sandbox) {
    let before = available(sandbox, "northwind");
    let withdrawal = operation(&["withdrawal", "--provider", "northwind"], "W-1", "5000", "USD");
    post(sandbox, &withdrawal, "W-1");
    assert_eq!(available(sandbox, "northwind"), before - 5000);
    let other = operation(&["withdrawal", "--provider", "northwind"], "W-1", "5001", "USD");
    assert!(refused(sandbox, &other).contains("another operation"));
    let transfer = operation(&["transfer", "--from", "northwind", "--to", "meridian"], "T-1", "300", "USD");
    post(sandbox, &transfer, "T-1");
    assert_eq!(available(sandbox, "northwind"), before - 5300);
    let unknown = operation(&["withdrawal", "--provider", "nobody"], "W-2", "1", "USD");
    assert!(refused(sandbox, &unknown).contains("knows no provider nobody"));
    let unknown = operation(&["fee-sweep"], "F-1", "1", "XYZ");
    assert!(refused(sandbox, &unknown).contains("knows no asset XYZ"));
    let deposit = |asset: &'static str, provider: &'static str| {
        let words = ["provider", "deposit", "--provider", provider, "--asset", asset];
        [&words[..], &["--amount-minor", "700", "--id", "wire-9", "--as", "jo"]].concat()
    };
    assert!(refused(sandbox, &deposit("XYZ", "northwind")).contains("there is no asset XYZ"));
    assert!(refused(sandbox, &deposit("USD", "nobody")).contains("there is no provider nobody"));
    said(sandbox, &deposit("USD", "northwind"));
    let back = ["return", "--provider", "northwind", "--deposit", "wire-9"];
    assert!(refused(sandbox, &operation(&back, "R-1", "701", "USD")).contains("less than"));
    post(sandbox, &operation(&back, "R-1", "700", "USD"), "R-1");
    let adjust = ["adjustment", "--account", "fees", "--direction", "credit"];
    post(sandbox, &operation(&adjust, "A-1", "40", "USD"), "A-1");
    post(sandbox, &operation(&["fee-sweep"], "F-2", "40", "USD"), "F-2");
    let wanted = operation(&["withdrawal", "--provider", "northwind"], "W-3", "1", "USD");
    said(sandbox, &wanted);
    let reject = ["ledger", "reject", "--id", "W-3", "--as", "kim", "--reason", "no such wire"];
    assert_eq!(said(sandbox, &reject)["state"], "denied");
    assert_eq!(said(sandbox, &["ledger", "show", "--id", "W-3"])["checker"], "kim");
    let listed = said(sandbox, &["ledger", "list"]);
    assert_eq!(listed["operations"].as_array().unwrap().len(), 6);
    assert_eq!(said(sandbox, &["ledger", "check"])["ok"], true);
    assert!(refused(sandbox, &["ledger", "rebuild"]).contains("--reason"));
    let by = ["ledger", "rebuild", "--reason", "changed by hand"];
    assert_eq!(said(sandbox, &by)["changes"], json!([]));
    statements_and_reports(sandbox);
}

fn statements_and_reports(sandbox: &Sandbox) {
    let range = ["--from", "2020-01-01", "--to", "2100-01-01"];
    let of = ["statement", "--provider", "northwind", "--asset", "USD"];
    let found = said(sandbox, &[&of[..], &range].concat());
    let statement = &found["statements"][0];
    assert_eq!(statement["account"], "provider:northwind:available");
    assert_eq!((&statement["decimals"], &statement["openingMinor"]), (&json!(2), &json!("0")));
    let held: u64 = statement["closingMinor"].as_str().unwrap().parse().unwrap();
    assert_eq!(held, available(sandbox, "northwind"));
    let fees = said(sandbox, &[&["report", "fees"][..], &range].concat());
    let swept = fees["fees"].as_array().unwrap().iter().find(|row| row["reason"] == "sweep_fees").unwrap();
    assert_eq!((&swept["earnedMinor"], &swept["absorbedMinor"]), (&json!("-40"), &json!("0")));
    let csv = ran(sandbox, &["report", "balances", "--csv"]);
    let csv = String::from_utf8(csv.stdout).unwrap();
    assert!(csv.contains(&format!("provider:northwind:available,USD,2,{held},1\r\n")), "{csv}");
    assert!(refused(sandbox, &["statement", "--account", "purse", "--day", "2026-11-22"]).contains("purse"));
    assert!(!said(sandbox, &["report", "exposure"])["balances"].is_null());
}

async fn the_log_holds_together_and_its_head_is_anchored(sandbox: &Sandbox) {
    let verified = said(sandbox, &["audit", "verify"]);
    assert_eq!(verified["ok"], true);
    let entries = said(sandbox, &["audit", "list", "--limit", "10000"]);
    let entries = entries["entries"].as_array().unwrap();
    assert_eq!(verified["entries"].as_u64().unwrap(), u64::try_from(entries.len()).unwrap());
    let about = |source: &str, what: &str| {
        entries.iter().any(|one| one["source"] == source && one["row"].to_string().contains(what))
    };
    for (source, what) in [
        ("operator_action", "operation:W-1"),
        ("operator_action", "deposit:wire-9"),
        ("approval", "denied"),
        ("api_key", "svc_test_"),
        ("partner", "acme"),
        ("fix_session", "FIX.4.4"),
    ] {
        assert!(about(source, what), "{source} {what}");
    }
    let chain = sandbox.value("/chain/chainId").to_string();
    let handed = said(sandbox, &["audit", "anchor", "--chain-id", &chain]);
    assert_eq!(handed["handedOver"]["entry"], verified["entries"]);
    let verify = async || said(sandbox, &["audit", "verify"]);
    let anchored = answer(verify, |verified| verified["anchored"] == 1).await;
    assert_eq!(anchored["lastAnchor"]["hash"], handed["handedOver"]["hash"]);
    // The anchored head is no break.
    until("agreement", async || dvp(sandbox, &["reconcile"]).status.success()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_actions_are_posted_approved_and_audited() {
    let sandbox = Sandbox::start().await;
    operations_of_the_ledger(&sandbox);
    the_log_holds_together_and_its_head_is_anchored(&sandbox).await;
    sandbox.stop().await;
}
