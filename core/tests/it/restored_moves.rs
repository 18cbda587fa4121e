//! Moves of partners one of whose cells was restored to an earlier moment.

use dvp_core::approvals;
use dvp_core::moves::{self, MoveError, Progress, Side};
use dvp_core::requests::{Maker, RequestedChange};
use dvp_core::writer::{Outcome, UsedKey};
use dvp_testing::Harness;
use dvp_testing::orders::order;

use crate::moves::{Cells, key_of};
use crate::scenes::fix_session;

/// Does to a cell what a restore does: no trigger and no foreign key sees it.
async fn restore(at: &Harness, changes: &[&'static str]) {
    let mut tx = at.pool().begin().await.unwrap();
    sqlx::query("set local session_replication_role = replica").execute(&mut *tx).await.unwrap();
    for change in changes {
        sqlx::raw_sql(*change).execute(&mut *tx).await.unwrap();
    }
    tx.commit().await.unwrap();
}

/// All rows of the partner but its own one and that of its move.
const WITHOUT_ROWS: &str = "do $$ declare one text; begin \
     delete from fix_outbound; delete from fix_order; \
     for one in select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid \
                where a.attname = 'partner_id' and c.relkind in ('r', 'p') and not c.relispartition \
                  and c.relname <> 'partner_move' loop \
         execute format('delete from %I where partner_id = (select id from partner where name = ''mover'')', one); \
     end loop; end $$";
const WITHOUT_SESSION: &str = "delete from fix_outbound; delete from fix_order; delete from fix_session";
const WITHOUT_MOVE: &str = "delete from partner_move";
const WITHOUT_PARTNER: &str = "delete from partner where name = 'mover'";
const ARRIVING: &str = "update partner_move set state = 'arriving'; \
     update partner set closed_by = (select id from partner_move) where name = 'mover'";

fn states(progress: &Progress) -> [&str; 2] {
    [&progress.source_state, progress.target_state.as_deref().unwrap_or_default()]
}

/// A partner with a session.
async fn with_session() -> (Cells, String) {
    let cells = Cells::new().await;
    let session = fix_session(&cells.source, &cells.tenant, "MOVER").await;
    let numbers = "update fix_session set password_key = 'cells', next_out = 5";
    for at in [&cells.source, &cells.target] {
        sqlx::query(numbers).execute(at.pool()).await.unwrap();
    }
    (cells, session)
}

/// Two operators record in the source that the partner has left it, and the move is run.
async fn record_and_run(cells: &Cells) {
    let requested = request_left(cells).await.unwrap();
    let mut conn = cells.source.pool().acquire().await.unwrap();
    approvals::approve(&mut conn, &requested.approval.id, "kim", "").await.unwrap();
    assert!(!cells.takes(&cells.source).await, "it is closed before the run");
    assert_eq!(states(&cells.run().await.unwrap()), ["moved", "open"]);
}

async fn request_left(cells: &Cells) -> Result<RequestedChange, MoveError> {
    let mut source = cells.source.pool().acquire().await.unwrap();
    let mut target = cells.target.pool().acquire().await.unwrap();
    let [from, to] = &cells.vaults;
    let mut from = Side { conn: &mut source, vault: from };
    let mut to = Side { conn: &mut target, vault: to };
    let maker = Maker { operator: "jo", reason: "restored to 12:00", evidence: "entry 1200" };
    moves::request_left(&mut from, &mut to, "mover", maker).await
}

async fn sessions(at: &Harness) -> Vec<String> {
    let rows = "select session_id || case when enabled then ' ' || next_out else ' disabled' end from fix_session \
                where session_id like '%MOVER' order by 1";
    sqlx::query_scalar(rows).fetch_all(at.pool()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_was_restored_takes_the_partner_again_from_the_source_that_has_left_it() {
    let (cells, session) = with_session().await;
    let (first, part) = (order("000123456789"), key_of(&cells.tenant, uuid::Uuid::new_v4()));
    let accepted = cells.submit(&cells.source, first.clone(), Some(part.clone())).await;
    assert!(matches!(accepted, Outcome::Accepted(_)), "{accepted:?}");
    // The session is moved as if its order had ended.
    let ended = "update execution set terminal_at = now()";
    restore(&cells.source, &[ended]).await;
    cells.decide().await;
    assert_eq!(states(&cells.run().await.unwrap()), ["moved", "open"]);
    let there = [format!("{session} 5")];
    assert_eq!(sessions(&cells.target).await, there);

    let unknown: &[&str] = &[WITHOUT_ROWS, WITHOUT_MOVE, WITHOUT_PARTNER];
    let arriving: &[&str] = &[WITHOUT_ROWS, ARRIVING];
    for (moment, changes) in [("unknown", unknown), ("arriving", arriving), ("open", &[WITHOUT_SESSION][..])]
    {
        restore(&cells.target, changes).await;
        assert_eq!(sessions(&cells.target).await, Vec::<String>::new(), "{moment}");
        let progress = cells.run().await.unwrap_or_else(|error| panic!("{moment}: {error}"));
        assert_eq!(states(&progress), ["moved", "open"], "{moment}");
        assert_eq!(sessions(&cells.target).await, there, "{moment}");
        assert_eq!(sessions(&cells.source).await, [format!("{session} disabled")], "{moment}");
        assert!(cells.takes(&cells.target).await && !cells.takes(&cells.source).await, "{moment}");
        let again = cells.submit(&cells.target, first.clone(), Some(part.clone())).await;
        assert!(matches!(again, Outcome::KeyUsed(UsedKey::Replayed(_))), "{moment}: {again:?}");
    }
    // The source had closed, and had not come to `moved`.
    sqlx::query("update partner_move set state = 'closed'").execute(cells.source.pool()).await.unwrap();
    restore(&cells.target, unknown).await;
    assert_eq!(states(&cells.run().await.unwrap()), ["moved", "open"]);
}

const NOT_LEFT: &str = "update partner set closed_by = null where name = 'mover'; \
     update fix_session set enabled = true, moved_by = null, copied_at = null where session_id like '%MOVER'";

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_was_restored_to_before_it_closed_records_that_the_partner_has_left() {
    let (cells, session) = with_session().await;
    let never = request_left(&cells).await;
    assert!(matches!(never, Err(MoveError::NotOpen { .. })), "{never:?}");
    cells.decide().await;
    cells.run().await.unwrap();
    let known = request_left(&cells).await;
    assert!(matches!(known, Err(MoveError::UnderWay(_))), "{known:?}");

    restore(&cells.source, &[WITHOUT_MOVE, NOT_LEFT]).await;
    assert!(cells.takes(&cells.source).await && cells.takes(&cells.target).await, "both are open");
    cells.decide().await;
    let new = cells.run().await;
    assert!(matches!(new, Err(MoveError::Taken(_) | MoveError::Occupied)), "{new:?}");
    cells.cancel().await.unwrap();
    record_and_run(&cells).await;
    assert!(cells.takes(&cells.target).await && !cells.takes(&cells.source).await);
    assert!(cells.intents(&cells.source).await.is_subset(&cells.intents(&cells.target).await));
    assert_eq!(sessions(&cells.source).await, [format!("{session} disabled")]);
    assert_eq!(sessions(&cells.target).await, [format!("{session} 5")]);
    // It is a move as any other: the partner comes back.
    let cells = cells.back();
    cells.decide().await;
    assert_eq!(states(&cells.run().await.unwrap()), ["moved", "open"]);
    assert!(cells.takes(&cells.target).await && !cells.takes(&cells.source).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_that_was_restored_to_before_a_partner_left_and_came_back_has_it_again() {
    let (cells, session) = with_session().await;
    cells.decide().await;
    cells.run().await.unwrap();
    let cells = cells.back();
    assert!(cells.takes(&cells.source).await);
    cells.decide().await;
    cells.run().await.unwrap();
    let cells = cells.back();
    restore(&cells.source, &[WITHOUT_MOVE, NOT_LEFT, "update fix_session set came_by = null, next_out = 2"])
        .await;
    // First the move by which it left, then the one by which it came back.
    record_and_run(&cells).await;
    assert_eq!(states(&cells.run_back().await.unwrap()), ["moved", "open"]);
    assert!(cells.takes(&cells.source).await && !cells.takes(&cells.target).await);
    assert!(cells.intents(&cells.target).await.is_subset(&cells.intents(&cells.source).await));
    assert_eq!(sessions(&cells.source).await, [format!("{session} 5")]);
    assert_eq!(sessions(&cells.target).await, [format!("{session} disabled")]);

    // It leaves once more, and the cell is restored to the moment before it was opened by the return.
    cells.decide().await;
    cells.run().await.unwrap();
    let copied = "delete from partner_move where number = (select max(number) from partner_move); \
         update partner_move set state = 'copied' where state = 'open'; \
         update partner set closed_by = (select id from partner_move where state = 'copied') where name = 'mover'";
    restore(&cells.source, &[copied]).await;
    record_and_run(&cells).await;
    assert!(cells.takes(&cells.target).await && !cells.takes(&cells.source).await);
}
