//! Chains: their nodes, contracts and the keys that send transactions.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use alloy::primitives::Address;
use anyhow::{Context as _, bail, ensure};
use dvp_chain_indexer::deploy::Deployment;
use dvp_chain_indexer::signing::Account;
use dvp_chain_indexer::{ChainConfig, FeePolicy, KeySource};
use dvp_core::liquidity::GasConfig;
use dvp_domain::liquidity::network_fee::{
    ChainGas, PAYMENT_BYTES, PAYMENT_GAS, SETTLEMENT_BYTES, SETTLEMENT_GAS,
};
use serde::{Deserialize, Deserializer, de};

use super::gate::{GateStepSection, gate};
use super::market::AssetSection;
use super::signers::{AwsKmsSection, GcpKmsSection, Pkcs11Section, RemoteSection, Signer};
use super::value::{Endpoint, Span, digits, millis, number};

/// One chain.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChainSection {
    /// The name that assets refer to.
    pub name: String,
    /// Must equal the nodes' chain id.
    pub chain_id: u64,
    /// HTTP endpoints, or where their URLs are. With several, a final block counts once two agree on it.
    pub rpc_urls: Vec<Endpoint>,
    /// Websocket endpoint: ends waits early, nothing else depends on it.
    pub ws_url: Option<Endpoint>,
    /// The record of the contracts' deployment (JSON).
    pub deployment: PathBuf,
    /// Start although the contracts' code is not this version's: they were deployed by another one.
    #[serde(default)]
    pub accept_other_code: bool,
    /// The permit contract's EIP-712 name.
    #[serde(default = "permit_name")]
    pub permit_name: String,
    /// The relayer's accounts: `env:NAME`, `file:PATH` or `keystore:PATH#PASSWORD_ENV`. Several share the work.
    #[serde(default)]
    pub relayer_keys: Vec<KeyPlace>,
    /// Further accounts, whose keys are in tokens.
    #[serde(default)]
    pub pkcs11_signers: Vec<Pkcs11Section>,
    /// Further accounts, whose keys are in signers of their own.
    #[serde(default)]
    pub remote_signers: Vec<RemoteSection>,
    /// Further accounts, whose keys are in AWS KMS.
    #[serde(default)]
    pub aws_kms_signers: Vec<AwsKmsSection>,
    /// Further accounts, whose keys are in Google Cloud KMS.
    #[serde(default)]
    pub gcp_kms_signers: Vec<GcpKmsSection>,
    /// Depth at which an event is reported.
    #[serde(default = "number::<2>")]
    pub confirmations: u64,
    /// The payout gate by asset and amount. Without it, every payout waits for the fill's finality.
    #[serde(default)]
    pub payout_gate: Vec<GateStepSection>,
    /// Blocks below `finalized` that may still change: none on a real chain.
    #[serde(default)]
    pub finality_margin: u64,
    /// For nodes without a `finalized` tag: so far below the head a block is final.
    pub finality_depth: Option<u64>,
    /// The number of blocks by which the machines behind one endpoint may differ.
    #[serde(default = "number::<32>")]
    pub range_margin: u64,
    /// Some chains leave the logs bloom of a header empty.
    #[serde(default = "yes")]
    pub trust_bloom: bool,
    /// Some chains have receipts that are not in a header's receipts root.
    #[serde(default = "yes")]
    pub trust_receipts: bool,
    #[serde(default = "millis::<2_000>")]
    pub poll_interval: Span,
    /// The smallest tip that the relayer offers. In wei per gas, as a decimal string.
    #[serde(default = "digits::<1_000_000>")]
    pub tip_floor_wei: String,
    /// The most that the relayer pays, tip and base fee together. In wei per gas, as a decimal string.
    #[serde(default = "digits::<500_000_000_000>")]
    pub fee_cap_wei: String,
    /// The number of blocks after which a transaction with a low fee is replaced.
    #[serde(default = "number::<3>")]
    pub bump_blocks: u64,
    /// Added to the gas that a node says a transaction needs.
    #[serde(default = "number::<20>")]
    pub gas_margin_percent: u64,
    /// The gas of a block that is counted on at most.
    #[serde(default = "number::<60_000_000>")]
    pub block_gas: u64,
    /// The most that nodes let one transaction cost, gas times fee. In wei, as a decimal string.
    #[serde(default = "digits::<900_000_000_000_000_000>")]
    pub tx_fee_max_wei: String,
    /// The most bytes that nodes take as one transaction.
    #[serde(default = "number::<90_000>")]
    pub tx_bytes_max: u64,
    /// The ticker of the chain's coin: with it, network fees follow the chain's fees.
    pub coin: Option<String>,
    /// Gas of an order whose input is locked here. The default is measured (docs/scale.md), rounded up.
    #[serde(default = "number::<SETTLEMENT_GAS>")]
    pub settlement_gas: u64,
    /// Gas of the payment of an output here. The default is above `payMany` of twelve payments (contracts/gas.txt).
    #[serde(default = "number::<PAYMENT_GAS>")]
    pub payment_gas: u64,
    /// The contract that says what data costs on the chain's L1, as the OP stack's `GasPriceOracle` does.
    pub l1_fee_oracle: Option<Address>,
    /// Bytes of the transactions of an order whose input is locked here, and of the payment of an output.
    #[serde(default = "number::<SETTLEMENT_BYTES>")]
    pub settlement_bytes: u64,
    #[serde(default = "number::<PAYMENT_BYTES>")]
    pub payment_bytes: u64,
    /// A newest block that is older is an alarm.
    #[serde(default = "millis::<300_000>")]
    pub stalled_after: Span,
    /// A relayer's account that holds less is reported. In wei, as a decimal string.
    #[serde(default = "digits::<100_000_000_000_000_000>")]
    pub balance_low_wei: String,
}

fn permit_name() -> String {
    "Permit".into()
}

const fn yes() -> bool {
    true
}

/// Where a signing key is.
#[derive(Debug, Clone)]
pub(crate) struct KeyPlace(pub KeySource);

impl<'de> Deserialize<'de> for KeyPlace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(de::Error::custom)
    }
}

impl ChainSection {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.name.is_empty(), "name is empty");
        ensure!(!self.rpc_urls.is_empty(), "rpc_urls names no endpoint");
        ensure!(self.confirmations > 0, "confirmations must be at least 1");
        self.balance_low_wei.parse::<u128>().context("balance_low_wei is no whole number of wei")?;
        let fees = self.fees()?;
        ensure!(fees.tip_floor_wei <= fees.cap_wei, "tip_floor_wei is above fee_cap_wei");
        ensure!(fees.bump_blocks > 0, "bump_blocks must be at least 1");
        ensure!(fees.gas_margin_percent <= 400, "gas_margin_percent must be at most 400");
        ensure!(fees.block_gas >= 2_000_000, "block_gas must be at least 2000000");
        ensure!(fees.tx_bytes_max >= 4_096, "tx_bytes_max must be at least 4096");
        ensure!(self.coin.as_ref().is_none_or(|coin| !coin.is_empty()), "coin is empty");
        ensure!(self.settlement_gas > 0, "settlement_gas must be at least 1");
        ensure!(self.payment_gas > 0, "payment_gas must be at least 1");
        for (kind, n, signer) in self.signers() {
            signer.check().with_context(|| format!("{kind}[{n}]"))?;
        }
        Ok(())
    }

    fn fees(&self) -> anyhow::Result<FeePolicy> {
        Ok(FeePolicy {
            tip_floor_wei: self.tip_floor_wei.parse().context("tip_floor_wei is no whole number of wei")?,
            cap_wei: self.fee_cap_wei.parse().context("fee_cap_wei is no whole number of wei")?,
            bump_blocks: self.bump_blocks,
            gas_margin_percent: self.gas_margin_percent,
            block_gas: self.block_gas,
            tx_fee_max_wei: self
                .tx_fee_max_wei
                .parse()
                .context("tx_fee_max_wei is no whole number of wei")?,
            tx_bytes_max: usize::try_from(self.tx_bytes_max)?,
        })
    }

    /// For the network fees of quotes, when the chain has a coin.
    pub(crate) fn gas(&self) -> anyhow::Result<Option<GasConfig>> {
        let Some(coin) = &self.coin else { return Ok(None) };
        let gas = ChainGas {
            chain: self.name.clone(),
            coin: coin.clone(),
            settlement_gas: self.settlement_gas,
            payment_gas: self.payment_gas,
            settlement_bytes: self.settlement_bytes,
            payment_bytes: self.payment_bytes,
        };
        let tip_floor_wei = self.fees()?.tip_floor_wei;
        Ok(Some(GasConfig { chain_id: self.chain_id, gas, tip_floor_wei }))
    }

    /// Reads the record of the contracts.
    pub(crate) fn deployment(&self) -> anyhow::Result<Deployment> {
        let place = || format!("chains.deployment of {}: {}", self.name, self.deployment.display());
        let text = std::fs::read(&self.deployment).with_context(place)?;
        let deployment: Deployment = serde_json::from_slice(&text).with_context(place)?;
        ensure!(
            deployment.chain_id == self.chain_id,
            "{} is of chain {}, not {}",
            place(),
            deployment.chain_id,
            self.chain_id
        );
        if let Some(fault) = deployment.fault() {
            bail!("{}: {fault}", place());
        }
        Ok(deployment)
    }

    /// Never empty once it was checked.
    pub(crate) fn rpc_urls(&self) -> anyhow::Result<Vec<String>> {
        let read = |endpoint: &Endpoint| {
            endpoint.read().with_context(|| format!("chains.rpc_urls of {}", self.name))
        };
        self.rpc_urls.iter().map(read).collect()
    }

    /// The accounts whose keys are elsewhere: their sections' names and places.
    fn signers(&self) -> impl Iterator<Item = (&'static str, usize, &dyn Signer)> {
        fn of<'a, S: Signer>(
            kind: &'static str,
            sections: &'a [S],
        ) -> impl Iterator<Item = (&'static str, usize, &'a dyn Signer)> {
            sections.iter().enumerate().map(move |(n, signer)| (kind, n, signer as &dyn Signer))
        }
        of("pkcs11_signers", &self.pkcs11_signers)
            .chain(of("remote_signers", &self.remote_signers))
            .chain(of("aws_kms_signers", &self.aws_kms_signers))
            .chain(of("gcp_kms_signers", &self.gcp_kms_signers))
    }

    /// The number of the relayer's accounts.
    pub(crate) fn relayers(&self) -> usize {
        self.relayer_keys.len() + self.signers().count()
    }

    /// The relayer's accounts. Keys and certificates are read here; no signer is reached yet.
    pub(crate) fn accounts(&self) -> anyhow::Result<Vec<Account>> {
        ensure!(
            self.relayers() > 0,
            "chains.relayer_keys of {} names no key, and it has no signer",
            self.name
        );
        let place = |kind: &str, n: usize| format!("chains.{kind}[{n}] of {}", self.name);
        let mut accounts: Vec<Account> = Vec::with_capacity(self.relayers());
        for (n, KeyPlace(source)) in self.relayer_keys.iter().enumerate() {
            accounts.push(source.load().with_context(|| place("relayer_keys", n))?.into());
        }
        for (kind, n, signer) in self.signers() {
            accounts.push(signer.account().with_context(|| place(kind, n))?);
        }
        let mut addresses = HashSet::new();
        for account in &accounts {
            let address = account.address();
            ensure!(addresses.insert(address), "the account {address} of {} is there twice", self.name);
        }
        Ok(accounts)
    }

    /// For the indexer and the relayer.
    pub(crate) fn config(
        &self,
        deployment: Deployment,
        assets: &[AssetSection],
    ) -> anyhow::Result<ChainConfig> {
        check_coin(&self.name, &deployment, assets)?;
        let mut urls = self.rpc_urls()?;
        let further_rpc_urls = urls.split_off(urls.len().min(1));
        let rpc_url = urls.pop().context("rpc_urls names no endpoint")?;
        Ok(ChainConfig {
            chain_id: self.chain_id,
            name: self.name.clone(),
            rpc_url,
            further_rpc_urls,
            ws_url: self.ws_url.as_ref().map(Endpoint::read).transpose()?,
            confirmations: self.confirmations,
            payout_gate: gate(&self.payout_gate, &self.name, assets)?,
            finality_margin: self.finality_margin,
            finality_depth: self.finality_depth,
            range_margin: self.range_margin,
            trust_bloom: self.trust_bloom,
            trust_receipts: self.trust_receipts,
            poll_interval: self.poll_interval.0,
            fees: self.fees()?,
            resend_after: Duration::from_secs(2),
            stale_after: Duration::from_secs(60),
            stalled_after: Some(self.stalled_after.0),
            balance_low_wei: self.balance_low_wei.parse().context("balance_low_wei")?,
            l1_fee_oracle: self.l1_fee_oracle,
            deployment,
        })
    }
}

/// Refuses a chain's coin that the chain's contracts do not deal in, or hold as another token.
fn check_coin(chain: &str, deployment: &Deployment, assets: &[AssetSection]) -> anyhow::Result<()> {
    for asset in assets.iter().filter(|asset| asset.chain.as_deref() == Some(chain)) {
        let Some(wrapped) = &asset.wrapped else { continue };
        let Some(coin) = deployment.coin else {
            bail!(
                "assets: {} is the coin of {chain}, whose contracts were deployed without one",
                asset.symbol
            );
        };
        let deployed = coin.wrapped.to_string();
        ensure!(
            deployed.eq_ignore_ascii_case(wrapped),
            "assets: {} is wrapped by {wrapped}, and the contracts of {chain} use {deployed}",
            asset.symbol
        );
    }
    Ok(())
}

pub(super) fn check_all(chains: &[ChainSection]) -> anyhow::Result<()> {
    let (mut names, mut ids) = (HashSet::new(), HashSet::new());
    for (n, chain) in chains.iter().enumerate() {
        chain.check().with_context(|| format!("chains[{n}]"))?;
        ensure!(names.insert(&chain.name), "chains[{n}].name: {} is there twice", chain.name);
        ensure!(ids.insert(chain.chain_id), "chains[{n}].chain_id: {} is there twice", chain.chain_id);
    }
    Ok(())
}

/// The assets that gates name are known to be right.
pub(super) fn check_gates(chains: &[ChainSection], assets: &[AssetSection]) -> anyhow::Result<()> {
    for (n, chain) in chains.iter().enumerate() {
        gate(&chain.payout_gate, &chain.name, assets).with_context(|| format!("chains[{n}]"))?;
    }
    Ok(())
}
