//! Endpoints with faults in front of a real node, and an indexer over them.

use super::Chain;
use alloy::eips::{BlockId, BlockNumberOrTag};
use alloy::primitives::{Address, B256};
use alloy::rpc::types::{Filter, Log, TransactionReceipt};
use alloy::transports::TransportError;
use dvp_chain_indexer::indexer::{IndexError, Indexer, Step};
use dvp_chain_indexer::reader::{ChainReader, HttpReader};
use dvp_chain_indexer::rpc::BlockHead;
use dvp_domain::chain::BlockNumber;
use dvp_store::database::lease::Lease;
use std::sync::{Arc, Mutex, MutexGuard};
use uuid::Uuid;

/// What a node makes of its logs.
type Edit = Box<dyn Fn(&mut Vec<Log>) + Send + Sync>;

/// The faults of a node; zero is none.
#[derive(Default)]
pub(crate) struct Wrong {
    /// Its head, its `safe` and its `finalized` block stay at these.
    pub(crate) head: u64,
    pub(crate) safe: u64,
    pub(crate) finalized: u64,
    /// Its `finalized` is this many blocks below the real one, in fifteen of sixteen answers.
    pub(crate) final_lag: u64,
    requested: u64,
    /// How often it was asked for a block.
    pub(crate) asked: u64,
    /// From this block on its blocks have other hashes, which the branch's number changes.
    pub(crate) forked: u64,
    pub(crate) branch: u8,
    /// Its lists of blocks end before this one.
    pub(crate) ends_before: u64,
    edit: Option<Edit>,
    /// It never answers about events.
    pub(crate) hangs: bool,
    /// Such calls that wait, and the most at a time.
    hanging: u64,
    pub(crate) most_hanging: u64,
}

impl Wrong {
    /// The block that is read in place of this one, and by how many blocks the answer lags.
    fn instead_of(&mut self, id: BlockId) -> (BlockId, u64) {
        let BlockId::Number(tag) = id else { return (id, 0) };
        let stays_at = match tag {
            BlockNumberOrTag::Latest => self.head,
            BlockNumberOrTag::Safe => self.safe,
            BlockNumberOrTag::Finalized => self.finalized,
            BlockNumberOrTag::Number(_) | BlockNumberOrTag::Earliest | BlockNumberOrTag::Pending => 0,
        };
        if stays_at > 0 {
            return (BlockId::number(stays_at), 0);
        }
        if tag != BlockNumberOrTag::Finalized {
            return (id, 0);
        }
        self.requested += 1;
        (id, if self.requested % 16 == 1 { 0 } else { self.final_lag })
    }

    /// The block as the node's branch has it.
    fn of_branch(&self, block: BlockHead) -> BlockHead {
        if self.forked == 0 || block.number.0 < self.forked {
            return block;
        }
        let other = |hash: B256| hash ^ B256::with_last_byte(self.branch);
        let parent = if block.number.0 == self.forked { block.parent } else { other(block.parent) };
        BlockHead { hash: other(block.hash), parent, ..block }
    }
}

#[derive(Clone)]
pub(crate) struct Node {
    inner: HttpReader,
    wrong: Arc<Mutex<Wrong>>,
}

impl Node {
    pub(crate) fn of(chain: &Chain) -> Self {
        let inner = HttpReader::new(&chain.scene.node.rpc_url()).unwrap();
        Self { inner, wrong: Arc::default() }
    }

    pub(crate) fn wrong(&self) -> MutexGuard<'_, Wrong> {
        self.wrong.lock().unwrap()
    }

    /// From now on it changes its logs like this.
    pub(crate) fn edit(&self, edit: impl Fn(&mut Vec<Log>) + Send + Sync + 'static) {
        self.wrong().edit = Some(Box::new(edit));
    }

    /// From now on it omits every event of this kind.
    pub(crate) fn omit(&self, signature: B256) {
        self.edit(move |logs| logs.retain(|log| log.topic0() != Some(&signature)));
    }

    /// From now on it has the logs as they are.
    pub(crate) fn correct(&self) {
        self.wrong().edit = None;
    }
}

/// A call that waits for ever, until its caller gives it up.
struct Hanging<'a>(&'a Node);

impl<'a> Hanging<'a> {
    fn begin(node: &'a Node) -> Self {
        let mut wrong = node.wrong();
        wrong.hanging += 1;
        wrong.most_hanging = wrong.most_hanging.max(wrong.hanging);
        Self(node)
    }
}

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.wrong().hanging -= 1;
    }
}

impl ChainReader for Node {
    async fn chain_id(&self) -> Result<u64, TransportError> {
        self.inner.chain_id().await
    }

    async fn block(&self, id: BlockId) -> Result<Option<BlockHead>, TransportError> {
        self.wrong().asked += 1;
        let (id, lag) = self.wrong().instead_of(id);
        let mut block = self.inner.block(id).await?;
        if lag > 0 {
            let number = block.map_or(BlockNumber(0), |block| block.number.saturating_sub(lag));
            block = self.inner.block(BlockId::number(number.0)).await?;
        }
        Ok(block.map(|block| self.wrong().of_branch(block)))
    }

    async fn blocks(&self, numbers: &[BlockNumber]) -> Result<Vec<Option<BlockHead>>, TransportError> {
        let blocks = self.inner.blocks(numbers).await?;
        let wrong = self.wrong();
        let has = |block: &BlockHead| wrong.ends_before == 0 || block.number.0 < wrong.ends_before;
        let given = |block: BlockHead| has(&block).then(|| wrong.of_branch(block));
        Ok(blocks.into_iter().map(|block| block.and_then(given)).collect())
    }

    async fn logs(&self, filter: &Filter) -> Result<Vec<Log>, TransportError> {
        if self.wrong().hangs {
            let _hanging = Hanging::begin(self);
            std::future::pending::<()>().await;
        }
        let mut logs = self.inner.logs(filter).await?;
        if let Some(edit) = &self.wrong().edit {
            edit(&mut logs);
        }
        Ok(logs)
    }

    async fn seq(&self, contract: Address, at: B256) -> Result<u64, TransportError> {
        self.inner.seq(contract, at).await
    }

    async fn receipts(&self, block: B256) -> Result<Option<Vec<TransactionReceipt>>, TransportError> {
        self.inner.receipts(block).await
    }
}

pub(crate) struct Reader {
    indexer: Indexer<Node>,
    pub(crate) lease: Lease,
}

impl Reader {
    pub(crate) async fn new(chain: &Chain) -> Self {
        Self::over(chain, &[Node::of(chain)]).await
    }

    pub(crate) async fn over(chain: &Chain, nodes: &[Node]) -> Self {
        let indexer = Indexer::over(chain.pool(), chain.config.clone(), nodes.to_vec()).unwrap();
        Self { indexer, lease: chain.lease(&Uuid::new_v4().to_string()).await }
    }

    pub(crate) async fn step(&mut self) -> Result<Step, IndexError> {
        self.indexer.step(&self.lease).await
    }

    /// Steps until the indexer is idle, and some more.
    pub(crate) async fn rest(&mut self) {
        let mut idle = 0;
        while idle < 20 {
            match self.step().await.unwrap() {
                Step::Idle => idle += 1,
                Step::Advanced | Step::Unwound | Step::Repaired => idle = 0,
            }
        }
    }

    pub(crate) async fn read_to_the_head(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        loop {
            match self.step().await.unwrap() {
                Step::Idle => return steps,
                step @ (Step::Advanced | Step::Unwound | Step::Repaired) => steps.push(step),
            }
        }
    }
}
