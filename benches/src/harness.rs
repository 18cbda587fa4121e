//! The subject of the measurements: the harness over a durable PostgreSQL of its own, and its orders.

use std::ops::Deref;
use std::path::Path;

use alloy::signers::local::PrivateKeySigner;
use dvp_core::context::now;
use dvp_domain::asset::Pair;
use dvp_domain::fees::FeeSchedule;
use dvp_domain::intent::IntentRequest;
use dvp_domain::money::Minor;
use dvp_sandbox::embedded::{Options, Postgres};
use dvp_store::{MIGRATOR, PgPool};
use dvp_testing::market::{TOKEN, fees, pair};
use dvp_testing::orders::{permit, sign};
use dvp_testing::{Database, Harness, Market};
use serde_json::json;

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

/// The harness over such a database.
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
        Self::start_with(dir, market()).await
    }

    /// The same for [`fiat_order`]s, which the partner has enough money for.
    pub async fn start_for_fiat(dir: &Path) -> anyhow::Result<Self> {
        Self::start_for_fiat_under(dir, Options::default()).await
    }

    /// The same, with a PostgreSQL of these options.
    pub(crate) async fn start_for_fiat_under(dir: &Path, options: Options) -> anyhow::Result<Self> {
        let harness = Self::start_under(dir, fiat_market(), options).await?;
        harness.deposit("USD", ENOUGH).await;
        Ok(harness)
    }

    async fn start_with(dir: &Path, market: Market) -> anyhow::Result<Self> {
        Self::start_under(dir, market, Options::default()).await
    }

    /// The same for a market, with a PostgreSQL of these options.
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

    /// Stops the workers and the database.
    pub async fn stop(self) -> anyhow::Result<()> {
        let Durable { postgres, .. } = self.harness.into_database();
        Ok(postgres.stop().await?)
    }
}

/// An order of 100 USDC with a permit of a wallet of its own.
pub fn order() -> anyhow::Result<IntentRequest> {
    let wallet = PrivateKeySigner::random();
    let id = uuid::Uuid::new_v4();
    let permit = sign(&wallet, permit(TOKEN, 100_000_000, 0));
    Ok(serde_json::from_value(json!({
        "intent_id": id.to_string(), "client_reference": format!("ref-{id}"),
        "user": format!("{:#x}", wallet.address()),
        "input_asset": {"type": "erc20", "symbol": "USDC"}, "output_asset": {"type": "fiat", "symbol": "USD"},
        "bounds": {"exact_input": {"input": "100000000", "min_output": "9900"}},
        "quote_id": null, "deadline": now().plus_millis(3_600_000), "settlement_type": "hybrid",
        "output_recipient": null,
        "beneficiary": {"account": "000123456789", "name": "Jane Doe", "country": "US", "payoutMethod": "ach"},
        "permit": permit, "actor_type": "institution", "side": "sell", "metadata": null,
    }))?)
}

/// An order of 100 USD for euros, paid from the partner's prefunded balance.
pub fn fiat_order() -> anyhow::Result<IntentRequest> {
    let id = uuid::Uuid::new_v4();
    Ok(serde_json::from_value(json!({
        "intent_id": id.to_string(), "client_reference": format!("ref-{id}"), "user": "acme",
        "input_asset": {"type": "fiat", "symbol": "USD", "currency": "USD"},
        "output_asset": {"type": "fiat", "symbol": "EUR", "currency": "EUR"},
        "bounds": {"exact_input": {"input": "10000", "min_output": "5000"}},
        "quote_id": null, "deadline": now().plus_millis(3_600_000), "settlement_type": "hybrid",
        "output_recipient": null, "beneficiary": {"account": ACCOUNT},
        "permit": null, "actor_type": "institution", "side": "sell", "metadata": null,
    }))?)
}
