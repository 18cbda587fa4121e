//! A chain of fast blocks, followed through an endpoint that is far away.

use std::time::Duration;

use alloy::eips::BlockId;
use alloy::primitives::{Address, B256};
use alloy::rpc::types::{Filter, Log, TransactionReceipt};
use alloy::transports::TransportError;
use dvp_chain_indexer::ChainConfig;
use dvp_chain_indexer::indexer::{Indexer, run_indexer_on};
use dvp_chain_indexer::reader::{ChainReader, HttpReader};
use dvp_chain_indexer::rpc::BlockHead;
use dvp_domain::chain::BlockNumber;
use tokio_util::sync::CancellationToken;

use super::{IN_A_TRANSACTION, Storm, database, kept};
use crate::figure::Figure;

const ROUND_TRIP: Duration = Duration::from_millis(100);
const BLOCK_INTERVAL: Duration = Duration::from_millis(250);
const EVENTS: u64 = 10;
/// The first blocks wait for the lease.
const WARM_UP_SECS: u64 = 5;

#[derive(Clone)]
struct Distant(HttpReader);

impl Distant {
    async fn late<T>(answer: impl Future<Output = T>) -> T {
        tokio::time::sleep(ROUND_TRIP).await;
        answer.await
    }
}

impl ChainReader for Distant {
    async fn chain_id(&self) -> Result<u64, TransportError> {
        Self::late(self.0.chain_id()).await
    }

    async fn block(&self, id: BlockId) -> Result<Option<BlockHead>, TransportError> {
        Self::late(self.0.block(id)).await
    }

    async fn blocks(&self, numbers: &[BlockNumber]) -> Result<Vec<Option<BlockHead>>, TransportError> {
        Self::late(self.0.blocks(numbers)).await
    }

    async fn logs(&self, filter: &Filter) -> Result<Vec<Log>, TransportError> {
        Self::late(self.0.logs(filter)).await
    }

    async fn seq(&self, contract: Address, at: B256) -> Result<u64, TransportError> {
        Self::late(self.0.seq(contract, at)).await
    }

    async fn receipts(&self, block: B256) -> Result<Option<Vec<TransactionReceipt>>, TransportError> {
        Self::late(self.0.receipts(block)).await
    }
}

/// How far behind the chain the stored events are at most, in blocks of 250 ms with ten events each, over an endpoint
/// that answers after 100 ms. The floor is one block.
pub(super) async fn lag(seconds: u64) -> anyhow::Result<Figure> {
    let storm = Storm::start().await?;
    storm.settle().await?;
    let (_dir, postgres, pool) = database().await?;
    let config =
        ChainConfig { poll_interval: Duration::from_millis(50), finality_margin: 64, ..storm.config() };
    let reader = Distant(HttpReader::new(&storm.node.rpc_url())?);
    let indexer = Indexer::over(pool.clone(), config, vec![reader])?;
    let shutdown = CancellationToken::new();
    let indexing = tokio::spawn(run_indexer_on(indexer, shutdown.clone()));
    let mut ticks = tokio::time::interval(BLOCK_INTERVAL);
    let per_second = 4;
    let (mut mined, mut worst) = (0, 0);
    for round in 0..(WARM_UP_SECS + seconds) * per_second {
        ticks.tick().await;
        if round >= WARM_UP_SECS * per_second {
            let stored = u64::try_from(kept(&pool).await?)? / EVENTS;
            worst = worst.max(mined - stored);
        }
        storm.block(EVENTS, IN_A_TRANSACTION).await?;
        mined += 1;
    }
    shutdown.cancel();
    indexing.await??;
    pool.close().await;
    postgres.stop().await?;
    Ok(Figure::new("fast_chain_lag", worst, "blocks", 1))
}
