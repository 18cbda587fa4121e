//! What is measured: an engine over a durable PostgreSQL of its own, and orders to give it.

use std::path::Path;
use std::sync::Arc;

use alloy::primitives::Address;
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use anyhow::Context as _;
use dvp_core::chain::{ChainAnswer, ChainHead, WalletFacts, WalletKey, WalletReader, WalletReading};
use dvp_core::context::{ChainConfig, Context, Windows, now};
use dvp_core::engine::Engine;
use dvp_core::liquidity::Liquidity;
use dvp_core::permit::PermitDomain;
use dvp_core::secrets::Vault;
use dvp_core::writer::Writer;
use dvp_domain::asset::{Asset, AssetKind, Pair, Registry};
use dvp_domain::intent::{IntentRequest, Permit};
use dvp_domain::ledger::Owner;
use dvp_domain::liquidity::LiquidityProvider;
use dvp_domain::money::Minor;
use dvp_domain::pricing::FeeSchedule;
use dvp_sandbox::embedded::{Options, Postgres};
use dvp_sandbox::rails as simulated;
use dvp_store::ledger::balances;
use dvp_store::orders::intents::Tenant;
use dvp_store::{MIGRATOR, PgPool, partners};
use serde_json::json;
use tokio::task::JoinHandle;

const TOKEN: &str = "0x00000000000000000000000000000000000000aa";
const ESCROW: &str = "0x00000000000000000000000000000000000000ee";
const PERMIT: &str = "0x00000000000000000000000000000000000000b0";
const ANCHOR: &str = "0x00000000000000000000000000000000000000ac";
const CHAIN_ID: u64 = 31337;
/// A beneficiary that was set up beforehand, whose payouts succeed at once.
pub const ACCOUNT: &str = "bene_straight:dest_10000000";
const CONNECTIONS: u32 = 64;

/// An engine and what it stands on.
pub struct House {
    pub engine: Engine,
    pub pool: PgPool,
    pub tenant: Tenant,
    /// The writer's task.
    pub writing: JoinHandle<()>,
    /// Stops when dropped.
    pub postgres: Postgres,
}

const HEAD: ChainHead = ChainHead { number: 1, hash: [1; 32] };

/// Every wallet is new: what is measured is the service, not the node behind it.
struct NewWallets;

impl WalletReader for NewWallets {
    fn head(&self) -> ChainAnswer<'_, ChainHead> {
        Box::pin(async { Ok(HEAD) })
    }

    fn read<'a>(&'a self, wallets: &'a [WalletKey]) -> ChainAnswer<'a, WalletReading> {
        let facts = WalletFacts { nonce: 0, balance: u128::MAX, allowance: u128::MAX };
        let reading = WalletReading { head: HEAD, facts: vec![facts; wallets.len()] };
        Box::pin(async { Ok(reading) })
    }
}

/// The market of the measurements: one token, one currency, one provider with enough for everything.
pub fn registry() -> anyhow::Result<Registry> {
    let fees = FeeSchedule {
        protocol_fee_bps: 5,
        payout_fee_minor: Minor::new(50),
        network_fee_minor: Minor::new(30_000),
    };
    let token = AssetKind::Erc20 { chain: "anvil".into(), address: TOKEN.into() };
    let fiat = AssetKind::Fiat { currency: "USD".into() };
    Ok(Registry {
        assets: vec![
            Asset { symbol: "USDC".into(), exponent: 6, kind: token },
            Asset { symbol: "USD".into(), exponent: 2, kind: fiat },
        ],
        pairs: vec![Pair {
            base: "USDC".into(),
            quote: "USD".into(),
            reference_price: Some("1".parse()?),
            fees,
            min_input: Minor::ZERO,
            max_input: None,
        }],
    })
}

/// The market of orders that need no chain: two currencies.
pub fn fiat_registry() -> anyhow::Result<Registry> {
    let fees = FeeSchedule {
        protocol_fee_bps: 5,
        payout_fee_minor: Minor::new(50),
        network_fee_minor: Minor::new(0),
    };
    let asset = |currency: &str| {
        let kind = AssetKind::Fiat { currency: currency.into() };
        Asset { symbol: currency.into(), exponent: 2, kind }
    };
    Ok(Registry {
        assets: vec![asset("USD"), asset("EUR")],
        pairs: vec![Pair {
            base: "USD".into(),
            quote: "EUR".into(),
            reference_price: Some("0.92".parse()?),
            fees,
            min_input: Minor::ZERO,
            max_input: None,
        }],
    })
}

pub fn provider() -> LiquidityProvider {
    LiquidityProvider {
        full_depth_bps: 100,
        ..LiquidityProvider::new("north", "0x0000000000000000000000000000000000000001", 10)
    }
}

impl House {
    /// Starts a durable PostgreSQL in `dir` and an engine on it, for [`order`]s.
    pub async fn start(dir: &Path) -> anyhow::Result<Self> {
        Self::start_with(dir, registry()?).await
    }

    /// The same for [`fiat_order`]s, which the partner has enough money for.
    pub async fn start_for_fiat(dir: &Path) -> anyhow::Result<Self> {
        let house = Self::start_with(dir, fiat_registry()?).await?;
        let mut tx = house.pool.begin().await?;
        let Tenant { partner_id, livemode } = house.tenant.clone();
        let owner = Owner::Partner { id: partner_id, livemode };
        balances::deposit(&mut tx, "deposit", &owner, "USD", Minor::new(u128::MAX >> 8)).await?;
        tx.commit().await?;
        Ok(house)
    }

    async fn start_with(dir: &Path, registry: Registry) -> anyhow::Result<Self> {
        let postgres = Postgres::start(dir, Options::default()).await?;
        let pool = dvp_store::pool::pool_options()
            .max_connections(CONNECTIONS)
            .min_connections(CONNECTIONS)
            .connect_with(postgres.connect_options())
            .await?;
        MIGRATOR.run(&pool).await?;
        let mut conn = pool.acquire().await?;
        let partner_id =
            partners::ensure_partner(&mut conn, "ptn_acme", "acme", "enterprise", 1_000_000).await?;
        for asset in registry.assets.iter().filter(|asset| matches!(asset.kind, AssetKind::Fiat { .. })) {
            balances::insert_opening(&mut conn, "north", &asset.symbol, Minor::new(u128::MAX >> 8)).await?;
        }
        drop(conn);
        let context = Arc::new(Context {
            liquidity: Arc::new(Liquidity::configured(&registry, [provider()])),
            registry,
            payout_provider: simulated::PROVIDER.into(),
            chain: ChainConfig::new(CHAIN_ID, ESCROW, ANCHOR, PERMIT, "Permit").context("addresses")?,
            windows: Windows { fill_secs: 3600, margin_secs: 3600, payout: simulated::PAYOUT_TIME },
            vault: Vault::new([7; 32]),
            rest_millis: simulated::rest_millis,
            check_payout: simulated::check_payout,
        });
        let (writer, writing) = Writer::start(pool.clone(), Arc::clone(&context));
        let engine = Engine::new(pool.clone(), writer, context, Arc::new(NewWallets));
        Ok(Self { engine, pool, tenant: Tenant { partner_id, livemode: false }, writing, postgres })
    }
}

/// An order of 100 USDC with a permit of a wallet of its own.
pub fn order() -> anyhow::Result<IntentRequest> {
    let wallet = PrivateKeySigner::random();
    let id = uuid::Uuid::new_v4();
    let mut permit: Permit = serde_json::from_value(json!({
        "token": TOKEN, "amountMinor": "100000000", "spender": ESCROW, "nonce": "0",
        "deadline": now().unix_secs().saturating_add(7200), "signature": "",
    }))?;
    let contract: Address = PERMIT.parse()?;
    let digest = PermitDomain::new("Permit", CHAIN_ID, contract).digest(&permit).context("digest")?;
    let signature = wallet.sign_hash_sync(&digest.into())?;
    permit.signature = format!("0x{}", hex::encode(signature.as_bytes()));
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

/// An order of 100 USD for euros, paid from what the partner has sent ahead.
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
