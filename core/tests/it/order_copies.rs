//! Personal data of orders that is copied to the cell their partner moves to, with the partner or with a FIX session.

use std::sync::Arc;

use dvp_core::approvals::ApprovalError;
use dvp_core::personal_data::{AGE_LEAST, ErasureError, erase_aged, status};
use dvp_core::writer::{IdempotencyPart, Outcome, UsedKey};
use dvp_domain::intent::IntentRequest;
use dvp_store::orders::idempotency::StoredResponse;
use dvp_store::personal::messages::erase_sent;
use dvp_testing::Harness;
use serde_json::json;

use crate::moves::{Cells, key_of};
use crate::personal_data::{TRACES, columns_with, complete, erase, of_order, of_session, personal};

/// An ended order over a FIX session, which has moved with its partner. Returns its execution.
async fn moved_order(cells: &Cells) -> String {
    let workers = cells.source.start_workers();
    let accepted = match cells.submit(&cells.source, personal("ref-1"), None).await {
        Outcome::Accepted(accepted) => accepted,
        other => panic!("{other:?}"),
    };
    complete(&cells.source, &accepted.reference).await;
    workers.abort();
    of_session(&cells.source, &accepted.reference).await;
    let shared =
        "update fix_session set password_key = 'cells', feed_position = (select position from feed_counter)";
    sqlx::query(shared).execute(cells.source.pool()).await.unwrap();
    cells.decide().await;
    let progress = cells.run().await.unwrap();
    assert_eq!(progress.sessions[0].state, "moved", "{progress:?}");
    accepted.reference
}

async fn search_messages(at: &Harness) {
    let mut conn = at.pool().acquire().await.unwrap();
    while erase_sent(&mut conn, 100).await.unwrap() > 0 {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_erased_on_request_in_the_cell_that_has_it() {
    let cells = Cells::new().await;
    let reference = moved_order(&cells).await;
    let found = columns_with(&cells.target, &TRACES).await;
    for column in ["fix_order.details", "moved_event.object", "fix_outbound.body"] {
        assert!(found.iter().any(|one| one.starts_with(column)), "{column}: {found:?}");
    }
    let shown = async |at: &Harness| {
        let mut conn = at.pool().acquire().await.unwrap();
        status(&mut conn, &of_order(&reference, false)).await.unwrap()
    };
    assert_eq!(shown(&cells.source).await.also_in_cells, ["00b"]);
    let at_target = shown(&cells.target).await;
    assert_eq!((at_target.is_erased, at_target.also_in_cells), (false, vec!["00a".to_owned()]));

    let kept = erase(&cells.target, &of_order(&reference, true)).await.unwrap_err();
    assert!(matches!(kept, ApprovalError::Erasure(ErasureError::ClOrdId(_))), "{kept}");
    erase(&cells.target, &of_order(&reference, false)).await.unwrap();
    search_messages(&cells.target).await;
    assert_eq!(columns_with(&cells.target, &TRACES).await, Vec::<String>::new());
    assert!(shown(&cells.target).await.is_erased);
    let again = erase(&cells.target, &of_order(&reference, false)).await.unwrap_err();
    assert!(matches!(again, ApprovalError::Erasure(ErasureError::Erased(_))), "{again}");
    // The order's own cell is asked by itself.
    assert!(!shown(&cells.source).await.is_erased);
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_are_erased_by_age_and_an_order_that_returns_is_no_copy() {
    let cells = Cells::new().await;
    let reference = moved_order(&cells).await;
    let mut conn = cells.target.pool().acquire().await.unwrap();
    assert_eq!(erase_aged(&mut conn, AGE_LEAST, 10).await.unwrap(), 0, "it is young");
    // Back in its own cell the session has the order itself.
    let cells = cells.back();
    cells.decide().await;
    cells.run().await.unwrap();
    assert_eq!(cells.target.count("select count(*) from fix_order").await, 1);
    assert_eq!(cells.target.count("select count(*) from fix_order_copy").await, 0);
    assert_eq!(cells.target.count("select count(*) from moved_event").await, 0);

    let aged = "update fix_order_copy set ordered_at = now() - interval '401 days' where reference = $1";
    sqlx::query(aged).bind(&reference).execute(cells.source.pool()).await.unwrap();
    assert_eq!(erase_aged(&mut conn, AGE_LEAST, 10).await.unwrap(), 1);
    search_messages(&cells.source).await;
    assert_eq!(columns_with(&cells.source, &TRACES).await, Vec::<String>::new());
    assert_eq!(erase_aged(&mut conn, AGE_LEAST, 10).await.unwrap(), 0);
}

/// Moves the partner with its session to the other cell.
async fn follow(cells: Cells) -> Cells {
    let cells = cells.back();
    let feed = "update fix_session set feed_position = (select position from feed_counter)";
    sqlx::query(feed).execute(cells.source.pool()).await.unwrap();
    cells.decide().await;
    let progress = cells.run().await.unwrap();
    assert_eq!(progress.sessions[0].state, "moved", "{progress:?}");
    cells
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_brings_back_nothing_of_a_copy_that_was_erased() {
    let cells = Cells::new().await;
    let reference = moved_order(&cells).await;
    erase(&cells.target, &of_order(&reference, false)).await.unwrap();
    search_messages(&cells.target).await;
    let cells = follow(cells).await;
    // The order's own cell keeps its data, and has a later event and a later report.
    let later = [
        "update event set sequence = sequence + 10 where position = (select max(position) from event where reference = $1)",
        "insert into fix_outbound (session_id, seq, msg_type, body, sending_time) \
         select 'S1', next_out, '8', convert_to('37=' || $1 || E'\\x01' || '1=000777666555' || E'\\x01', 'UTF8'), 1 \
         from fix_session",
    ];
    for statement in later {
        sqlx::query(statement).bind(&reference).execute(cells.target.pool()).await.unwrap();
    }
    let next = "update fix_session set next_out = next_out + 1";
    sqlx::query(next).execute(cells.target.pool()).await.unwrap();
    let cells = follow(cells).await;
    search_messages(&cells.target).await;
    assert_eq!(columns_with(&cells.target, &TRACES).await, Vec::<String>::new());
    assert_eq!(cells.target.count("select count(*) from moved_event where sequence > 10").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_brings_back_nothing_of_an_order_that_its_own_cell_erased() {
    let cells = Cells::new().await;
    let reference = moved_order(&cells).await;
    erase(&cells.source, &of_order(&reference, false)).await.unwrap();
    search_messages(&cells.source).await;
    assert_eq!(columns_with(&cells.source, &TRACES).await, Vec::<String>::new());
    let cells = follow(cells).await;
    search_messages(&cells.target).await;
    assert_eq!(columns_with(&cells.target, &TRACES).await, Vec::<String>::new());
}

/// An answer as REST stores it.
fn rest_key(cells: &Cells) -> IdempotencyPart {
    let render = |outcome: &Outcome| {
        let body = match outcome {
            Outcome::Accepted(accepted) => {
                json!({"reference": accepted.reference, "path": accepted.plan.path}).to_string()
            }
            other => format!("{other:?}"),
        };
        StoredResponse { status: 202, body }
    };
    IdempotencyPart { render: Arc::new(render), ..key_of(&cells.tenant, uuid::Uuid::new_v4()) }
}

const CLIENT_REFERENCE: &str = "for the aunt of the treasurer";

/// An ended order over REST, whose partner has moved. Returns its request, its key and its execution.
async fn moved_rest_order(cells: &Cells) -> (IntentRequest, IdempotencyPart, String) {
    let workers = cells.source.start_workers();
    let (request, key) = (personal(CLIENT_REFERENCE), rest_key(cells));
    let reference = match cells.submit(&cells.source, request.clone(), Some(key.clone())).await {
        Outcome::Accepted(accepted) => accepted.reference.clone(),
        other => panic!("{other:?}"),
    };
    complete(&cells.source, &reference).await;
    workers.abort();
    cells.decide().await;
    cells.run().await.unwrap();
    (request, key, reference)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_target_has_of_an_order_over_rest_is_erased_there() {
    let cells = Cells::new().await;
    let (request, key, reference) = moved_rest_order(&cells).await;
    let found = columns_with(&cells.target, &TRACES).await;
    for column in ["intent.client_reference", "idempotency.body"] {
        assert!(found.iter().any(|one| one.starts_with(column)), "{column}: {found:?}");
    }
    for (at, other) in [(&cells.source, "00b"), (&cells.target, "00a")] {
        let mut conn = at.pool().acquire().await.unwrap();
        let shown = status(&mut conn, &of_order(&reference, true)).await.unwrap();
        assert_eq!((shown.is_erased, shown.also_in_cells), (false, vec![other.to_owned()]));
        // First the answer, and then what is left of it.
        erase(at, &of_order(&reference, false)).await.unwrap();
        assert!(status(&mut conn, &of_order(&reference, false)).await.unwrap().is_erased);
        erase(at, &of_order(&reference, true)).await.unwrap();
        assert_eq!(columns_with(at, &TRACES).await, Vec::<String>::new());
        let again = erase(at, &of_order(&reference, true)).await.unwrap_err();
        assert!(matches!(again, ApprovalError::Erasure(ErasureError::Erased(_))), "{again}");
    }
    let repeated = cells.submit(&cells.target, request, Some(key)).await;
    let Outcome::KeyUsed(UsedKey::Replayed(answer)) = repeated else { panic!("{repeated:?}") };
    assert!(answer.body.contains("[erased]") && answer.body.contains(&reference), "{}", answer.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reference_that_was_erased_in_one_cell_only_and_used_again_keeps_no_partner_from_returning() {
    let cells = Cells::new().await;
    let (.., reference) = moved_rest_order(&cells).await;
    erase(&cells.target, &of_order(&reference, true)).await.unwrap();
    let second = cells.submit(&cells.target, personal(CLIENT_REFERENCE), None).await;
    assert!(matches!(second, Outcome::Accepted(_)), "{second:?}");
    let cells = cells.back();
    cells.decide().await;
    let progress = cells.run().await.unwrap();
    assert_eq!(progress.target_state.as_deref(), Some("open"));
    assert_eq!(cells.intents(&cells.source).await, cells.intents(&cells.target).await);
    // The order of this cell has it still.
    let left = "select count(*) from intent where client_reference is not null";
    assert_eq!(cells.target.count(left).await, 1);
}

/// The payment of an order that has ended comes back.
async fn reverse(cells: &Cells, reference: &str) {
    let workers = cells.source.start_workers();
    let returned = r#"insert into effect (reference, kind, run_at, called, verdict) values ($1, 'reversal', now(), true,
        '{"verdict": "payment_returned", "provider_reference": "R1", "occurred_at": "2026-01-01T00:00:00Z",
          "code": "c", "message": "m"}')"#;
    sqlx::query(returned).bind(reference).execute(cells.source.pool()).await.unwrap();
    cells.source.wait_for_state(reference, "reversed").await;
    workers.abort();
}

const WAITING: &str = "select count(*) from fix_late_report";
const REVERSED: &str = "select count(*) from moved_event where type = 'payout.reversed'";
/// The reports that a session has still to make.
const TO_REPORT: &str = "select count(*) from fix_session s \
    join event v on v.partner_id = s.partner_id and v.position > s.feed_position \
    join fix_order o on o.session_id = s.session_id and o.reference = v.reference where s.enabled";

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_comes_back_after_its_session_has_moved_is_reported_once_wherever_the_session_is() {
    let cells = Cells::new().await;
    let reference = moved_order(&cells).await;
    cells.run().await.unwrap();
    assert_eq!((cells.target.count(WAITING).await, cells.target.count(REVERSED).await), (0, 0));
    reverse(&cells, &reference).await;
    cells.run().await.unwrap();
    assert_eq!((cells.target.count(WAITING).await, cells.target.count(REVERSED).await), (1, 1));
    let mut conn = cells.target.pool().acquire().await.unwrap();
    let sessions = dvp_store::moves::list_sessions(&mut conn, &cells.tenant.partner_id).await.unwrap();
    assert!(sessions[0].is_busy, "it has a report to make before it moves on");
    // The session reports it.
    sqlx::query("delete from fix_late_report").execute(cells.target.pool()).await.unwrap();
    cells.run().await.unwrap();
    assert_eq!(cells.target.count(WAITING).await, 0, "once");
    // A run that ended before the source had noted what it brought.
    let before = "update fix_session set feed_position = 0 where moved_by is not null";
    sqlx::query(before).execute(cells.source.pool()).await.unwrap();
    cells.run().await.unwrap();
    assert_eq!(cells.target.count(WAITING).await, 0, "once");
    let cells = follow(cells).await;
    assert_eq!(cells.target.count(TO_REPORT).await, 0, "it was reported in the other cell");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_returns_reports_payments_that_came_back_meanwhile() {
    let cells = Cells::new().await;
    let reference = moved_order(&cells).await;
    reverse(&cells, &reference).await;
    let cells = follow(cells).await;
    assert_eq!(cells.target.count(TO_REPORT).await, 1);
}
