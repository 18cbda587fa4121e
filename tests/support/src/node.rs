//! The chain as the engine reads it: wallets.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use dvp_core::chain::{
    ChainAnswer, ChainHead, ChainUnavailable, Confirmation, SignedHash, WalletFacts, WalletKey, WalletReader,
    WalletReading,
};
use dvp_domain::chain::BlockNumber;
use tokio::sync::watch;

const HEAD: ChainHead = ChainHead { number: BlockNumber(1), hash: [1; 32] };

/// A node for which every wallet has the same next nonce, zero at first, and enough money. It answers while it is open,
/// waits while it is closed, and fails when it is set to.
#[derive(Debug)]
pub struct Node {
    is_open: watch::Sender<bool>,
    is_failing: AtomicBool,
    next_nonce: AtomicU64,
    reads: AtomicUsize,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            is_open: watch::Sender::new(true),
            is_failing: AtomicBool::new(false),
            next_nonce: AtomicU64::new(0),
            reads: AtomicUsize::new(0),
        }
    }
}

impl Node {
    /// No request is answered until it is opened.
    pub fn close(&self) {
        self.is_open.send_replace(false);
    }

    pub fn open(&self) {
        self.is_open.send_replace(true);
    }

    pub fn set_failing(&self, is_failing: bool) {
        self.is_failing.store(is_failing, Ordering::SeqCst);
    }

    /// The next permit nonce of every wallet.
    pub fn set_next_nonce(&self, nonce: u64) {
        self.next_nonce.store(nonce, Ordering::SeqCst);
    }

    /// How often wallets were read so far.
    pub fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    async fn answer(&self) -> Result<ChainHead, ChainUnavailable> {
        let mut is_open = self.is_open.subscribe();
        is_open.wait_for(|is_open| *is_open).await.unwrap();
        if self.is_failing.load(Ordering::SeqCst) {
            return Err(ChainUnavailable("set to fail".to_owned()));
        }
        Ok(HEAD)
    }
}

impl WalletReader for Node {
    fn head(&self) -> ChainAnswer<'_, ChainHead> {
        Box::pin(self.answer())
    }

    fn confirm<'a>(&'a self, _: &'a str, _: &'a SignedHash) -> ChainAnswer<'a, Confirmation> {
        Box::pin(async { self.answer().await.map(|_| Confirmation::NoContract) })
    }

    fn read<'a>(&'a self, wallets: &'a [WalletKey]) -> ChainAnswer<'a, WalletReading> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        Box::pin(async {
            let head = self.answer().await?;
            let nonce = u128::from(self.next_nonce.load(Ordering::SeqCst));
            let facts = WalletFacts { nonce, balance: u128::MAX, allowance: u128::MAX };
            Ok(WalletReading { head, facts: vec![facts; wallets.len()] })
        })
    }
}
