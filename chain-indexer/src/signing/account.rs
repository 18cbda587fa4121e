//! The accounts that send transactions, wherever their keys are.
//!
//! Invariants:
//! - the account's address is recovered from every signature before it leaves this module, and its s is low (EIP-2);
//! - a signer that does not answer costs its time limit, never more;
//! - no error quotes a secret.
//!
//! Kept by
//! `chain-indexer/tests/it/signers.rs::an_account_relays_by_a_remote_signer_and_stores_no_transaction_without_its_signature`.

#[cfg(any(feature = "aws-kms", feature = "gcp-kms"))]
use super::kms::KmsSigner;
use super::pkcs11::{Pkcs11Config, Pkcs11Signer};
use super::remote::{RemoteConfig, RemoteSigner};
use super::{Signed, SignerSetup, Unsigned, eip1559, signed};
use alloy::consensus::{SignableTransaction, TxEip1559};
use alloy::primitives::{Address, B256, Signature};
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use metrics::{counter, histogram};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// It may answer later.
    #[error("the signer is not available: {0}")]
    Unavailable(String),
    #[error("the signer did not answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// It has failed a short time ago, and is left alone until its next trial.
    #[error("the signer has failed and is tried again later")]
    Resting,
    /// It answers, and signs nothing until a person changes the setup.
    #[error("the signer cannot be used: {0}")]
    Unusable(String),
    /// It does not sign this transaction. It may sign others.
    #[error("the signer refuses the transaction ({code}): {message}")]
    Refused { code: String, message: String },
    #[error("the signer's answer is not a signature: {0}")]
    Malformed(String),
    #[error("the signature's s is above half of the curve's order, which EIP-2 forbids")]
    HighS,
    #[error("the signature is of account {found}, not of {expected}")]
    WrongKey { expected: Address, found: Address },
}

impl SignError {
    /// Whether the signer could not be reached: its setup may be right.
    #[must_use]
    pub const fn is_absence(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::TimedOut(_) | Self::Resting => true,
            Self::Unusable(_)
            | Self::Refused { .. }
            | Self::Malformed(_)
            | Self::HighS
            | Self::WrongKey { .. } => false,
        }
    }

    const fn result(&self) -> &'static str {
        match self {
            Self::Unavailable(_) | Self::TimedOut(_) | Self::Resting => "unavailable",
            Self::Unusable(_) => "unusable",
            Self::Refused { .. } => "refused",
            Self::Malformed(_) | Self::HighS | Self::WrongKey { .. } => "wrong",
        }
    }
}

/// An account that sends transactions. Clones share the signer.
#[derive(Clone)]
pub struct Account(Arc<Inner>);

struct Inner {
    address: Address,
    signer: Signer,
}

enum Signer {
    Local(PrivateKeySigner),
    Pkcs11(Pkcs11Signer),
    Remote(RemoteSigner),
    #[cfg(any(feature = "aws-kms", feature = "gcp-kms"))]
    Kms(Box<KmsSigner>),
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} account {}", self.kind(), self.0.address)
    }
}

impl From<PrivateKeySigner> for Account {
    fn from(key: PrivateKeySigner) -> Self {
        Self::of(key.address(), Signer::Local(key))
    }
}

impl Account {
    fn of(address: Address, signer: Signer) -> Self {
        Self(Arc::new(Inner { address, signer }))
    }

    /// An account whose key is in a token. The token is not opened yet.
    pub fn pkcs11(config: Pkcs11Config) -> std::io::Result<Self> {
        Ok(Self::of(config.address, Signer::Pkcs11(Pkcs11Signer::start(config)?)))
    }

    /// An account whose key is in a service of its own. There is no connection yet.
    pub fn remote(config: &RemoteConfig) -> Result<Self, SignerSetup> {
        Ok(Self::of(config.address, Signer::Remote(RemoteSigner::new(config)?)))
    }

    /// An account whose key is in AWS KMS. There is no connection yet.
    #[cfg(feature = "aws-kms")]
    pub fn aws_kms(config: super::AwsKmsConfig) -> Result<Self, SignerSetup> {
        Ok(Self::of(config.address, Signer::Kms(Box::new(KmsSigner::aws(config)?))))
    }

    /// An account whose key is in Google Cloud KMS. There is no connection yet.
    #[cfg(feature = "gcp-kms")]
    pub fn gcp_kms(config: super::GcpKmsConfig) -> Result<Self, SignerSetup> {
        Ok(Self::of(config.address, Signer::Kms(Box::new(KmsSigner::gcp(config)?))))
    }

    #[must_use]
    pub fn address(&self) -> Address {
        self.0.address
    }

    /// The kind of its signer, as logs and figures name it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match &self.0.signer {
            Signer::Local(_) => "local",
            Signer::Pkcs11(_) => "pkcs11",
            Signer::Remote(_) => "remote",
            #[cfg(any(feature = "aws-kms", feature = "gcp-kms"))]
            Signer::Kms(service) => service.kind(),
        }
    }

    /// Signs an EIP-1559 transaction, and verifies the signature.
    pub async fn sign(&self, tx: Unsigned) -> Result<Signed, SignError> {
        let started = Instant::now();
        let tx = eip1559(tx);
        let digest = tx.signature_hash();
        let answer = match self.signature(&tx, digest).await {
            Ok(signature) => verified(signature, digest, self.0.address),
            Err(error) => Err(error),
        };
        let result = answer.as_ref().map_or_else(SignError::result, |_| "signed");
        let labels = [("signer", self.kind()), ("result", result)];
        counter!("dvp_signer_signatures_total", &labels).increment(1);
        histogram!("dvp_signer_seconds", "signer" => self.kind()).record(started.elapsed());
        Ok(signed(tx, answer?))
    }

    async fn signature(&self, tx: &TxEip1559, digest: B256) -> Result<Signature, SignError> {
        match &self.0.signer {
            Signer::Local(key) => local(key, digest),
            Signer::Pkcs11(token) => within(token.time_limit, token.sign(digest)).await,
            Signer::Remote(signer) => within(signer.time_limit, signer.sign(tx)).await,
            #[cfg(any(feature = "aws-kms", feature = "gcp-kms"))]
            Signer::Kms(service) => within(service.time_limit, service.sign(digest)).await,
        }
    }

    /// Whether the signer answers and signs for the account's address.
    pub async fn check(&self) -> Result<(), SignError> {
        match &self.0.signer {
            Signer::Local(_) => Ok(()),
            Signer::Pkcs11(token) => {
                let (signature, digest) = within(token.time_limit, token.check()).await?;
                verified(signature, digest, self.0.address).map(|_| ())
            }
            Signer::Remote(signer) => within(signer.time_limit, signer.check()).await,
            #[cfg(any(feature = "aws-kms", feature = "gcp-kms"))]
            Signer::Kms(service) => {
                let (signature, digest) = within(service.time_limit, service.check()).await?;
                verified(signature, digest, self.0.address).map(|_| ())
            }
        }
    }
}

async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, SignError>>,
) -> Result<T, SignError> {
    tokio::time::timeout(limit, work).await.map_err(|_| SignError::TimedOut(limit))?
}

fn local(key: &PrivateKeySigner, digest: B256) -> Result<Signature, SignError> {
    key.sign_hash_sync(&digest).map_err(|error| SignError::Malformed(error.to_string()))
}

/// The signature, if it is one of the account.
pub(super) fn verified(
    signature: Signature,
    digest: B256,
    expected: Address,
) -> Result<Signature, SignError> {
    if signature.normalize_s().is_some() {
        return Err(SignError::HighS);
    }
    let found = signature
        .recover_address_from_prehash(&digest)
        .map_err(|error| SignError::Malformed(error.to_string()))?;
    if found == expected { Ok(signature) } else { Err(SignError::WrongKey { expected, found }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy::primitives::{U256, uint};

    const ORDER: U256 = uint!(0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141_U256);

    #[test]
    fn only_low_signatures_of_the_accounts_own_key_are_used() {
        let key = PrivateKeySigner::from_bytes(&B256::repeat_byte(0x42)).unwrap();
        let other = PrivateKeySigner::from_bytes(&B256::repeat_byte(0x43)).unwrap();
        let digest = B256::repeat_byte(0x07);
        let good = key.sign_hash_sync(&digest).unwrap();
        let address = key.address();
        assert_eq!(verified(good, digest, address).unwrap(), good);
        // The same signature in its other form: nodes refuse it.
        let high = Signature::new(good.r(), ORDER - good.s(), !good.v());
        assert_eq!(high.recover_address_from_prehash(&digest).unwrap(), address);
        assert!(matches!(verified(high, digest, address), Err(SignError::HighS)));
        let foreign = other.sign_hash_sync(&digest).unwrap();
        let found = other.address();
        assert!(
            matches!(verified(foreign, digest, address), Err(SignError::WrongKey { found: of, .. }) if of == found)
        );
        let flipped = Signature::new(good.r(), good.s(), !good.v());
        assert!(matches!(verified(flipped, digest, address), Err(SignError::WrongKey { .. })));
        assert!(matches!(
            verified(good, B256::repeat_byte(0x08), address),
            Err(SignError::WrongKey { .. } | SignError::Malformed(_))
        ));
        for (r, s) in [(U256::ZERO, good.s()), (good.r(), U256::ZERO), (U256::MAX, good.s())] {
            let wrong = Signature::new(r, s, false);
            assert!(matches!(verified(wrong, digest, address), Err(SignError::Malformed(_))), "{wrong:?}");
        }
    }
}
