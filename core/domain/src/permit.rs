//! The checks of a permit (spec sections 2.5 and 7): 400 `INVALID_PERMIT`, before anything is reserved.
//!
//! [`form_defect`] needs the request alone and comes first. The signer and the nonce follow and, once the order is
//! priced, the wallet's funds less its pending orders. A wallet that is a contract is asked about its signature
//! (ERC-1271).

use crate::address::Address;
use crate::asset::AssetType;
use crate::intent::{Bounds, IntentRequest, Permit};
use crate::time::Timestamp;

/// Why a permit cannot authorize its intent. The message names the field first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PermitDefect {
    #[error("permit is not taken for an input in a chain's coin, which is deposited")]
    Unneeded,
    #[error("permit.token differs from inputAsset.address")]
    Token,
    #[error("permit.signature is not a 65-byte hex value (of a user that is a contract: 65 to 2,048 bytes)")]
    SignatureLength,
    #[error("permit.signature ends in a v that is neither 0, 1, 27 nor 28")]
    SignatureV,
    #[error("permit.signature has an s in the upper half of the curve's order")]
    SignatureS,
    #[error("permit.amountMinor is below the amount to be locked")]
    Amount,
    #[error("permit.spender is not the escrow{}", escrow.map(|at| format!(", which is {at}")).unwrap_or_default())]
    Spender { escrow: Option<Address> },
    #[error(
        "permit.spender is the escrow of contracts that take no new orders: name {escrow}, and sign again"
    )]
    Replaced { escrow: Address },
    #[error("permit.deadline has passed (it is in Unix seconds)")]
    Deadline,
    #[error("permit.signature does not recover to user")]
    Signer,
    #[error("permit.signature is not confirmed by user, which is a contract (isValidSignature of ERC-1271)")]
    Unconfirmed,
    #[error("permit.nonce was used before: the wallet's next is {next}")]
    NonceUsed { next: u128 },
    #[error("permit.nonce is held by another live intent: the wallet's next is {next}")]
    NonceHeld { next: u128 },
    #[error("permit.nonce leaves a gap: the wallet's next is {next}")]
    NonceGap { next: u128 },
    /// The permit of an order whose lock failed: its transaction made the signature public.
    #[error(
        "permit.signature is public: it was given for another order that was not locked, of another partner or payee; \
         sign one with another deadline"
    )]
    Published,
    #[error("permit.token: the wallet's balance is {held}, its pending orders and this one lock {needed}")]
    Balance { held: u128, needed: u128 },
    #[error(
        "permit.token: the wallet's allowance for the permit contract is {held}, its pending orders and this one lock \
         {needed}"
    )]
    Allowance { held: u128, needed: u128 },
}

impl PermitDefect {
    /// The field at fault.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Unneeded => "permit",
            Self::Token | Self::Balance { .. } | Self::Allowance { .. } => "permit.token",
            Self::SignatureLength
            | Self::SignatureV
            | Self::SignatureS
            | Self::Signer
            | Self::Unconfirmed
            | Self::Published => "permit.signature",
            Self::Amount => "permit.amountMinor",
            Self::Spender { .. } | Self::Replaced { .. } => "permit.spender",
            Self::Deadline => "permit.deadline",
            Self::NonceUsed { .. } | Self::NonceHeld { .. } | Self::NonceGap { .. } => "permit.nonce",
        }
    }
}

/// The defect of the permit's form: the contract's three cases, the spender and the deadline. Of the signature only what
/// no wallet can sign. `escrows`: of the contracts that take new orders, and of those before them.
pub fn form_defect<'a>(
    request: &IntentRequest,
    (escrow, earlier): (&str, impl IntoIterator<Item = &'a str>),
    now: Timestamp,
) -> Option<PermitDefect> {
    let permit = request.permit.as_ref()?;
    if request.input_asset.kind == AssetType::Native {
        return Some(PermitDefect::Unneeded);
    }
    let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    if request.input_asset.address.as_ref().is_some_and(|address| !same(address, &permit.token)) {
        return Some(PermitDefect::Token);
    }
    if signature_bytes(permit).is_none() {
        return Some(PermitDefect::SignatureLength);
    }
    if let Bounds::ExactInput { input, .. } = request.bounds
        && permit.amount_minor < input
    {
        return Some(PermitDefect::Amount);
    }
    if !same(&permit.spender, escrow) {
        let is_earlier = earlier.into_iter().any(|earlier| same(&permit.spender, earlier));
        let right: Option<Address> = escrow.to_ascii_lowercase().parse().ok();
        return Some(match right {
            Some(escrow) if is_earlier => PermitDefect::Replaced { escrow },
            escrow => PermitDefect::Spender { escrow },
        });
    }
    if permit.deadline <= now.unix_secs() {
        return Some(PermitDefect::Deadline);
    }
    None
}

/// The bytes of an account's signature.
const ACCOUNT_BYTES: usize = 65;
/// The longest signature of a contract: some thirty owners, which is as many as it can check within its gas.
const SIGNATURE_BYTES_MAX: usize = 2048;
/// The longest signature as text: `0x` and two digits a byte.
pub const SIGNATURE_TEXT_MAX: usize = 2 + SIGNATURE_BYTES_MAX * 2;

/// The signature as it was given. Only a contract's may be longer than 65 bytes.
pub fn signature_bytes(permit: &Permit) -> Option<Vec<u8>> {
    let digits = permit.signature.strip_prefix("0x").unwrap_or(&permit.signature);
    let is_in_bounds = (ACCOUNT_BYTES * 2..=SIGNATURE_BYTES_MAX * 2).contains(&digits.len());
    if is_in_bounds { hex::decode(digits).ok() } else { None }
}

/// The signature of an account's key as the permit contract accepts it: `v` is 27 or 28, `s` is not above half of the
/// curve's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PermitSignature([u8; ACCOUNT_BYTES]);

impl PermitSignature {
    /// `r`, `s`, `v`.
    pub const fn as_bytes(&self) -> &[u8; ACCOUNT_BYTES] {
        &self.0
    }
}

/// Half of the order of secp256k1, rounded down: the largest `s` that the contract accepts (EIP-2).
const S_MAX: [u8; 32] = [
    0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x5d,
    0x57, 0x6e, 0x73, 0x57, 0xa4, 0x50, 0x1d, 0xdf, 0xe9, 0x2f, 0x46, 0x68, 0x1b, 0x20, 0xa0,
];

/// Reads the signature of an account's key. Wallets write the recovery id as 0 and 1 or as 27 and 28, and both become 27
/// and 28; any other `v`, those of EIP-155 among them, would revert in the contract. So would a high `s`, which is a
/// second signature for the same permit.
pub fn signature(permit: &Permit) -> Result<PermitSignature, PermitDefect> {
    let digits = permit.signature.strip_prefix("0x").unwrap_or(&permit.signature);
    let mut bytes = [0_u8; ACCOUNT_BYTES];
    hex::decode_to_slice(digits, &mut bytes).map_err(|_| PermitDefect::SignatureLength)?;
    let [rs @ .., v] = &mut bytes;
    *v = match *v {
        0 | 27 => 27,
        1 | 28 => 28,
        _ => return Err(PermitDefect::SignatureV),
    };
    let (_, s) = rs.split_at(32);
    if *s > S_MAX[..] {
        return Err(PermitDefect::SignatureS);
    }
    Ok(PermitSignature(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::money::Minor;

    fn signed(s: [u8; 32], v: u8) -> Result<PermitSignature, PermitDefect> {
        let bytes = [[1; 32].as_slice(), &s, &[v]].concat();
        signature(&permit(&format!("0x{}", hex::encode(bytes))))
    }

    fn permit(signature: &str) -> Permit {
        let amount_minor = Minor::new(1);
        let (token, spender) = (String::new(), String::new());
        Permit { token, amount_minor, spender, nonce: Minor::ZERO, deadline: 0, signature: signature.into() }
    }

    #[test]
    fn v_is_normalised_or_refused() {
        for (v, normal) in [(0, 27), (1, 28), (27, 27), (28, 28)] {
            assert_eq!(signed([2; 32], v).map(|signature| signature.as_bytes()[64]), Ok(normal));
        }
        for v in [2, 26, 29, 35, 36, 37, 38, 255] {
            assert_eq!(signed([2; 32], v), Err(PermitDefect::SignatureV), "{v}");
        }
    }

    #[test]
    fn an_s_above_half_of_the_order_is_refused() {
        let mut above = S_MAX;
        above[31] += 1;
        assert!(signed(S_MAX, 27).is_ok());
        assert_eq!(signed(above, 27), Err(PermitDefect::SignatureS));
        assert_eq!(signed([0xff; 32], 28), Err(PermitDefect::SignatureS));
    }

    #[test]
    fn a_signature_is_65_bytes_of_hex_with_or_without_its_prefix() {
        let digits = format!("{}1b", "Ab".repeat(64));
        let low = digits.replace("AbAb", "0a0B");
        let read = |text: &str| signature(&permit(text)).map(|signature| hex::encode(signature.as_bytes()));
        assert_eq!(read(&low), Ok(low.to_lowercase()));
        assert_eq!(read(&format!("0x{low}")), read(&low));
        for wrong in ["", "0x", &low[2..], &format!("{low}00"), &low.replace('B', "g"), &format!("0x0x{low}")]
        {
            assert_eq!(read(wrong), Err(PermitDefect::SignatureLength), "{wrong}");
        }
    }

    #[test]
    fn a_contracts_signature_may_be_longer_and_is_kept_as_it_is() {
        let read = |text: &str| signature_bytes(&permit(text));
        assert_eq!(read(&format!("0x{}", "00".repeat(130))), Some(vec![0; 130]));
        assert_eq!(read(&"Ff".repeat(2048)), Some(vec![0xff; 2048]));
        for wrong in [
            "".to_owned(),
            "0x".to_owned(),
            "00".repeat(64),
            "00".repeat(2049),
            "0".repeat(131),
            "zz".repeat(65),
        ] {
            assert_eq!(read(&wrong), None, "{}", wrong.len());
        }
    }
}
