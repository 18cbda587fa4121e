//! Personal data of orders that moved to another cell with their FIX session.

use dvp_core::approvals::ApprovalError;
use dvp_core::personal_data::{AGE_LEAST, ErasureError, erase_aged, status};
use dvp_core::writer::Outcome;
use dvp_store::personal::messages::erase_sent;
use dvp_testing::Harness;

use crate::moves::Cells;
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
