//! Two operators close a break about an order that a restored database has forgotten.

use chrono::Utc;
use dvp_core::operators::approvals::{ApprovalError, approve};
use dvp_core::operators::breaks::{self, BreakError};
use dvp_core::operators::requests::Maker;
use dvp_domain::reconcile::{Break, BreakKind, SuggestedAction};
use dvp_store::reconcile::closed::without_closed;
use dvp_store::reconcile::{AtBlock, NewRun, insert_run};

use crate::scenes;

const ID: &str = "0x1111111111111111111111111111111111111111111111111111111111111111";

fn found(kind: BreakKind, detail: &str) -> Break {
    let action = SuggestedAction::Page;
    Break { kind, reference: None, entity: Some(ID.into()), detail: detail.into(), action, difference: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_break_is_closed_by_two_operators_as_it_was_found() {
    let harness = scenes::harness().await;
    let mut tx = harness.pool().begin().await.unwrap();
    let lost = found(BreakKind::PayoutWithoutExecution, "paid 5 USDC");
    let index = found(BreakKind::IndexMismatch, "the stored events show another state");
    let at = Some(AtBlock { chain_id: 31_337, number: 1, hash: vec![0; 32], secs: 0 });
    let breaks = vec![lost.clone(), index.clone()];
    let run = NewRun { at, subjects: 1, queries: 1, started_at: Utc::now(), breaks };
    insert_run(&mut tx, &run).await.unwrap();
    tx.commit().await.unwrap();

    let mut conn = harness.pool().acquire().await.unwrap();
    let maker = Maker { operator: "jo", reason: "accepted after 12:00", evidence: "ticket 17" };
    let refused = breaks::request(&mut conn, BreakKind::LockWithoutExecution, ID, maker).await;
    assert!(matches!(refused, Err(BreakError::Unknown { .. })), "{refused:?}");
    let refused = breaks::request(&mut conn, BreakKind::IndexMismatch, ID, maker).await;
    assert!(matches!(refused, Err(BreakError::NotClosable(_))), "{refused:?}");
    let requested = breaks::request(&mut conn, lost.kind, ID, maker).await.unwrap().approval;
    assert_eq!(
        without_closed(&mut conn, run.breaks.clone()).await.unwrap(),
        run.breaks,
        "a request closes nothing"
    );
    let own = approve(&mut conn, &requested.id, "Jo ", "mine").await;
    assert!(matches!(own, Err(ApprovalError::OwnRequest)), "{own:?}");
    approve(&mut conn, &requested.id, "kim", "the tokens are the user's").await.unwrap();

    let more = Break { detail: "paid 6 USDC".into(), ..lost.clone() };
    let left = without_closed(&mut conn, vec![lost, index.clone(), more.clone()]).await.unwrap();
    assert_eq!(left, [index, more], "another finding is shown again");
}
