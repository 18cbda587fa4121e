//! One-time codes of authenticator apps (RFC 6238): HMAC-SHA-1, six digits, intervals of 30 seconds.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;
use subtle::ConstantTimeEq as _;

const INTERVAL_SECS: u64 = 30;
const DIGITS: usize = 6;
/// Intervals before and after the present one whose code is accepted (RFC 6238, section 5.2).
const SKEW: u64 = 1;
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// The secret that the console and an authenticator app share.
#[derive(Clone)]
pub(crate) struct TotpSecret([u8; 20]);

impl TotpSecret {
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 20];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    pub(crate) const fn of(bytes: [u8; 20]) -> Self {
        Self(bytes)
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; 20] {
        &self.0
    }

    /// The secret as apps take it when it is typed: 32 letters and digits.
    pub(crate) fn base32(&self) -> String {
        let groups = self.0.as_chunks::<5>().0.iter();
        let letters = groups.flat_map(|group| {
            let bits = group.iter().fold(0_u64, |bits, byte| (bits << 8) | u64::from(*byte));
            (0..8).rev().map(move |place| {
                let index = usize::try_from((bits >> (place * 5)) & 0x1f).unwrap_or_default();
                char::from(BASE32[index])
            })
        });
        letters.collect()
    }

    /// The address by which apps take the secret.
    pub(crate) fn uri(&self, operator: &str, issuer: &str) -> String {
        let (operator, issuer) = (crate::view::segment(operator), crate::view::segment(issuer));
        format!("otpauth://totp/{issuer}:{operator}?secret={}&issuer={issuer}", self.base32())
    }

    fn code(&self, step: u64) -> u32 {
        let mut mac = Hmac::<Sha1>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(&step.to_be_bytes());
        let hash: [u8; 20] = mac.finalize().into_bytes().into();
        // RFC 4226, section 5.3.
        let offset = usize::from(hash[19] & 0x0f);
        let word = [hash[offset], hash[offset + 1], hash[offset + 2], hash[offset + 3]];
        (u32::from_be_bytes(word) & 0x7fff_ffff) % 1_000_000
    }

    /// The interval whose code was typed, when it is the present one or next to it. Takes the same time for all codes.
    pub(crate) fn step_of(&self, typed: &str, unix_secs: u64) -> Option<u64> {
        let typed: String = typed.chars().filter(|letter| !letter.is_whitespace()).take(DIGITS + 1).collect();
        let now = unix_secs / INTERVAL_SECS;
        let mut found = None;
        for step in now.saturating_sub(SKEW)..=now + SKEW {
            let code = format!("{:0>DIGITS$}", self.code(step));
            if bool::from(code.as_bytes().ct_eq(typed.as_bytes())) {
                found = Some(step);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RFC: TotpSecret = TotpSecret(*b"12345678901234567890");

    #[test]
    fn codes_are_those_of_the_rfc() {
        // RFC 6238, appendix B, the last six of the eight digits.
        for (unix, code) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
            (20_000_000_000, "353130"),
        ] {
            assert_eq!(RFC.step_of(code, unix), Some(unix / 30), "{unix}");
        }
    }

    #[test]
    fn codes_are_accepted_in_their_interval_and_next_to_it() {
        for (unix, step) in [(0, None), (30, Some(2)), (60, Some(2)), (119, Some(2)), (120, None)] {
            assert_eq!(RFC.step_of("359152", unix), step, "{unix}");
        }
        for wrong in ["", "0", "35915", "3591520", "359153", "35915a", "٣٥٩١٥٢"] {
            assert_eq!(RFC.step_of(wrong, 60), None, "{wrong}");
        }
        assert_eq!(RFC.step_of("359 152", 60), Some(2));
    }

    #[test]
    fn secrets_are_written_in_base32() {
        assert_eq!(RFC.base32(), "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ");
        let uri = RFC.uri("kim lee", "dvp test");
        assert_eq!(
            uri,
            "otpauth://totp/dvp%20test:kim%20lee?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ&issuer=dvp%20test"
        );
    }
}
