//! FIX sessions follow a partner that moves: no report of its orders is lost, and no parked order.

use std::time::Duration;

use dvp_core::fix_sessions;
use dvp_core::legacy::Strategy;
use dvp_core::moves::{self, MoveError, Progress};
use dvp_core::secrets::Vault;
use dvp_store::fix::commands::SessionAction;
use dvp_store::lease::Lease;
use dvp_testing::Harness;
use dvp_testing::orders::order;

use crate::moves::{Cells, SHARED, cell, decide, run_between};
use crate::older::keep_for;
use crate::scenes::fix_session;

async fn write(at: &Harness, statements: &[&'static str]) {
    for statement in statements {
        sqlx::query(*statement).execute(at.pool()).await.unwrap();
    }
}

/// A drop copy of the partner, where it is now.
async fn drop_copy(cells: &Cells) -> String {
    let session = fix_session(&cells.source, &cells.tenant, "COPY").await;
    write(&cells.source, &["update fix_session set drop_copy = true, password_key = 'cells'"]).await;
    session
}

/// The orders of a cell end, and its sessions have reported all of its events.
async fn end_orders(at: &Harness) {
    let ended = "update execution set terminal_at = now() where terminal_at is null";
    let reported = "update fix_session set feed_position = (select position from feed_counter) where enabled";
    write(at, &[ended, reported]).await;
}

const POSITION: &str = "select feed_position from fix_session where drop_copy";
/// Events that the drop copy of a cell has still to report.
const TO_REPORT: &str = "select count(*) from fix_session s \
    join event v on v.partner_id = s.partner_id and v.position > s.feed_position where s.drop_copy and s.enabled";
const EVENTS: &str =
    "select count(*) from event v join partner p on p.id = v.partner_id where p.name = 'mover'";

fn states(progress: &Progress) -> Vec<&'static str> {
    progress.sessions.iter().map(|one| one.state).collect()
}

/// What keeps the partner where it is.
fn obstacle(run: Result<Progress, MoveError>) -> String {
    match run {
        Err(MoveError::Obstacles(named)) if named.len() == 1 => named.into_iter().next().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drop_copy_reports_what_happened_in_the_next_cell_before_it_came() {
    let cells = Cells::new().await;
    drop_copy(&cells).await;
    // Both feeds have events of others before and after.
    for at in [&cells.source, &cells.target] {
        at.accept(order("000123456789")).await;
    }
    assert!(cells.takes(&cells.source).await);
    cells.decide().await;
    assert_eq!(states(&cells.run().await.unwrap()), ["waits"]);
    assert!(cells.takes(&cells.target).await);
    end_orders(&cells.source).await;
    assert_eq!(states(&cells.run().await.unwrap()), ["moved"]);
    let events = cells.target.count(EVENTS).await;
    assert!(events > 0);
    assert_eq!(cells.target.count(TO_REPORT).await, events);

    // Back in the first cell it goes on where it was there.
    let left_at = cells.source.count(POSITION).await;
    cells.source.accept(order("000123456789")).await;
    end_orders(&cells.target).await;
    let cells = cells.back();
    cells.decide().await;
    assert_eq!(states(&cells.run().await.unwrap()), ["moved"]);
    assert_eq!(cells.target.count(POSITION).await, left_at);
    assert!(cells.takes(&cells.target).await);
    assert!(cells.target.count(TO_REPORT).await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drop_copy_starts_in_a_cell_of_earlier_orders_where_its_partner_was_accepted_again() {
    let cells = Cells::new().await;
    assert!(cells.takes(&cells.source).await);
    let before = cells.source.count(EVENTS).await;
    cells.decide().await;
    cells.run().await.unwrap();
    let cells = cells.back();
    drop_copy(&cells).await;
    assert!(cells.takes(&cells.source).await);
    cells.decide().await;
    assert_eq!(states(&cells.run().await.unwrap()), ["waits"]);
    assert!(cells.takes(&cells.target).await);
    end_orders(&cells.source).await;
    assert_eq!(states(&cells.run().await.unwrap()), ["moved"]);
    assert_eq!(cells.target.count(TO_REPORT).await, cells.target.count(EVENTS).await - before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partner_moves_on_or_back_once_its_drop_copy_has_come() {
    let cells = Cells::new().await;
    let copy = drop_copy(&cells).await;
    assert!(cells.takes(&cells.source).await);
    cells.decide().await;
    assert_eq!(states(&cells.run().await.unwrap()), ["waits"]);

    // On to a third cell.
    let third = cell("00c").await;
    let vault = Vault::new([3; 32]).with_shared(SHARED);
    decide(&cells.target, "00c").await;
    let on = async || run_between([(&cells.target, &cells.vaults[1]), (&third, &vault)]).await;
    let named = obstacle(on().await);
    assert!(named.contains(&copy) && named.contains("in cell 00a"), "{named}");
    let mut conn = cells.target.pool().acquire().await.unwrap();
    let mut there = third.pool().acquire().await.unwrap();
    moves::cancel(&mut conn, &mut there, "mover", "jo").await.unwrap();

    // And back. The copy has all orders of the cell that the partner leaves to report.
    let cells = cells.back();
    cells.decide().await;
    let named = obstacle(cells.run().await);
    assert!(named.contains(&copy) && named.contains("in cell 00a"), "{named}");
    assert!(cells.takes(&cells.source).await, "what was refused closed nothing");
    end_orders(&cells.target).await;
    assert_eq!(states(&cells.run_back().await.unwrap()), ["moved"]);
    assert_eq!(cells.source.count(TO_REPORT).await, cells.source.count(EVENTS).await);
    end_orders(&cells.source).await;
    assert_eq!(states(&cells.run().await.unwrap()), ["moved"]);
    assert!(cells.takes(&cells.target).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drop_copy_that_operators_disable_keeps_no_partner() {
    let cells = Cells::new().await;
    drop_copy(&cells).await;
    assert!(cells.takes(&cells.source).await);
    cells.decide().await;
    cells.run().await.unwrap();
    let third = cell("00c").await;
    let vault = Vault::new([3; 32]).with_shared(SHARED);
    decide(&cells.target, "00c").await;
    let on = async || run_between([(&cells.target, &cells.vaults[1]), (&third, &vault)]).await;
    write(&cells.source, &["update fix_session set enabled = false"]).await;
    obstacle(on().await);
    // The cell that the partner is in learns it.
    assert_eq!(states(&cells.run().await.unwrap()), ["disabled"]);
    assert_eq!(on().await.unwrap().target_state.as_deref(), Some("open"));
    decide(&third, "00a").await;
    let back = run_between([(&third, &vault), (&cells.source, &cells.vaults[0])]).await.unwrap();
    assert_eq!(back.target_state.as_deref(), Some("open"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drop_copy_waits_for_legacy_orders_that_wait() {
    let cells = Cells::new().await;
    drop_copy(&cells).await;
    keep_for(&cells.source, &cells.tenant, Strategy::Scheduled).await;
    cells.decide().await;
    assert_eq!(states(&cells.run().await.unwrap()), ["waits"]);
    write(&cells.source, &["update legacy_intent set stage = 'cancelled'"]).await;
    assert_eq!(states(&cells.run().await.unwrap()), ["moved"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_parks_an_order_while_it_is_taken_is_given_back() {
    let cells = Cells::new().await;
    let (a, b) = (&cells.source, &cells.target);
    let first = fix_session(a, &cells.tenant, "FIRST").await;
    let second = fix_session(a, &cells.tenant, "SECOND").await;
    write(a, &["update fix_session set password_key = 'cells'"]).await;
    let park = async |session: &str| {
        let parked = "insert into fix_parked (session_id, cl_ord_id, message, received_at) values ($1, 'C', '', now())";
        sqlx::query(parked).bind(session).execute(a.pool()).await.unwrap();
    };
    let enabled = async |at: &Harness| {
        let rows = sqlx::query_scalar("select session_id from fix_session where enabled order by 1");
        let rows: Vec<String> = rows.fetch_all(at.pool()).await.unwrap();
        rows
    };
    let (name, owner) = (format!("fix:{first}"), uuid::Uuid::new_v4());
    let lease = Lease::acquire(a.pool(), &name, owner, Duration::from_secs(600)).await.unwrap().unwrap();
    cells.decide().await;
    let parking = async {
        // The second one was found to have no orders, and waits until the first one's process lets go of that.
        a.wait_for_count("select count(*) from fix_session where moved_by is not null", 1).await;
        park(&second).await;
        lease.release(a.pool()).await.unwrap();
    };
    let (moving, ()) = tokio::join!(cells.run(), parking);
    assert_eq!(states(&moving.unwrap()), ["moved", "waits"]);
    assert_eq!((enabled(a).await, enabled(b).await), (vec![second.clone()], vec![first.clone()]));

    // A run that ended after it had taken the session.
    let taken =
        "update fix_session set enabled = false, moved_by = (select id from partner_move) where enabled";
    let recorded = "insert into fix_session_command (session_id, action, operator, reason, outcome, done_at) \
                    select session_id, 'disable', operator, reason, outcome, now() from fix_session_command \
                    where action = 'disable' and session_id like '%SECOND' limit 1";
    write(a, &[taken, recorded]).await;
    assert_eq!(states(&cells.run().await.unwrap()), ["moved", "waits"]);
    assert_eq!(enabled(a).await, std::slice::from_ref(&second));
    write(a, &["delete from fix_parked"]).await;
    assert_eq!(states(&cells.run().await.unwrap()), ["moved", "moved"]);
    let both = [first, second.clone()];
    assert_eq!((enabled(a).await, enabled(b).await), (vec![], both.to_vec()));

    // One that ended after the target had the session: nothing makes it enabled in both.
    park(&second).await;
    write(a, &["update fix_session set copied_at = null"]).await;
    assert_eq!(states(&cells.run().await.unwrap()), ["moved", "moved"]);
    assert_eq!((enabled(a).await, enabled(b).await), (vec![], both.to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_operators_disable_while_it_is_taken_is_enabled_in_no_cell() {
    let cells = Cells::new().await;
    let (a, b) = (&cells.source, &cells.target);
    let session = fix_session(a, &cells.tenant, "STOPPED").await;
    write(a, &["update fix_session set password_key = 'cells'"]).await;
    let (name, owner) = (format!("fix:{session}"), uuid::Uuid::new_v4());
    let lease = Lease::acquire(a.pool(), &name, owner, Duration::from_secs(600)).await.unwrap().unwrap();
    cells.decide().await;
    let stopping = async {
        a.wait_for_count("select count(*) from fix_session where moved_by is not null", 1).await;
        let stop = fix_sessions::command(&session, SessionAction::Disable, "mika", "its key leaked").unwrap();
        let mut conn = a.pool().acquire().await.unwrap();
        let stopped = fix_sessions::carry_out(&mut conn, &stop, &[]);
        let released = async {
            let recorded = "select count(*) from fix_session_command where operator = 'mika'";
            a.wait_for_count(recorded, 1).await;
            lease.release(a.pool()).await.unwrap();
        };
        let (stopped, ()) = tokio::join!(stopped, released);
        stopped.unwrap();
    };
    let (moving, ()) = tokio::join!(cells.run(), stopping);
    assert_eq!(states(&moving.unwrap()), ["disabled"]);
    for at in [a, b] {
        assert_eq!(at.count("select count(*) from fix_session where enabled").await, 0);
    }
}
