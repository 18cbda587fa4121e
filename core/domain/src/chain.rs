//! The rows that the core and the chain side exchange.
//!
//! A [`ChainCommand`] is committed together with the state that requires it, and the relayer carries it out. A
//! [`ChainFact`] is committed by the indexer together with its cursor, once the block is at the confirmation depth, and
//! the settlement workflow consumes it.

use crate::names::names;

use std::fmt;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// The number of a block, which is its height above the chain's first block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BlockNumber(pub u64);

impl BlockNumber {
    pub const FIRST: Self = Self(0);

    /// The block this many blocks below, or the first block.
    #[must_use]
    pub const fn saturating_sub(self, blocks: u64) -> Self {
        Self(self.0.saturating_sub(blocks))
    }

    /// The number of blocks from `lower` up to this one; 0 when this one is below `lower`.
    pub const fn blocks_above(self, lower: Self) -> u64 {
        self.0.saturating_sub(lower.0)
    }
}

/// The block this many blocks above.
impl Add<u64> for BlockNumber {
    type Output = Self;

    fn add(self, blocks: u64) -> Self {
        Self(self.0 + blocks)
    }
}

/// The number of blocks between two blocks.
impl Sub for BlockNumber {
    type Output = u64;

    fn sub(self, lower: Self) -> u64 {
        self.0 - lower.0
    }
}

impl fmt::Display for BlockNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// 32 bytes as `0x` and 64 lowercase hex digits, the form in which ids and hashes travel between the two.
pub type Hex32 = String;

/// A transaction that the service requires on the chain. It succeeds when its goal state is reached, even by another
/// sender's transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ChainCommand {
    /// `IntentSettler.create`: pulls the maker's funds with the permit and locks them in the escrow.
    Create(Box<CreateCommand>),
    /// `IntentSettler.fill`: commits the locked funds to the payout. The terms it needs are those of the entity's
    /// `Create`.
    Fill { entity: Hex32, payout_ref: Hex32 },
    /// `IntentSettler.settle`: reveals the preimage and releases the funds to the solver. The terms likewise.
    Settle {
        entity: Hex32,
        /// Derived from the hashlock of the entity's `create` when the command is carried out; never stored before it
        /// is on the chain.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        preimage: Option<Hex32>,
    },
    /// `ReceiptAnchor.anchor`.
    Anchor { content_hash: Hex32 },
    /// `Payouts.pay`: moves a solver's tokens to the recipient, once per entity, which has no lock on this chain.
    Transfer(Box<TransferCommand>),
    /// `IntentSettler.swap`: pulls the maker's input and delivers the solver's output in one transaction. It is done
    /// when `Settled` is seen.
    Swap(Box<SwapCommand>),
    /// `IntentSettler.cancel` by a relayer: returns a lock that is not filled. The terms it needs are those of the
    /// entity's `Create`. It is complete when the maker has the funds, whoever returned them.
    Cancel { entity: Hex32 },
    /// `IntentSettler.returnFilled`: returns a filled lock. `deadline` (Unix seconds) and two operators' EIP-712
    /// signatures over `ReturnFunds(intentId, deadline)`, 65 bytes each as hex with `0x`, in any order.
    ReturnFilled { entity: Hex32, deadline: u64, signatures: [String; 2] },
    /// `Escrow.refund`: returns a lock after its timelock, filled or not. The terms likewise.
    Refund { entity: Hex32 },
}

names! {
    /// The kinds of chain commands, as named in rows, logs and metrics.
    pub enum CommandKind {
        Create = "create",
        Fill = "fill",
        Settle = "settle",
        Anchor = "anchor",
        Transfer = "transfer",
        Swap = "swap",
        Cancel = "cancel",
        ReturnFilled = "return_filled",
        Refund = "refund",
    }
}

impl ChainCommand {
    pub const fn kind(&self) -> CommandKind {
        match self {
            Self::Create(_) => CommandKind::Create,
            Self::Fill { .. } => CommandKind::Fill,
            Self::Settle { .. } => CommandKind::Settle,
            Self::Anchor { .. } => CommandKind::Anchor,
            Self::Transfer(_) => CommandKind::Transfer,
            Self::Swap(_) => CommandKind::Swap,
            Self::Cancel { .. } => CommandKind::Cancel,
            Self::ReturnFilled { .. } => CommandKind::ReturnFilled,
            Self::Refund { .. } => CommandKind::Refund,
        }
    }

    /// Of a command that takes a deposit of the chain's coin: the last second, in Unix seconds, at which it may.
    pub fn deposit_by(&self) -> Option<u64> {
        match self {
            Self::Create(create) => create.permit.is_none().then_some(create.lock_by),
            Self::Swap(swap) => swap.permit.is_none().then_some(swap.lock_by),
            Self::Fill { .. }
            | Self::Settle { .. }
            | Self::Anchor { .. }
            | Self::Transfer(_)
            | Self::Cancel { .. }
            | Self::ReturnFilled { .. }
            | Self::Refund { .. } => None,
        }
    }

    /// Whether an order may request the command again after it failed: a lock that a reorganization removed and that
    /// was included again is returned again, and operators sign again when their signatures have expired.
    pub const fn is_repeatable(&self) -> bool {
        match self {
            Self::Cancel { .. } | Self::ReturnFilled { .. } => true,
            Self::Create(_)
            | Self::Swap(_)
            | Self::Fill { .. }
            | Self::Settle { .. }
            | Self::Anchor { .. }
            | Self::Transfer(_)
            | Self::Refund { .. } => false,
        }
    }
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
    /// Unix seconds, the last at which the funds may be locked.
    pub lock_by: u64,
    /// Unix seconds; a fill must be strictly before, and from then on anyone may cancel an unfilled lock.
    pub fill_deadline: u64,
    /// Unix seconds; release strictly before, refund at or after.
    pub timelock: u64,
    /// SHA-256 of the preimage.
    pub hashlock: Hex32,
    /// SHA-256 of the canonical terms.
    pub terms: Hex32,
    /// `None`: the input is what the maker has deposited of the chain's coin under the entity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permit: Option<PermitArgs>,
}

/// A token for a token on the same chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapCommand {
    /// The settlement's id on the chain (`intentId` of the contract).
    pub entity: Hex32,
    pub maker: String,
    /// The solver's wallet: receives the input and pays the output; on the contract's allow-list.
    pub solver: String,
    pub token: String,
    /// Token units, a decimal integer.
    pub amount: String,
    /// Unix seconds, the last at which it may happen.
    pub lock_by: u64,
    /// SHA-256 of the canonical terms.
    pub terms: Hex32,
    pub output: OutputArgs,
    /// As of a [`CreateCommand`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permit: Option<PermitArgs>,
}

/// What a swap delivers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputArgs {
    pub token: String,
    pub receiver: String,
    /// Token units, a decimal integer.
    pub amount: String,
}

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
    /// Unix seconds, the last at which it may be paid.
    pub not_after: u64,
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

/// What the indexer saw in a canonical block at the confirmation depth, or a final result that the relayer learned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ChainFact {
    /// `IntentSettler.Created`; its `Escrow.Locked` is in the same transaction.
    Created {
        timelock: u64,
        amount: String,
        /// The other terms that the escrow has committed to.
        lock: Box<LockTerms>,
    },
    Filled {
        payout_ref: Hex32,
    },
    /// `IntentSettler.Settled`.
    Settled {
        /// The terms of a swap: its `Created` is in the same transaction, and no lock.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        swap: Option<Box<SwapTerms>>,
    },
    Cancelled,
    Refunded,
    Anchored,
    /// A reported lock is no longer on the chain: a reorganization removed it. It may be included again.
    LockLost,
    /// A reported fill is no longer on the chain, likewise.
    FillLost,
    /// A reported payment for a lock on another chain is no longer on the chain, likewise.
    TransferLost,
    /// `Payouts.Paid`: the recipient has the tokens.
    Transferred {
        payer: String,
        receiver: String,
        token: String,
        amount: String,
    },
    /// The command can never succeed: `code` is stable (`permit_expired`, `permit_nonce_used`, `insufficient_funds`,
    /// `lock_rejected`, `fill_rejected`, `settle_rejected`, `anchor_rejected`, `transfer_rejected`, `swap_rejected`,
    /// `cancel_rejected`, `return_rejected`), `message` is for operators.
    CommandFailed {
        command: String,
        code: String,
        message: String,
    },
}

/// What an account has deposited of the chain's coin under an entity, after an event of the gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deposit {
    /// `0x` and lowercase hex.
    pub depositor: String,
    /// Units of the coin, a decimal integer.
    pub total: String,
}

/// The terms of a lock, read from its events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockTerms {
    pub maker: String,
    pub solver: String,
    pub token: String,
    pub fill_deadline: u64,
    pub hashlock: Hex32,
    pub terms: Hex32,
}

/// The terms of a swap, read from its events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapTerms {
    pub maker: String,
    pub solver: String,
    pub token: String,
    /// Token units, a decimal integer.
    pub amount: String,
    pub lock_by: u64,
    /// The hash of the output.
    pub terms: Hex32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_without_a_permit_takes_a_deposit_until_its_lock_by() {
        let command = |permit: &str| -> ChainCommand {
            let text = format!(
                r#"{{"kind":"create","entity":"0x1","maker":"0x2","solver":"0x3","token":"0x4","amount":"5",
                    "lock_by":6,"fill_deadline":7,"timelock":8,"hashlock":"0x9","terms":"0xa"{permit}}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let permit = r#","permit":{"amount":"5","nonce":"0","deadline":6,"signature":"0x"}"#;
        assert_eq!(command(permit).deposit_by(), None);
        let deposited = command("");
        assert_eq!(deposited.deposit_by(), Some(6));
        assert!(serde_json::to_value(&deposited).unwrap().get("permit").is_none());
    }
}
