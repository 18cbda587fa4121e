//! The chain as a hostile partner changes it: wallets that change after acceptance, and recipients that receive badly.

use std::str::FromStr as _;

use alloy::primitives::{Address, B256, U256, keccak256};
use alloy::signers::local::PrivateKeySigner;
use anyhow::ensure;
use serde_json::{Value, json};

use super::cases::Then;
use crate::crash::process::text;
use crate::crash::rest::Wallet;
use crate::rpc::{ALLOWANCES, BALANCES, Rpc, slot, stored};

/// Where the permit contract keeps its nonces: two words of EIP-712 come first.
const NONCES: u8 = 2;
/// What a wallet holds of the input token, in its units: more than any order takes.
const FUNDS: u128 = 1_000_000_000_000;
/// A revert whose reason is no text: NUL, an escape, half a character, quotes and markup.
const REASON: &[u8] = b"\x08\xc3\x79\xa0\0\0\0\0\0\x1b[2J\xff\xfe\xed\xa0\x80<script>'\"\\";

/// A wallet that no order was placed with.
#[derive(Clone)]
pub(in crate::hostile) struct FreshWallet {
    pub wallet: Wallet,
    pub address: Address,
}

#[derive(Clone)]
pub(in crate::hostile) struct Ground {
    rpc: Rpc,
    ready: Value,
    token: Address,
    permit: Address,
}

impl Ground {
    pub(in crate::hostile) fn of(ready: &Value) -> anyhow::Result<Self> {
        let address = |at: &str| anyhow::Ok(Address::from_str(text(ready, at)?)?);
        Ok(Self {
            rpc: Rpc::new(text(ready, "/chain/rpcUrl")?),
            ready: ready.clone(),
            token: address("/chain/tokens/0/address")?,
            permit: address("/chain/contracts/permit")?,
        })
    }

    /// Wallets with funds and an approval, the same at each call with a name.
    pub(in crate::hostile) async fn wallets(
        &self,
        name: &str,
        count: usize,
    ) -> anyhow::Result<Vec<FreshWallet>> {
        let wallet = |n: usize| {
            let signer = PrivateKeySigner::from_bytes(&B256::from(keccak256(format!("{name} {n}"))))?;
            let address = signer.address();
            anyhow::Ok(FreshWallet { wallet: Wallet::with_signer(&self.ready, signer)?, address })
        };
        let wallets = (0..count).map(wallet).collect::<anyhow::Result<Vec<_>>>()?;
        let owners: Vec<Address> = wallets.iter().map(|fresh| fresh.address).collect();
        self.rpc.furnish(self.token, self.permit, &owners, FUNDS).await?;
        Ok(wallets)
    }

    /// What the owner of a wallet does to an order that was accepted.
    pub(super) async fn spoil(&self, then: Then, owner: Address) -> anyhow::Result<()> {
        let balance = slot(owner, B256::with_last_byte(BALANCES));
        let allowance = slot(self.permit, slot(owner, B256::with_last_byte(ALLOWANCES)));
        match then {
            Then::EmptiesWallet => self.set(stored(self.token, balance, U256::ZERO)).await,
            Then::RevokesAllowance => self.set(stored(self.token, allowance, U256::ZERO)).await,
            Then::UsesNonce => self.use_nonce(owner).await,
            Then::Nothing | Then::CancelsAfter(_) => Ok(()),
        }
    }

    /// As if a permit of another spender had used the next nonce.
    async fn use_nonce(&self, owner: Address) -> anyhow::Result<()> {
        self.set(stored(self.permit, slot(owner, B256::with_last_byte(NONCES)), U256::ONE)).await?;
        // nonces(address): the storage is laid out as it was taken to be.
        let call =
            json!([{"to": self.permit, "data": format!("0x7ecebe00{:0>64}", hex::encode(owner))}, "latest"]);
        let found = self.rpc.one("eth_call", call).await?;
        ensure!(found.as_str().is_some_and(|word| word.ends_with('1')), "nonces are kept elsewhere: {found}");
        Ok(())
    }

    async fn set(&self, (method, params): (&'static str, Value)) -> anyhow::Result<()> {
        self.rpc.one(method, params).await.map(|_| ())
    }

    /// Puts code at addresses of its own: it refuses the coin, burns all gas, or reverts with much or with no text.
    pub(in crate::hostile) async fn install(&self) -> anyhow::Result<Vec<String>> {
        let mut addresses = Vec::new();
        for (n, code) in payees().into_iter().enumerate() {
            let address = Address::from_slice(&keccak256(format!("payee {n}"))[12..]);
            self.rpc.one("anvil_setCode", json!([address, format!("0x{}", hex::encode(code))])).await?;
            addresses.push(address.to_string());
        }
        Ok(addresses)
    }

    /// Addresses to which a token or the coin should not go: nobody's, precompiles, the service's own, the tokens',
    /// and an address whose checksum is wrong.
    pub(in crate::hostile) fn recipients(&self) -> anyhow::Result<Vec<String>> {
        let mut all: Vec<String> = [0_u8, 1, 2, 9, 0x0a].map(|last| format!("0x{last:040x}")).into();
        all.push(format!("0x{:0>40}", "dead"));
        all.push(format!("0x{}", "ff".repeat(20)));
        for at in [
            "/chain/tokens/0/address",
            "/chain/tokens/1/address",
            "/chain/contracts/permit",
            "/chain/contracts/escrow",
            "/chain/contracts/settler",
            "/chain/contracts/anchor",
            "/chain/contracts/payouts",
            "/chain/coin/gate",
            "/chain/coin/wrapped",
        ] {
            all.push(text(&self.ready, at)?.to_lowercase());
        }
        // Of the sandbox's partner, with one letter of the wrong case.
        let known = text(&self.ready, "/chain/wallets/0/address")?;
        let turned = known.char_indices().rfind(|(_, c)| c.is_ascii_alphabetic()).map(|(at, c)| {
            let other = if c.is_ascii_uppercase() { c.to_ascii_lowercase() } else { c.to_ascii_uppercase() };
            let mut wrong = known.to_owned();
            wrong.replace_range(at..at.saturating_add(1), &other.to_string());
            wrong
        });
        all.extend(turned);
        // An account that has no code, and will never have a key.
        all.push("0x000000000000000000000000000000000000c0de".to_owned());
        Ok(all)
    }
}

/// Code of contracts that receive the coin badly.
fn payees() -> [Vec<u8>; 5] {
    let reason = u8::try_from(REASON.len()).unwrap_or(u8::MAX);
    [
        // revert(0, 0)
        vec![0x60, 0, 0x60, 0, 0xfd],
        // A loop without end.
        vec![0x5b, 0x60, 0, 0x56],
        // The invalid instruction.
        vec![0xfe],
        // revert(0, 65536)
        vec![0x62, 1, 0, 0, 0x60, 0, 0xfd],
        // codecopy(0, 12, length), revert(0, length), and the reason behind it.
        [&[0x60, reason, 0x60, 12, 0x60, 0, 0x39, 0x60, reason, 0x60, 0, 0xfd], REASON].concat(),
    ]
}
