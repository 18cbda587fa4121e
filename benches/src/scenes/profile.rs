//! What real nodes, chains and providers do, as data: each line of a profile has its source.

use anyhow::Context as _;
use serde::Deserialize;

macro_rules! profiles {
    ($($name:literal),* $(,)?) => {
        const FILES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../profiles/nodes/", $name, ".toml")))),*];
    };
}

profiles![
    "arbitrum",
    "besu",
    "bsc",
    "erigon",
    "geth",
    "gnosis",
    "hosted-balanced",
    "hosted-limited",
    "hosted-small",
    "nethermind",
    "op-stack",
    "polygon",
    "reth",
    "zksync",
];

/// JSON-RPC's code, and the text. `{}` stands for the limit.
pub(crate) type Words = (i64, String);

/// How a node gives the data of a revert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RevertData {
    Hex,
    /// `Reverted 0x…`.
    Worded,
    None,
}

/// The forms of a block's hash as a parameter that a node takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HashForm {
    Both,
    /// EIP-1898's.
    Object,
    Bare,
}

/// What a node, its chain and who runs it do that others do not. What is absent is not limited.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Profile {
    #[serde(skip)]
    pub(crate) name: &'static str,
    /// The gas that blocks name.
    pub(crate) block_gas: u64,
    /// Of a transaction: gas, bytes, gas times fee, tip, and the distance of its nonce from the account's.
    pub(crate) tx_gas_max: Option<u64>,
    pub(crate) tx_bytes_max: Option<usize>,
    pub(crate) tx_fee_max_wei: Option<String>,
    pub(crate) tip_min_wei: Option<u128>,
    pub(crate) nonces_ahead: Option<u64>,
    /// The calls of a request.
    pub(crate) batch_max: Option<usize>,
    /// Blocks of a range of logs.
    pub(crate) log_range_max: Option<u64>,
    /// The deepest reorganization that the drill makes.
    pub(crate) reorg_depth: u64,
    /// The distance of `finalized` from the newest block; `None`: there is no such block.
    pub(crate) final_lag: Option<u64>,
    pub(crate) hash_form: HashForm,
    /// Methods that are not there.
    #[serde(default)]
    pub(crate) no_methods: Vec<String>,
    /// Fields that are absent.
    #[serde(default)]
    pub(crate) no_block_fields: Vec<String>,
    #[serde(default)]
    pub(crate) no_receipt_fields: Vec<String>,
    /// The block's hash is not that of its header's fields.
    #[serde(default)]
    pub(crate) other_block_hash: bool,
    /// A history of fees has no ratios.
    #[serde(default)]
    pub(crate) no_gas_ratios: bool,
    pub(crate) revert: (i64, String, RevertData),
    /// The state of blocks that are this far below the newest one is gone.
    pub(crate) pruned_below: Option<u64>,
    /// One request of so many is refused with 429, and the seconds that it names.
    pub(crate) limited_one_in: Option<u64>,
    #[serde(default)]
    pub(crate) retry_after_secs: u64,
    /// By how many blocks some of the machines behind the URL lag.
    #[serde(default)]
    pub(crate) lag: u64,
    pub(crate) words: NodeWords,
    /// Keys of `[[chains]]` that the documentation names for it.
    #[serde(default)]
    pub(crate) settings: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeWords {
    pub(crate) known: Words,
    pub(crate) nonce_low: Words,
    pub(crate) replacement: Words,
    pub(crate) funds: Words,
    pub(crate) no_block: Words,
    pub(crate) nonce_high: Option<Words>,
    pub(crate) fee_max: Option<Words>,
    pub(crate) tx_bytes: Option<Words>,
    pub(crate) tx_gas: Option<Words>,
    pub(crate) tip_min: Option<Words>,
    pub(crate) log_range: Option<Words>,
    pub(crate) batch: Option<Words>,
    pub(crate) pruned: Option<Words>,
}

impl Profile {
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        FILES.iter().map(|(name, _)| *name)
    }

    pub(crate) fn named(name: &str) -> anyhow::Result<Self> {
        let (name, text) = FILES.iter().find(|(known, _)| *known == name).context("no such profile")?;
        let profile: Self = toml::from_str(text).with_context(|| format!("the profile {name}"))?;
        Ok(Self { name, ..profile })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_complete_and_every_line_has_its_source() {
        for (name, text) in FILES {
            let Profile { words, tip_min_wei, .. } = Profile::named(name).unwrap();
            let profile = Profile::named(name).unwrap();
            for (limit, words) in [
                (profile.tx_fee_max_wei.is_some(), &words.fee_max),
                (profile.tx_bytes_max.is_some(), &words.tx_bytes),
                (profile.tx_gas_max.is_some(), &words.tx_gas),
                (tip_min_wei.is_some(), &words.tip_min),
                (profile.nonces_ahead.is_some(), &words.nonce_high),
                (profile.batch_max.is_some(), &words.batch),
                (profile.log_range_max.is_some(), &words.log_range),
                (profile.pruned_below.is_some(), &words.pruned),
            ] {
                assert_eq!(limit, words.is_some(), "{name}: {words:?} without its limit, or the reverse");
            }
            for line in text.lines().filter(|line| line.contains(" = ")) {
                let source = line.split_once("  # ").map(|(_, source)| source.trim());
                assert!(source.is_some_and(|source| source.len() > 5), "{name}: no source: {line}");
            }
        }
    }
}
