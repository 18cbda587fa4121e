//! The present fees of the chains, as their relayers record them: every process prices the network fees of its quotes
//! from the same rows. They are read in the background, and quotes read memory.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use dvp_domain::asset::Registry;
use dvp_domain::liquidity::network_fee::{self, ChainGas, GasPrice};
use dvp_domain::liquidity::{Reference, Snapshot};
use dvp_domain::time::Timestamp;
use dvp_store::StoreError;
use dvp_store::chain::{self, ChainFees};
use parking_lot::Mutex;
use sqlx::PgPool;
use tracing::{info, warn};

/// The interval of background reads.
pub(super) const REFRESH_EVERY: Duration = Duration::from_secs(1);
/// A fee is not used from this time after its recording on. A relayer records one at each new block, at most once a
/// second.
pub const FEES_GOOD_FOR_MS: i64 = 60_000;

/// A chain whose fees quotes follow.
#[derive(Debug, Clone)]
pub struct GasConfig {
    pub chain_id: u64,
    pub gas: ChainGas,
    /// The smallest tip that its relayer offers, in wei per gas.
    pub tip_floor_wei: u128,
}

/// The chains with a coin, and their fees as last read.
#[derive(Debug, Default)]
pub(super) struct Network {
    chains: Vec<GasConfig>,
    gas: Vec<ChainGas>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// By the chain's name.
    prices: HashMap<String, GasPrice>,
    /// The chains that were reported for having no fresh fee.
    reported: HashSet<String>,
}

impl Network {
    pub(super) fn new(chains: Vec<GasConfig>) -> Self {
        let gas = chains.iter().map(|chain| chain.gas.clone()).collect();
        Self { chains, gas, known: Mutex::default() }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.chains.is_empty()
    }

    /// Whether every chain has a fresh fee.
    pub(super) fn is_known(&self, now: Timestamp) -> bool {
        let known = self.known.lock();
        let is_fresh = |chain: &GasConfig| {
            known.prices.get(&chain.gas.chain).is_some_and(|price| now < price.valid_until)
        };
        self.chains.iter().all(is_fresh)
    }

    /// Reads the recorded fees. `true`: they differ from those read before.
    pub(super) async fn load(&self, pool: &PgPool, now: Timestamp) -> Result<bool, StoreError> {
        let recorded = chain::list_fees(&mut *pool.acquire().await?).await?;
        let mut prices = HashMap::new();
        for GasConfig { chain_id, gas, tip_floor_wei } in &self.chains {
            let of_chain = recorded.iter().find(|(recorded, ..)| recorded == chain_id);
            let Some((_, ChainFees { base_fee, tip, cap, data }, seen_at)) = of_chain else { continue };
            let wei = GasPrice::paid(*base_fee, *tip, (*tip_floor_wei, *cap));
            let valid_until = Timestamp::from(*seen_at).plus_millis(FEES_GOOD_FOR_MS);
            prices.insert(gas.chain.clone(), GasPrice { wei, data_wei: *data, valid_until });
        }
        let mut known = self.known.lock();
        let differs = known.prices != prices;
        known.prices = prices;
        self.report(&mut known, now);
        Ok(differs)
    }

    /// Reports a chain without a fresh fee once, and its recovery.
    fn report(&self, known: &mut Known, now: Timestamp) {
        for GasConfig { gas: ChainGas { chain, .. }, .. } in &self.chains {
            let is_fresh = known.prices.get(chain).is_some_and(|price| now < price.valid_until);
            if is_fresh && known.reported.remove(chain) {
                info!(chain, "the chain's fee is known again; its pairs are quoted");
            } else if !is_fresh && known.reported.insert(chain.clone()) {
                warn!(
                    chain,
                    "no relayer has recorded the chain's fee within a minute; its pairs are not quoted"
                );
            }
        }
    }

    /// Sets the network fees of a snapshot's pairs.
    pub(super) fn apply(
        &self,
        snapshot: &mut Snapshot,
        registry: &Registry,
        unlisted: impl Fn(&str, &str) -> Option<Reference>,
    ) {
        if self.is_empty() {
            return;
        }
        let prices = self.known.lock().prices.clone();
        network_fee::apply(snapshot, registry, &self.gas, |chain| prices.get(chain).copied(), unlisted);
    }
}
