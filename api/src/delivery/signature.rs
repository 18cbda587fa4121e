//! The signature of a delivery, and its verification by the receiver (contract section 6.2, rule 2).
//!
//! `Svc-Signature: t=<unix seconds>,v1=<hex>[,v1=<hex>]`, each `v1` an HMAC-SHA256 over `<t>.<body>` with a complete
//! secret, `whsec_` included, as key. The headers of Standard Webhooks are sent as well, with the decoded part of the
//! same secret as key, so that existing verifiers work too.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dvp_core::secrets::{MacKey, mac};
use subtle::{Choice, ConstantTimeEq};

/// The contract's header.
pub const HEADER: &str = "svc-signature";
/// The tolerated difference of `t` from the receiver's clock, in both directions.
pub const TOLERANCE_SECS: u64 = 300;

const PREFIX: &str = "whsec_";

pub(super) struct Signer {
    whole: MacKey,
    /// For a secret in the form of Standard Webhooks.
    decoded: Option<MacKey>,
}

impl Signer {
    pub(super) fn new(secret: &[u8]) -> Self {
        let text = std::str::from_utf8(secret).ok().and_then(|text| text.strip_prefix(PREFIX));
        let key = text.and_then(|text| STANDARD.decode(text).ok());
        Self { whole: MacKey::new(secret), decoded: key.map(|key| MacKey::new(&key)) }
    }
}

/// The value of `Svc-Signature`: a `v1` for each present secret. `t` is its text.
pub(super) fn svc_signature<'a>(signers: impl Iterator<Item = &'a Signer>, t: &str, body: &[u8]) -> String {
    const EACH: usize = ",v1=".len() + 64;
    // The exact capacity for one secret: a header's value of another capacity would be copied.
    let mut text = String::with_capacity("t=".len() + t.len() + EACH);
    text.push_str("t=");
    text.push_str(t);
    for signer in signers {
        let mut digits = [0; 64];
        hex::encode_to_slice(signer.whole.mac(&[t.as_bytes(), b".", body]), &mut digits)
            .expect("32 bytes have 64 digits");
        text.push_str(",v1=");
        text.push_str(std::str::from_utf8(&digits).expect("digits are ASCII"));
    }
    text
}

/// The value of `webhook-signature` (Standard Webhooks): `v1,<base64>` for each present secret.
pub(super) fn webhook_signature<'a>(
    signers: impl Iterator<Item = &'a Signer>,
    id: &str,
    t: &str,
    body: &[u8],
) -> String {
    let mut text = String::with_capacity("v1,".len() + 44);
    for key in signers.filter_map(|signer| signer.decoded.as_ref()) {
        text.push_str(if text.is_empty() { "v1," } else { " v1," });
        STANDARD.encode_string(key.mac(&[id.as_bytes(), b".", t.as_bytes(), b".", body]), &mut text);
    }
    text
}

/// The value of `Svc-Signature` by these secrets.
pub fn sign(secrets: &[Vec<u8>], t: u64, body: &[u8]) -> String {
    let signers: Vec<Signer> = secrets.iter().map(|secret| Signer::new(secret)).collect();
    svc_signature(signers.iter(), &t.to_string(), body)
}

/// The value of `webhook-signature` by these secrets.
pub fn sign_standard(secrets: &[Vec<u8>], id: &str, t: u64, body: &[u8]) -> String {
    let signers: Vec<Signer> = secrets.iter().map(|secret| Signer::new(secret)).collect();
    webhook_signature(signers.iter(), id, &t.to_string(), body)
}

/// Why a delivery's signature is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    #[error("the Svc-Signature header is not of the form t=<unix seconds>,v1=<hex>")]
    Malformed,
    #[error("t is too far from the clock")]
    OutsideTolerance,
    #[error("no v1 signature matches this body and secret")]
    NoMatch,
}

/// Verifies a delivery as its receiver would. All signatures are compared, each in constant time.
pub fn verify(
    secret: &str,
    header: &str,
    body: &[u8],
    now: u64,
    tolerance_secs: u64,
) -> Result<(), VerifyError> {
    let (mut t, mut given) = (None, Vec::new());
    for part in header.split(',') {
        match part.trim().split_once('=') {
            Some(("t", text)) if t.is_none() => t = Some(seconds(text).ok_or(VerifyError::Malformed)?),
            Some(("v1", text)) => given.push(text),
            // Later schemes may be listed beside v1.
            Some((name, _)) if name != "t" => {}
            Some(_) | None => return Err(VerifyError::Malformed),
        }
    }
    let t = t.filter(|_| !given.is_empty()).ok_or(VerifyError::Malformed)?;
    let ours = hex::encode(mac(secret.as_bytes(), &[format!("{t}.").as_bytes(), body].concat()));
    let matches =
        given.iter().fold(Choice::from(0), |found, text| found | ours.as_bytes().ct_eq(text.as_bytes()));
    if !bool::from(matches) {
        return Err(VerifyError::NoMatch);
    }
    if now.abs_diff(t) > tolerance_secs { Err(VerifyError::OutsideTolerance) } else { Ok(()) }
}

fn seconds(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5";

    #[test]
    fn a_changed_body_or_an_old_timestamp_is_refused() {
        let header = sign(&[SECRET.into()], 1000, b"{\"a\":1}");
        assert_eq!(verify(SECRET, &header, b"{\"a\":2}", 1000, 300), Err(VerifyError::NoMatch));
        assert_eq!(
            verify(SECRET, &header.replace("t=1000", "t=1001"), b"{\"a\":1}", 1000, 300),
            Err(VerifyError::NoMatch)
        );
        assert_eq!(verify(SECRET, &header, b"{\"a\":1}", 1300, 300), Ok(()));
        assert_eq!(verify(SECRET, &header, b"{\"a\":1}", 700, 300), Ok(()));
        for now in [699, 1301] {
            assert_eq!(verify(SECRET, &header, b"{\"a\":1}", now, 300), Err(VerifyError::OutsideTolerance));
        }
        for wrong in ["", "t=1000", "v1=00", "t=,v1=00", "t=-1,v1=00", "t=1,t=2,v1=00", "1000", "t=1000,v1"] {
            assert_eq!(verify(SECRET, wrong, b"", 1000, 300), Err(VerifyError::Malformed), "{wrong}");
        }
    }
}
