//! Configured providers: a spread around the reference price.

use dvp_domain::liquidity::{LiquidityProvider, Offer, Reference};

use super::{LiquiditySource, PairAssets};

/// A provider whose terms are configured and never change while the process runs.
pub struct ConfiguredProvider {
    provider: LiquidityProvider,
}

impl ConfiguredProvider {
    pub const fn new(provider: LiquidityProvider) -> Self {
        Self { provider }
    }
}

impl LiquiditySource for ConfiguredProvider {
    fn id(&self) -> &str {
        &self.provider.id
    }

    fn offer(&self, pair: PairAssets<'_>, reference: Option<&Reference>) -> Option<Offer> {
        self.provider.offer(reference?, pair.input, pair.output)
    }
}
