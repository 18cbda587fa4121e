//! Preimages and the rotation of the master key.

use dvp_core::operators::rotation::{self, Usage};
use dvp_core::secrets::{MasterKey, Vault};

use crate::scenes;
use dvp_testing::Harness;

fn master_key(id: &str, byte: u8) -> MasterKey {
    MasterKey { id: id.to_owned(), key: [byte; 32] }
}

/// The number of rows of the database that contain these bytes.
async fn rows_with(harness: &Harness, bytes: &[u8]) -> i64 {
    let tables: Vec<String> =
        sqlx::query_scalar("select tablename::text from pg_tables where schemaname = 'public'")
            .fetch_all(harness.pool())
            .await
            .unwrap();
    let mut found = 0;
    for table in tables {
        // The names are the schema's own.
        let count = sqlx::AssertSqlSafe(format!(
            "select count(*) from {table} t where t::text ilike '%' || $1 || '%'"
        ));
        let rows: i64 =
            sqlx::query_scalar(count).bind(hex::encode(bytes)).fetch_one(harness.pool()).await.unwrap();
        found += rows;
    }
    found
}

fn uses(usage: &Usage, key: &str, what: &str) -> u64 {
    usage.get(key).and_then(|uses| uses.get(what)).copied().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orders_preimage_is_in_no_row_and_needs_its_key_until_settled() {
    let (harness, reference) = scenes::played("000123456789", "fill", "releasing").await;
    harness.command(&reference, "settle").await;
    let old = &harness.engine.context().vault;
    let preimage = old.preimage(&reference, &old.hashlock(&reference)).unwrap();
    assert_eq!(rows_with(&harness, &preimage).await, 0);

    let rotated = Vault::with_keys(vec![master_key("2026", 9), master_key("1", 7)]).unwrap();
    let mut conn = harness.pool().acquire().await.unwrap();
    let usage = rotation::usage(&mut conn, &rotated).await.unwrap();
    assert_eq!(uses(&usage, "1", "live executions"), 1);
    harness.play_chain(&reference).await;
    harness.wait_for_state(&reference, "completed").await;
    harness.run("update chain_command set state = 'done'").await;
    let usage = rotation::usage(&mut conn, &rotated).await.unwrap();
    assert_eq!(uses(&usage, "1", "live executions"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_of_an_earlier_key_are_reencrypted_and_account_hashes_stay() {
    let harness = scenes::harness().await;
    let old = Vault::with_keys(vec![master_key("1", 7)]).unwrap();
    let both = || Vault::with_keys(vec![master_key("2026", 9), master_key("1", 7)]).unwrap();
    let mut conn = harness.pool().acquire().await.unwrap();
    let before = rotation::with_kept_secrets(&mut conn, old.clone()).await.unwrap();
    let partner = &harness.tenant.partner_id;
    let issued = dvp_core::operators::keys::issue(
        &mut conn,
        &old,
        partner,
        dvp_domain::environment::Environment::Test,
        &[],
    )
    .await
    .unwrap();

    let vault = rotation::with_kept_secrets(&mut conn, both()).await.unwrap();
    assert_eq!(vault.account_hash("a"), before.account_hash("a"));
    assert_eq!(rotation::reseal(&mut conn, &vault).await.unwrap(), 2);
    assert_eq!(rotation::reseal(&mut conn, &vault).await.unwrap(), 0);
    let usage = rotation::usage(&mut conn, &vault).await.unwrap();
    assert_eq!(uses(&usage, "2026", "signing secrets of API keys"), 1);
    assert_eq!(uses(&usage, "1", "signing secrets of API keys"), 0);
    assert_eq!(uses(&usage, "1", "API keys"), 1, "hashed anew when it is next used");

    let sealed: (Vec<u8>,) = harness.row("select sealed_secret from api_key").await;
    let new = Vault::with_keys(vec![master_key("2026", 9)]).unwrap();
    assert_eq!(new.open(&issued.key_id, &sealed.0).unwrap(), issued.signing_secret.as_bytes());
    let alone = rotation::with_kept_secrets(&mut conn, new).await.unwrap();
    assert_eq!(alone.account_hash("a"), before.account_hash("a"));
    assert!(
        rotation::with_kept_secrets(&mut conn, old).await.is_err(),
        "the earlier key alone opens nothing"
    );
}
