//! What two operators sign so that the funds of a failed payout go back before their timelock.

use alloy::primitives::{B256, U256};
use alloy::signers::SignerSync as _;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::{SolStruct as _, eip712_domain};

use crate::deploy::Deployment;

alloy::sol! {
    /// The structure that two operators sign.
    struct ReturnFunds {
        bytes32 intentId;
        uint256 deadline;
    }
}

/// The EIP-712 digest of a return.
pub(super) fn digest(deployment: &Deployment, intent: B256, deadline: u64) -> B256 {
    let domain = eip712_domain! {
        name: "IntentSettler",
        version: "1",
        chain_id: deployment.chain_id,
        verifying_contract: deployment.settler,
    };
    ReturnFunds { intentId: intent, deadline: U256::from(deadline) }.eip712_signing_hash(&domain)
}

/// An operator's signature of a return, as hex.
///
/// # Errors
/// The key cannot sign.
pub fn sign(
    deployment: &Deployment,
    intent: B256,
    deadline: u64,
    key: &PrivateKeySigner,
) -> Result<String, alloy::signers::Error> {
    Ok(key.sign_hash_sync(&digest(deployment, intent, deadline))?.to_string())
}
