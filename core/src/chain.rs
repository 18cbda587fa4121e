//! The questions that the core asks the chain side.
//!
//! Everything else they exchange is rows: [`ChainCommand`](dvp_domain::chain::ChainCommand) and
//! [`ChainFact`](dvp_domain::chain::ChainFact).

pub mod expected;

use dvp_domain::permit::PermitDefect;

/// A newest block of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainHead {
    pub number: u64,
    pub hash: [u8; 32],
}

/// A wallet, and the token that it pays with.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WalletKey {
    /// `0x` and lowercase hex.
    pub owner: String,
    /// The token's contract, `0x` and lowercase hex.
    pub token: String,
}

/// What the chain says of a wallet and a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalletFacts {
    /// The next unused permit nonce (`Permit.nonces(owner)`).
    pub nonce: u128,
    /// In token units; more than a `u128` holds is `u128::MAX`.
    pub balance: u128,
    /// What the permit contract may pull, likewise.
    pub allowance: u128,
}

impl WalletFacts {
    /// Whether the wallet has `needed`, and the permit contract may pull it.
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

/// The facts of several wallets, in the order in which they were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalletReading {
    /// The facts are as of this block, or of a later one.
    pub head: ChainHead,
    pub facts: Vec<WalletFacts>,
}

/// An answer of the chain, or that there is none in time.
pub type ChainAnswer<'a, T> =
    std::pin::Pin<Box<dyn Future<Output = Result<T, ChainUnavailable>> + Send + 'a>>;

/// Wallets as the core asks about them; the chain side implements this. Every answer comes within seconds or is an
/// error.
pub trait WalletReader: Send + Sync {
    /// The newest block.
    fn head(&self) -> ChainAnswer<'_, ChainHead>;

    /// Permit nonces, balances and allowances at the newest block.
    fn read<'a>(&'a self, wallets: &'a [WalletKey]) -> ChainAnswer<'a, WalletReading>;
}

/// A constant-product pool as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolReserves {
    /// Token contracts, lowercase hex with `0x`.
    pub token0: String,
    pub token1: String,
    /// In token units.
    pub reserve0: u128,
    pub reserve1: u128,
    pub fee_bps: u32,
}

/// Pools as the liquidity sources ask them; the chain side implements this.
pub trait PoolReader: Send + Sync {
    /// The reserves of the pool at an address, at the latest block.
    fn reserves<'a>(
        &'a self,
        pool: &'a str,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<PoolReserves, ChainUnavailable>> + Send + 'a>>;
}

/// What a price feed last said (`latestRoundData`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedRound {
    pub answer: i128,
    pub decimals: u8,
    /// Unix seconds, the chain's clock.
    pub updated_at: u64,
}

/// Price feeds as the reference prices ask them; the chain side implements this.
pub trait FeedReader: Send + Sync {
    /// The newest round of the feed at an address, at the latest block.
    fn latest_round<'a>(
        &'a self,
        feed: &'a str,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<FeedRound, ChainUnavailable>> + Send + 'a>>;
}

/// The chain did not answer, or not in time. The caller may try again later.
#[derive(Debug, Clone, thiserror::Error)]
#[error("chain unavailable: {0}")]
pub struct ChainUnavailable(pub String);
