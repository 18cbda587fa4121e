//! How a delivery is signed, and how its receiver checks it (contract section 6.2, rule 2).
//!
//! `Svc-Signature: t=<unix seconds>,v1=<hex>[,v1=<hex>]`, each `v1` an HMAC-SHA256 over `<t>.<body>` with a whole
//! secret, `whsec_` included, as key. Beside it the headers of Standard Webhooks, whose key is the decoded part of the
//! same secret, so that a ready-made verifier works too.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dvp_core::secrets::mac;
use subtle::{Choice, ConstantTimeEq};

/// The contract's header.
pub const HEADER: &str = "svc-signature";
/// How far `t` may be from the receiver's clock, either way.
pub const TOLERANCE_SECS: u64 = 300;

const PREFIX: &str = "whsec_";

fn v1(secret: &[u8], t: u64, body: &[u8]) -> [u8; 32] {
    mac(secret, &[format!("{t}.").as_bytes(), body].concat())
}

/// The header's value: a `v1` for each secret in force.
pub fn sign(secrets: &[Vec<u8>], t: u64, body: &[u8]) -> String {
    secrets
        .iter()
        .fold(format!("t={t}"), |text, secret| format!("{text},v1={}", hex::encode(v1(secret, t, body))))
}

/// The value of `webhook-signature` (Standard Webhooks): `v1,<base64>` for each secret in force.
pub fn sign_standard(secrets: &[Vec<u8>], id: &str, t: u64, body: &[u8]) -> String {
    let message = [format!("{id}.{t}.").as_bytes(), body].concat();
    let one = |secret: &Vec<u8>| {
        let text = std::str::from_utf8(secret).ok()?.strip_prefix(PREFIX)?;
        let key = STANDARD.decode(text).ok()?;
        Some(format!("v1,{}", STANDARD.encode(mac(&key, &message))))
    };
    secrets.iter().filter_map(one).collect::<Vec<_>>().join(" ")
}

/// Why a delivery is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    #[error("the Svc-Signature header is not of the form t=<unix seconds>,v1=<hex>")]
    Malformed,
    #[error("t is too far from the clock")]
    OutsideTolerance,
    #[error("no v1 is the signature of this body by this secret")]
    NoMatch,
}

/// Checks a delivery as its receiver would. All signatures are compared, each in constant time.
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
            // Later schemes may stand beside v1.
            Some((name, _)) if name != "t" => {}
            Some(_) | None => return Err(VerifyError::Malformed),
        }
    }
    let t = t.filter(|_| !given.is_empty()).ok_or(VerifyError::Malformed)?;
    let ours = hex::encode(v1(secret.as_bytes(), t, body));
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
    fn two_secrets_give_two_signatures_and_either_verifies() {
        let other = "whsec_OTg3NjU0MzIxMDk4NzY1NDMyMTA5ODc2NTQzMjEw";
        let header = sign(&[SECRET.into(), other.into()], 1000, b"{}");
        assert_eq!(header.matches("v1=").count(), 2);
        assert_eq!(verify(SECRET, &header, b"{}", 1000, 300), Ok(()));
        assert_eq!(verify(other, &header, b"{}", 1000, 300), Ok(()));
        assert_eq!(verify("whsec_", &header, b"{}", 1000, 300), Err(VerifyError::NoMatch));
    }

    #[test]
    fn a_change_anywhere_or_an_old_time_is_refused() {
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
