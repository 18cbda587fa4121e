//! An authenticator app: the codes of a secret that the console shows.

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;

/// One secret in an app.
#[derive(Debug)]
pub struct AuthenticatorApp {
    secret: Vec<u8>,
}

impl AuthenticatorApp {
    /// An app with a secret as it is typed (base32).
    pub fn of(base32: &str) -> Self {
        let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
        let place = |letter| alphabet.find(letter).expect("a letter of base32");
        let bits: String = base32.chars().map(|letter| format!("{:05b}", place(letter))).collect();
        let bytes = bits
            .as_bytes()
            .chunks_exact(8)
            .map(|bits| bits.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit == b'1')));
        Self { secret: bytes.collect() }
    }

    pub fn secret(&self) -> &[u8] {
        &self.secret
    }

    /// The code of this half minute.
    pub fn code(&self) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs();
        let mut mac = Hmac::<Sha1>::new_from_slice(&self.secret).expect("HMAC takes a key of any length");
        mac.update(&(now / 30).to_be_bytes());
        let hash: [u8; 20] = mac.finalize().into_bytes().into();
        let at = usize::from(hash[19] & 0xf);
        let word = [hash[at], hash[at + 1], hash[at + 2], hash[at + 3]];
        format!("{:06}", (u32::from_be_bytes(word) & 0x7fff_ffff) % 1_000_000)
    }
}
