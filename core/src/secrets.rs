//! The service's master key and what is derived from it. No derived secret is kept anywhere: each is recomputed.

use chacha20poly1305::aead::{Aead, Generate, Key, Nonce, Payload};
use chacha20poly1305::{ChaCha20Poly1305, KeyInit};
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

/// A sealed secret did not open: wrong master key, or changed bytes.
#[derive(Debug, thiserror::Error)]
#[error("a sealed secret does not open with this master key")]
pub struct SealBroken;

/// Derived keys, one per purpose, so that a value of one purpose is worth nothing for another.
pub struct Vault {
    keys: [u8; 32],
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<secret>")
    }
}

/// What a sealed secret begins with: the version of this format.
const SEAL_V1: u8 = 1;
const NONCE_BYTES: usize = 12;

impl Vault {
    pub const fn new(master: [u8; 32]) -> Self {
        Self { keys: master }
    }

    /// Draws 32 random bytes from the operating system.
    pub fn random() -> Result<[u8; 32], getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(bytes)
    }

    fn derive(&self, purpose: &str, message: &[u8]) -> [u8; 32] {
        let subkey = mac(&self.keys, purpose.as_bytes());
        mac(&subkey, message)
    }

    /// How an API key is looked up.
    pub fn api_key_hash(&self, api_key: &str) -> [u8; 32] {
        self.derive("api-key", api_key.as_bytes())
    }

    /// How a FIX password is kept and compared.
    pub fn fix_password_hash(&self, session_id: &str, password: &str) -> [u8; 32] {
        self.derive("fix-password", format!("{session_id}\u{1}{password}").as_bytes())
    }

    /// `accountHash` of the contract: keyed and stable, over the account alone. Lowercase hex.
    pub fn account_hash(&self, account: &str) -> String {
        hex::encode(self.derive("beneficiary-account", account.as_bytes()))
    }

    /// The preimage that releases an execution's escrow. It never needs to be stored.
    pub fn preimage(&self, reference: &str) -> [u8; 32] {
        self.derive("preimage", reference.as_bytes())
    }

    /// SHA-256 of the preimage.
    pub fn hashlock(&self, reference: &str) -> [u8; 32] {
        Sha256::digest(self.preimage(reference)).into()
    }

    /// Sixteen bytes that authenticate a feed cursor.
    pub fn cursor_mac(&self, cursor: &[u8]) -> [u8; 16] {
        let full = self.derive("cursor", cursor);
        let mut short = [0; 16];
        short.copy_from_slice(&full[..16]);
        short
    }

    /// Encrypts a secret that must be read again. `owner` is bound to it: the bytes open for no other row.
    pub fn seal(&self, owner: &str, secret: &[u8]) -> Result<Vec<u8>, SealBroken> {
        let nonce = Nonce::<ChaCha20Poly1305>::generate();
        let payload = Payload { msg: secret, aad: owner.as_bytes() };
        let sealed = self.cipher().encrypt(&nonce, payload).map_err(|_| SealBroken)?;
        Ok([&[SEAL_V1], nonce.as_slice(), &sealed].concat())
    }

    /// Decrypts what [`seal`](Self::seal) made for the same owner.
    pub fn open(&self, owner: &str, sealed: &[u8]) -> Result<Vec<u8>, SealBroken> {
        let (version, rest) = sealed.split_first().ok_or(SealBroken)?;
        if *version != SEAL_V1 || rest.len() < NONCE_BYTES {
            return Err(SealBroken);
        }
        let (nonce, body) = rest.split_at(NONCE_BYTES);
        let nonce = Nonce::<ChaCha20Poly1305>::try_from(nonce).map_err(|_| SealBroken)?;
        self.cipher().decrypt(&nonce, Payload { msg: body, aad: owner.as_bytes() }).map_err(|_| SealBroken)
    }

    fn cipher(&self) -> ChaCha20Poly1305 {
        ChaCha20Poly1305::new(&Key::<ChaCha20Poly1305>::from(self.derive("seal", b"v1")))
    }
}

/// A key of HMAC-SHA256, prepared once for many messages.
#[derive(Clone)]
pub struct MacKey(Hmac<Sha256>);

impl std::fmt::Debug for MacKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<secret>")
    }
}

impl MacKey {
    pub fn new(key: &[u8]) -> Self {
        Self(Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length"))
    }

    /// The MAC of the parts one after the other.
    pub fn mac(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.over(parts).finalize().into_bytes().into()
    }

    /// Whether `expected` is the MAC of the parts one after the other. Takes as long either way.
    pub fn verifies(&self, parts: &[&[u8]], expected: &[u8; 32]) -> bool {
        self.over(parts).verify_slice(expected).is_ok()
    }

    fn over(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(part);
        }
        mac
    }
}

/// HMAC-SHA256.
pub fn mac(key: &[u8], message: &[u8]) -> [u8; 32] {
    MacKey::new(key).mac(&[message])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_secret_opens_for_its_owner_only_and_never_repeats() {
        let vault = Vault::new([7; 32]);
        let sealed = vault.seal("key_1", b"secret").unwrap();
        assert_eq!(vault.open("key_1", &sealed).unwrap(), b"secret");
        assert!(vault.open("key_2", &sealed).is_err());
        assert!(Vault::new([8; 32]).open("key_1", &sealed).is_err());
        assert_ne!(vault.seal("key_1", b"secret").unwrap(), sealed);
        for cut in 0..sealed.len() {
            assert!(vault.open("key_1", &sealed[..cut]).is_err());
        }
    }

    #[test]
    fn the_hashlock_is_the_sha256_of_the_preimage() {
        let vault = Vault::new([7; 32]);
        let digest: [u8; 32] = Sha256::digest(vault.preimage("exe_1")).into();
        assert_eq!(vault.hashlock("exe_1"), digest);
        assert_ne!(vault.preimage("exe_1"), vault.preimage("exe_2"));
    }

    #[test]
    fn a_prepared_key_verifies_the_same_mac_over_parts_and_no_other() {
        let key = MacKey::new(b"Jefe");
        let expected = mac(b"Jefe", b"what do ya want for nothing?");
        assert!(key.verifies(&[b"what do ya want ", b"", b"for nothing?"], &expected));
        assert!(!key.verifies(&[b"what do ya want for nothing!"], &expected));
        assert!(!MacKey::new(b"jefe").verifies(&[b"what do ya want for nothing?"], &expected));
    }

    #[test]
    fn the_mac_is_hmac_sha256() {
        // RFC 4231, test case 2.
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hex::encode(mac(b"Jefe", b"what do ya want for nothing?")), expected);
    }
}
