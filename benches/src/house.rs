//! What is measured: an engine over a durable PostgreSQL of its own, and orders to give it.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use alloy::primitives::Address;
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use anyhow::Context as _;
use dvp_core::chain::{ChainUnavailable, PermitNonces};
use dvp_core::context::{ChainFacts, Context, Windows, now};
use dvp_core::embedded::{Options, Postgres};
use dvp_core::engine::Engine;
use dvp_core::liquidity::Liquidity;
use dvp_core::permit::PermitDomain;
use dvp_core::rails::simulated;
use dvp_core::secrets::Vault;
use dvp_core::store::intents::Tenant;
use dvp_core::store::{MIGRATOR, PgPool, balances, partners};
use dvp_core::writer::Writer;
use dvp_domain::asset::{Asset, AssetKind, Pair, Registry};
use dvp_domain::intent::{IntentRequest, Permit};
use dvp_domain::liquidity::LiquidityProvider;
use dvp_domain::money::Minor;
use dvp_domain::pricing::FeeSchedule;
use serde_json::json;

const TOKEN: &str = "0x00000000000000000000000000000000000000aa";
const ESCROW: &str = "0x00000000000000000000000000000000000000ee";
const PERMIT: &str = "0x00000000000000000000000000000000000000b0";
const ANCHOR: &str = "0x00000000000000000000000000000000000000ac";
const CHAIN_ID: u64 = 31337;
const CONNECTIONS: u32 = 64;

/// An engine and what it stands on.
pub struct House {
    pub engine: Engine,
    pub pool: PgPool,
    pub tenant: Tenant,
    /// Stops when dropped.
    pub postgres: Postgres,
}

/// Every wallet is new: what is measured is the service, not the node behind it.
struct NewWallets;

impl PermitNonces for NewWallets {
    fn permit_nonce<'a>(
        &'a self,
        _owner: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<u128, ChainUnavailable>> + Send + 'a>> {
        Box::pin(async { Ok(0) })
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
    /// Starts a durable PostgreSQL in `dir` and an engine on it.
    pub async fn start(dir: &Path) -> anyhow::Result<Self> {
        let postgres = Postgres::start(dir, Options::default()).await?;
        let pool = dvp_core::store::pool::pool_options()
            .max_connections(CONNECTIONS)
            .min_connections(CONNECTIONS)
            .connect_with(postgres.connect_options())
            .await?;
        MIGRATOR.run(&pool).await?;
        let mut conn = pool.acquire().await?;
        let partner_id =
            partners::ensure_partner(&mut conn, "ptn_acme", "acme", "enterprise", 1_000_000).await?;
        balances::insert_opening(&mut conn, "north", "USD", Minor::new(u128::MAX >> 8)).await?;
        drop(conn);
        let context = Arc::new(Context {
            liquidity: Arc::new(Liquidity::configured(&registry()?, [provider()])),
            registry: registry()?,
            payout_provider: simulated::PROVIDER.into(),
            chain: ChainFacts::new(CHAIN_ID, ESCROW, ANCHOR, PERMIT, "Permit").context("addresses")?,
            windows: Windows { fill_secs: 3600, timelock_secs: 7200 },
            vault: Vault::new([7; 32]),
            rest_millis: simulated::rest_millis,
        });
        let (writer, _) = Writer::start(pool.clone(), Arc::clone(&context));
        let engine = Engine::new(pool.clone(), writer, context, Arc::new(NewWallets));
        Ok(Self { engine, pool, tenant: Tenant { partner_id, livemode: false }, postgres })
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
