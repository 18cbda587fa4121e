//! The subject of the measurements: the harness over a durable PostgreSQL of its own, and its orders.

use std::ops::Deref;
use std::path::Path;

use dvp_core::context::now;
use dvp_domain::asset::Pair;
use dvp_domain::beneficiary::Beneficiary;
use dvp_domain::fees::FeeSchedule;
use dvp_domain::intent::{Bounds, IntentRequest};
use dvp_domain::money::Minor;
use dvp_sandbox::embedded::{Options, Postgres};
use dvp_store::{MIGRATOR, PgPool};
use dvp_testing::market::{fees, pair};
use dvp_testing::orders::{self, Terms, order_for};
use dvp_testing::{Database, Harness, Market};

/// A beneficiary that was set up beforehand, whose payouts succeed at once.
pub const ACCOUNT: &str = "bene_straight:dest_10000000";
const CONNECTIONS: u32 = 40;
/// More than anything spends.
const ENOUGH: u128 = u128::MAX >> 8;

/// A PostgreSQL that loses nothing, as a server's. It stops when it is dropped.
pub struct Durable {
    pub postgres: Postgres,
    pool: PgPool,
}

impl Database for Durable {
    fn pool(&self) -> &PgPool {
        &self.pool
    }
}

pub struct DurableHarness {
    harness: Harness<Durable>,
}

impl Deref for DurableHarness {
    type Target = Harness<Durable>;

    fn deref(&self) -> &Self::Target {
        &self.harness
    }
}

/// The market of the measurements: one token, one currency, one provider with enough for everything.
pub fn market() -> Market {
    Market::new(vec![pair("USDC", "USD", "1")]).with_funds("north", "USD", ENOUGH)
}

/// The market of orders that need no chain: two currencies.
fn fiat_market() -> Market {
    let fees = FeeSchedule { network_fee_minor: Minor::ZERO, ..fees() };
    Market::new(vec![Pair { fees, ..pair("USD", "EUR", "0.92") }])
        .with_funds("north", "USD", ENOUGH)
        .with_funds("north", "EUR", ENOUGH)
}

impl DurableHarness {
    /// Starts a durable PostgreSQL in `dir` and an engine on it, for [`order`]s.
    pub async fn start(dir: &Path) -> anyhow::Result<Self> {
        Self::start_under(dir, market(), Options::default()).await
    }

    /// The same for [`fiat_order`]s, which the partner has enough money for.
    pub async fn start_for_fiat(dir: &Path) -> anyhow::Result<Self> {
        Self::start_for_fiat_under(dir, Options::default()).await
    }

    pub(crate) async fn start_for_fiat_under(dir: &Path, options: Options) -> anyhow::Result<Self> {
        let harness = Self::start_under(dir, fiat_market(), options).await?;
        harness.deposit("USD", ENOUGH).await;
        Ok(harness)
    }

    pub(crate) async fn start_under(dir: &Path, market: Market, options: Options) -> anyhow::Result<Self> {
        let postgres = Postgres::start(dir, options).await?;
        let pool = dvp_store::database::pool::pool_options()
            .max_connections(CONNECTIONS)
            .min_connections(CONNECTIONS)
            // As the service's connections have it.
            .connect_with(postgres.connect_options().options([("jit", "off")]))
            .await?;
        MIGRATOR.run(&pool).await?;
        Ok(Self { harness: Harness::over(Durable { postgres, pool }, market).await })
    }

    pub async fn stop(self) -> anyhow::Result<()> {
        let Durable { postgres, .. } = self.harness.into_database();
        Ok(postgres.stop().await?)
    }
}

/// An order of 100 USDC with a permit of a wallet of its own.
pub fn order() -> IntentRequest {
    lasting(orders::order("000123456789"), 100_000_000, 9_900)
}

/// An order of 100 USD for euros, paid from the partner's prefunded balance.
pub fn fiat_order() -> IntentRequest {
    let terms = Terms { input: ("USD", 10_000), output: "EUR", account: ACCOUNT };
    let beneficiary = Some(Beneficiary { account: Some(ACCOUNT.into()), ..Beneficiary::default() });
    IntentRequest { user: "acme".into(), beneficiary, ..lasting(order_for(&terms), 10_000, 5_000) }
}

/// The order for an hour, with a floor.
fn lasting(order: IntentRequest, input: u128, min_output: u128) -> IntentRequest {
    let bounds = Bounds::ExactInput { input: Minor::new(input), min_output: Minor::new(min_output) };
    IntentRequest { bounds, deadline: now().plus_millis(3_600_000), ..order }
}
