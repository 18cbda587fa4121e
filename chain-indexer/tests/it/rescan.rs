//! A chain that is read again: every stored event that is not the chain's is found, and nothing else.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use crate::support::{Chain, Scene};
use alloy::primitives::B256;
use dvp_chain_indexer::contracts::anchor::ReceiptAnchor;
use dvp_chain_indexer::indexer::{DifferenceKind as Kind, IndexError, Indexer, Rescan, Step, rescan};
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
    rescan(&chain.pool(), &chain.config, (None, None), |_, _| ()).await
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
    let found = rescan(&chain.pool(), &chain.config, part, |_, _| ()).await.unwrap();
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
