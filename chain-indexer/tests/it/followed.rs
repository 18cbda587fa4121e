//! Following chains: notifications over a websocket, several processes, two chains side by side, and alarms.

use crate::support::node::Reader;
use crate::support::{Chain, Running, Scene, anchor, eventually, until};
use alloy::primitives::B256;
use dvp_chain_indexer::contracts::anchor::ReceiptAnchor;
use dvp_chain_indexer::indexer::{BackfillError, backfill};
use dvp_chain_indexer::{rpc, run_indexer};
use dvp_domain::chain::BlockNumber;
use dvp_store::chain as store;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// An awaited receipt, anchored.
async fn anchored(chain: &Chain, byte: u8) {
    chain.command(&format!("receipt {byte}"), anchor(byte)).await;
    chain.scene.anchor(&chain.scene.relayer, byte).await;
}

/// Whether a process owns the chain's lease, and its fence.
async fn lease_of_the_chain(chain: &Chain) -> (bool, i64) {
    sqlx::query_as("select expires_at > clock_timestamp(), fence from lease where name = $1")
        .bind(format!("indexer:{}", chain.config.chain_id))
        .fetch_optional(&chain.pool())
        .await
        .unwrap()
        .unwrap_or((false, 0))
}

/// Waits until the chain has an owner of this fence or a later one, and this owner has read a block that is mined now.
async fn followed_under(chain: &Chain, fence: i64) {
    until("the chain has an owner", async || {
        let (is_held, present) = lease_of_the_chain(chain).await;
        is_held && present >= fence
    })
    .await;
    chain.mined(1).await;
    let head = rpc::head(&chain.scene.provider).await.unwrap().number;
    let is_read = async || chain.cursor().await.is_some_and(|cursor| cursor.head_number >= head);
    until("the block is read", is_read).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_moves_to_another_process_when_its_owner_stops_or_dies() {
    let mut chain = Chain::new().await;
    chain.config.poll_interval = Duration::from_millis(50);
    let process = || {
        let shutdown = CancellationToken::new();
        (tokio::spawn(run_indexer(chain.pool(), chain.config.clone(), shutdown.clone())), shutdown)
    };
    let (first, stop_first) = process();
    followed_under(&chain, 1).await;
    let (second, _stop_second) = process();
    stop_first.cancel();
    first.await.unwrap().unwrap();
    // Released: it is free, or the other process has it already.
    let (is_held, fence) = lease_of_the_chain(&chain).await;
    assert!(!is_held || fence >= 2, "a stopped process holds the lease");
    followed_under(&chain, 2).await;
    let (third, stop_third) = process();
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    followed_under(&chain, 3).await;
    stop_third.cancel();
    third.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_notification_ends_the_wait_for_the_next_poll() {
    let mut chain = Chain::new().await;
    // Without a notification the next poll would come long after this test has failed.
    chain.config.poll_interval = Duration::from_secs(3_600);
    chain.config.ws_url = Some(chain.scene.node.ws_url());
    let _indexing = Running::indexer(&chain);
    for byte in 1..=3 {
        anchored(&chain, byte).await;
        until("the block is read", async || {
            // A block mined before the subscription exists causes no notification: the next one does.
            chain.mined(1).await;
            let head = rpc::head(&chain.scene.provider).await.unwrap().number;
            chain.cursor().await.is_some_and(|cursor| cursor.head_number + 1 >= head)
        })
        .await;
        chain.fact(B256::repeat_byte(byte), "anchored").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_chains_are_followed_side_by_side_and_never_mixed() {
    let one = Chain::new().await;
    let other = one.beside(Scene::on_chain(31_338).await);
    assert_ne!(one.config.chain_id, other.config.chain_id);
    let _running = [Running::start(&one), Running::start(&other)];
    let (first, second) = (one.scene.order(1).await, other.scene.order(2).await);
    one.command("one", one.scene.create_command(&first)).await;
    other.command("two", other.scene.create_command(&second)).await;
    // The same receipt on both chains.
    let hash = B256::repeat_byte(0x77);
    one.command("three", anchor(0x77)).await;
    other.command("four", anchor(0x77)).await;
    one.fact(first.id, "created").await;
    other.fact(second.id, "created").await;
    for (chain, reference) in [(&one, "three"), (&other, "four")] {
        chain.state(reference, "anchor", "done").await;
    }
    let seen = "select chain_id, entity, count(*) from chain_fact group by 1, 2 order by 1, 2";
    let seen: Vec<(i64, Vec<u8>, i64)> = one.rows(seen).await;
    let expected = [(31_337, first.id), (31_337, hash), (31_338, second.id), (31_338, hash)];
    let expected = expected.map(|(chain, entity)| (chain, entity.to_vec(), 1));
    assert_eq!(seen, expected, "each chain's own, once");
    // A reorganization of one chain does not affect the other.
    one.reorg(2).await;
    let orphans = "select count(*) from chain_block where chain_id = 31337 and not canonical";
    until("the reorg is seen", async || one.one::<i64>(orphans).await > 0).await;
    let orphans = "select count(*) from chain_block where chain_id = 31338 and not canonical";
    assert_eq!(one.one::<i64>(orphans).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backfill_reports_progress_and_is_refused_while_another_process_reads() {
    let mut chain = Chain::new().await;
    (chain.config.finality_margin, chain.config.range_margin) = (0, 0);
    for byte in 1..=4 {
        anchored(&chain, byte).await;
    }
    chain.mined(300).await;
    let lease = chain.lease(&format!("indexer:{}", chain.config.chain_id)).await;
    let stop = CancellationToken::new;
    let refused = backfill(chain.pool(), chain.config.clone(), |_| {}, stop()).await;
    assert!(matches!(refused, Err(BackfillError::Taken)), "{refused:?}");
    lease.release(&chain.pool()).await.unwrap();

    let mut reported = Vec::new();
    let done = backfill(chain.pool(), chain.config.clone(), |at| reported.push(*at), stop()).await.unwrap();
    let head = rpc::head(&chain.scene.provider).await.unwrap().number;
    // The grants of the deployment are numbered as well.
    let mut emitted = 0;
    for contract in [chain.config.deployment.settler, chain.config.deployment.payouts] {
        emitted += chain.scene.view(contract, ReceiptAnchor::seqCall {}).await;
    }
    assert_eq!((done.at, done.to, done.events), (head, head, emitted + 4));
    assert!(reported.len() > 1 && reported.is_sorted_by_key(|at| at.at), "{reported:?}");
    // Again, with nothing to do.
    let again = backfill(chain.pool(), chain.config.clone(), |_| {}, stop()).await.unwrap();
    assert_eq!((again.from, again.at, again.events), (head, head, 0));
}

async fn shown(chain: &Chain) -> Option<store::StatusRow> {
    let mut conn = chain.pool().acquire().await.unwrap();
    let shown = store::list_statuses(&mut conn).await.unwrap();
    shown.into_iter().find(|row| row.chain_id == chain.config.chain_id)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_without_new_blocks_for_too_long_is_reported_as_stalled() {
    let mut chain = Chain::new().await;
    chain.config.stalled_after = Some(Duration::from_secs(1));
    let _running = Running::start(&chain);
    let held = eventually("the alarm", async || {
        shown(&chain).await.filter(|row| row.state == store::StateName::Holding)
    })
    .await;
    let reason = held.reason.unwrap_or_default();
    assert!(reason.starts_with("the newest block of all endpoints is "), "{reason}");
    eventually("the end of the alarm", async || {
        chain.mined(1).await;
        shown(&chain).await.filter(|row| row.state == store::StateName::Following && row.reason.is_none())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reported_head_is_never_below_the_last_block_read() {
    let chain = Chain::new().await;
    chain.mined(3).await;
    Reader::new(&chain).await.read_to_the_head().await;
    let head = rpc::head(&chain.scene.provider).await.unwrap().number;
    let mut conn = chain.pool().acquire().await.unwrap();
    // As it was reported before the last block was read.
    let (id, name) = (chain.config.chain_id, chain.config.name.as_str());
    store::report_status(
        &mut conn,
        id,
        name,
        &store::IndexerState::Following,
        (BlockNumber(head.0 - 1), BlockNumber(0)),
    )
    .await
    .unwrap();
    let row = shown(&chain).await.unwrap();
    assert_eq!((row.indexed_head, row.node_head), (head, head));
    assert!(row.node_final >= row.indexed_final);
}
