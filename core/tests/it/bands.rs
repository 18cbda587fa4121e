//! A price outside of its pair's band is neither quoted nor filled at, whatever source it comes from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dvp_core::chain::{ChainAnswer, ChainUnavailable, PairReading, PoolReader, PriceBlock, TicksReading};
use dvp_core::context::now;
use dvp_core::liquidity::{
    AmmPool, BookConfig, ConfiguredPrices, ConfiguredProvider, Liquidity, LiquiditySource, OrderBook,
    PoolConfig, PoolKind, ReferenceSource,
};
use dvp_core::operators::approvals::approve;
use dvp_core::operators::bands::{BandChange, BandError, request};
use dvp_core::operators::requests::Maker;
use dvp_core::writer::Outcome;
use dvp_domain::chain::BlockNumber;
use dvp_domain::decision::Reason;
use dvp_domain::liquidity::average::PairState;
use dvp_domain::liquidity::band::{Band, Bands};
use dvp_domain::liquidity::curve::TickState;
use dvp_domain::liquidity::{Deliverer, Policy};
use dvp_testing::Harness;
use dvp_testing::market::{TOKEN, WETH, north};
use dvp_testing::orders::{Terms, order, order_for};

use crate::liquidity::{ExternalServer, Manner, by_feed, external, good, quoted, rest};
use crate::scenes::{self, registry};

const MAKER: Maker<'_> = Maker { operator: "jo", reason: "thin market", evidence: "risk memo 8" };

fn band(deviation_bps: Option<u32>, middle: Option<&str>) -> BandChange {
    let middle = middle.map(|middle| middle.parse().unwrap());
    BandChange { input: "USDC".into(), output: "USD".into(), deviation_bps, middle }
}

async fn set(harness: &Harness, change: &BandChange) {
    let mut conn = harness.pool().acquire().await.unwrap();
    let requested = request(&mut conn, &harness.market.targets(), change, MAKER).await.unwrap();
    approve(&mut conn, &requested.approval.id, "mika", "seen").await.unwrap();
}

async fn is_refused(harness: &Harness) -> bool {
    match harness.submit(order("000123450000")).await {
        Outcome::Rejected { reason: Reason::NoLiquidity, .. } => true,
        Outcome::Accepted(_) => false,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_band_applies_to_the_next_order_and_to_quotes_once_read() {
    let harness = scenes::harness().await;
    let liquidity = &harness.engine.context().liquidity;
    assert!(!is_refused(&harness).await);
    // The reference price of 1 is outside, so all prices of the pair are in doubt.
    set(&harness, &band(Some(50), Some("1.1"))).await;
    assert!(is_refused(&harness).await, "before this process has read the band");
    assert_eq!(quoted(&harness, 100_000_000).await.len(), 1);
    liquidity.load_controls(harness.pool()).await.unwrap();
    assert!(quoted(&harness, 100_000_000).await.is_empty());
    assert!(is_refused(&harness).await);
    let other = order_for(&Terms { input: ("WETH", 1_000_000_000_000_000_000), output: "USDC", account: "" });
    harness.fund("north", "USDC", 100_000_000_000).await;
    harness.accept(other).await;
    // The provider's 10 basis points are within the next band.
    for change in [band(Some(50), None), band(Some(9), None), band(None, None)] {
        set(&harness, &change).await;
        liquidity.load_controls(harness.pool()).await.unwrap();
        let is_narrow = change.deviation_bps == Some(9);
        assert_eq!(quoted(&harness, 100_000_000).await.is_empty(), is_narrow);
        assert_eq!(is_refused(&harness).await, is_narrow);
    }
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_band_is_changed_by_two_operators_and_the_change_is_recorded() {
    let harness = scenes::harness().await;
    let mut conn = harness.pool().acquire().await.unwrap();
    for impossible in
        [band(Some(0), None), band(Some(10_000), None), band(None, Some("1")), band(Some(1), Some("0"))]
    {
        let refused = request(&mut conn, &harness.market.targets(), &impossible, MAKER).await;
        assert!(matches!(refused, Err(BandError::Numbers)), "{impossible:?}: {refused:?}");
    }
    let first = request(&mut conn, &harness.market.targets(), &band(Some(9), None), MAKER).await.unwrap();
    assert!(!is_refused(&harness).await, "it is not approved yet");
    approve(&mut conn, &first.approval.id, "mika", "seen").await.unwrap();
    assert!(is_refused(&harness).await);
    let kept = "select count(*) from audit_entry where source = 'price_band' and entry like '%USDC%'";
    harness.wait_for_count(kept, 1).await;
    assert!(sqlx::query("delete from price_band").execute(harness.pool()).await.is_err());
}

/// North around a reference, and another source, with a configured band of one percent.
fn banded(other: Arc<dyn LiquiditySource>, references: Vec<Arc<dyn ReferenceSource>>) -> Liquidity {
    let sources: Vec<Arc<dyn LiquiditySource>> = vec![Arc::new(ConfiguredProvider::new(north())), other];
    let band = Band { deviation_bps: 100, middle: None };
    let pairs =
        [("USDC", "USD"), ("WETH", "USDC")].map(|(input, output)| (input.to_owned(), output.to_owned()));
    Liquidity::with_bands(registry(), sources, references, Bands::from_iter(pairs.map(|pair| (pair, band))))
}

fn configured() -> Arc<dyn ReferenceSource> {
    Arc::new(ConfiguredPrices::of(&registry()))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_source_fills_at_a_price_that_gives_far_too_much() {
    let held = [("north", 100_000_000), ("seventh", 100_000_000)];
    let server = ExternalServer::with(Manner::Answers(good("1.5"))).await;
    let source = external(&server.url, Duration::from_secs(60));
    let harness = scenes::harness_over(&held, |_| banded(source, vec![configured()])).await;
    harness.engine.context().liquidity.refresh().await;
    let by: Vec<String> = quoted(&harness, 100_000_000).await.into_iter().map(|one| one.provider).collect();
    assert_eq!(by, ["north"], "an answer to this very request is refused as well");
    assert_eq!(harness.accept(order("000123450000")).await.plan.solver_id, "north");

    let book = |pool: &sqlx::PgPool| -> Arc<dyn LiquiditySource> {
        Arc::new(OrderBook::new(BookConfig::default(), pool.clone()))
    };
    let harness = scenes::harness_over(&held, |pool| banded(book(pool), vec![configured()])).await;
    rest(&harness, "seventh", "1.5", 5_000).await;
    rest(&harness, "seventh", "1.005", 5_000).await;
    harness.engine.context().liquidity.refresh().await;
    let plan = harness.accept(order("000123450000")).await.plan;
    let given: Vec<u128> = plan.slices.iter().map(|slice| slice.output.get()).collect();
    assert_eq!(given[0], 5_000, "{plan:?}");
    assert_eq!(harness.count("select count(*) from resting_order where remaining = placed").await, 1);
}

/// A pair with these reserves of WETH and USDC for ever, in blocks of this age in seconds.
struct Reserves {
    weth: u128,
    usdc: u128,
    age: u64,
    /// One block more at each reading.
    readings: AtomicU64,
}

impl PoolReader for Reserves {
    fn pair<'a>(&'a self, _pool: &'a str) -> ChainAnswer<'a, PairReading> {
        let time = now().unix_secs() - self.age + self.readings.fetch_add(1, Ordering::Relaxed);
        let state = PairState {
            reserve0: self.weth,
            reserve1: self.usdc,
            accumulated_at: 0,
            cumulative: Default::default(),
        };
        let block = PriceBlock { number: BlockNumber(7), time };
        Box::pin(async move { Ok(PairReading { block, tokens: [WETH.to_owned(), TOKEN.to_owned()], state }) })
    }

    fn ticks<'a>(&'a self, _pool: &'a str, _window_secs: u32) -> ChainAnswer<'a, TicksReading> {
        Box::pin(async { Err(ChainUnavailable("no pool with ticks".into())) })
    }
}

fn pool_config(kind: PoolKind) -> PoolConfig {
    PoolConfig {
        id: "pool".into(),
        chain: "anvil".into(),
        address: "0xpool".into(),
        kind,
        window_secs: 1,
        deviation_bps: 500,
        desk: Deliverer { provider_id: "desk".into(), wallet: "0x9".into() },
        policy: Policy::default(),
        refresh_every: Duration::from_secs(1),
        good_for: Duration::from_secs(60),
        candidate_ttl_sec: 5,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_used_within_the_band_and_not_after_a_large_trade() {
    // At 2000 the reference is; a thousand WETH are in the pool.
    for (usdc, age, is_used) in [
        (2_000_000_000_000, 0, true),
        (2_100_000_000_000, 0, false),
        (1_900_000_000_000, 0, false),
        // Its endpoint has stopped: the reserves are those of an old block, however often they are read.
        (2_000_000_000_000, 120, false),
    ] {
        let pair =
            Reserves { weth: 1_000_000_000_000_000_000_000, usdc, age, readings: AtomicU64::default() };
        let pool = AmmPool::new(pool_config(PoolKind::UniswapV2 { fee_bps: 0 }), Arc::new(pair));
        let harness = scenes::harness_over(&[], |_| banded(Arc::new(pool), vec![configured()])).await;
        harness.fund("desk", "USDC", 100_000_000_000_000).await;
        harness.engine.context().liquidity.refresh().await;
        let terms = |weth| Terms { input: ("WETH", weth), output: "USDC", account: "" };
        let unaveraged = harness.submit(order_for(&terms(1_000_000_000_000_000_000))).await;
        assert!(
            matches!(unaveraged, Outcome::Rejected { reason: Reason::NoLiquidity, .. }),
            "{unaveraged:?}"
        );
        harness.engine.context().liquidity.refresh().await;
        let outcome = harness.submit(order_for(&terms(1_000_000_000_000_000_000))).await;
        match outcome {
            Outcome::Accepted(accepted) if is_used => assert_eq!(accepted.plan.solver_id, "desk"),
            Outcome::Rejected { reason: Reason::NoLiquidity, .. } if !is_used => {}
            other => panic!("{usdc}: {other:?}"),
        }
        // About five WETH move the price by one percent; a hundred would move it by a fifth.
        let large = harness.submit(order_for(&terms(100_000_000_000_000_000_000))).await;
        assert!(matches!(large, Outcome::Rejected { reason: Reason::NoLiquidity, .. }), "{large:?}");
    }
}

/// A pool with one wide position, at 2000 USDC for a WETH now, whose price was this tick's on average.
struct Concentrated(Option<i32>);

impl PoolReader for Concentrated {
    fn pair<'a>(&'a self, _pool: &'a str) -> ChainAnswer<'a, PairReading> {
        Box::pin(async { Err(ChainUnavailable("no pair".into())) })
    }

    fn ticks<'a>(&'a self, _pool: &'a str, _window_secs: u32) -> ChainAnswer<'a, TicksReading> {
        let liquidity = 44_721_359_549_995_792_u64;
        let state = TickState {
            sqrt_price: [14_327_584_078_369_727_218, 192_076, 0, 0],
            tick: -200_312,
            liquidity: liquidity.into(),
            tick_spacing: 60,
            fee_pips: 500,
            net: [(-220_020, liquidity.into()), (-180_000, -i128::from(liquidity))].into(),
            known: -230_400..=-169_020,
        };
        let reading = TicksReading {
            block: PriceBlock { number: BlockNumber(7), time: now().unix_secs() },
            tokens: [WETH.to_owned(), TOKEN.to_owned()],
            state,
            average_tick: self.0,
        };
        Box::pin(async { Ok(reading) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_with_concentrated_liquidity_is_used_near_its_average_only() {
    // A tick is a basis point.
    for (average, is_used) in
        [(Some(-200_312), true), (Some(-200_000), true), (Some(-199_700), false), (None, false)]
    {
        let pool = AmmPool::new(pool_config(PoolKind::UniswapV3), Arc::new(Concentrated(average)));
        let harness = scenes::harness_over(&[], |_| banded(Arc::new(pool), vec![configured()])).await;
        harness.fund("desk", "USDC", 100_000_000_000_000).await;
        harness.engine.context().liquidity.refresh().await;
        let terms = Terms { input: ("WETH", 1_000_000_000_000_000_000), output: "USDC", account: "" };
        match harness.submit(order_for(&terms)).await {
            Outcome::Accepted(accepted) if is_used => {
                assert_eq!(accepted.plan.slices[0].venue, "AMM-Pool");
                let output = accepted.plan.slices[0].output.get();
                // Two thousand less five basis points for the pool's fee and what the trade moves the price.
                assert!((1_990_000_000..1_999_000_000).contains(&output), "{output}");
            }
            Outcome::Rejected { reason: Reason::NoLiquidity, .. } if !is_used => {}
            other => panic!("{average:?}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_or_contradicted_reference_leaves_no_price_of_any_source() {
    let secs = now().unix_secs();
    let feed = |answer, at| by_feed("USDC", "USD", answer, at);
    let none = |_: &str| Vec::<Arc<dyn ReferenceSource>>::new();
    for (name, references, is_priced) in [
        ("none", none(""), false),
        ("fresh", vec![feed(100_000_000, secs)], true),
        ("stale", vec![feed(100_000_000, secs - 3601)], false),
        ("agreeing", vec![configured(), feed(100_500_000, secs)], true),
        ("contradicted", vec![configured(), feed(110_000_000, secs)], false),
        ("contradicted by a stale one", vec![configured(), feed(110_000_000, secs - 3601)], true),
    ] {
        let harness = scenes::harness_over(&[("a", 1_000_000), ("north", 1_000_000)], |pool| {
            let book = Arc::new(OrderBook::new(BookConfig::default(), pool.clone()));
            banded(book, references)
        })
        .await;
        rest(&harness, "a", "1", 500_000).await;
        harness.engine.context().liquidity.refresh().await;
        assert_eq!(!quoted(&harness, 100_000_000).await.is_empty(), is_priced, "{name}");
        assert_eq!(!is_refused(&harness).await, is_priced, "{name}");
    }
}

#[tokio::test]
async fn a_band_is_of_a_pair_that_exists() {
    let harness = scenes::harness().await;
    let mut conn = harness.pool().acquire().await.unwrap();
    for (input, output) in [("usdc", "USD"), ("EUR", "WETH")] {
        let change = BandChange { input: input.into(), output: output.into(), ..band(Some(9), None) };
        let refused = request(&mut conn, &harness.market.targets(), &change, MAKER).await.unwrap_err();
        assert!(refused.to_string().starts_with(&format!("there is no pair {input}/{output}")), "{refused}");
    }
}
