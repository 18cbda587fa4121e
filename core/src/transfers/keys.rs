//! The keys of cells, and the messages that they sign (Ed25519).
//!
//! A cell signs with one key. Of another cell it knows the public keys that are listed, so that a key is changed without
//! an interruption: the new public key is listed by the others first, and the old one is taken off their lists last.

use std::collections::BTreeMap;
use std::fmt;

use dvp_domain::cell::CellId;
use dvp_domain::environment::Environment;
use dvp_domain::transfer::message::{Message, Signed, signed_bytes};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde_json::Value;

/// The longest list, of some hundred thousand transfers, and the longest document about one transfer, which is kept.
const LIST_BYTES_MAX: usize = 64 * 1024 * 1024;
const DOCUMENT_BYTES_MAX: usize = 16 * 1024;

/// A public key of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; 32]);

/// The text is no public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a public key of a cell has 64 hex digits")]
pub struct NotAKey;

impl std::str::FromStr for PublicKey {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        let mut key = [0; 32];
        hex::decode_to_slice(text, &mut key).map_err(|_| NotAKey)?;
        Ok(Self(key))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// Why a document is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    #[error("the document is longer than {max} bytes")]
    TooLong { max: usize },
    #[error("not a signed message of a cell: {0}")]
    Malformed(String),
    #[error("the configuration lists no cell {0}")]
    UnknownCell(CellId),
    #[error("the signature is by no key that is listed for cell {0}, or the document was changed")]
    WrongSignature(CellId),
    #[error("the document is of a {found} deployment, this is a {here} one")]
    OtherEnvironment { found: &'static str, here: &'static str },
    #[error("the document is for cell {0}")]
    OtherAddressee(CellId),
    #[error("a {wanted} is needed, this is a {found}")]
    OtherKind { wanted: &'static str, found: &'static str },
}

/// This cell's key, and the public keys of the others.
pub struct CellKeys {
    pub cell: CellId,
    environment: Environment,
    signing: Ed25519KeyPair,
    /// Earlier keys of this cell: it takes back what it has signed with them.
    earlier: Vec<PublicKey>,
    peers: BTreeMap<CellId, Vec<PublicKey>>,
}

impl fmt::Debug for CellKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peers: Vec<&CellId> = self.peers.keys().collect();
        f.debug_struct("CellKeys").field("cell", &self.cell).field("peers", &peers).finish_non_exhaustive()
    }
}

/// The seed of a signing key cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the signing key of the cell cannot be used")]
pub struct BadSeed;

impl CellKeys {
    /// # Errors
    /// The seed is no key.
    pub fn new(
        cell: CellId,
        environment: Environment,
        seed: &[u8; 32],
        earlier: Vec<PublicKey>,
        peers: BTreeMap<CellId, Vec<PublicKey>>,
    ) -> Result<Self, BadSeed> {
        let signing = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| BadSeed)?;
        Ok(Self { cell, environment, signing, earlier, peers })
    }

    /// What other cells list for this one.
    pub fn public_key(&self) -> PublicKey {
        let mut key = [0; 32];
        key.copy_from_slice(self.signing.public_key().as_ref());
        PublicKey(key)
    }

    pub const fn environment(&self) -> Environment {
        self.environment
    }

    /// # Errors
    /// The configuration does not list the cell.
    pub fn check_peer(&self, cell: CellId) -> Result<(), DocumentError> {
        if self.peers.contains_key(&cell) { Ok(()) } else { Err(DocumentError::UnknownCell(cell)) }
    }

    /// A message as a document. The same message has the same document, as long as the key stays.
    ///
    /// # Errors
    /// The message cannot be written as JSON.
    pub fn sign(&self, message: &Message) -> Result<String, serde_json::Error> {
        let signed = serde_json::to_value(message)?;
        let signature = hex::encode(self.signing.sign(&signed_bytes(&signed)));
        serde_json::to_string(&Signed { signed, signature })
    }

    /// The message of a document that a listed cell has signed for this one, or this one for a listed cell.
    ///
    /// # Errors
    /// Why it is not taken: the form, the author, the signature, the environment, the addressee, in this order.
    pub fn open(&self, document: &str) -> Result<Message, DocumentError> {
        check_length(document, LIST_BYTES_MAX)?;
        let malformed = |error: serde_json::Error| DocumentError::Malformed(error.to_string());
        let Signed { signed, signature } = serde_json::from_str(document).map_err(malformed)?;
        let message: Message = serde_json::from_value(signed.clone()).map_err(malformed)?;
        if !matches!(message, Message::Transfers { .. }) {
            check_length(document, DOCUMENT_BYTES_MAX)?;
        }
        let author = message.author();
        if !self.is_signed(author, &signed, &signature)? {
            return Err(DocumentError::WrongSignature(author));
        }
        if message.environment() != self.environment {
            let (found, here) = (message.environment().as_str(), self.environment.as_str());
            return Err(DocumentError::OtherEnvironment { found, here });
        }
        let addressee = message.addressee();
        if author == self.cell {
            self.check_peer(addressee)?;
        } else if addressee != self.cell {
            return Err(DocumentError::OtherAddressee(addressee));
        }
        Ok(message)
    }

    fn is_signed(&self, author: CellId, signed: &Value, signature: &str) -> Result<bool, DocumentError> {
        let mut bytes = [0; 64];
        if hex::decode_to_slice(signature, &mut bytes).is_err() {
            return Err(DocumentError::Malformed("signature: 128 hex digits are needed".to_owned()));
        }
        let own = self.public_key();
        let keys: Vec<&PublicKey> = if author == self.cell {
            std::iter::once(&own).chain(&self.earlier).collect()
        } else {
            self.peers.get(&author).ok_or(DocumentError::UnknownCell(author))?.iter().collect()
        };
        let text = signed_bytes(signed);
        Ok(keys.iter().any(|key| UnparsedPublicKey::new(&ED25519, key.0).verify(&text, &bytes).is_ok()))
    }
}

fn check_length(document: &str, max: usize) -> Result<(), DocumentError> {
    if document.len() > max { Err(DocumentError::TooLong { max }) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
