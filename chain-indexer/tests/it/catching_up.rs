//! Blocks that wait are read together, also when some of them cannot be.

use crate::support::Chain;
use crate::support::node::{Node, Reader};
use dvp_chain_indexer::indexer::Step;
use dvp_chain_indexer::rpc;

/// Steps until the head, and the position after each.
async fn steps(chain: &Chain, reader: &mut Reader) -> Vec<u64> {
    let mut positions = Vec::new();
    while reader.step().await.unwrap() != Step::Idle {
        positions.push(chain.cursor().await.unwrap().head_number.0);
    }
    positions
}

async fn stored(chain: &Chain) -> i64 {
    chain.one("select count(*) from chain_log where canonical and event = 'Anchored'").await
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_that_wait_are_read_in_few_steps_and_a_doubtful_one_alone() {
    let mut chain = Chain::new().await;
    chain.config.finality_margin = 1_000;
    let node = Node::of(&chain);
    let mut reader = Reader::over(&chain, std::slice::from_ref(&node)).await;
    steps(&chain, &mut reader).await;
    let head = async || rpc::head(&chain.scene.provider).await.unwrap().number.0;

    let before = head().await;
    for byte in 1..=40 {
        chain.scene.anchor(&chain.scene.relayer, byte).await;
    }
    assert_eq!(steps(&chain, &mut reader).await, [before + 32, before + 40]);
    assert_eq!(stored(&chain).await, 40);

    // The tenth block's logs are lost: those before it are read, then it is, by its receipts, then the others.
    let before = head().await;
    for byte in 41..=60 {
        chain.scene.anchor(&chain.scene.relayer, byte).await;
    }
    node.edit(move |logs| logs.retain(|log| log.block_number != Some(before + 10)));
    assert_eq!(steps(&chain, &mut reader).await, [before + 9, before + 10, before + 20]);
    assert_eq!(stored(&chain).await, 60);
    let proven: Vec<(i64,)> =
        chain.rows("select number from chain_block where verified_by = 'receipts'").await;
    assert_eq!(proven, [((before + 10).cast_signed(),)]);

    // A node that does not have all of them yet.
    let before = head().await;
    for byte in 61..=64 {
        chain.scene.anchor(&chain.scene.relayer, byte).await;
    }
    node.wrong().ends_before = before + 3;
    assert_eq!(steps(&chain, &mut reader).await, [before + 2, before + 3, before + 4]);
    assert_eq!(stored(&chain).await, 64);
}
