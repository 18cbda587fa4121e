//! Anchors of receipts: anybody can make one, and only those of the relayer accounts count.

use crate::support::{Chain, Running, Scene, anchor, until};
use alloy::primitives::B256;
use dvp_chain_indexer::anchors::find_anchors;
use dvp_store::orders::receipts;

const HASH: B256 = B256::repeat_byte(0x77);

#[tokio::test]
async fn an_anchor_has_its_submitter_and_whether_it_is_final() {
    let scene = Scene::new().await;
    let (url, at) = (scene.node.rpc_url(), scene.deployment.anchor);
    for by in [&scene.maker, &scene.relayer] {
        scene.anchor(by, 0x77).await;
    }
    let seen = find_anchors(&url, at, HASH, None, None).await.unwrap();
    let submitters: Vec<_> = seen.iter().map(|seen| seen.submitter).collect();
    assert_eq!(submitters, [scene.maker.address(), scene.relayer.address()], "the earliest first");
    assert!(!seen[1].is_final);
    for _ in 0..4 {
        scene.mine().await;
    }
    let tx = Some(seen[1].tx_hash);
    let one = find_anchors(&url, at, HASH, tx, None).await.unwrap();
    assert_eq!((one.len(), one[0].submitter, one[0].is_final), (1, scene.relayer.address(), true));
    let deep = find_anchors(&url, at, HASH, tx, Some(1_000)).await.unwrap();
    assert!(!deep[0].is_final, "by a depth of its own");
    assert!(find_anchors(&url, at, B256::ZERO, None, None).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_index_has_no_anchor_of_a_stranger() {
    let mut chain = Chain::new().await;
    chain.config.finality_margin = 0;
    chain.scene.anchor(&chain.scene.maker, 0x77).await;
    let _running = Running::start(&chain);
    until("the stranger's anchor is read", async || !chain.logs("Anchored").await.is_empty()).await;
    let find = async || {
        let mut conn = chain.pool().acquire().await.unwrap();
        receipts::find_anchor(&mut conn, HASH.as_slice()).await.unwrap()
    };
    assert_eq!(find().await, None);
    chain.command("receipt", anchor(0x77)).await;
    chain.state("receipt", "anchor", "done").await;
    chain.mined(8).await;
    let is_final = async || find().await.is_some_and(|anchor| anchor.is_final);
    chain.mined_until("the anchor is final", is_final).await;
}
