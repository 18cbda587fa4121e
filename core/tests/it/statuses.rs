//! Cached statuses are never older than a change reported by any process.

use std::time::Duration;

use dvp_core::engine::{CancelOutcome, Engine};
use dvp_store::orders::executions::RefType;
use dvp_store::orders::intents::Tenant;
use serde_json::Value;
use sqlx::AssertSqlSafe;
use tokio::time::timeout;

use crate::scenes::{self, engines};
use dvp_testing::Harness;
use dvp_testing::orders::order;
use dvp_testing::wait::wait_for;

async fn ask(engine: &Engine, tenant: &Tenant, reference: &str) -> Option<Value> {
    let text = engine.execution_text(tenant, RefType::ExecutionId, reference).await.unwrap();
    text.map(|text| serde_json::from_slice(&text).unwrap())
}

async fn status(harness: &Harness, engine: &Engine, reference: &str) -> String {
    let view = ask(engine, &harness.tenant, reference).await.unwrap();
    view["status"].as_str().unwrap().to_owned()
}

/// Polls until the answer comes while the table cannot be read: then it is cached.
async fn kept(harness: &Harness, engine: &Engine, reference: &str) {
    wait_for("an answer from memory", || async {
        status(harness, engine, reference).await;
        let mut tx = harness.pool().begin().await.unwrap();
        sqlx::query("lock table execution in access exclusive mode").execute(&mut *tx).await.unwrap();
        let answer = ask(engine, &harness.tenant, reference);
        let answered = timeout(Duration::from_millis(100), answer).await.is_ok();
        tx.rollback().await.unwrap();
        answered.then_some(())
    })
    .await;
}

async fn cancel(harness: &Harness, engine: &Engine, reference: &str) {
    let done = engine.cancel(&harness.tenant, reference, None).await.unwrap();
    assert_eq!(done, CancelOutcome::Cancelled);
}

async fn by_hand(harness: &Harness, sql: String) {
    sqlx::query(AssertSqlSafe(sql)).execute(harness.pool()).await.unwrap();
}

#[tokio::test]
async fn a_cached_status_is_the_tenants_alone_and_equals_a_reading() {
    let harness = scenes::harness().await;
    let request = order("000123456789");
    let client = request.client_reference.clone().unwrap();
    let reference = harness.accept(request).await.reference;
    kept(&harness, &harness.engine, &reference).await;
    let read = harness.view(&reference).await;
    for (named, name) in [(RefType::ExecutionId, &reference), (RefType::ClientReference, &client)] {
        let kept = harness.engine.execution_text(&harness.tenant, named, name).await.unwrap().unwrap();
        assert_eq!(kept, serde_json::to_string(&read).unwrap());
        for (partner_id, livemode) in
            [("ptn_other".to_owned(), false), (harness.tenant.partner_id.clone(), true)]
        {
            let other = Tenant { partner_id, livemode };
            assert_eq!(harness.engine.execution_text(&other, named, name).await.unwrap(), None);
        }
    }
}

/// The feed and the tables show a change before its writer has received the acknowledgement of the commit.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_never_goes_back_behind_a_change_of_this_process() {
    let harness = scenes::harness().await;
    for _ in 0..20 {
        let reference = harness.accept(order("000123456789")).await.reference;
        kept(&harness, &harness.engine, &reference).await;
        let watched = async {
            loop {
                let seen = harness.state(&reference).await;
                let reported = status(&harness, &harness.engine, &reference).await;
                if seen == "cancelled" {
                    assert_eq!(reported, "failed");
                    return;
                }
            }
        };
        tokio::join!(watched, cancel(&harness, &harness.engine, &reference));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_process_notifies_its_changes() {
    let harness = scenes::harness().await;
    let others = engines(&harness, 2);
    for _ in 0..5 {
        let reference = harness.accept(order("000123456789")).await.reference;
        for engine in &others {
            kept(&harness, engine, &reference).await;
        }
        cancel(&harness, &harness.engine, &reference).await;
        for engine in &others {
            wait_for("the other process's change", || async {
                (status(&harness, engine, &reference).await == "failed").then_some(())
            })
            .await;
        }
    }
}

#[tokio::test]
async fn manual_changes_are_notified() {
    let harness = scenes::harness().await;
    let reference = harness.accept(order("000123456789")).await.reference;
    let moved = "occurred_at = occurred_at - interval '1 day'";
    let changes = [
        format!(
            "update execution set terms = jsonb_set(terms::jsonb, '{{request,client_reference}}', '\"x\"') \
                 where reference = '{reference}'"
        ),
        format!("update event set {moved} where reference = '{reference}'"),
        format!(
            "with gone as (delete from event where reference = '{reference}' returning *) \
                 insert into event_history select * from gone; \
                 update event_history set {moved} where reference = '{reference}'"
        ),
        format!("delete from event_history where reference = '{reference}'"),
    ];
    for change in changes {
        kept(&harness, &harness.engine, &reference).await;
        let before = ask(&harness.engine, &harness.tenant, &reference).await.unwrap();
        for statement in change.split("; ") {
            by_hand(&harness, statement.to_owned()).await;
        }
        wait_for(&change, || async {
            (ask(&harness.engine, &harness.tenant, &reference).await.unwrap() != before).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn many_concurrent_changes_are_all_notified() {
    let harness = scenes::harness().await;
    let mut references = Vec::new();
    for _ in 0..200 {
        references.push(harness.accept(order("000123456789")).await.reference);
    }
    for reference in &references {
        kept(&harness, &harness.engine, reference).await;
    }
    by_hand(
        &harness,
        "update execution set state_name = 'cancelled', state = '{\"state\": \"cancelled\"}'".into(),
    )
    .await;
    for reference in &references {
        wait_for("a change by hand", || async {
            (status(&harness, &harness.engine, reference).await == "failed").then_some(())
        })
        .await;
    }
}

/// Notifications may arrive, but without proof: the cache is not used.
#[tokio::test]
async fn a_lost_heartbeat_has_the_effect_of_a_lost_listener() {
    let harness = scenes::harness().await;
    let reference = harness.accept(order("000123456789")).await.reference;
    kept(&harness, &harness.engine, &reference).await;
    let ended = "select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity \
                 where datname = current_database() and pid <> pg_backend_pid() and query like '%pg_notify($1, $2)%'";
    assert_eq!(harness.count(ended).await, 1);
    let changed = "update execution set state_name = 'cancelled', state = '{\"state\": \"cancelled\"}'";
    by_hand(&harness, changed.to_owned()).await;
    wait_for("the change", || async {
        (status(&harness, &harness.engine, &reference).await == "failed").then_some(())
    })
    .await;
    kept(&harness, &harness.engine, &reference).await;
}

/// The change is not notified: cached statuses are not used any more, and are cached again after the listener
/// reconnects.
#[tokio::test]
async fn a_lost_listener_leaves_no_stale_answer() {
    let harness = scenes::harness().await;
    let reference = harness.accept(order("000123456789")).await.reference;
    kept(&harness, &harness.engine, &reference).await;
    let end_and_change = format!(
        "with ended as (select pg_terminate_backend(pid, 5000) from pg_stat_activity \
                        where datname = current_database() and pid <> pg_backend_pid() and query like 'LISTEN \"dvp_execution\"%') \
         update execution set state_name = 'cancelled', state = '{{\"state\": \"cancelled\"}}' \
         where reference = '{reference}' and (select count(*) from ended) = 1"
    );
    let changed = sqlx::query(AssertSqlSafe(end_and_change)).execute(harness.pool()).await.unwrap();
    assert_eq!(changed.rows_affected(), 1);
    wait_for("the change nobody told", || async {
        (status(&harness, &harness.engine, &reference).await == "failed").then_some(())
    })
    .await;
    kept(&harness, &harness.engine, &reference).await;
    assert_eq!(status(&harness, &harness.engine, &reference).await, "failed");
}
