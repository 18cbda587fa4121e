//! An action that moves money is requested by one operator and carried out when another one approves it.

use dvp_core::operators::approvals::{ApprovalError, approve, deny};
use dvp_core::operators::operations::{Action, ResolveError};
use dvp_rails::LegKind;
use dvp_store::operators::approvals::{Filter, list};

use crate::operations::{long_ago, stuck};
use dvp_testing::Harness;
use dvp_testing::wait::wait_for;

fn mark_paid(provider_reference: &str) -> Action {
    let at = chrono::Utc::now();
    Action::MarkPaid { leg: LegKind::Payout, provider_reference: provider_reference.into(), at }
}

async fn requested(harness: &Harness, reference: &str, action: Action) -> String {
    let decided = harness.decide("jo", reference, action).await.unwrap();
    assert!(decided.is_proposal);
    decided.approval.unwrap()
}

/// Approves as soon as no worker has the claim.
async fn approved(harness: &Harness, id: &str) {
    let state = wait_for("the approval", || async {
        let mut conn = harness.pool().acquire().await.unwrap();
        match approve(&mut conn, id, "mika", "seen on the statement").await {
            Ok(approval) => Some(approval.state),
            Err(ApprovalError::Execution(ResolveError::InFlight)) => None,
            Err(other) => panic!("{other}"),
        }
    })
    .await;
    assert_eq!(state, "approved");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_carried_out_after_another_operators_approval() {
    let (harness, _, reference) = stuck().await;
    long_ago(&harness).await;
    let id = requested(&harness, &reference, mark_paid("S17")).await;
    assert_eq!(requested(&harness, &reference, mark_paid("S17")).await, id, "the same request again");
    let other = harness.decide("mika", &reference, mark_paid("S18")).await;
    assert!(matches!(&other, Err(ResolveError::OtherRequested(by)) if *by == id), "{other:?}");
    let mut conn = harness.pool().acquire().await.unwrap();
    for own in ["jo", " JO "] {
        let refused = approve(&mut conn, &id, own, "").await;
        assert!(matches!(refused, Err(ApprovalError::OwnRequest)), "{refused:?}");
    }
    assert!(matches!(approve(&mut conn, "apr_none", "mika", "").await, Err(ApprovalError::Unknown(_))));
    let waiting = "select count(*) from execution where state_name = 'paying'";
    assert_eq!(harness.count(waiting).await, 1, "nothing has happened");
    approved(&harness, &id).await;
    harness.wait_for_state(&reference, "releasing").await;
    let again = approve(&mut conn, &id, "mika", "").await;
    assert!(matches!(&again, Err(ApprovalError::Ended(state)) if state == "approved"), "{again:?}");
    let kept = list(&mut conn, &Filter { limit: 10, ..Filter::default() }).await.unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!((kept[0].maker.as_str(), kept[0].checker.as_deref()), ("jo", Some("mika")));
    assert_eq!(kept[0].details["providerReference"], "S17");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outdated_denied_or_expired_request_is_not_carried_out() {
    let (harness, _, reference) = stuck().await;
    long_ago(&harness).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let denied = requested(&harness, &reference, mark_paid("S17")).await;
    assert!(matches!(deny(&mut conn, &denied, "mika", " ").await, Err(ApprovalError::NoReason)));
    assert_eq!(deny(&mut conn, &denied, "mika", "no such line").await.unwrap().state, "denied");
    let refused = approve(&mut conn, &denied, "kim", "").await;
    assert!(matches!(&refused, Err(ApprovalError::Ended(state)) if state == "denied"), "{refused:?}");

    let old = requested(&harness, &reference, mark_paid("S18")).await;
    assert_ne!(old, denied);
    // A request is never changed; a row of a day ago represents an expired one.
    let aged = "insert into approval (id, kind, subject, action, details, version, maker, reason, evidence, expires_at) \
                select 'apr_old', kind, subject, action, details, version, maker, reason, evidence, now() from approval \
                where state = 'pending'";
    assert_eq!(deny(&mut conn, &old, "jo", "a slip").await.unwrap().state, "denied", "by its maker");
    let aged = aged.replace("state = 'pending'", "state = 'denied' limit 1");
    sqlx::query(sqlx::AssertSqlSafe(aged)).execute(harness.pool()).await.unwrap();
    let refused = approve(&mut conn, "apr_old", "mika", "").await;
    assert!(matches!(refused, Err(ApprovalError::Expired)), "{refused:?}");

    // The settlement takes a step after the request, so its version differs from the requested one.
    let moved = requested(&harness, &reference, mark_paid("S19")).await;
    let step = "update execution set version = version + 1";
    harness.run(step).await;
    let refused = approve(&mut conn, &moved, "mika", "").await;
    assert!(matches!(refused, Err(ApprovalError::Execution(ResolveError::Moved))), "{refused:?}");
    let anew = requested(&harness, &reference, mark_paid("S19")).await;
    assert_ne!(anew, moved);
    let lapsed = "select count(*) from approval where state = 'lapsed'";
    assert_eq!(harness.count(lapsed).await, 2, "later requests ended both");
    approved(&harness, &anew).await;
    harness.wait_for_state(&reference, "releasing").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_refuses_changes_of_a_request_and_approval_by_its_maker() {
    let (harness, _, reference) = stuck().await;
    let id = requested(&harness, &reference, mark_paid("S17")).await;
    for (sql, constraint) in [
        ("update approval set details = '{}'", "approval_immutable"),
        (
            "update approval set state = 'approved', checker = ' Jo ', decided_at = now()",
            "approval_two_operators",
        ),
        ("delete from approval", "approval_immutable"),
        ("truncate approval cascade", "approval_immutable"),
    ] {
        let error = sqlx::query(sql).execute(harness.pool()).await.unwrap_err();
        assert_eq!(error.as_database_error().unwrap().constraint(), Some(constraint), "{sql}");
    }
    let mut conn = harness.pool().acquire().await.unwrap();
    deny(&mut conn, &id, "mika", "no").await.unwrap();
    let revived = sqlx::query("update approval set state = 'pending', checker = null, decided_at = null");
    assert!(revived.execute(harness.pool()).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_denied_during_a_concurrent_decision_is_not_carried_out() {
    let (harness, _, reference) = stuck().await;
    long_ago(&harness).await;
    let paid = mark_paid("S1");
    let id = requested(&harness, &reference, paid.clone()).await;
    let mut denial = harness.pool().begin().await.unwrap();
    deny(&mut denial, &id, "kim", "not on the statement").await.unwrap();
    let deciding = harness.decide("mika", &reference, paid);
    let blocked = "select count(*) from pg_locks where not granted";
    let (decided, ()) = tokio::join!(deciding, async {
        harness.wait_for_count(blocked, 1).await;
        denial.commit().await.unwrap();
    });
    let decided = decided.unwrap();
    assert!(decided.is_proposal && decided.approval != Some(id), "a request of its own: {decided:?}");
    let carried_out = "select count(*) from operator_action where action = 'mark_paid'";
    assert_eq!(harness.count(carried_out).await, 0);
    assert_eq!(harness.count("select count(*) from effect where verdict is not null").await, 0);
}
