//! Several processes behind one address: what they have in common.

use crate::harness::{ApiHarness, order};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signed_intent_is_carried_out_once_whichever_processes_receive_it() {
    let harness = ApiHarness::new().await;
    let other = harness.another_process();
    let first = harness.intent(&harness.acme, &order());
    let (here, there) = tokio::join!(harness.send(&first), harness.send_to(other.clone(), &first));
    // The process that comes second repeats the answer, or says that the first is at work.
    let mut statuses: Vec<u16> = [&here, &there].map(|answer| answer.status.as_u16()).to_vec();
    statuses.sort_unstable();
    assert!(matches!(statuses.as_slice(), [202, 202 | 409]), "{} {}", here.text, there.text);
    // Captured, and sent under another idempotency key to a process that has not seen its nonce.
    let third = harness.another_process();
    let captured = first.clone().with("X-Idempotency-Key", &uuid::Uuid::new_v4().to_string());
    let refused = harness.send_to(third, &captured).await;
    assert!(refused.status.is_client_error(), "{}", refused.text);
    assert_eq!(harness.count("select count(*) from execution").await, 1);
    assert_eq!(harness.count("select count(*) from intent").await, 1);
}
