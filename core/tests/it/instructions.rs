//! Standing instructions: each change is in the audit log, and a live one takes two operators.

use dvp_core::operators::approvals::{ApprovalError, approve};
use dvp_core::operators::instructions::{InstructionError, request, set_at_once};
use dvp_core::operators::requests::{ChangeError, Maker, RequestedChange};
use dvp_domain::address::OwnContracts;
use dvp_store::operators::audit::list;
use dvp_store::orders::intents::Tenant;
use dvp_store::orders::legacy::find_instruction;
use dvp_testing::Harness;
use dvp_testing::market::ESCROW;
use serde_json::{Value, json};

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
    request(&mut conn, &live(harness), ("EUR", account), BY, &OwnContracts::default()).await.unwrap()
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
async fn an_output_cannot_go_where_nobody_could_spend_it() {
    let harness = scenes::harness().await;
    let contracts = harness.engine.context().chains.contracts();
    let mut conn = harness.pool().acquire().await.unwrap();
    for (account, fault) in [
        (format!("0x{:040x}", 0), "is the zero address"),
        (ESCROW.to_owned(), "is the escrow of anvil"),
        ("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD".to_owned(), "has a wrong checksum"),
    ] {
        let to = ("USDC", account.as_str());
        let at_once = set_at_once(&mut conn, &harness.tenant, to, LETTER, contracts).await.unwrap_err();
        let requested = request(&mut conn, &harness.tenant, to, BY, contracts).await.unwrap_err();
        for error in [at_once, requested] {
            assert!(error.to_string().starts_with(&format!("the account {account} {fault}")), "{error}");
        }
    }
}

#[tokio::test]
async fn a_change_is_in_the_audit_log_with_what_it_replaced() {
    let harness = scenes::harness().await;
    let mut conn = harness.pool().acquire().await.unwrap();
    for account in ["bene_a:dest_1", "bene_a:dest_1", "bene_b:dest_2"] {
        set_at_once(&mut conn, &harness.tenant, ("EUR", account), LETTER, &OwnContracts::default())
            .await
            .unwrap();
    }
    let nobody = set_at_once(
        &mut conn,
        &harness.tenant,
        ("EUR", "bene_c:dest_3"),
        ("jo", " "),
        &OwnContracts::default(),
    )
    .await;
    assert!(matches!(nobody, Err(InstructionError::NoReason)), "{nobody:?}");
    assert_eq!(
        entries(&harness).await,
        [
            [json!("bene_a:dest_1"), json!(null), json!("jo"), json!(null)],
            [json!("bene_b:dest_2"), json!("bene_a:dest_1"), json!("jo"), json!(null)],
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
    let alone =
        set_at_once(&mut conn, &tenant, ("EUR", "bene_a:dest_1"), LETTER, &OwnContracts::default()).await;
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
    harness.run("update settlement_instruction set account = 'bene_d:dest_4'").await;
    let late = approve(&mut conn, &second, "kim", "seen").await;
    let is_moved =
        matches!(late, Err(ApprovalError::Instruction(InstructionError::Change(ChangeError::Moved))));
    assert!(is_moved, "{late:?}");
    assert_eq!(present(&harness, &live(&harness)).await.as_deref(), Some("bene_d:dest_4"));
}
