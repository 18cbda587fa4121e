//! Standing instructions: each change is in the audit log, and a live one takes two operators.

use dvp_core::approvals::{ApprovalError, approve, deny};
use dvp_core::instructions::{InstructionError, request, set_at_once};
use dvp_core::legacy::{Strategy, turns};
use dvp_core::requests::{ChangeError, Maker, RequestedChange};
use dvp_domain::money::Minor;
use dvp_store::audit::list;
use dvp_store::ledger::balances;
use dvp_store::orders::intents::Tenant;
use dvp_store::orders::legacy::find_instruction;
use dvp_testing::Harness;
use serde_json::{Value, json};

use crate::moves::Cells;
use crate::older::keep_for;
use crate::scenes;

const BY: Maker<'_> = Maker { operator: "jo", reason: "asked", evidence: "letter 7" };
const LETTER: (&str, &str) = ("jo", "asked");

fn live(harness: &Harness) -> Tenant {
    Tenant { livemode: true, ..harness.tenant.clone() }
}

async fn present(harness: &Harness, tenant: &Tenant) -> Option<String> {
    let mut conn = harness.pool().acquire().await.unwrap();
    find_instruction(&mut conn, tenant, "EUR").await.unwrap()
}

async fn requested(harness: &Harness, account: &str) -> RequestedChange {
    let mut conn = harness.pool().acquire().await.unwrap();
    request(&mut conn, &live(harness), ("EUR", account), BY).await.unwrap()
}

/// The account, the one that it replaced, the operator and the approval of each entry about instructions.
async fn entries(harness: &Harness) -> Vec<[Value; 4]> {
    let mut conn = harness.pool().acquire().await.unwrap();
    let all = list(&mut conn, 0, 1000).await.unwrap();
    let about = all.iter().filter(|entry| entry.source == "settlement_instruction");
    let fields = |text: &str| {
        let row: Value = serde_json::from_str(text).unwrap();
        ["account", "replaced", "operator", "approval"].map(|name| row[name].clone())
    };
    about.map(|entry| fields(&entry.entry)).collect()
}

#[tokio::test]
async fn a_change_is_in_the_audit_log_with_what_it_replaced() {
    let harness = scenes::harness().await;
    let mut conn = harness.pool().acquire().await.unwrap();
    for account in ["bene_a:dest_1", "bene_a:dest_1", "bene_b:dest_2"] {
        set_at_once(&mut conn, &harness.tenant, ("EUR", account), LETTER).await.unwrap();
    }
    let nobody = set_at_once(&mut conn, &harness.tenant, ("EUR", "bene_c:dest_3"), ("jo", " ")).await;
    assert!(matches!(nobody, Err(InstructionError::NoReason)), "{nobody:?}");
    // As the release before changes it.
    sqlx::query("update settlement_instruction set account = 'bene_d:dest_4'")
        .execute(&mut *conn)
        .await
        .unwrap();
    assert_eq!(
        entries(&harness).await,
        [
            [json!("bene_a:dest_1"), json!(null), json!("jo"), json!(null)],
            [json!("bene_b:dest_2"), json!("bene_a:dest_1"), json!("jo"), json!(null)],
            [json!("bene_d:dest_4"), json!("bene_b:dest_2"), json!(null), json!(null)],
        ]
    );
    let deleted = sqlx::query("delete from settlement_instruction").execute(&mut *conn).await;
    assert!(deleted.is_err());
}

#[tokio::test]
async fn a_live_instruction_holds_when_another_operator_has_approved_it() {
    let harness = scenes::harness().await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let tenant = live(&harness);
    let alone = set_at_once(&mut conn, &tenant, ("EUR", "bene_a:dest_1"), LETTER).await;
    assert!(matches!(alone, Err(InstructionError::NeedsApproval)), "{alone:?}");
    let first = requested(&harness, "bene_a:dest_1").await.approval.id;
    let own = approve(&mut conn, &first, "Jo ", "seen").await;
    assert!(matches!(own, Err(ApprovalError::OwnRequest)), "{own:?}");
    assert_eq!((present(&harness, &tenant).await, entries(&harness).await), (None, vec![]));
    approve(&mut conn, &first, "kim", "seen").await.unwrap();
    assert_eq!(present(&harness, &tenant).await.as_deref(), Some("bene_a:dest_1"));
    assert_eq!(present(&harness, &harness.tenant).await, None);

    let second = requested(&harness, "bene_b:dest_2").await.approval.id;
    approve(&mut conn, &second, "kim", "seen").await.unwrap();
    let [_, last] = entries(&harness).await.try_into().unwrap();
    assert_eq!(last, [json!("bene_b:dest_2"), json!("bene_a:dest_1"), json!("jo"), json!(second)]);
}

#[tokio::test]
async fn a_request_about_an_instruction_that_changed_is_refused() {
    let harness = scenes::harness().await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let first = requested(&harness, "bene_a:dest_1").await.approval.id;
    approve(&mut conn, &first, "kim", "seen").await.unwrap();
    let second = requested(&harness, "bene_b:dest_2").await.approval.id;
    sqlx::query("update settlement_instruction set account = 'bene_d:dest_4'")
        .execute(&mut *conn)
        .await
        .unwrap();
    let late = approve(&mut conn, &second, "kim", "seen").await;
    let is_moved =
        matches!(late, Err(ApprovalError::Instruction(InstructionError::Change(ChangeError::Moved))));
    assert!(is_moved, "{late:?}");
    assert_eq!(present(&harness, &live(&harness)).await.as_deref(), Some("bene_d:dest_4"));
}

async fn account(at: &Harness, tenant: &Tenant) -> Option<String> {
    let mut conn = at.pool().acquire().await.unwrap();
    find_instruction(&mut conn, tenant, "EUR").await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_where_the_partner_has_left_stops_the_orders_that_wait_there_and_says_so() {
    const OLD: &str = "bene_acme:dest_eur";
    const NEW: &str = "bene_acme:dest_new";
    let cells = Cells::new().await;
    let tenant = &cells.tenant;
    cells.source.fund("north", "EUR", 100_000_000).await;
    let mut left = cells.source.pool().acquire().await.unwrap();
    balances::deposit(&mut left, "wire-1", &cells.owner(), "USD", Minor::new(1_000_000)).await.unwrap();
    let mut present = cells.target.pool().acquire().await.unwrap();
    set_at_once(&mut left, tenant, ("EUR", OLD), LETTER).await.unwrap();
    keep_for(&cells.source, tenant, Strategy::Scheduled).await;
    let before = request(&mut left, tenant, ("EUR", NEW), BY).await.unwrap().approval;
    cells.decide().await;
    let progress = cells.run().await.unwrap();
    assert_eq!(progress.redirected_orders, 0);

    // It was requested for all orders of the partner, which it would not change any more.
    let late = approve(&mut left, &before.id, "kim", "").await;
    assert!(matches!(late, Err(ApprovalError::Instruction(InstructionError::OtherCell))), "{late:?}");
    let other = request(&mut left, tenant, ("USD", NEW), BY).await;
    assert!(matches!(&other, Err(InstructionError::Elsewhere(cell)) if cell == "00b"), "{other:?}");
    for at in [&cells.source, &cells.target] {
        assert_eq!(account(at, tenant).await.as_deref(), Some(OLD));
    }
    deny(&mut left, &before.id, "kim", "it has moved").await.unwrap();

    // The present cell does not stop what waits in the other one, and the move says so.
    assert_eq!(set_at_once(&mut present, tenant, ("EUR", NEW), LETTER).await.unwrap(), None);
    assert_eq!(cells.run().await.unwrap().redirected_orders, 1);
    let again = request(&mut left, tenant, ("EUR", NEW), BY).await.unwrap().approval;
    assert_eq!(again.details["waitingOnly"], json!("00b"));
    // While the move is unfinished, nothing is changed that it may copy or not.
    let moving = async |state: &'static str| {
        let state = sqlx::query("update partner_move set state = $1").bind(state);
        state.execute(cells.source.pool()).await.unwrap();
    };
    moving("closed").await;
    let unfinished = approve(&mut left, &again.id, "kim", "").await;
    assert!(
        matches!(&unfinished, Err(ApprovalError::Instruction(InstructionError::Moving(cell))) if cell == "00b"),
        "{unfinished:?}"
    );
    moving("moved").await;
    approve(&mut left, &again.id, "kim", "").await.unwrap();
    assert_eq!(cells.run().await.unwrap().redirected_orders, 0);
    assert_eq!(turns(&cells.source.engine).await.unwrap(), 1);
    let ended =
        "select count(*) from legacy_intent where stage = 'rejected' and code = 'CONSTRAINTS_NOT_MET'";
    assert_eq!(cells.source.count(ended).await, 1);
    let at_once = set_at_once(&mut left, tenant, ("EUR", OLD), LETTER).await.unwrap();
    assert_eq!(at_once.as_deref(), Some("00b"));
}
