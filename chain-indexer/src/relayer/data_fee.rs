//! What the bytes of a rollup's transactions cost on its L1, by the OP stack's `GasPriceOracle`.

use crate::rpc;
use alloy::eips::BlockId;
use alloy::primitives::{Address, Bytes, U256, keccak256};
use alloy::providers::DynProvider;
use alloy::transports::{RpcError, TransportError};

alloy::sol! {
    /// The part of the predeploy at `0x4200…000F` that is read.
    interface GasPriceOracle {
        function getL1Fee(bytes memory data) external view returns (uint256);
        /// Since the upgrade Fjord.
        function getL1FeeUpperBound(uint256 unsignedTxSize) external view returns (uint256);
    }
}

/// The size of the transaction that is asked about: the fee is nearly proportional to it, but for small ones.
const SAMPLE_BYTES: u128 = 8_192;

/// In wei, rounded up: of bytes that do not compress, as keys and signatures.
pub(super) async fn per_byte(
    provider: &DynProvider,
    oracle: Address,
    at: BlockId,
) -> Result<u128, TransportError> {
    let bound = GasPriceOracle::getL1FeeUpperBoundCall { unsignedTxSize: U256::from(SAMPLE_BYTES) };
    let fee = match rpc::view(provider, oracle, &bound, at).await {
        Err(RpcError::ErrorResp(_)) => {
            let call = GasPriceOracle::getL1FeeCall { data: sample() };
            rpc::view(provider, oracle, &call, at).await?
        }
        bounded => bounded?,
    };
    Ok(fee.saturating_to::<u128>().div_ceil(SAMPLE_BYTES))
}

fn sample() -> Bytes {
    let words = (0..SAMPLE_BYTES / 32).map(|word| keccak256(word.to_be_bytes()).0);
    words.flatten().collect::<Vec<u8>>().into()
}
