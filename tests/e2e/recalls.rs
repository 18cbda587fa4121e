//! The recall of a payment as operators make it.

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
    let requested = said(sandbox, &[&request[..], &["--as", "jo", "--evidence", "ticket 17"]].concat());
    assert_eq!((&requested["action"], &requested["isProposal"]), (&"recall".into(), &true.into()));
    let id = requested["approval"].as_str().unwrap();
    assert!(
        refused(sandbox, &["approval", "approve", "--id", id, "--as", "jo"]).contains("another operator")
    );
    approve(sandbox, &requested["approval"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recalled_payment_comes_back() {
    let sandbox = Sandbox::start_with(&["--bank-files"]).await;
    let (accepted, client_reference) = paid(&sandbox, 0, "000123456789").await;
    let unknown =
        ["recall", "request", "--id", &accepted, "--reason", "XXXX", "--as", "jo", "--evidence", "x"];
    assert!(refused(&sandbox, &unknown).contains("DUPL"));
    recall(&sandbox, &accepted, "DUPL");

    let partner = Partner::of(&sandbox);
    let ended = recalled(&sandbox, &accepted, "recalled").await;
    let execution = partner.wait_until(&client_reference, |e| e["status"] == "failed").await;
    assert_eq!(execution["failure"]["code"], "payment_recalled", "{execution}");
    let shown = said(&sandbox, &["recall", "show", "--id", ended["id"].as_str().unwrap()]);
    assert_eq!((&shown["reason"], &shown["closedAt"]), (&"DUPL".into(), &Value::Null));
    let (_, events) = partner.get("/v1/events").await;
    let reversed = events["data"].as_array().unwrap().iter().filter(|one| one["type"] == "payout.reversed");
    assert_eq!(reversed.count(), 1);

    assert_eq!(said(&sandbox, &["recall", "list", "--open"])["recalls"].as_array().unwrap().len(), 0);
    let nothing = ran(&sandbox, &["recall", "list", "--open"]);
    assert_eq!((&*nothing.stdout, &*nothing.stderr), (&b""[..], &b"no recalls\n"[..]));
    let requests = std::fs::read_dir(sandbox.dir().join("bank/bank/recalls")).unwrap();
    let requests =
        requests.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|e| e == "xml"));
    assert_eq!(requests.count(), 1, "the bank has one file of it");
    said(&sandbox, &["audit", "verify"]);
    sandbox.stop().await;
}
