//! Transactions as signed bytes.
//!
//! The caller supplies nonce and fees. With a key in memory the same input gives the same bytes (ECDSA nonces by RFC
//! 6979); an external key may not, which is one reason why bytes are stored before they are broadcast.
//!
//! Invariant: no signature is used before the account's address was recovered from it ([`Account`]).

mod account;
mod http;
#[cfg(any(feature = "aws-kms", feature = "gcp-kms"))]
mod kms;
mod pkcs11;
mod raw;
mod remote;

pub use account::{Account, SignError};
#[cfg(feature = "aws-kms")]
pub use kms::{AwsCredentials, AwsKmsConfig};
#[cfg(feature = "gcp-kms")]
pub use kms::{GcpCredentials, GcpKmsConfig};
pub use pkcs11::{Pin, Pkcs11Config};
pub use remote::RemoteConfig;

use account::verified;
use alloy::consensus::{SignableTransaction, TxEip1559, TxEnvelope};
use alloy::eips::eip2718::Encodable2718;
use alloy::primitives::{B256, Bytes, Signature, TxKind, U256};
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;

/// A setting of a signer that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct SignerSetup {
    pub field: &'static str,
    pub reason: String,
}

/// Wei per gas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fees {
    pub max_fee: u128,
    pub priority_fee: u128,
}

const MIN_PRIORITY_FEE: u128 = 1_000_000_000;

impl Fees {
    /// Allows the base fee to double, with the market's tip, at least the usual one.
    #[must_use]
    pub fn of(base_fee: u128, tip: u128) -> Self {
        let priority_fee = tip.max(MIN_PRIORITY_FEE);
        Self { max_fee: base_fee.saturating_mul(2).saturating_add(priority_fee), priority_fee }
    }

    /// Enough above `self` for a node to accept the replacement (12.5 %, rounded up), and at least `market`.
    #[must_use]
    pub fn bumped(self, market: Self) -> Self {
        let bump = |fee: u128| fee.saturating_add(fee.div_ceil(8)).max(fee.saturating_add(1));
        let priority_fee = bump(self.priority_fee).max(market.priority_fee);
        Self { max_fee: bump(self.max_fee).max(market.max_fee).max(priority_fee), priority_fee }
    }
}

/// A transaction before its signature. It carries no value: dvp moves tokens, never the native coin.
#[derive(Debug, Clone)]
pub struct Unsigned {
    pub chain_id: u64,
    pub nonce: u64,
    pub to: TxKind,
    pub input: Bytes,
    pub gas_limit: u64,
    pub fees: Fees,
}

/// Bytes ready for `eth_sendRawTransaction`, and the hash they will be known by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    pub hash: B256,
    pub raw: Bytes,
}

/// Signs an EIP-1559 transaction with a key in memory.
pub fn sign(key: &PrivateKeySigner, tx: Unsigned) -> Result<Signed, SignError> {
    let tx = eip1559(tx);
    let digest = tx.signature_hash();
    let signature = key.sign_hash_sync(&digest).map_err(|error| SignError::Malformed(error.to_string()))?;
    Ok(signed(tx, verified(signature, digest, key.address())?))
}

fn eip1559(tx: Unsigned) -> TxEip1559 {
    TxEip1559 {
        chain_id: tx.chain_id,
        nonce: tx.nonce,
        gas_limit: tx.gas_limit,
        max_fee_per_gas: tx.fees.max_fee,
        max_priority_fee_per_gas: tx.fees.priority_fee,
        to: tx.to,
        value: U256::ZERO,
        access_list: Default::default(),
        input: tx.input,
    }
}

fn signed(tx: TxEip1559, signature: Signature) -> Signed {
    let envelope = TxEnvelope::from(tx.into_signed(signature));
    Signed { hash: *envelope.tx_hash(), raw: envelope.encoded_2718().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsigned(fees: Fees) -> Unsigned {
        Unsigned {
            chain_id: 31337,
            nonce: 7,
            to: TxKind::Call([0x11; 20].into()),
            input: Bytes::from_static(&[1, 2, 3]),
            gas_limit: 100_000,
            fees,
        }
    }

    #[test]
    fn signing_twice_gives_the_same_bytes() {
        let signer = PrivateKeySigner::from_bytes(&B256::repeat_byte(0x42)).unwrap();
        let fees = Fees::of(10, 0);
        assert_eq!(sign(&signer, unsigned(fees)).unwrap(), sign(&signer, unsigned(fees)).unwrap());
    }

    #[test]
    fn a_bump_raises_both_fees_by_at_least_an_eighth() {
        let low = Fees { max_fee: 9, priority_fee: 1 };
        assert_eq!(low.bumped(low), Fees { max_fee: 11, priority_fee: 2 });
        let market = Fees { max_fee: 1_000, priority_fee: 5 };
        assert_eq!(low.bumped(market), market);
    }
}
