//! Recovers the signer of a permit: EIP-712 `PermitSingle` (spec section 2.5).

use alloy::primitives::{Address, B256, Signature, U256, keccak256};
use alloy::sol_types::{Eip712Domain, SolStruct, eip712_domain};
use dvp_domain::intent::Permit;
use secp256k1::Message;
use secp256k1::ecdsa::{RecoverableSignature, RecoveryId};

alloy::sol! {
    struct PermitSingle {
        address token;
        uint256 amount;
        address spender;
        uint256 nonce;
        uint256 deadline;
    }
}

#[derive(Debug, Clone)]
pub struct PermitDomain {
    /// The permit contract's own name.
    pub name: String,
    pub chain_id: u64,
    pub verifying_contract: Address,
    /// The domain's hash, equal for all permits.
    separator: B256,
}

impl PermitDomain {
    pub const VERSION: &str = "1";

    pub fn new(name: &str, chain_id: u64, verifying_contract: Address) -> Self {
        let separator = domain(name, chain_id, verifying_contract).separator();
        Self { name: name.to_owned(), chain_id, verifying_contract, separator }
    }

    /// The digest a wallet signs. `None` when an address does not parse.
    pub fn digest(&self, permit: &Permit) -> Option<[u8; 32]> {
        let signed = PermitSingle {
            token: permit.token.parse().ok()?,
            amount: U256::from(permit.amount_minor.get()),
            spender: permit.spender.parse().ok()?,
            nonce: U256::from(permit.nonce.get()),
            deadline: U256::from(permit.deadline),
        };
        let said = signed.eip712_hash_struct();
        let message = [&[0x19, 0x01], self.separator.as_slice(), said.as_slice()];
        Some(keccak256(message.concat()).0)
    }

    /// The wallet that signed. `None` when the permit contract would not accept the signature.
    pub fn signer(&self, permit: &Permit) -> Option<Signer> {
        let bytes = dvp_domain::permit::signature(permit).ok()?;
        let signature = Signature::from_raw(bytes.as_bytes()).ok()?;
        let digest = self.digest(permit)?;
        let owner = recover(&signature, digest)?;
        Some(Signer(format!("{owner:#x}")))
    }
}

/// The signer of a permit. Recovery takes longer than all other checks of an order, so the result is passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer(String);

impl Signer {
    /// `0x` and lowercase hex.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn domain(name: &str, chain_id: u64, verifying_contract: Address) -> Eip712Domain {
    let name = name.to_owned();
    eip712_domain! { name: name, version: PermitDomain::VERSION, chain_id: chain_id, verifying_contract: verifying_contract, }
}

/// The account whose key signed the digest.
fn recover(signature: &Signature, digest: [u8; 32]) -> Option<Address> {
    let id = if signature.v() { RecoveryId::One } else { RecoveryId::Zero };
    let rs: [u8; 64] = signature.as_rsy().first_chunk().copied()?;
    let signature = RecoverableSignature::from_compact(&rs, id).ok()?;
    let key = signature.recover_ecdsa(Message::from_digest(digest)).ok()?;
    // The first byte only marks the point as uncompressed.
    Some(Address::from_raw_public_key(key.serialize_uncompressed().get(1..)?))
}

#[cfg(test)]
mod tests {
    use alloy::signers::SignerSync;
    use alloy::signers::local::PrivateKeySigner;

    use super::*;

    #[test]
    fn the_digest_is_the_one_that_eip_712_says() {
        let contract = Address::repeat_byte(7);
        let signed = PermitSingle {
            token: Address::repeat_byte(1),
            amount: U256::from(5),
            spender: Address::repeat_byte(2),
            nonce: U256::from(3),
            deadline: U256::from(9),
        };
        let permit = Permit {
            token: signed.token.to_string(),
            amount_minor: dvp_domain::money::Minor::new(5),
            spender: signed.spender.to_string(),
            nonce: dvp_domain::money::Minor::new(3),
            deadline: 9,
            signature: String::new(),
        };
        let expected = signed.eip712_signing_hash(&domain("Permit", 31337, contract));
        assert_eq!(PermitDomain::new("Permit", 31337, contract).digest(&permit), Some(expected.0));
    }

    #[test]
    fn the_recovered_account_is_the_signers_and_the_same_as_k256_finds() {
        for byte in 0..32_u8 {
            let (wallet, digest) = (PrivateKeySigner::random(), [byte; 32]);
            let signature = wallet.sign_hash_sync(&digest.into()).unwrap();
            assert_eq!(recover(&signature, digest), Some(wallet.address()));
            assert_eq!(signature.recover_address_from_prehash(&digest.into()).ok(), Some(wallet.address()));
        }
        let nobody = Signature::new(U256::ZERO, U256::ZERO, false);
        assert_eq!(recover(&nobody, [1; 32]), None);
    }
}
