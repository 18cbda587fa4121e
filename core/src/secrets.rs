//! The service's master keys and the keys derived from them. No derived key is stored: each is recomputed.
//!
//! There is one master key, or several during a rotation, each with an id. The first creates all new values; values of
//! earlier keys stay valid as long as their key is listed. Encrypted values name their key; the key of a preimage is
//! found by its hashlock, the key of a hash by trying each key.
//!
//! The escrow's preimage is derived when it is revealed; signed transactions, which may contain one, are stored
//! encrypted.
//!
//! Kept by `core/tests/it/rotation.rs::an_orders_preimage_is_in_no_row_and_needs_its_key_until_settled`.

mod signature;

use chacha20poly1305::aead::{Aead, Generate, Key, Nonce, Payload};
use chacha20poly1305::{ChaCha20Poly1305, KeyInit};
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

pub use self::signature::{NoSigningKey, Signed};

/// Decryption failed: wrong master key, or changed bytes.
#[derive(Debug, thiserror::Error)]
#[error("a sealed secret does not open with this master key")]
pub struct SealBroken;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyListError {
    #[error("no master key is given")]
    Empty,
    #[error("the key id {0:?} is not 1 to 32 of the characters a-z, 0-9, '.', '_' and '-', or is \"cells\"")]
    Id(String),
    #[error("the key id {0:?} is given twice")]
    Twice(String),
}

#[derive(Clone)]
pub struct MasterKey {
    pub id: String,
    pub key: [u8; 32],
}

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} <secret>", self.id)
    }
}

/// Derived keys, one per purpose, so that a value of one purpose is useless for another.
#[derive(Clone)]
pub struct Vault {
    current: MasterKey,
    earlier: Vec<MasterKey>,
    /// `accountHash` must not change when master keys rotate, so its key is independent of them.
    account_key: [u8; 32],
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<secret>")
    }
}

/// The prefixes of opaque ids.
pub const DELIVERY: &str = "dlv_";
pub const REPLAY: &str = "rpl_";
pub const RESTING_ORDER: &str = "rst_";

/// The id of a key configured without one.
pub const UNNAMED: &str = "1";
/// The prefix of an encrypted value: the version of this format.
const SEAL: u8 = 0x82;
const NONCE_BYTES: usize = 12;
const ID_BYTES_MAX: usize = 32;
/// Of the permutation that hides a number; four are as good as random.
const ROUNDS: u8 = 4;
const ACCOUNT: &str = "beneficiary-account";

impl Vault {
    pub fn new(master: [u8; 32]) -> Self {
        Self::of(MasterKey { id: UNNAMED.to_owned(), key: master }, Vec::new())
    }

    /// With several keys, of which the first is the current one.
    pub fn with_keys(keys: Vec<MasterKey>) -> Result<Self, KeyListError> {
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
        for (n, MasterKey { id, .. }) in keys.iter().enumerate() {
            if id.is_empty() || id.len() > ID_BYTES_MAX || !id.chars().all(known) {
                return Err(KeyListError::Id(id.clone()));
            }
            if keys.iter().take(n).any(|other| other.id == *id) {
                return Err(KeyListError::Twice(id.clone()));
            }
        }
        let mut keys = keys.into_iter();
        let current = keys.next().ok_or(KeyListError::Empty)?;
        Ok(Self::of(current, keys.collect()))
    }

    fn of(current: MasterKey, earlier: Vec<MasterKey>) -> Self {
        let account_key = mac(&current.key, ACCOUNT.as_bytes());
        Self { current, earlier, account_key }
    }

    /// Reads 32 random bytes from the operating system.
    pub fn random() -> Result<[u8; 32], getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(bytes)
    }

    pub fn current_id(&self) -> &str {
        &self.current.id
    }

    /// The ids of all keys, the current one first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys().map(|key| key.id.as_str())
    }

    fn keys(&self) -> impl Iterator<Item = &MasterKey> {
        std::iter::once(&self.current).chain(&self.earlier)
    }

    /// The hashes under which an API key is looked up: that of new keys first.
    pub fn api_key_hashes(&self, api_key: &str) -> Vec<[u8; 32]> {
        self.keys().map(|key| key.derive("api-key", api_key.as_bytes())).collect()
    }

    /// The stored hash of a new API key.
    pub fn api_key_hash(&self, api_key: &str) -> [u8; 32] {
        self.current.derive("api-key", api_key.as_bytes())
    }

    pub fn fix_password_hash(&self, session_id: &str, password: &str) -> [u8; 32] {
        self.current.fix_password_hash(session_id, password)
    }

    /// Whether a FIX password matches its stored hash, under any of the keys. Takes constant time.
    pub fn is_fix_password(&self, session_id: &str, password: &str, kept: &[u8]) -> bool {
        let is_it = |key: &MasterKey| key.fix_password_hash(session_id, password)[..].ct_eq(kept);
        self.keys().map(is_it).fold(subtle::Choice::from(0), |any, one| any | one).into()
    }

    /// `accountHash` of the contract: keyed and stable, over the account alone. Lowercase hex.
    pub fn account_hash(&self, account: &str) -> String {
        hex::encode(mac(&self.account_key, account.as_bytes()))
    }

    /// A row's number as others see it: `prefix` and 16 hex digits, which do not tell how many rows there are. It stays
    /// the same when keys rotate.
    pub fn opaque_id(&self, prefix: &str, id: i64) -> String {
        let halves = split(id.cast_unsigned());
        let [left, right] =
            (0..ROUNDS).fold(halves, |[left, right], round| [right, left ^ self.round(prefix, round, right)]);
        format!("{prefix}{left:08x}{right:08x}")
    }

    /// The number behind an id; `None`: no row has such an id.
    pub fn id_behind(&self, prefix: &str, text: &str) -> Option<i64> {
        let hex = text.strip_prefix(prefix).filter(|hex| hex.len() == 16)?;
        let halves = split(u64::from_str_radix(hex, 16).ok()?);
        let [left, right] = (0..ROUNDS)
            .rev()
            .fold(halves, |[left, right], round| [right ^ self.round(prefix, round, left), left]);
        let id = ((u64::from(left) << 32) | u64::from(right)).cast_signed();
        (self.opaque_id(prefix, id) == text).then_some(id)
    }

    /// A Feistel network of such rounds is a permutation, which can be inverted with the key alone.
    fn round(&self, prefix: &str, round: u8, half: u32) -> u32 {
        let message = [b"id:", prefix.as_bytes(), &[round], &half.to_be_bytes()].concat();
        let [a, b, c, d, ..] = mac(&self.account_key, &message);
        u32::from_be_bytes([a, b, c, d])
    }

    /// The key of account hashes, to be stored encrypted.
    pub const fn account_key(&self) -> &[u8; 32] {
        &self.account_key
    }

    /// The same with the stored key of account hashes.
    #[must_use]
    pub fn with_account_key(self, account_key: [u8; 32]) -> Self {
        Self { account_key, ..self }
    }

    /// SHA-256 of the preimage that releases a new execution's escrow.
    pub fn hashlock(&self, reference: &str) -> [u8; 32] {
        Sha256::digest(self.current.preimage(reference)).into()
    }

    /// The preimage of an execution's hashlock, derived when it is revealed and never stored. `None`: none of the keys
    /// created the hashlock.
    pub fn preimage(&self, reference: &str, hashlock: &[u8; 32]) -> Option<[u8; 32]> {
        let opens = |preimage: &[u8; 32]| <[u8; 32]>::from(Sha256::digest(preimage)) == *hashlock;
        self.keys().map(|key| key.preimage(reference)).find(opens)
    }

    /// The id of the key that created an execution's hashlock.
    pub fn hashlock_key(&self, reference: &str, hashlock: &[u8; 32]) -> Option<&str> {
        let made = |key: &&MasterKey| <[u8; 32]>::from(Sha256::digest(key.preimage(reference))) == *hashlock;
        self.keys().find(made).map(|key| key.id.as_str())
    }

    /// Seeds of the keys by which processes of the service authenticate to each other: that of the current master key
    /// first, then those of earlier ones.
    pub fn process_keys(&self) -> Vec<[u8; 32]> {
        self.keys().map(|key| key.derive("process", b"v1")).collect()
    }

    /// Sixteen bytes that authenticate a feed cursor.
    pub fn cursor_mac(&self, cursor: &[u8]) -> [u8; 16] {
        self.current.cursor_mac(cursor)
    }

    /// Whether one of the keys authenticated a feed cursor. Takes constant time.
    pub fn is_cursor_mac(&self, cursor: &[u8], mac: &[u8]) -> bool {
        let is_it = |key: &MasterKey| key.cursor_mac(cursor).ct_eq(mac);
        self.keys().map(is_it).fold(subtle::Choice::from(0), |any, one| any | one).into()
    }

    /// Encrypts a secret that must be read again. `owner` is authenticated: the bytes can be decrypted for no other
    /// row.
    pub fn seal(&self, owner: &str, secret: &[u8]) -> Result<Vec<u8>, SealBroken> {
        let MasterKey { id, .. } = &self.current;
        let nonce = Nonce::<ChaCha20Poly1305>::generate();
        let payload = Payload { msg: secret, aad: owner.as_bytes() };
        let sealed = self.current.cipher().encrypt(&nonce, payload).map_err(|_| SealBroken)?;
        let length = u8::try_from(id.len()).map_err(|_| SealBroken)?;
        Ok([&[SEAL, length], id.as_bytes(), nonce.as_slice(), &sealed].concat())
    }

    /// Decrypts a value of [`seal`](Self::seal) for the same owner, with any of the keys.
    pub fn open(&self, owner: &str, sealed: &[u8]) -> Result<Vec<u8>, SealBroken> {
        let (id, rest) = seal_key(sealed).zip(seal_body(sealed)).ok_or(SealBroken)?;
        let key = self.keys().find(|key| key.id == id).ok_or(SealBroken)?;
        let (nonce, body) = rest.split_at_checked(NONCE_BYTES).ok_or(SealBroken)?;
        let nonce = Nonce::<ChaCha20Poly1305>::try_from(nonce).map_err(|_| SealBroken)?;
        key.cipher().decrypt(&nonce, Payload { msg: body, aad: owner.as_bytes() }).map_err(|_| SealBroken)
    }
}

/// The id of the key that encrypted a value.
pub fn seal_key(sealed: &[u8]) -> Option<&str> {
    let [SEAL, length, rest @ ..] = sealed else { return None };
    std::str::from_utf8(rest.get(..usize::from(*length))?).ok()
}

fn seal_body(sealed: &[u8]) -> Option<&[u8]> {
    let [SEAL, length, rest @ ..] = sealed else { return None };
    rest.get(usize::from(*length)..)
}

impl MasterKey {
    fn derive(&self, purpose: &str, message: &[u8]) -> [u8; 32] {
        let subkey = mac(&self.key, purpose.as_bytes());
        mac(&subkey, message)
    }

    fn fix_password_hash(&self, session_id: &str, password: &str) -> [u8; 32] {
        self.derive("fix-password", format!("{session_id}\u{1}{password}").as_bytes())
    }

    fn preimage(&self, reference: &str) -> [u8; 32] {
        self.derive("preimage", reference.as_bytes())
    }

    fn cursor_mac(&self, cursor: &[u8]) -> [u8; 16] {
        let full = self.derive("cursor", cursor);
        let mut short = [0; 16];
        short.copy_from_slice(&full[..16]);
        short
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

    /// The MAC of the concatenated parts.
    pub fn mac(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.over(parts).finalize().into_bytes().into()
    }

    /// Whether `expected` is the MAC of the concatenated parts. Takes constant time.
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

const fn split(id: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = id.to_be_bytes();
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
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

    fn key(id: &str, byte: u8) -> MasterKey {
        MasterKey { id: id.to_owned(), key: [byte; 32] }
    }

    #[test]
    fn values_of_an_earlier_key_are_valid_while_it_is_listed() {
        let old = Vault::with_keys(vec![key("2025", 1)]).unwrap();
        let both = Vault::with_keys(vec![key("2026", 2), key("2025", 1)]).unwrap();
        let new = Vault::with_keys(vec![key("2026", 2)]).unwrap();
        let sealed = old.seal("o", b"s").unwrap();
        assert_eq!(seal_key(&sealed), Some("2025"));
        assert_eq!(both.open("o", &sealed).unwrap(), b"s");
        assert!(new.open("o", &sealed).is_err());
        let again = both.seal("o", b"s").unwrap();
        assert_eq!((seal_key(&again), new.open("o", &again).unwrap().as_slice()), (Some("2026"), &b"s"[..]));

        let hashlock = old.hashlock("exe_1");
        assert_eq!(old.preimage("exe_1", &hashlock), both.preimage("exe_1", &hashlock));
        assert_eq!(both.hashlock_key("exe_1", &hashlock), Some("2025"));
        assert_eq!((new.preimage("exe_1", &hashlock), both.preimage("exe_2", &hashlock)), (None, None));
        assert_eq!(both.hashlock("exe_1"), new.hashlock("exe_1"));

        assert_eq!(both.api_key_hashes("k"), [new.api_key_hash("k"), old.api_key_hash("k")]);
        let password = old.fix_password_hash("s", "p");
        assert!(both.is_fix_password("s", "p", &password) && !new.is_fix_password("s", "p", &password));
        assert!(!both.is_fix_password("s", "q", &password) && !both.is_fix_password("t", "p", &password));
        let cursor = old.cursor_mac(b"c");
        assert!(both.is_cursor_mac(b"c", &cursor) && !new.is_cursor_mac(b"c", &cursor));
        assert_eq!(both.process_keys(), [new.process_keys(), old.process_keys()].concat());
        let kept = both.clone().with_account_key(*old.account_key());
        assert_eq!(kept.account_hash("a"), old.account_hash("a"));
    }

    #[test]
    fn an_opaque_id_hides_its_number_and_leads_back_to_it() {
        let vault = Vault::new([7; 32]);
        let mut seen = std::collections::BTreeSet::new();
        for id in [0, 1, 2, 3, 1 << 31, i64::MAX, i64::MIN, -1] {
            let text = vault.opaque_id("dlv_", id);
            assert!(text.len() == 20 && seen.insert(text.clone()), "{text}");
            assert_eq!(vault.id_behind("dlv_", &text), Some(id));
            assert_ne!(vault.id_behind("rst_", &text.replace("dlv_", "rst_")), Some(id));
            assert_ne!(Vault::new([8; 32]).id_behind("dlv_", &text), Some(id));
        }
        let rotated = Vault::new([8; 32]).with_account_key(*vault.account_key());
        assert_eq!(rotated.opaque_id("dlv_", 2), vault.opaque_id("dlv_", 2));
        for wrong in ["2", "dlv_2", "dlv_000000000000000G", "dlv_+00000000000000a", "dlv_00000000000000AA"] {
            assert_eq!(vault.id_behind("dlv_", wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_list_of_keys_requires_distinct_valid_ids() {
        let refused = |keys| Vault::with_keys(keys).unwrap_err();
        assert_eq!(refused(Vec::new()), KeyListError::Empty);
        assert_eq!(refused(vec![key("a", 1), key("a", 2)]), KeyListError::Twice("a".to_owned()));
        for wrong in ["", "A", "a b", &"a".repeat(33)] {
            assert_eq!(refused(vec![key(wrong, 1)]), KeyListError::Id(wrong.to_owned()));
        }
    }

    #[test]
    fn the_hashlock_is_the_sha256_of_the_preimage() {
        let vault = Vault::new([7; 32]);
        let preimage = vault.preimage("exe_1", &vault.hashlock("exe_1")).unwrap();
        assert_eq!(vault.hashlock("exe_1"), <[u8; 32]>::from(Sha256::digest(preimage)));
        assert_ne!(vault.hashlock("exe_1"), vault.hashlock("exe_2"));
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
