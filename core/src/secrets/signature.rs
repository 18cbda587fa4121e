//! Signatures of the service that others verify by a public key: Ed25519, with a key derived from the master key.

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

use super::{MasterKey, Vault};

/// No key pair could be made of a seed.
#[derive(Debug, thiserror::Error)]
#[error("the key for signatures cannot be derived")]
pub struct NoSigningKey;

/// A signature and the public key that verifies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    pub public_key: Vec<u8>,
    pub signature: Vec<u8>,
}

impl Vault {
    /// Signs with the key of the current master key.
    pub fn sign(&self, message: &[u8]) -> Result<Signed, NoSigningKey> {
        let pair = self.current.signing_pair()?;
        let public_key = pair.public_key().as_ref().to_vec();
        Ok(Signed { public_key, signature: pair.sign(message).as_ref().to_vec() })
    }

    /// Whether a public key is that of one of the master keys.
    pub fn has_signing_key(&self, public_key: &[u8]) -> Result<bool, NoSigningKey> {
        for key in self.keys() {
            if key.signing_pair()?.public_key().as_ref() == public_key {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl MasterKey {
    fn signing_pair(&self) -> Result<Ed25519KeyPair, NoSigningKey> {
        Ed25519KeyPair::from_seed_unchecked(&self.derive("signature", b"v1")).map_err(|_| NoSigningKey)
    }
}

impl Signed {
    /// Is this the public key's signature of the message?
    pub fn verifies(&self, message: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.public_key).verify(message, &self.signature).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_verifies_by_its_key_for_its_message_only() {
        let key = |id: &str, byte| MasterKey { id: id.to_owned(), key: [byte; 32] };
        let vault = Vault::new([7; 32]);
        let signed = vault.sign(b"text").unwrap();
        assert!(signed.verifies(b"text") && !signed.verifies(b"Text"));
        assert!(vault.has_signing_key(&signed.public_key).unwrap());
        let other = Vault::new([8; 32]);
        assert!(!other.has_signing_key(&signed.public_key).unwrap());
        let swapped = Signed { public_key: other.sign(b"text").unwrap().public_key, ..signed.clone() };
        assert!(!swapped.verifies(b"text"));
        for cut in 0..signed.signature.len() {
            let cut = Signed { signature: signed.signature[..cut].to_vec(), ..signed.clone() };
            assert!(!cut.verifies(b"text"));
        }
        // A rotation leaves earlier signatures known.
        let rotated = Vault::with_keys(vec![key("2", 8), key("1", 7)]).unwrap();
        assert!(rotated.has_signing_key(&signed.public_key).unwrap());
    }
}
