//! Addresses of accounts on EVM chains, as callers and operators write them, and the addresses that cannot be paid.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use sha3::{Digest as _, Keccak256};

/// The account's twenty bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address([u8; 20]);

/// Why a text is no address, or not one that can be paid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressFault {
    #[error("must be 0x and 40 hex digits")]
    Form,
    /// A flipped letter or digit (EIP-55).
    #[error("has a wrong checksum, so a character is mistyped: copy the address again (EIP-55)")]
    Checksum,
    #[error("is the zero address, which nobody owns")]
    Zero,
    #[error("is reserved for contracts of the chain itself, and nobody owns it")]
    Reserved,
    #[error("is {0}, which would keep what it gets for ever")]
    Contract(String),
}

impl Address {
    pub const fn from_bytes(bytes: [u8; 20]) -> Self {
        Self(bytes)
    }

    fn fault(self) -> Option<AddressFault> {
        let [leading @ .., _, _] = self.0;
        if self.0 == [0; 20] {
            Some(AddressFault::Zero)
        } else if leading == [0; 18] || leading == PREDEPLOYS || leading == SYSTEM || self.0 == [0xee; 20] {
            Some(AddressFault::Reserved)
        } else {
            None
        }
    }
}

/// Precompiled contracts of all chains are among the first 65,536 addresses: Ethereum's are 0x01 to 0x11 and 0x0100, those
/// of Arbitrum begin at 0x64, those of BNB Chain and Polygon at 0x1000. These are the contracts that the OP stack creates
/// in a chain's first block.
const PREDEPLOYS: [u8; 18] = [0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// The sender of Ethereum's own calls, as in EIP-4788.
const SYSTEM: [u8; 18] = [0xff; 18];

impl FromStr for Address {
    type Err = AddressFault;

    /// In lower or upper case, or with the checksum of EIP-55: an address of both cases must have the right one.
    fn from_str(text: &str) -> Result<Self, AddressFault> {
        let digits = text.strip_prefix("0x").ok_or(AddressFault::Form)?;
        let mut bytes = [0_u8; 20];
        hex::decode_to_slice(digits, &mut bytes).map_err(|_| AddressFault::Form)?;
        let has = |is_case: fn(&u8) -> bool| digits.bytes().any(|byte| is_case(&byte));
        let is_mixed = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
        if is_mixed && digits != checksummed(&bytes) {
            return Err(AddressFault::Checksum);
        }
        Ok(Self(bytes))
    }
}

/// In lower case.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{}", hex::encode(self.0))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The digits as EIP-55 writes them: a letter is a capital where the hash of the lower-case digits has 8 or more.
fn checksummed(bytes: &[u8; 20]) -> String {
    let digits = hex::encode(bytes);
    let hash = hex::encode(Keccak256::digest(&digits));
    let cased =
        |(digit, hashed): (char, char)| if hashed >= '8' { digit.to_ascii_uppercase() } else { digit };
    digits.chars().zip(hash.chars()).map(cased).collect()
}

/// The contracts of the service and the tokens that it deals in, on all its chains: tokens that are sent to one of them are
/// lost.
#[derive(Debug, Clone, Default)]
pub struct OwnContracts(HashMap<Address, String>);

impl OwnContracts {
    /// Adds a contract. `what` follows "is": `the escrow of base`.
    pub fn insert(&mut self, address: Address, what: String) {
        self.0.insert(address, what);
    }

    /// Reads the address of a wallet that can be paid.
    pub fn check_wallet(&self, text: &str) -> Result<Address, AddressFault> {
        let address: Address = text.parse()?;
        match self.0.get(&address) {
            Some(what) => Err(AddressFault::Contract(what.clone())),
            None => address.fault().map_or(Ok(address), Err),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of EIP-55.
    const CHECKSUMMED: [&str; 8] = [
        "0x52908400098527886E0F7030069857D2E4169EE7",
        "0x8617E340B3D01FA5F11F306F4090FD50E238070D",
        "0xde709f2102306220921060314715629080e2fb77",
        "0x27b1fdb04752bbc536007a920d24acb045561c26",
        "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
        "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
        "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
        "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
    ];

    #[test]
    fn an_address_of_both_cases_has_its_checksum() {
        for text in CHECKSUMMED {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text.to_lowercase());
            let upper = format!("0x{}", text[2..].to_uppercase());
            assert_eq!((text.to_lowercase().parse(), upper.parse()), (Ok(address), Ok(address)));
        }
        for wrong in [
            "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD",
            "0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAee",
        ] {
            assert_eq!(wrong.parse::<Address>(), Err(AddressFault::Checksum), "{wrong}");
        }
        let digits = &CHECKSUMMED[2][2..];
        for wrong in ["", "0x", digits, &format!("0X{digits}"), &format!("0x{digits}0"), "0xzz"] {
            assert_eq!(wrong.parse::<Address>(), Err(AddressFault::Form), "{wrong}");
        }
    }

    #[test]
    fn what_nobody_could_spend_is_no_wallet() {
        let mut contracts = OwnContracts::default();
        contracts.insert(CHECKSUMMED[4].parse().unwrap(), "the escrow of base".to_owned());
        let check = |text: &str| contracts.check_wallet(text);
        assert_eq!(check(&format!("0x{:040x}", 0)), Err(AddressFault::Zero));
        for reserved in [0x01_u32, 0x11, 0x64, 0x0100, 0x1010, 0xdead] {
            assert_eq!(check(&format!("0x{reserved:040x}")), Err(AddressFault::Reserved), "{reserved:x}");
        }
        for reserved in [
            "0x4200000000000000000000000000000000000006",
            "0xEeeeeEeeeEeEeeEeEeEeeEEEeeeeEeeeeeeeEEeE",
            "0xfffffffffffffffffffffffffffffffffffffffe",
        ] {
            assert_eq!(check(reserved), Err(AddressFault::Reserved), "{reserved}");
        }
        let escrow = AddressFault::Contract("the escrow of base".to_owned());
        assert_eq!(check(&CHECKSUMMED[4].to_lowercase()), Err(escrow));
        assert!(check(CHECKSUMMED[5]).is_ok() && check(&format!("0x{:040x}", 0x1_0000)).is_ok());
    }
}
