//! Signed Logons: RawData(96) is the Base64 of an HMAC-SHA256 with the session's secret over
//!
//! ```text
//! SendingTime(52) SOH MsgType(35) SOH MsgSeqNum(34) SOH SenderCompID(49) SOH TargetCompID(56)
//! ```
//!
//! with the values of the Logon. The secret is never transmitted, and an intercepted Logon is useless: its SendingTime
//! must be recent, and later than that of every signed Logon before it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dvp_core::secrets::mac;
use dvp_fix::{UtcNanos, codec::Message, tag};
use subtle::ConstantTimeEq as _;

use super::NotAdmitted;

/// The signed text. `None` when the Logon lacks one of the fields.
pub fn prehash(logon: &Message) -> Option<Vec<u8>> {
    let fields =
        [tag::SENDING_TIME, tag::MSG_TYPE, tag::MSG_SEQ_NUM, tag::SENDER_COMP_ID, tag::TARGET_COMP_ID];
    let values: Option<Vec<&[u8]>> = fields.into_iter().map(|field| logon.get(field)).collect();
    Some(values?.join(&1))
}

/// RawData(96) of a Logon with this [`prehash`].
pub fn signature(secret: &[u8], prehash: &[u8]) -> String {
    STANDARD.encode(mac(secret, prehash))
}

/// Checks a signed Logon and returns its SendingTime. The store decides whether it was used before.
pub(super) fn check(
    logon: &Message,
    secret: &[u8],
    window_secs: u64,
    now: UtcNanos,
) -> Result<UtcNanos, NotAdmitted> {
    let prehash = prehash(logon).ok_or(NotAdmitted::Credentials)?;
    let said = logon.get(tag::RAW_DATA).and_then(|said| STANDARD.decode(said).ok());
    let said = said.ok_or(NotAdmitted::Credentials)?;
    if !bool::from(said.ct_eq(&mac(secret, &prehash))) {
        return Err(NotAdmitted::Credentials);
    }
    let signed_at = logon.get(tag::SENDING_TIME).and_then(UtcNanos::parse).ok_or(NotAdmitted::Credentials)?;
    if signed_at.abs_diff(now) > window_secs.saturating_mul(1_000_000_000) {
        return Err(NotAdmitted::Stale);
    }
    Ok(signed_at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"not very secret";
    /// 2026-01-02T03:04:05Z.
    const NOW: UtcNanos = UtcNanos(1_767_323_045_000_000_000);

    fn logon(seq: &str, signature: &str) -> Message {
        let length = signature.len();
        let body = format!(
            "35=A|34={seq}|49=ACME|52=20260102-03:04:05.000|56=DVP|95={length}|96={signature}|98=0|108=30|"
        )
        .replace('|', "\u{1}");
        let frame = format!("8=FIX.4.4\u{1}9={}\u{1}{body}", body.len());
        let sum = frame.bytes().fold(0_u8, |sum, byte| sum.wrapping_add(byte));
        Message::parse(format!("{frame}10={sum:03}\u{1}").as_bytes()).unwrap()
    }

    #[test]
    fn the_documented_fields_are_signed_in_the_documented_order() {
        let prehash = prehash(&logon("7", "x")).unwrap();
        assert_eq!(prehash, b"20260102-03:04:05.000\x01A\x017\x01ACME\x01DVP");
        let signed = logon("7", &signature(SECRET, &prehash));
        assert!(check(&signed, SECRET, 30, NOW).is_ok());
        assert_eq!(check(&signed, b"another", 30, NOW), Err(NotAdmitted::Credentials));
        let elsewhere = logon("8", &signature(SECRET, &prehash));
        assert_eq!(check(&elsewhere, SECRET, 30, NOW), Err(NotAdmitted::Credentials));
        for nonsense in ["", "x", "====", "YWJj"] {
            let refused = check(&logon("7", nonsense), SECRET, 30, NOW);
            assert_eq!(refused, Err(NotAdmitted::Credentials), "{nonsense:?}");
        }
    }

    #[test]
    fn an_old_signature_and_one_from_the_future_are_refused() {
        let signed = logon("7", &signature(SECRET, &prehash(&logon("7", "x")).unwrap()));
        let second = 1_000_000_000;
        for (now, expected) in [
            (NOW.0 + 30 * second, Ok(NOW)),
            (NOW.0 + 31 * second, Err(NotAdmitted::Stale)),
            (NOW.0 - 30 * second, Ok(NOW)),
            (NOW.0 - 31 * second, Err(NotAdmitted::Stale)),
        ] {
            assert_eq!(check(&signed, SECRET, 30, UtcNanos(now)), expected);
        }
    }
}
