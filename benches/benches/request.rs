//! What a request costs without a database: an indicative quote, a decision, the check of a signature.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use dvp_api::{check_signature, fingerprint};
use dvp_benches::http::headers;
use dvp_core::chain::{ChainAnswer, ChainUnavailable, PairReading, PoolReader, PriceBlock, TicksReading};
use dvp_core::context::now;
use dvp_core::liquidity::{
    AmmPool, ConfiguredPrices, ConfiguredProvider, Liquidity, LiquiditySource, PairAssets, PoolConfig,
    PoolKind,
};
use dvp_core::secrets::{MacKey, mac};
use dvp_domain::asset::Registry;
use dvp_domain::canonical::sha256;
use dvp_domain::chain::BlockNumber;
use dvp_domain::decision::{QuoteLookup, decide};
use dvp_domain::intent::{ActorType, SettlementType};
use dvp_domain::liquidity::average::PairState;
use dvp_domain::liquidity::{
    Curve, Deliverer, LiquidityProvider, Market, Offer, Policy, Reference, Rung, Unlimited, Venue,
};
use dvp_domain::money::Minor;
use dvp_domain::quote::{IndicativeRequest, indicative};
use dvp_domain::time::Timestamp;
use dvp_testing::market::{TOKEN, WETH, pair};

/// A pair whose average is known from the second reading on.
struct Reserves(AtomicU64);

impl PoolReader for Reserves {
    fn pair<'a>(&'a self, _pool: &'a str) -> ChainAnswer<'a, PairReading> {
        let time = now().unix_secs() + self.0.fetch_add(1, Ordering::Relaxed);
        let state = PairState {
            reserve0: 1_000_000_000_000_000_000_000,
            reserve1: 3_000_000_000_000,
            accumulated_at: 0,
            cumulative: Default::default(),
        };
        let block = PriceBlock { number: BlockNumber(7), time };
        Box::pin(async move { Ok(PairReading { block, tokens: [WETH.into(), TOKEN.into()], state }) })
    }

    fn ticks<'a>(&'a self, _pool: &'a str, _window_secs: u32) -> ChainAnswer<'a, TicksReading> {
        Box::pin(async { Err(ChainUnavailable("no pool with ticks".into())) })
    }
}

/// Three levels, as the order book offers them.
struct Levels;

impl LiquiditySource for Levels {
    fn id(&self) -> &str {
        "book"
    }

    fn offer(&self, pair: PairAssets<'_>, _reference: Option<&Reference>) -> Option<Offer> {
        let assets = (pair.input, pair.output);
        let level = |rate: &str| {
            let rate = rate.parse().ok()?;
            Some(Rung {
                level_id: Some(1),
                ..Rung::new(deliverer("maker"), rate, Minor::new(2_000_000_000_000), assets)?
            })
        };
        Some(Offer {
            source: "book".into(),
            venue: Venue::OrderBook,
            curve: Curve::Ladder(["2990", "2985", "2980"].into_iter().map(level).collect::<Option<_>>()?),
            policy: Policy::default(),
            full_depth_bps: 0,
            valid_until: Timestamp::from_millis(i64::MAX),
            ttl_sec: 5,
            firm_ttl_sec: None,
            latency_ms: None,
            answer: None,
            metadata: serde_json::Map::new(),
        })
    }
}

fn deliverer(id: &str) -> Deliverer {
    Deliverer { provider_id: id.into(), wallet: "0x1".into() }
}

fn four_sources(registry: &Registry) -> Liquidity {
    let lp = |id, spread| -> Arc<dyn LiquiditySource> {
        Arc::new(ConfiguredProvider::new(LiquidityProvider::new(id, "0x1", spread)))
    };
    let pool = PoolConfig {
        id: "pool".into(),
        chain: "anvil".into(),
        address: "0x2".into(),
        kind: PoolKind::UniswapV2 { fee_bps: 30 },
        window_secs: 1,
        deviation_bps: 500,
        desk: deliverer("desk"),
        policy: Policy::default(),
        refresh_every: Duration::from_secs(1),
        good_for: Duration::from_secs(1_000_000),
        candidate_ttl_sec: 5,
    };
    let sources = vec![
        lp("north", 10),
        lp("south", 25),
        Arc::new(AmmPool::new(pool, Arc::new(Reserves(AtomicU64::default())))),
        Arc::new(Levels),
    ];
    let liquidity = Liquidity::new(registry.clone(), sources, vec![Arc::new(ConfiguredPrices::of(registry))]);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime without IO");
    for _ in 0..2 {
        runtime.block_on(liquidity.refresh());
    }
    liquidity
}

/// An indicative quote over four sources as the engine makes it from memory, beside its floor: writing the same answer as
/// JSON, a cost that is independent of the pricing.
fn quoting(criterion: &mut Criterion) {
    let registry = dvp_testing::Market::new(vec![pair("WETH", "USDC", "3000")]).registry;
    let liquidity = four_sources(&registry);
    let (input, output) = (registry.find("WETH").expect("listed"), registry.find("USDC").expect("listed"));
    let request = IndicativeRequest {
        request_id: "6f1e2d3c-0000-4000-8000-000000000001",
        input,
        output,
        amount: Minor::new(20_000_000_000_000_000_000),
        actor: ActorType::Institution,
        settlement_pref: SettlementType::Hybrid,
        max_slippage_bps: Some(50),
    };
    let quote = || {
        let snapshot = liquidity.snapshot();
        let market = Market { registry: &registry, snapshot: &snapshot, holdings: &Unlimited, now: now() };
        indicative(&market, black_box(&request), 0)
    };
    let candidates = quote();
    assert_eq!(candidates.len(), 4, "every source has a candidate");
    criterion.bench_function("indicative quote over four sources", |bench| bench.iter(quote));
    criterion.bench_function("floor: the same answer as JSON", |bench| {
        bench.iter(|| serde_json::to_string(black_box(&candidates)));
    });
}

/// An intent, without a database.
fn deciding(criterion: &mut Criterion) {
    let dvp_testing::Market { registry, providers, .. } = dvp_benches::harness::market();
    let liquidity = Liquidity::configured(&registry, providers);
    let request = dvp_benches::harness::order();
    let now = Timestamp::from_millis(request.deadline.millis() - 60_000);
    let market = Market { registry: &registry, snapshot: &liquidity.snapshot(), holdings: &Unlimited, now };
    criterion.bench_function("decide an intent", |bench| {
        bench.iter(|| decide(black_box(&request), black_box(&market), &QuoteLookup::NotRequested, "bank"));
    });
}

const PATH: &str = "/v1/intents";
const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const NOW: u64 = 1_800_000_000;

/// A request's signature and fingerprint, for a body of 1 KiB; beside the two hashes over the same bytes that nothing can
/// do without.
fn auth(criterion: &mut Criterion) {
    let body = "x".repeat(1024);
    let signed = headers(SECRET, PATH, body.as_bytes(), NOW).expect("the headers are ASCII");
    let (method, key) = (axum::http::Method::POST, MacKey::new(SECRET));
    criterion.bench_function("signature check and fingerprint, 1 KiB", |bench| {
        bench.iter(|| {
            let body = black_box(body.as_bytes());
            let used = check_signature(&key, &method, PATH, black_box(&signed), body, NOW);
            assert!(used.is_ok());
            fingerprint("POST", PATH, body)
        });
    });
    criterion.bench_function("floor: HMAC and SHA-256 of 1 KiB", |bench| {
        bench.iter(|| (mac(SECRET, black_box(body.as_bytes())), sha256(black_box(&body))));
    });
}

criterion_group!(benches, quoting, deciding, auth);
criterion_main!(benches);
