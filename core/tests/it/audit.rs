//! Operators' actions form a chain of hashes, whose head is anchored.

use dvp_core::workflow::audit::{AuditError, anchor, verify};
use dvp_domain::chain::ChainFact;
use dvp_domain::pause::Scope;
use dvp_store::operators::audit::{list, load_head};
use dvp_store::operators::pauses::{self, Decided};

use crate::scenes;
use dvp_testing::Harness;
use dvp_testing::market::ESCROW;
use dvp_testing::wait::wait_past_midnight;

const BY: Decided<'_> = Decided { operator: "jo", reason: "to be sure" };

async fn switch(harness: &Harness, target: &str) {
    let mut conn = harness.pool().acquire().await.unwrap();
    assert!(pauses::insert(&mut conn, Scope::Provider, target, BY).await.unwrap());
}

async fn found(harness: &Harness) -> Result<i64, AuditError> {
    let mut conn = harness.pool().acquire().await.unwrap();
    verify(&mut conn).await.map(|verified| verified.entries)
}

/// Changes the log as the database's owner could.
async fn tamper(harness: &Harness, sql: &'static str) {
    let mut tx = harness.pool().begin().await.unwrap();
    sqlx::query("set local session_replication_role = replica").execute(&mut *tx).await.unwrap();
    assert!(sqlx::query(sql).execute(&mut *tx).await.unwrap().rows_affected() > 0, "{sql}");
    tx.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_missing_or_rewritten_entry_is_found() {
    for (sql, wanted) in [
        (
            "update audit_entry set entry = replace(entry, 'jo', 'mo') where seq = (select seq - 1 from audit_head)",
            "does not match",
        ),
        (
            "update audit_entry set at = at + interval '1 second' where seq = (select seq - 1 from audit_head)",
            "does not match",
        ),
        ("delete from audit_entry where seq = (select seq - 1 from audit_head)", "is missing"),
        ("delete from audit_entry where seq = (select seq from audit_head)", "its head says"),
        ("update audit_entry set previous = sha256(previous) where seq = 2", "does not follow"),
    ] {
        let harness = scenes::harness().await;
        let before = found(&harness).await.unwrap();
        for target in ["north", "south", "east"] {
            switch(&harness, target).await;
        }
        assert_eq!(found(&harness).await.unwrap(), before + 3);
        tamper(&harness, sql).await;
        let why = found(&harness).await.unwrap_err().to_string();
        assert!(why.contains(wanted), "{sql}: {why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_entries_follow_each_other_and_cannot_be_changed() {
    let harness = scenes::harness().await;
    let before = found(&harness).await.unwrap();
    let targets: Vec<String> = (0..24).map(|n| format!("lp{n}")).collect();
    let all = targets.iter().map(|target| switch(&harness, target));
    futures_util::future::join_all(all).await;
    assert_eq!(found(&harness).await.unwrap(), before + 24);
    let mut conn = harness.pool().acquire().await.unwrap();
    let entries = list(&mut conn, before, 100).await.unwrap();
    assert!(
        entries.iter().all(|row| row.source == "pause_change" && row.entry.contains("\"operator\": \"jo\""))
    );
    for sql in [
        "update audit_entry set entry = ''",
        "delete from audit_entry",
        "truncate audit_entry",
        "delete from audit_head",
    ] {
        assert!(sqlx::query(sql).execute(harness.pool()).await.is_err(), "{sql}");
    }
    let (keys,): (i64,) = harness
        .row("select count(*) from audit_entry where entry like '%sealed_secret%' or entry like '%_hash%'")
        .await;
    assert_eq!(keys, 0, "no secret is in the log");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_head_is_anchored_once_a_day_and_a_rewritten_log_is_found() {
    wait_past_midnight().await;
    let harness = scenes::harness().await;
    harness.start_workers();
    switch(&harness, "north").await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let head = load_head(&mut conn).await.unwrap();
    let anchored = anchor(&mut conn, 31337, ESCROW).await.unwrap().unwrap();
    assert_eq!((anchored.seq, &anchored.hash), (head.seq, &head.hash));
    switch(&harness, "south").await;
    assert_eq!(anchor(&mut conn, 31337, ESCROW).await.unwrap(), None, "today's was handed over");
    let requested = "select count(*) from chain_command where kind = 'anchor' and reference like 'audit:%'";
    assert_eq!(harness.count(requested).await, 1);
    harness.report_fact(&head.hash, &ChainFact::Anchored).await;
    let seen = "select count(*) from audit_anchor where tx_hash like '0x%'";
    harness.wait_for_count(seen, 1).await;
    let verified = verify(&mut conn).await.unwrap();
    assert_eq!((verified.anchored, verified.last_anchor.unwrap().seq), (1, head.seq));
    // Every hash is recomputed over changed rows: the chain has another head.
    tamper(&harness, "update audit_entry set entry = replace(entry, 'jo', 'mo')").await;
    let rewrite = "do $$ declare one record; last bytea := decode(repeat('00', 32), 'hex'); begin \
        set local session_replication_role = replica; \
        for one in select * from audit_entry order by seq loop \
            update audit_entry set previous = last, hash = sha256(last || convert_to(audit_text(seq, at, source, entry), 'UTF8')) \
            where seq = one.seq returning hash into last; \
        end loop; update audit_head set hash = last; end $$";
    harness.run(rewrite).await;
    let why = verify(&mut conn).await.unwrap_err();
    assert!(matches!(why, AuditError::Anchor(seq) if seq == head.seq), "{why}");
}
