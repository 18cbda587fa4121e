//! Signatures of r and s alone, as tokens and key management services make them.

use super::SignError;
use alloy::primitives::{Address, B256, Signature, U256};

/// A signature of a token, or of a key management service, which gives neither the parity of y nor a low s.
pub(super) fn with_parity(raw: &[u8; 64], digest: B256, expected: Address) -> Result<Signature, SignError> {
    let (r, s) = raw.split_at(32);
    let (r, s) = (U256::from_be_slice(r), U256::from_be_slice(s));
    let either = [false, true].map(|parity| Signature::new(r, s, parity).normalized_s());
    let signer = |signature: &Signature| signature.recover_address_from_prehash(&digest).ok();
    if let Some(ours) = either.into_iter().find(|signature| signer(signature) == Some(expected)) {
        return Ok(ours);
    }
    match either.iter().find_map(signer) {
        Some(found) => Err(SignError::WrongKey { expected, found }),
        None => Err(SignError::Malformed("no account can be recovered from it".to_owned())),
    }
}
