//! Recalls of payments as operators make them: one that the bank accepts, and one that it rejects.

use serde_json::Value;

use crate::partner::Partner;
use crate::sandbox::{Sandbox, approve, ran, refused, said};
use crate::wait::answer;

/// A completed order that the bank has paid: its two references.
async fn paid(sandbox: &Sandbox, wallet: usize, account: &str) -> (String, String) {
    let partner = Partner::of(sandbox);
    let order = partner.order_at_the_bank(sandbox, wallet, account).await;
    // The receipt's anchor is the last that happens to it.
    (partner.settled(&order).await, order["clientReference"].as_str().unwrap().to_owned())
}

/// Waits until the only recall of an execution has a status.
async fn recalled(sandbox: &Sandbox, reference: &str, status: &str) -> Value {
    let recall = async || said(sandbox, &["recall", "list", "--execution", reference])["recalls"][0].clone();
    answer(recall, |recall| recall["status"] == status).await
}

/// Two operators recall the payment of an order.
fn recall(sandbox: &Sandbox, reference: &str, reason: &str) {
    let request = ["recall", "request", "--id", reference, "--reason", reason];
    let requested = said(sandbox, &[&request[..], &["--operator", "jo", "--evidence", "ticket 17"]].concat());
    assert_eq!((&requested["action"], &requested["isProposal"]), (&"recall".into(), &true.into()));
    let id = requested["approval"].as_str().unwrap();
    assert!(
        refused(sandbox, &["approval", "approve", "--id", id, "--operator", "jo"])
            .contains("another operator")
    );
    approve(sandbox, &requested["approval"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recalled_payment_comes_back_and_a_rejected_recall_changes_nothing() {
    let sandbox = Sandbox::start_with(&["--bank-files"]).await;
    let (accepted, rejected) =
        tokio::join!(paid(&sandbox, 0, "000123456789"), paid(&sandbox, 1, "000123450021"));
    let ((accepted, client_reference), (rejected, other_reference)) = (accepted, rejected);
    let unknown =
        ["recall", "request", "--id", &accepted, "--reason", "XXXX", "--operator", "jo", "--evidence", "x"];
    assert!(refused(&sandbox, &unknown).contains("DUPL"));
    recall(&sandbox, &accepted, "DUPL");
    recall(&sandbox, &rejected, "CUST");

    let partner = Partner::of(&sandbox);
    let ended = recalled(&sandbox, &accepted, "recalled").await;
    let execution = partner.wait_until(&client_reference, |e| e["status"] == "failed").await;
    assert_eq!(execution["failure"]["code"], "payment_recalled", "{execution}");
    let shown = said(&sandbox, &["recall", "show", "--id", ended["id"].as_str().unwrap()]);
    assert_eq!((&shown["reason"], &shown["closedAt"]), (&"DUPL".into(), &Value::Null));
    let (_, events) = partner.get("/v1/events").await;
    let reversed = events["data"].as_array().unwrap().iter().filter(|one| one["type"] == "payout.reversed");
    assert_eq!(reversed.count(), 1);

    let ended = recalled(&sandbox, &rejected, "rejected").await;
    assert_eq!(ended["answerReason"], "CUST", "{ended}");
    let (_, execution) = partner.get(&format!("/v1/executions/{other_reference}")).await;
    assert_eq!(execution["status"], "completed");
    assert_eq!(said(&sandbox, &["recall", "list", "--open"])["recalls"].as_array().unwrap().len(), 0);
    let nothing = ran(&sandbox, &["recall", "list", "--open"]);
    assert_eq!((&*nothing.stdout, &*nothing.stderr), (&b""[..], &b"no recalls\n"[..]));
    let history = said(&sandbox, &["execution", "show", "--reference", &rejected]);
    assert_eq!(history["recalls"][0]["status"], "rejected");
    // Minor units, and the fractions of one that rounding cut off.
    let posted = history["ledger"].as_array().unwrap().iter().map(|entry| entry["amount"].as_str().unwrap());
    let (fractions, whole): (Vec<_>, Vec<_>) = posted.partition(|amount| amount.contains('.'));
    assert!(whole.contains(&"9985") && fractions == ["-0.005", "0.005"], "{whole:?} {fractions:?}");
    let requests = std::fs::read_dir(sandbox.dir().join("bank/bank/recalls")).unwrap();
    let requests =
        requests.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|e| e == "xml"));
    assert_eq!(requests.count(), 2, "the bank has one file of each");
    said(&sandbox, &["audit", "verify"]);
    sandbox.stop().await;
}
