//! Why the indexer cannot continue, and whether the endpoint causes it.

use super::decode::{DecodeError, Hole};
use crate::rpc;
use alloy::primitives::{Address, B256};
use alloy::transports::TransportError;
use dvp_domain::chain::BlockNumber;
use dvp_store::chain::Halted;
use dvp_store::{Fault, StoreError};

/// Why the indexer cannot continue for now.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("chain call failed: {}", rpc::told(.0))]
    Rpc(#[from] TransportError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error(transparent)]
    Hole(#[from] Hole),
    #[error("contract {contract} has emitted {emitted} events at block {block_number}, we were given {seen}")]
    Incomplete { contract: Address, block_number: BlockNumber, emitted: u64, seen: u64 },
    #[error("the node gave logs of block {found:?} for block {requested}")]
    OtherBlock { requested: B256, found: Option<B256> },
    #[error("the node gave a log of block {found:?} for blocks {from} to {to}")]
    OutOfRange { from: BlockNumber, to: BlockNumber, found: Option<BlockNumber> },
    /// The endpoint lacks a block that it, or another one, has reported.
    #[error("the node does not have block {number} yet, or not any more")]
    Behind { number: BlockNumber },
    #[error("endpoints disagree on block {number}")]
    Disagreement { number: BlockNumber },
    /// Not believed yet.
    #[error("a node reports another block {number} although it was final")]
    FinalityDoubted { number: BlockNumber },
    #[error("the chain is halted ({}): {}", .0.reason.as_str(), .0.detail)]
    Halted(Halted),
    #[error("the node is on chain {found}, not {expected}")]
    WrongChain { expected: u64, found: u64 },
    #[error("a chain without an endpoint")]
    NoEndpoint,
    /// A panic, or a step that did not end.
    #[error("{0}")]
    Unfinished(String),
    #[error("events are restored by the word of two endpoints, and {answering} of {configured} answers")]
    OneWitness { answering: usize, configured: usize },
}

impl From<sqlx::Error> for IndexError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl IndexError {
    /// Whether another endpoint might succeed.
    pub(super) fn is_of_the_endpoint(&self) -> bool {
        match self {
            Self::Rpc(_)
            | Self::Decode(_)
            | Self::Hole(_)
            | Self::Incomplete { .. }
            | Self::OtherBlock { .. }
            | Self::OutOfRange { .. }
            | Self::Behind { .. }
            | Self::Disagreement { .. }
            | Self::FinalityDoubted { .. }
            | Self::WrongChain { .. } => true,
            // Values that the database refuses came from the endpoint.
            Self::Store(error) => matches!(error.fault(), Fault::Data),
            Self::Unfinished(_) | Self::Halted(_) | Self::NoEndpoint | Self::OneWitness { .. } => false,
        }
    }

    /// Whether the received events are in doubt, rather than the form of the request.
    pub(super) const fn is_doubt(&self) -> bool {
        match self {
            Self::Rpc(_)
            | Self::Decode(_)
            | Self::Hole(_)
            | Self::Incomplete { .. }
            | Self::OtherBlock { .. }
            | Self::OutOfRange { .. } => true,
            Self::Store(_)
            | Self::Behind { .. }
            | Self::Disagreement { .. }
            | Self::FinalityDoubted { .. }
            | Self::Halted(_)
            | Self::WrongChain { .. }
            | Self::NoEndpoint
            | Self::Unfinished(_)
            | Self::OneWitness { .. } => false,
        }
    }
}
