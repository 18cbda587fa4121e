//! The core's queries to the chain side.
//!
//! All other communication between the two goes through rows: [`ChainCommand`](dvp_domain::chain::ChainCommand) and
//! [`ChainFact`](dvp_domain::chain::ChainFact).

pub mod backlog;
pub mod expected;
pub mod halts;
pub mod permit;
pub mod wallets;

use std::collections::BTreeMap;
use std::sync::Arc;

use dvp_domain::chain::BlockNumber;
use dvp_domain::liquidity::average::PairState;
use dvp_domain::liquidity::curve::TickState;
use dvp_domain::permit::PermitDefect;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainHead {
    pub number: BlockNumber,
    pub hash: [u8; 32],
}

/// A wallet and the token it pays with. The same addresses on another chain are another wallet and another token.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WalletKey {
    pub chain_id: i64,
    /// `0x` and lowercase hex.
    pub owner: String,
    /// The token's contract, `0x` and lowercase hex.
    pub token: String,
}

impl WalletKey {
    /// The wallet alone, which its permits' nonces belong to.
    pub(crate) fn wallet(&self) -> (i64, String) {
        (self.chain_id, self.owner.clone())
    }
}

/// The on-chain data of a wallet and a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalletFacts {
    /// The next unused permit nonce (`Permit.nonces(owner)`).
    pub nonce: u128,
    /// Balance in token units; a larger value than `u128::MAX` is given as `u128::MAX`.
    pub balance: u128,
    /// The permit contract's allowance, with the same limit.
    pub allowance: u128,
}

impl WalletFacts {
    /// Whether the balance and the allowance both cover `needed`.
    pub const fn check(&self, needed: u128) -> Result<(), PermitDefect> {
        if self.balance < needed {
            return Err(PermitDefect::Balance { held: self.balance, needed });
        }
        if self.allowance < needed {
            return Err(PermitDefect::Allowance { held: self.allowance, needed });
        }
        Ok(())
    }
}

/// What a wallet is asked that may be a contract: whether it confirms a signature as its own (ERC-1271).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SignedHash {
    pub digest: [u8; 32],
    pub signature: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confirmation {
    Confirmed,
    /// By the contract at the wallet's address.
    Refused,
    /// There is no contract at the wallet's address.
    NoContract,
}

/// The data of several wallets, in the order of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalletReading {
    /// The data is as of this block or a later one.
    pub head: ChainHead,
    pub facts: Vec<WalletFacts>,
}

/// The chain's answer, or the error that it did not answer in time.
pub type ChainAnswer<'a, T> =
    std::pin::Pin<Box<dyn Future<Output = Result<T, ChainUnavailable>> + Send + 'a>>;

/// Reads wallets; the chain side implements this trait. Every call returns or fails within seconds.
pub trait WalletReader: Send + Sync {
    fn head(&self) -> ChainAnswer<'_, ChainHead>;

    /// Whether a wallet confirms a signature, at the latest block.
    fn confirm<'a>(&'a self, owner: &'a str, signed: &'a SignedHash) -> ChainAnswer<'a, Confirmation>;

    /// Permit nonces, balances and allowances at the latest block.
    fn read<'a>(&'a self, wallets: &'a [WalletKey]) -> ChainAnswer<'a, WalletReading>;
}

/// The readers of the chains, by chain id.
pub type WalletReaders = BTreeMap<i64, Arc<dyn WalletReader>>;

/// The block that prices were read at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriceBlock {
    pub number: BlockNumber,
    /// Unix seconds, the chain's clock.
    pub time: u64,
}

/// A constant-product pair (Uniswap v2) at a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairReading {
    pub block: PriceBlock,
    /// The contracts of token 0 and token 1, lowercase hex with `0x`.
    pub tokens: [String; 2],
    pub state: PairState,
}

/// A pool with concentrated liquidity (Uniswap v3) at a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicksReading {
    pub block: PriceBlock,
    /// The contracts of token 0 and token 1, lowercase hex with `0x`.
    pub tokens: [String; 2],
    pub state: TickState,
    /// The average tick over the window, rounded down. `None` when the pool's observations do not reach back so far.
    pub average_tick: Option<i32>,
}

/// Reads pools for the liquidity sources; the chain side implements this trait. Everything of an answer is of one block,
/// the newest that any endpoint has.
pub trait PoolReader: Send + Sync {
    fn pair<'a>(&'a self, pool: &'a str) -> ChainAnswer<'a, PairReading>;

    /// The pool at an address, with its average over this many seconds.
    fn ticks<'a>(&'a self, pool: &'a str, window_secs: u32) -> ChainAnswer<'a, TicksReading>;
}

/// The latest round of a price feed (`latestRoundData`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedRound {
    pub block: PriceBlock,
    pub answer: i128,
    pub decimals: u8,
    /// Unix seconds, the chain's clock.
    pub updated_at: u64,
}

/// Reads price feeds for the reference prices; the chain side implements this trait.
pub trait FeedReader: Send + Sync {
    /// The latest round of the feed at an address, in the newest block that any endpoint has.
    fn latest_round<'a>(&'a self, feed: &'a str) -> ChainAnswer<'a, FeedRound>;
}

/// The chain did not answer, or not in time. The caller may try again later.
#[derive(Debug, Clone, thiserror::Error)]
#[error("chain unavailable: {0}")]
pub struct ChainUnavailable(pub String);
