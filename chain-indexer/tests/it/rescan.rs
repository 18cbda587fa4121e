//! A chain that is read again: every stored event that is not the chain's is found, and nothing else; and missing events
//! are restored, once, by the word of two endpoints.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use crate::support::{Chain, Scene};
use alloy::eips::BlockId;
use alloy::primitives::{Address, B256, LogData};
use alloy::rpc::types::{Filter, Log, TransactionReceipt};
use alloy::transports::TransportError;
use dvp_chain_indexer::contracts::anchor::ReceiptAnchor;
use dvp_chain_indexer::indexer::{
    DifferenceKind as Kind, IndexError, Indexer, Rescan, RestoredBy, Step, rescan, rescan_over,
};
use dvp_chain_indexer::reader::{ChainReader, HttpReader};
use dvp_chain_indexer::rpc::BlockHead;
use dvp_domain::chain::{BlockNumber, ChainCommand};

/// A chain with the anchors of three receipts of ours and of a stranger's, all read and final.
async fn read() -> Chain {
    let chain = Chain::new(Scene::new().await).await;
    let scene = &chain.scene;
    for byte in 1..=4 {
        let hash = B256::repeat_byte(byte);
        if byte < 4 {
            let command = ChainCommand::Anchor { content_hash: hash.to_string() };
            chain.command(&format!("receipt {byte}"), command).await;
        }
        let sender = if byte < 4 { &scene.relayer } else { &scene.maker };
        let call = ReceiptAnchor::anchorCall { contentHash: hash };
        assert!(scene.succeeds(sender, scene.deployment.anchor, &call).await);
    }
    chain.mined(200).await;
    let mut indexer = Indexer::new(chain.pool(), chain.config.clone()).unwrap();
    let lease = chain.lease("reader").await;
    while indexer.step(&lease).await.unwrap() != Step::Idle {}
    lease.release(&chain.pool()).await.unwrap();
    chain
}

async fn again(chain: &Chain) -> Result<Rescan, IndexError> {
    rescan(&chain.pool(), &chain.config, (None, None), None, |_, _| ()).await
}

async fn run(chain: &Chain, statement: &'static str) {
    let done = sqlx::query(statement).execute(&chain.pool()).await.unwrap();
    assert_eq!(done.rows_affected(), 1, "{statement}");
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

    run(&chain, "delete from chain_log where entity = decode(repeat('01', 32), 'hex')").await;
    run(
        &chain,
        "update chain_log set tx_hash = decode(repeat('77', 32), 'hex') \
         where entity = decode(repeat('02', 32), 'hex')",
    )
    .await;
    run(
        &chain,
        "update chain_log set block_hash = decode(repeat('66', 32), 'hex') \
         where entity = decode(repeat('03', 32), 'hex')",
    )
    .await;
    run(
        &chain,
        "insert into chain_log (chain_id, block_hash, log_index, block_number, block_time, tx_hash, contract, event, \
                                entity, seq) \
         select chain_id, block_hash, 99, block_number, block_time, tx_hash, contract, 'Filled', entity, 1000 \
         from chain_log where entity = decode(repeat('03', 32), 'hex')",
    )
    .await;
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
    sqlx::query("update chain_cursor set chain_id = 5").execute(&chain.pool()).await.unwrap();
    assert!(matches!(again(&chain).await, Err(IndexError::WrongChain { expected: 5, .. })));
}

const JO: Option<RestoredBy<'static>> = Some(RestoredBy { operator: "jo", reason: "rows were deleted" });

async fn restored(chain: &Chain) -> Result<Rescan, IndexError> {
    rescan(&chain.pool(), &chain.config, (None, None), JO, |_, _| ()).await
}

async fn count(chain: &Chain, statement: &'static str) -> i64 {
    sqlx::query_scalar(statement).fetch_one(&chain.pool()).await.unwrap()
}

/// Every stored event but when it was observed.
const STORED: &str =
    "select jsonb_agg(to_jsonb(l) - 'observed_at' order by block_number, log_index) from chain_log l";

async fn stored(chain: &Chain) -> serde_json::Value {
    sqlx::query_scalar(STORED).fetch_one(&chain.pool()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_event_is_restored_once_and_acted_upon_once() {
    let chain = read().await;
    let before = stored(&chain).await;
    assert_eq!(restored(&chain).await.unwrap().restored, [], "nothing is missing");
    // One was never acted upon: its fact is gone, and its command waits. One was.
    run(&chain, "delete from chain_log where entity = decode(repeat('01', 32), 'hex')").await;
    run(&chain, "delete from chain_fact where entity = decode(repeat('01', 32), 'hex')").await;
    run(&chain, "update chain_command set state = 'sent' where entity = decode(repeat('01', 32), 'hex')")
        .await;
    run(&chain, "delete from chain_log where entity = decode(repeat('02', 32), 'hex')").await;
    run(&chain, "update chain_fact set consumed_at = now() where entity = decode(repeat('02', 32), 'hex')")
        .await;
    let found = restored(&chain).await.unwrap();
    assert_eq!((found.count, found.restored.len()), (2, 2), "{found:?}");
    assert_eq!(stored(&chain).await, before);
    for byte in [1, 2] {
        assert_eq!(chain.facts(B256::repeat_byte(byte)).await.len(), 1);
    }
    chain.state("receipt 1", "anchor", "done").await;
    assert_eq!(count(&chain, "select count(*) from chain_fact where consumed_at is not null").await, 1);
    let (operator, events): (String, i32) = sqlx::query_as(
        "select operator, sum(jsonb_array_length(evidence -> 'events'))::int from operator_action \
         where action = 'restore_events' and reference = 'chain:31337' group by operator",
    )
    .fetch_one(&chain.pool())
    .await
    .unwrap();
    assert_eq!((operator.as_str(), events), ("jo", 2));

    let actions = count(&chain, "select count(*) from operator_action").await;
    let again = restored(&chain).await.unwrap();
    assert_eq!((again.count, again.restored.len()), (0, 0), "{again:?}");
    assert_eq!(stored(&chain).await, before);
    assert_eq!(count(&chain, "select count(*) from chain_fact").await, 3);
    assert_eq!(count(&chain, "select count(*) from operator_action").await, actions);
    // The indexer goes on.
    chain.mined(3).await;
    let mut indexer = Indexer::new(chain.pool(), chain.config.clone()).unwrap();
    let lease = chain.lease("reader").await;
    while indexer.step(&lease).await.unwrap() != Step::Idle {}
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_events_are_never_overwritten() {
    let chain = read().await;
    // The chain has it at another place, so that it is missing there and foreign here.
    run(&chain, "update chain_log set log_index = 77 where entity = decode(repeat('01', 32), 'hex')").await;
    run(
        &chain,
        "update chain_log set tx_hash = decode(repeat('77', 32), 'hex') where entity = decode(repeat('02', 32), 'hex')",
    )
    .await;
    // An orphan that was changed stands at the place of the event.
    run(
        &chain,
        "update chain_log set canonical = false, fact = null where entity = decode(repeat('03', 32), 'hex')",
    )
    .await;
    let before = stored(&chain).await;
    let found = restored(&chain).await.unwrap();
    let kinds: Vec<Kind> = found.differences.iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [Kind::Missing, Kind::Foreign, Kind::Changed, Kind::Missing], "{found:?}");
    assert_eq!(found.restored, []);
    assert_eq!(stored(&chain).await, before);
    assert_eq!(count(&chain, "select count(*) from operator_action").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_event_is_restored_on_a_halted_chain_or_before_anything_is_final() {
    let chain = read().await;
    run(&chain, "delete from chain_log where entity = decode(repeat('01', 32), 'hex')").await;
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

/// What an endpoint makes of a node's logs.
type Lies = fn(Vec<Log>) -> Vec<Log>;

/// An endpoint that invents an event, or omits one.
struct Liar {
    inner: HttpReader,
    lies: Lies,
}

impl ChainReader for Liar {
    async fn chain_id(&self) -> Result<u64, TransportError> {
        self.inner.chain_id().await
    }

    async fn block(&self, id: BlockId) -> Result<Option<BlockHead>, TransportError> {
        self.inner.block(id).await
    }

    async fn blocks(&self, numbers: &[BlockNumber]) -> Result<Vec<Option<BlockHead>>, TransportError> {
        self.inner.blocks(numbers).await
    }

    async fn logs(&self, filter: &Filter) -> Result<Vec<Log>, TransportError> {
        Ok((self.lies)(self.inner.logs(filter).await?))
    }

    async fn seq(&self, contract: Address, at: B256) -> Result<u64, TransportError> {
        self.inner.seq(contract, at).await
    }

    async fn receipts(&self, block: B256) -> Result<Option<Vec<TransactionReceipt>>, TransportError> {
        self.inner.receipts(block).await
    }
}

fn is_anchor(log: &Log, byte: u8) -> bool {
    log.topics().get(1) == Some(&B256::repeat_byte(byte))
}

/// The third receipt's anchor once more, of another hash.
fn invents(mut logs: Vec<Log>) -> Vec<Log> {
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
    logs
}

fn omits(mut logs: Vec<Log>) -> Vec<Log> {
    logs.retain(|log| !is_anchor(log, 1));
    logs
}

/// The real event, with another number.
fn alters(mut logs: Vec<Log>) -> Vec<Log> {
    for log in logs.iter_mut().filter(|log| is_anchor(log, 1)) {
        let mut data = log.data().data.to_vec();
        *data.last_mut().unwrap() = 99;
        log.inner.data = LogData::new_unchecked(log.topics().to_vec(), data.into());
    }
    logs
}

async fn restored_by(chain: &Chain, endpoints: &[Lies]) -> Rescan {
    let inner = || HttpReader::new(&chain.scene.node.rpc_url()).unwrap();
    let readers = endpoints.iter().map(|&lies| Liar { inner: inner(), lies }).collect();
    rescan_over(&chain.pool(), &chain.config, readers, (None, None), JO, |_, _| ()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_endpoint_alone_restores_nothing_where_there_are_two() {
    let mut chain = read().await;
    let before = stored(&chain).await;
    for endpoints in [[invents as Lies, |logs| logs], [|logs| logs, invents]] {
        let found = restored_by(&chain, &endpoints).await;
        assert_eq!((found.count, found.restored.len()), (0, 0), "{found:?}");
    }
    assert_eq!(
        restored_by(&chain, &[invents as Lies]).await.restored.len(),
        1,
        "it is seen when it is alone"
    );
    run(&chain, "delete from chain_log where entity = decode(repeat('09', 32), 'hex')").await;
    assert_eq!(stored(&chain).await, before);

    // A real event that is missing, which only one has, or has alike.
    run(&chain, "delete from chain_log where entity = decode(repeat('01', 32), 'hex')").await;
    for endpoints in
        [[omits as Lies, |logs| logs], [|logs| logs, omits], [alters, |logs| logs], [|logs| logs, alters]]
    {
        assert_eq!(restored_by(&chain, &endpoints).await.restored, []);
    }
    chain.config.further_rpc_urls = vec!["http://127.0.0.1:1/".to_owned()];
    let error = restored(&chain).await.unwrap_err();
    assert!(matches!(error, IndexError::OneWitness { answering: 1, configured: 2 }), "{error}");
    chain.config.further_rpc_urls = vec![chain.scene.node.rpc_url()];
    assert_eq!(restored(&chain).await.unwrap().restored.len(), 1);
    assert_eq!(stored(&chain).await, before);
}
