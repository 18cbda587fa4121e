//! The payout gate of a chain: how sure it must be of a fill before the beneficiary is paid.

use anyhow::{Context as _, ensure};
use dvp_chain_indexer::gate::{GateStep, PayoutGate, Wait};
use serde::{Deserialize, Deserializer, de};

use super::market::AssetSection;

/// One step. The first that fits an order holds; the last fits every order.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GateStepSection {
    /// The asset locked; without it any.
    pub asset: Option<String>,
    /// Amounts below this, in the asset's minor units.
    pub below: Option<String>,
    pub wait: WaitText,
}

/// `safe`, `finalized`, or a number of blocks as `"12 blocks"`. `l1_batch` is `finalized` by its meaning on a rollup:
/// the batch with the block is in a final block of the L1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaitText(pub Wait);

impl WaitText {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "safe" => Some(Self(Wait::Safe)),
            "finalized" | "l1_batch" => Some(Self(Wait::Finalized)),
            _ => {
                let (number, unit) = text.split_once(' ')?;
                let depth: u64 = number.parse().ok()?;
                (depth > 0 && (unit == "blocks" || unit == "block")).then_some(Self(Wait::Depth(depth)))
            }
        }
    }
}

impl<'de> Deserialize<'de> for WaitText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let refused = "a payout waits for \"safe\", \"finalized\", \"l1_batch\" or a number of blocks, as \"12 blocks\"";
        Self::parse(&text).ok_or_else(|| de::Error::custom(refused))
    }
}

/// The gate of the chain of this name. Without steps every payout waits for finality.
pub(crate) fn gate(
    steps: &[GateStepSection],
    chain: &str,
    assets: &[AssetSection],
) -> anyhow::Result<PayoutGate> {
    let Some(last) = steps.len().checked_sub(1) else { return Ok(PayoutGate::always(Wait::Finalized)) };
    let mut read = Vec::with_capacity(steps.len());
    for (n, step) in steps.iter().enumerate() {
        let place = || format!("payout_gate[{n}]");
        let fits_all = step.asset.is_none() && step.below.is_none();
        ensure!(n < last || fits_all, "{}: the last step must have neither asset nor below", place());
        ensure!(n == last || !fits_all, "{}: it fits every order, so no later step can hold", place());
        ensure!(step.below.is_none() || step.asset.is_some(), "{}.below needs an asset", place());
        let token = step.asset.as_ref().map(|symbol| {
            let of = |asset: &&AssetSection| asset.symbol == *symbol && asset.chain.as_deref() == Some(chain);
            let address =
                assets.iter().find(of).and_then(|asset| asset.address.as_ref().or(asset.wrapped.as_ref()));
            let address =
                address.with_context(|| format!("{}.asset: {symbol} is no token of this chain", place()))?;
            address.parse().with_context(|| format!("{}.asset: the address of {symbol}", place()))
        });
        let below = step.below.as_ref().map(|below| {
            below.parse::<u128>().with_context(|| format!("{}.below is no whole number", place()))
        });
        read.push(GateStep {
            token: token.transpose()?,
            below: below.transpose()?.map(alloy::primitives::U256::from),
            wait: step.wait.0,
        });
    }
    Ok(PayoutGate::new(read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_a_rollup_is_waited_for_by_its_final_block() {
        let wait = |text| WaitText::parse(text).map(|text| text.0);
        assert_eq!(wait("l1_batch"), Some(Wait::Finalized));
        assert_eq!(wait("finalized"), Some(Wait::Finalized));
        assert_eq!(wait("safe"), Some(Wait::Safe));
        assert_eq!(wait("1 block"), Some(Wait::Depth(1)));
        for refused in ["0 blocks", "l1", "batch", "12"] {
            assert_eq!(wait(refused), None, "{refused}");
        }
    }
}
