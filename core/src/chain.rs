//! What the engine and the chain side say to each other.
//!
//! They never call each other: a [`ChainCommand`] is a row that the engine commits together with the state it
//! follows from and the relayer carries out; a [`ChainFact`] is a row that the indexer commits together with its
//! cursor, once the block is at the confirmation depth, and the settlement workflow consumes.

use serde::{Deserialize, Serialize};

/// 32 bytes as `0x` and 64 lowercase hex digits, the form in which ids and hashes travel between the two.
pub type Hex32 = String;

/// A transaction the service wants to see on the chain. Goal state reached means success, whoever reached it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ChainCommand {
    /// `IntentSettler.create`: pulls the maker's funds with the permit and locks them in the escrow.
    Create(Box<CreateCommand>),
    /// `IntentSettler.fill`: records the payout's reference.
    Fill { entity: Hex32, payout_ref: Hex32 },
    /// `IntentSettler.settle`: reveals the preimage and releases the funds to the solver.
    Settle { entity: Hex32, preimage: Hex32 },
    /// `ReceiptAnchor.anchor`.
    Anchor { content_hash: Hex32 },
    /// `Payouts.pay`: moves a solver's tokens to the recipient, once per entity.
    Transfer(Box<TransferCommand>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateCommand {
    /// The settlement's id on the chain (`intentId` of the contract).
    pub entity: Hex32,
    pub maker: String,
    /// The solver's wallet: receiver of the released funds, on the contract's allow-list.
    pub solver: String,
    pub token: String,
    /// Token units, a decimal integer.
    pub amount: String,
    /// Unix seconds; from then on anyone may cancel an unfilled settlement.
    pub fill_deadline: u64,
    /// Unix seconds; release strictly before, refund at or after.
    pub timelock: u64,
    /// SHA-256 of the preimage.
    pub hashlock: Hex32,
    /// SHA-256 of the canonical terms.
    pub terms: Hex32,
    pub permit: PermitArgs,
}

/// A payout in tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferCommand {
    /// The id under which it is paid at most once: the settlement's.
    pub entity: Hex32,
    /// The solver's wallet, which has approved the payout contract.
    pub payer: String,
    pub receiver: String,
    pub token: String,
    /// Token units, a decimal integer.
    pub amount: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermitArgs {
    pub amount: String,
    pub nonce: String,
    /// Unix seconds.
    pub deadline: u64,
    /// 65 bytes, hex with `0x`.
    pub signature: String,
}

/// What the indexer saw in a canonical block at the confirmation depth, or what the relayer learned for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ChainFact {
    /// `IntentSettler.Created`; its `Escrow.Locked` is in the same transaction.
    Created {
        timelock: u64,
        amount: String,
    },
    Filled {
        payout_ref: Hex32,
    },
    Settled,
    Cancelled,
    Refunded,
    Anchored,
    /// `Payouts.Paid`: the recipient has the tokens.
    Transferred {
        receiver: String,
        amount: String,
    },
    /// The command can never succeed: `code` is stable (`permit_expired`, `permit_nonce_used`,
    /// `insufficient_funds`, `lock_rejected`, `fill_rejected`, `settle_rejected`, `anchor_rejected`,
    /// `transfer_rejected`), `message` is for people.
    CommandFailed {
        command: String,
        code: String,
        message: String,
    },
}

/// The permit contract as the engine asks it; the chain side implements this.
pub trait PermitNonces: Send + Sync {
    /// The next unused permit nonce of `owner` (`Permit.nonces(owner)`), at the latest block.
    fn permit_nonce<'a>(
        &'a self,
        owner: &'a str,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<u128, ChainUnavailable>> + Send + 'a>>;
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
#[derive(Debug, thiserror::Error)]
#[error("chain unavailable: {0}")]
pub struct ChainUnavailable(pub String);
