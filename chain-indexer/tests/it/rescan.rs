//! A chain that is read again: every stored event that is not the chain's is found, and nothing else; and missing events
//! are restored, once, by the word of two endpoints.

use crate::support::node::{Node, Reader};
use crate::support::{Chain, anchor};
use alloy::primitives::{B256, LogData};
use alloy::rpc::types::Log;
use dvp_chain_indexer::indexer::{
    DifferenceKind as Kind, IndexError, Rescan, RestoredBy, rescan, rescan_over,
};
use dvp_domain::chain::BlockNumber;

/// A chain with the anchors of three receipts of ours and of a stranger's, all read and final.
async fn read() -> Chain {
    let chain = Chain::new().await;
    let scene = &chain.scene;
    for byte in 1..=3 {
        chain.command(&format!("receipt {byte}"), anchor(byte)).await;
        scene.anchor(&scene.relayer, byte).await;
    }
    scene.anchor(&scene.maker, 4).await;
    chain.mined(200).await;
    Reader::new(&chain).await.read_to_the_head().await;
    chain
}

async fn again(chain: &Chain) -> Result<Rescan, IndexError> {
    rescan(&chain.pool(), &chain.config, (None, None), None, |_, _| ()).await
}

async fn run(chain: &Chain, statement: &'static str) {
    assert_eq!(chain.run(statement).await, 1, "{statement}");
}

/// Runs a statement for the one row about a receipt.
async fn change(chain: &Chain, statement: &str, byte: u8) {
    let statement = format!("{statement} where entity = decode(repeat('{byte:02}', 32), 'hex')");
    let done = sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&chain.pool()).await.unwrap();
    assert_eq!(done.rows_affected(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_changed_row_is_found_and_an_unchanged_database_agrees() {
    let mut chain = read().await;
    let found = again(&chain).await.unwrap();
    // The roles, receivers and caps of the deployment, and four anchors.
    assert!(found.events > 8 && found.to > BlockNumber(100), "{found:?}");
    assert_eq!((found.count, found.strangers, found.endpoints), (0, 0, 1), "{found:?}");

    // Retention deletes a stranger's anchor.
    let stranger =
        "delete from chain_log where event = 'Anchored' and entity = decode(repeat('04', 32), 'hex')";
    run(&chain, stranger).await;
    let found = again(&chain).await.unwrap();
    assert_eq!((found.count, found.strangers), (0, 1), "{found:?}");

    change(&chain, "delete from chain_log", 1).await;
    change(&chain, "update chain_log set tx_hash = decode(repeat('77', 32), 'hex')", 2).await;
    change(&chain, "update chain_log set block_hash = decode(repeat('66', 32), 'hex')", 3).await;
    let foreign = "insert into chain_log (chain_id, block_hash, log_index, block_number, block_time, tx_hash, contract, \
                   event, entity, seq) \
                   select chain_id, block_hash, 99, block_number, block_time, tx_hash, contract, \
                   'Filled', entity, 1000 from chain_log";
    change(&chain, foreign, 3).await;
    let found = again(&chain).await.unwrap();
    let kinds: Vec<(Kind, &str)> = found
        .differences
        .iter()
        .map(|one| (one.kind, one.detail.split([' ', ':']).next().unwrap()))
        .collect();
    let expected = [
        (Kind::Missing, "Anchored"),
        (Kind::Changed, "transaction"),
        (Kind::Changed, "block"),
        (Kind::Foreign, "Filled"),
    ];
    assert_eq!(kinds, expected, "{found:?}");
    assert_eq!(found.count, 4);

    // A range without them, and a second endpoint that agrees with the first.
    let before = found.differences[0].block;
    let part = (None, Some(BlockNumber(before.0 - 1)));
    let found = rescan(&chain.pool(), &chain.config, part, None, |_, _| ()).await.unwrap();
    assert_eq!((found.to, found.count), (BlockNumber(before.0 - 1), 0));
    chain.config.further_rpc_urls = vec![chain.scene.node.rpc_url()];
    let found = again(&chain).await.unwrap();
    assert_eq!((found.count, found.endpoints), (4, 2));

    // A first endpoint that is silent is left for the second; one of another chain ends it.
    chain.config.rpc_url = "http://127.0.0.1:1/".to_owned();
    assert_eq!(again(&chain).await.unwrap().count, 4);
    chain.config.chain_id = 5;
    run(&chain, "update chain_cursor set chain_id = 5").await;
    assert!(matches!(again(&chain).await, Err(IndexError::WrongChain { expected: 5, .. })));
}

const JO: Option<RestoredBy<'static>> = Some(RestoredBy { operator: "jo", reason: "rows were deleted" });

async fn restored(chain: &Chain) -> Result<Rescan, IndexError> {
    rescan(&chain.pool(), &chain.config, (None, None), JO, |_, _| ()).await
}

/// Every stored event but when it was observed.
const STORED: &str =
    "select jsonb_agg(to_jsonb(l) - 'observed_at' order by block_number, log_index) from chain_log l";

async fn stored(chain: &Chain) -> serde_json::Value {
    chain.one(STORED).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_event_is_restored_once_and_acted_upon_once() {
    let chain = read().await;
    let before = stored(&chain).await;
    assert_eq!(restored(&chain).await.unwrap().restored, [], "nothing is missing");
    // One was never acted upon: its fact is gone, and its command waits. One was.
    change(&chain, "delete from chain_log", 1).await;
    change(&chain, "delete from chain_fact", 1).await;
    change(&chain, "update chain_command set state = 'sent'", 1).await;
    change(&chain, "delete from chain_log", 2).await;
    change(&chain, "update chain_fact set consumed_at = now()", 2).await;
    let found = restored(&chain).await.unwrap();
    assert_eq!((found.count, found.restored.len()), (2, 2), "{found:?}");
    assert_eq!(stored(&chain).await, before);
    for byte in [1, 2] {
        assert_eq!(chain.facts(B256::repeat_byte(byte)).await.len(), 1);
    }
    chain.state("receipt 1", "anchor", "done").await;
    assert_eq!(chain.one::<i64>("select count(*) from chain_fact where consumed_at is not null").await, 1);
    let by = "select operator, sum(jsonb_array_length(evidence -> 'events'))::int from operator_action \
              where action = 'restore_events' and reference = 'chain:31337' group by operator";
    assert_eq!(chain.rows::<(String, i32)>(by).await, [("jo".to_owned(), 2)]);

    let actions = chain.one::<i64>("select count(*) from operator_action").await;
    let again = restored(&chain).await.unwrap();
    assert_eq!((again.count, again.restored.len()), (0, 0), "{again:?}");
    assert_eq!(stored(&chain).await, before);
    assert_eq!(chain.one::<i64>("select count(*) from chain_fact").await, 3);
    assert_eq!(chain.one::<i64>("select count(*) from operator_action").await, actions);
    // The indexer goes on.
    chain.mined(3).await;
    Reader::new(&chain).await.read_to_the_head().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_events_are_never_overwritten() {
    let chain = read().await;
    // The chain has it at another place, so that it is missing there and foreign here.
    change(&chain, "update chain_log set log_index = 77", 1).await;
    change(&chain, "update chain_log set tx_hash = decode(repeat('77', 32), 'hex')", 2).await;
    // An orphan that was changed stands at the place of the event.
    change(&chain, "update chain_log set canonical = false, fact = null", 3).await;
    let before = stored(&chain).await;
    let found = restored(&chain).await.unwrap();
    let kinds: Vec<Kind> = found.differences.iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [Kind::Missing, Kind::Foreign, Kind::Changed, Kind::Missing], "{found:?}");
    assert_eq!(found.restored, []);
    assert_eq!(stored(&chain).await, before);
    assert_eq!(chain.one::<i64>("select count(*) from operator_action").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_event_is_restored_on_a_halted_chain_or_before_anything_is_final() {
    let chain = read().await;
    change(&chain, "delete from chain_log", 1).await;
    run(
        &chain,
        "update chain_cursor set halted = 'final_block_changed', halted_detail = 'block 7', halted_at = now()",
    )
    .await;
    assert!(matches!(restored(&chain).await, Err(IndexError::Halted(_))));
    assert_eq!(again(&chain).await.unwrap().count, 1, "it is still compared");
    run(&chain, "update chain_cursor set halted = null, halted_detail = null, halted_at = null").await;
    run(&chain, "update chain_cursor set final_number = 0").await;
    let found = restored(&chain).await.unwrap();
    assert_eq!((found.last_final, found.count, found.restored.len()), (None, 0, 0), "{found:?}");
    assert!(found.to < found.from);
}

fn is_anchor(log: &Log, byte: u8) -> bool {
    log.topics().get(1) == Some(&B256::repeat_byte(byte))
}

/// The third receipt's anchor once more, of another hash.
fn invents(logs: &mut Vec<Log>) {
    if let Some(log) = logs.iter().find(|log| is_anchor(log, 3)) {
        let mut invented = log.clone();
        let mut topics = log.topics().to_vec();
        topics[1] = B256::repeat_byte(9);
        let mut data = log.data().data.to_vec();
        *data.last_mut().unwrap() = 99;
        invented.inner.data = LogData::new_unchecked(topics, data.into());
        invented.log_index = log.log_index.map(|index| index + 40);
        logs.push(invented);
    }
}

fn omits(logs: &mut Vec<Log>) {
    logs.retain(|log| !is_anchor(log, 1));
}

/// The real event, with another number.
fn alters(logs: &mut [Log]) {
    for log in logs.iter_mut().filter(|log| is_anchor(log, 1)) {
        let mut data = log.data().data.to_vec();
        *data.last_mut().unwrap() = 99;
        log.inner.data = LogData::new_unchecked(log.topics().to_vec(), data.into());
    }
}

/// With endpoints that invent an event, or omit one, or are honest.
async fn restored_by(chain: &Chain, endpoints: &[fn(&mut Vec<Log>)]) -> Rescan {
    let lying = |lies: &fn(&mut Vec<Log>)| {
        let node = Node::of(chain);
        node.edit(*lies);
        node
    };
    let readers = endpoints.iter().map(lying).collect();
    rescan_over(&chain.pool(), &chain.config, readers, (None, None), JO, |_, _| ()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_endpoint_alone_restores_nothing_where_there_are_two() {
    let mut chain = read().await;
    let before = stored(&chain).await;
    type Lies = fn(&mut Vec<Log>);
    let honest: Lies = |_| ();
    let (invents, omits, alters): (Lies, Lies, Lies) = (invents, omits, |logs| alters(logs));
    for endpoints in [[invents, honest], [honest, invents]] {
        let found = restored_by(&chain, &endpoints).await;
        assert_eq!((found.count, found.restored.len()), (0, 0), "{found:?}");
    }
    assert_eq!(restored_by(&chain, &[invents]).await.restored.len(), 1, "it is seen when it is alone");
    change(&chain, "delete from chain_log", 9).await;
    assert_eq!(stored(&chain).await, before);

    // A real event that is missing, which only one has, or has alike.
    change(&chain, "delete from chain_log", 1).await;
    for endpoints in [[omits, honest], [honest, omits], [alters, honest], [honest, alters]] {
        assert_eq!(restored_by(&chain, &endpoints).await.restored, []);
    }
    chain.config.further_rpc_urls = vec!["http://127.0.0.1:1/".to_owned()];
    let error = restored(&chain).await.unwrap_err();
    assert!(matches!(error, IndexError::OneWitness { answering: 1, configured: 2 }), "{error}");
    chain.config.further_rpc_urls = vec![chain.scene.node.rpc_url()];
    assert_eq!(restored(&chain).await.unwrap().restored.len(), 1);
    assert_eq!(stored(&chain).await, before);
}
