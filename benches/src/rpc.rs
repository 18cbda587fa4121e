//! The sandbox's chain as measurements and drills need it: wallets with tokens and an approval, and the contents of
//! its blocks.

use alloy::primitives::{Address, B256, U256, keccak256};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

/// Where OpenZeppelin's ERC20 keeps balances and allowances.
pub(crate) const BALANCES: u8 = 0;
pub(crate) const ALLOWANCES: u8 = 1;
const CALLS: usize = 200;

#[derive(Clone)]
pub(crate) struct Rpc {
    client: reqwest::Client,
    url: String,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Blocks {
    pub count: u64,
    pub transactions: u64,
    pub gas_used: u64,
    /// The limit of the last of them.
    pub gas_limit: u64,
}

impl Rpc {
    pub(crate) fn new(url: &str) -> Self {
        Self { client: reqwest::Client::new(), url: url.to_owned() }
    }

    pub(crate) async fn all(&self, calls: &[(&str, Value)]) -> anyhow::Result<Vec<Value>> {
        let mut results = Vec::with_capacity(calls.len());
        for page in calls.chunks(CALLS) {
            let request: Vec<Value> = page
                .iter()
                .zip(0_u64..)
                .map(|((method, params), id)| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
                .collect();
            let answers: Vec<Value> = self.client.post(&self.url).json(&request).send().await?.json().await?;
            ensure!(answers.len() == page.len(), "{} answers to {} calls", answers.len(), page.len());
            for answer in answers {
                ensure!(answer["error"].is_null(), "{}", answer["error"]);
                results.push(answer["result"].clone());
            }
        }
        Ok(results)
    }

    pub(crate) async fn one(&self, method: &str, params: Value) -> anyhow::Result<Value> {
        self.all(&[(method, params)]).await?.pop().context("an answer")
    }

    pub(crate) async fn head(&self) -> anyhow::Result<u64> {
        number(&self.one("eth_blockNumber", json!([])).await?)
    }

    /// The blocks after `from`, up to and with `to`.
    pub(crate) async fn blocks(&self, from: u64, to: u64) -> anyhow::Result<Blocks> {
        let calls: Vec<(&str, Value)> =
            (from + 1..=to).map(|n| ("eth_getBlockByNumber", json!([format!("{n:#x}"), false]))).collect();
        let mut sum = Blocks::default();
        for block in self.all(&calls).await? {
            sum.count += 1;
            sum.transactions += u64::try_from(block["transactions"].as_array().map_or(0, Vec::len))?;
            sum.gas_used += number(&block["gasUsed"])?;
            sum.gas_limit = number(&block["gasLimit"])?;
        }
        Ok(sum)
    }

    /// Gives each owner `amount` of the token and lets `spender` pull all of it.
    pub(crate) async fn furnish(
        &self,
        token: Address,
        spender: Address,
        owners: &[Address],
        amount: u128,
    ) -> anyhow::Result<()> {
        let set = |slot: B256, value: U256| stored(token, slot, value);
        let calls: Vec<(&str, Value)> = owners
            .iter()
            .flat_map(|owner| {
                let balance = slot(*owner, B256::with_last_byte(BALANCES));
                let allowance = slot(spender, slot(*owner, B256::with_last_byte(ALLOWANCES)));
                [set(balance, U256::from(amount)), set(allowance, U256::MAX)]
            })
            .collect();
        self.all(&calls).await?;
        let Some(last) = owners.last() else { return Ok(()) };
        // balanceOf(address): the storage is laid out as it was taken to be.
        let call = json!([{"to": token, "data": format!("0x70a08231{:0>64}", hex::encode(last))}, "latest"]);
        let found = self.one("eth_call", call).await?;
        let found: U256 = found.as_str().context("balanceOf")?.parse()?;
        ensure!(found == U256::from(amount), "the token keeps its balances elsewhere: {found}");
        Ok(())
    }
}

/// The call that sets a word of a contract's storage.
pub(crate) fn stored(contract: Address, slot: B256, value: U256) -> (&'static str, Value) {
    let at = U256::from_be_bytes(slot.0);
    ("anvil_setStorageAt", json!([contract, at, B256::from(value.to_be_bytes())]))
}

/// Where a mapping at `base` keeps the value of a key.
pub(crate) fn slot(key: Address, base: B256) -> B256 {
    keccak256([key.into_word().0, base.0].concat())
}

pub(crate) fn number(value: &Value) -> anyhow::Result<u64> {
    let text = value.as_str().context("a number")?;
    Ok(u64::from_str_radix(text.trim_start_matches("0x"), 16)?)
}
