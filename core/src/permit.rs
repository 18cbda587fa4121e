//! Whose permit it is: EIP-712 recovery of `PermitSingle` (spec section 2.5).

use alloy::primitives::{Address, Signature, U256};
use alloy::sol_types::{Eip712Domain, SolStruct, eip712_domain};
use dvp_domain::intent::Permit;

alloy::sol! {
    /// The signed structure.
    struct PermitSingle {
        address token;
        uint256 amount;
        address spender;
        uint256 nonce;
        uint256 deadline;
    }
}

/// The permit contract of the environment.
#[derive(Debug, Clone)]
pub struct PermitDomain {
    domain: Eip712Domain,
}

impl PermitDomain {
    /// `name` is the permit contract's own name; the version is `1`.
    pub fn new(name: &str, chain_id: u64, verifying_contract: Address) -> Self {
        let name = name.to_owned();
        Self {
            domain: eip712_domain! { name: name, version: "1", chain_id: chain_id, verifying_contract: verifying_contract, },
        }
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
        Some(signed.eip712_signing_hash(&self.domain).0)
    }

    /// The wallet that signed, `0x` and lowercase hex. `None` when the signature is not one, or not canonical: a high
    /// `s` would be a second signature for the same permit (EIP-2).
    pub fn signer(&self, permit: &Permit) -> Option<String> {
        let bytes = hex::decode(permit.signature.strip_prefix("0x").unwrap_or(&permit.signature)).ok()?;
        let signature = Signature::from_raw(&bytes).ok().filter(|s| s.normalize_s().is_none())?;
        let digest = self.digest(permit)?;
        let owner = signature.recover_address_from_prehash(&digest.into()).ok()?;
        Some(format!("{owner:#x}"))
    }
}
