//! Blocks that wait are read together, also when some of them cannot be.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use crate::support::{Chain, Scene};
use alloy::eips::BlockId;
use alloy::primitives::{Address, B256};
use alloy::rpc::types::{Filter, Log, TransactionReceipt};
use alloy::transports::TransportError;
use dvp_chain_indexer::contracts::anchor::ReceiptAnchor;
use dvp_chain_indexer::indexer::{Indexer, Step};
use dvp_chain_indexer::reader::{ChainReader, HttpReader};
use dvp_chain_indexer::rpc::{self, BlockHead};
use dvp_domain::chain::BlockNumber;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A node that has no logs of one block, and whose list of blocks ends before another.
#[derive(Clone)]
struct Forgetful {
    inner: HttpReader,
    without_logs: Arc<AtomicU64>,
    ends_before: Arc<AtomicU64>,
}

impl ChainReader for Forgetful {
    async fn chain_id(&self) -> Result<u64, TransportError> {
        self.inner.chain_id().await
    }

    async fn block(&self, id: BlockId) -> Result<Option<BlockHead>, TransportError> {
        self.inner.block(id).await
    }

    async fn blocks(&self, numbers: &[BlockNumber]) -> Result<Vec<Option<BlockHead>>, TransportError> {
        let mut blocks = self.inner.blocks(numbers).await?;
        let end = self.ends_before.load(Ordering::Relaxed);
        for block in &mut blocks {
            block.take_if(|block| block.number.0 >= end);
        }
        Ok(blocks)
    }

    async fn logs(&self, filter: &Filter) -> Result<Vec<Log>, TransportError> {
        let mut logs = self.inner.logs(filter).await?;
        let lost = self.without_logs.load(Ordering::Relaxed);
        logs.retain(|log| log.block_number != Some(lost));
        Ok(logs)
    }

    async fn seq(&self, contract: Address, at: B256) -> Result<u64, TransportError> {
        self.inner.seq(contract, at).await
    }

    async fn receipts(&self, block: B256) -> Result<Option<Vec<TransactionReceipt>>, TransportError> {
        self.inner.receipts(block).await
    }
}

/// Steps until the head, and the position after each.
async fn steps(chain: &Chain, indexer: &mut Indexer<Forgetful>) -> Vec<u64> {
    let (lease, mut positions) = (chain.lease("reader").await, Vec::new());
    while indexer.step(&lease).await.unwrap() != Step::Idle {
        let at: i64 = sqlx::query_scalar("select head_number from chain_cursor")
            .fetch_one(&chain.pool())
            .await
            .unwrap();
        positions.push(u64::try_from(at).unwrap());
    }
    lease.release(&chain.pool()).await.unwrap();
    positions
}

async fn anchor(chain: &Chain, byte: u8) {
    let call = ReceiptAnchor::anchorCall { contentHash: B256::repeat_byte(byte) };
    assert!(chain.scene.succeeds(&chain.scene.relayer, chain.scene.deployment.anchor, &call).await);
}

async fn stored(chain: &Chain) -> i64 {
    let count = "select count(*) from chain_log where canonical and event = 'Anchored'";
    sqlx::query_scalar(count).fetch_one(&chain.pool()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_that_wait_are_read_in_few_steps_and_a_doubtful_one_alone() {
    let mut chain = Chain::new(Scene::new().await).await;
    chain.config.finality_margin = 1_000;
    let inner = HttpReader::new(&chain.scene.node.rpc_url()).unwrap();
    let (lost, end) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::new(AtomicU64::new(u64::MAX)));
    let node = Forgetful { inner, without_logs: Arc::clone(&lost), ends_before: Arc::clone(&end) };
    let mut indexer = Indexer::over(chain.pool(), chain.config.clone(), vec![node]).unwrap();
    steps(&chain, &mut indexer).await;
    let head = async || rpc::head(&chain.scene.provider).await.unwrap().number.0;

    let before = head().await;
    for byte in 1..=40 {
        anchor(&chain, byte).await;
    }
    assert_eq!(steps(&chain, &mut indexer).await, [before + 32, before + 40]);
    assert_eq!(stored(&chain).await, 40);

    // The tenth block's logs are lost: those before it are read, then it is, by its receipts, then the others.
    let before = head().await;
    for byte in 41..=60 {
        anchor(&chain, byte).await;
    }
    lost.store(before + 10, Ordering::Relaxed);
    assert_eq!(steps(&chain, &mut indexer).await, [before + 9, before + 10, before + 20]);
    assert_eq!(stored(&chain).await, 60);
    let receipts = "select number from chain_block where verified_by = 'receipts'";
    let proven: Vec<i64> = sqlx::query_scalar(receipts).fetch_all(&chain.pool()).await.unwrap();
    assert_eq!(proven, [i64::try_from(before + 10).unwrap()]);

    // A node that does not have all of them yet.
    let before = head().await;
    for byte in 61..=64 {
        anchor(&chain, byte).await;
    }
    end.store(before + 3, Ordering::Relaxed);
    let positions = steps(&chain, &mut indexer).await;
    assert_eq!(positions, [before + 2, before + 3, before + 4]);
    assert_eq!(stored(&chain).await, 64);
}
