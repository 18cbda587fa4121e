//! Ranges are written in bulk with the same result as single blocks; facts are published for entities with commands.

use alloy::primitives::{Address, B256, keccak256};
use dvp_domain::chain::{BlockNumber, CommandKind};
use dvp_sandbox::embedded::TestDatabase;
use dvp_store::PgPool;
use dvp_store::chain::{self as store, BlockRow, Cursor, LogRow, NewSlot};
use serde_json::{Value, json};

const CONTRACT: Address = Address::repeat_byte(0xc0);
const ENTITY: B256 = B256::repeat_byte(0xe0);

fn block(number: u64) -> BlockRow {
    let hash = |number: u64| keccak256(number.to_be_bytes());
    let timestamp = 1_700_000_000 + number;
    BlockRow {
        number: BlockNumber(number),
        hash: hash(number),
        parent: hash(number - 1),
        timestamp,
        verified_by: "range",
    }
}

fn log(number: u64, fact: Option<Value>) -> LogRow {
    LogRow {
        block_hash: block(number).hash,
        log_index: 7,
        block_number: BlockNumber(number),
        timestamp: block(number).timestamp,
        tx_hash: B256::repeat_byte(1),
        contract: CONTRACT,
        event: "Created",
        entity: ENTITY,
        seq: number,
        fact,
        deposit: (number == 2).then(|| json!({"depositor": "0x01", "total": "7"})),
    }
}

fn logs() -> Vec<LogRow> {
    let created =
        json!({"kind": "created", "timelock": u64::MAX, "amount": "340282366920938463463374607431768211455"});
    let odd = json!({"kind": "created", "timelock": 0, "amount": "\"\\ ü\u{1f600}\n"});
    vec![log(1, Some(created)), log(2, None), log(3, Some(odd))]
}

/// A chain's first block, read.
async fn begin(pool: &PgPool, chain_id: u64) -> Cursor {
    let start = Cursor {
        chain_id,
        head_number: BlockNumber(0),
        head_hash: keccak256(0_u64.to_be_bytes()),
        final_number: BlockNumber(0),
        facts_number: BlockNumber(0),
        version: 0,
        halted: None,
    };
    let first = BlockRow {
        number: BlockNumber(0),
        hash: start.head_hash,
        parent: B256::ZERO,
        timestamp: 0,
        verified_by: "start",
    };
    let mut tx = pool.begin().await.unwrap();
    store::insert_cursor(&mut tx, &start, &first).await.unwrap();
    tx.commit().await.unwrap();
    start
}

async fn record(pool: &PgPool, from: &Cursor, blocks: &[BlockRow], logs: &[LogRow]) -> Cursor {
    let last = blocks.last().unwrap();
    let to =
        Cursor { head_number: last.number, head_hash: last.hash, facts_number: last.number, ..from.clone() };
    let mut tx = pool.begin().await.unwrap();
    store::record_blocks(&mut tx, from, &to, blocks, logs).await.unwrap();
    tx.commit().await.unwrap();
    Cursor { version: from.version + 1, ..to }
}

async fn kept(pool: &PgPool, chain_id: i64) -> Vec<Value> {
    let rows = "select to_jsonb(log) - 'chain_id' - 'observed_at' from chain_log log where chain_id = $1
                order by block_number, log_index";
    sqlx::query_scalar(rows).bind(chain_id).fetch_all(pool).await.unwrap()
}

#[tokio::test]
async fn a_range_is_stored_like_its_blocks_one_by_one() {
    let database = TestDatabase::create().await;
    let pool = database.pool();
    let start = begin(pool, 1).await;
    record(pool, &start, &[1, 2, 3].map(block), &logs()).await;
    let mut cursor = begin(pool, 2).await;
    for (number, log) in (1..=3).zip(logs()) {
        cursor = record(pool, &cursor, &[block(number)], &[log]).await;
    }
    let (bulk, single) = (kept(pool, 1).await, kept(pool, 2).await);
    assert_eq!(bulk, single);
    assert_eq!((bulk.len(), &bulk[1]["fact"]), (3, &Value::Null));
    assert_eq!(bulk[0]["block_time"], json!("2023-11-14T22:13:21+00:00"));
}

#[tokio::test]
async fn a_range_that_was_reverted_and_returns_is_canonical_again() {
    let database = TestDatabase::create().await;
    let pool = database.pool();
    let start = begin(pool, 1).await;
    let there = record(pool, &start, &[1, 2, 3].map(block), &logs()).await;
    let before = kept(pool, 1).await;
    let mut tx = pool.begin().await.unwrap();
    store::unwind_to(&mut tx, &there, BlockNumber(0), start.head_hash).await.unwrap();
    tx.commit().await.unwrap();
    assert!(kept(pool, 1).await.iter().all(|row| row["canonical"] == json!(false)));
    let back = Cursor { version: there.version + 1, ..start };
    record(pool, &back, &[1, 2, 3].map(block), &logs()).await;
    assert_eq!(kept(pool, 1).await, before);
}

/// The transaction's block was reverted and it is in another one now, which the relayer has not noticed yet.
#[tokio::test]
async fn a_moved_transaction_keeps_its_command_when_the_event_is_reverted() {
    let database = TestDatabase::create().await;
    let pool = database.pool();
    let start = begin(pool, 1).await;
    let id: i64 = sqlx::query_scalar(
        "insert into chain_command (chain_id, reference, intent_id, entity, escrow, kind, payload)
         values (1, 'r', 'i', $1, decode(repeat('00', 20), 'hex'), 'anchor', '{}') returning id",
    )
    .bind(ENTITY.as_slice())
    .fetch_one(pool)
    .await
    .unwrap();
    let signer = Address::repeat_byte(0xa1);
    let mut tx = pool.begin().await.unwrap();
    let nonce = store::reserve_nonce(&mut tx, 1, signer, 0).await.unwrap();
    let slot = NewSlot { nonce, kind: Some(CommandKind::Anchor), gas: 1, commands: &[id] };
    assert!(store::insert_slot(&mut tx, 1, signer, slot).await.unwrap());
    let gone = (BlockNumber(1), B256::repeat_byte(0xdd));
    store::mark_mined(&mut tx, 1, signer, nonce, gone, true, false).await.unwrap();
    tx.commit().await.unwrap();

    let anchored = log(3, Some(json!({"kind": "anchored"})));
    let there = record(pool, &start, &[1, 2, 3].map(block), &[anchored]).await;
    let mut tx = pool.begin().await.unwrap();
    store::publish_events(&mut tx, 1, BlockNumber(0), BlockNumber(3)).await.unwrap();
    let state: String =
        sqlx::query_scalar("select state from chain_command").fetch_one(&mut *tx).await.unwrap();
    assert_eq!(state, "done");
    store::unwind_to(&mut tx, &there, BlockNumber(2), block(2).hash).await.unwrap();
    tx.commit().await.unwrap();
    let reported: (String, bool) = sqlx::query_as(
        "select state, live from chain_command join slot_command on command_id = id where id = $1",
    )
    .bind(id)
    .fetch_one(pool)
    .await
    .unwrap();
    assert_eq!(reported, ("sent".to_owned(), true));
}

#[tokio::test]
async fn an_event_without_a_command_becomes_a_fact_with_its_command() {
    let database = TestDatabase::create().await;
    let pool = database.pool();
    let start = begin(pool, 1).await;
    record(pool, &start, &[1, 2, 3].map(block), &logs()).await;
    let mut tx = pool.begin().await.unwrap();
    let reported = store::publish_events(&mut tx, 1, BlockNumber(0), BlockNumber(3)).await.unwrap();
    assert_eq!((reported.facts.len(), reported.foreign), (0, 2));
    assert_eq!(store::publish_late_events(&mut tx, 1).await.unwrap().len(), 0);
    sqlx::query(
        "insert into chain_command (chain_id, reference, intent_id, entity, escrow, kind, payload)
         values (1, 'restored', 'intent', $1, decode(repeat('00', 20), 'hex'), 'create', '{}')",
    )
    .bind(ENTITY.as_slice())
    .execute(&mut *tx)
    .await
    .unwrap();
    let late = store::publish_late_events(&mut tx, 1).await.unwrap();
    let reported: Vec<_> = late.iter().map(|fact| (fact.block_number.0, fact.reference.as_deref())).collect();
    assert_eq!(reported, [(1, Some("restored")), (3, Some("restored"))], "in the order of the chain");
    assert_eq!(store::publish_late_events(&mut tx, 1).await.unwrap().len(), 0, "once");
    let again = store::publish_events(&mut tx, 1, BlockNumber(0), BlockNumber(3)).await.unwrap();
    assert_eq!((again.facts.len(), again.foreign), (0, 0), "nor any other way");
    let state: String =
        sqlx::query_scalar("select state from chain_command").fetch_one(&mut *tx).await.unwrap();
    assert_eq!(state, "done");
    tx.commit().await.unwrap();
}
