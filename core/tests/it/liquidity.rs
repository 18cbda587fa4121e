//! Sources of liquidity, through quotes and orders.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dvp_core::chain::{ChainAnswer, FeedReader, FeedRound, PriceBlock};
use dvp_core::context::now;
use dvp_core::liquidity::{
    BookConfig, ConfiguredPrices, ConfiguredProvider, ExternalConfig, ExternalProvider, FeedConfig,
    HttpPrices, HttpPricesConfig, Liquidity, LiquiditySource, OnChainFeed, OrderBook, ReferenceSource,
};
use dvp_core::writer::Outcome;
use dvp_domain::asset::Registry;
use dvp_domain::chain::BlockNumber;
use dvp_domain::decision::Reason;
use dvp_domain::intent::{ActorType, SettlementType};
use dvp_domain::liquidity::{Deliverer, Policy};
use dvp_domain::money::Minor;
use dvp_domain::quote::{Candidate, IndicativeRequest};
use dvp_store::orders::resting_orders::{self, NewRestingOrder};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::scenes;
use crate::scenes::registry;
use dvp_testing::Harness;
use dvp_testing::market::north;
use dvp_testing::orders::order;

/// An external HTTP server that gives every request the same answer, until the test sets another one.
pub(crate) struct ExternalServer {
    pub(crate) url: String,
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    manner: Manner,
    requested: usize,
    last: String,
}

#[derive(Clone)]
pub(crate) enum Manner {
    Answers(Value),
    NeverAnswers,
    Says(&'static str),
    TalksWithoutEnd,
}

impl ExternalServer {
    pub(crate) async fn with(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/rfq", listener.local_addr().unwrap());
        let shared = Arc::new(Mutex::new(Shared { manner, requested: 0, last: String::new() }));
        let server = Self { url, shared: Arc::clone(&shared) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&shared)));
            }
        });
        server
    }

    pub(crate) fn requested(&self) -> usize {
        self.shared.lock().unwrap().requested
    }

    pub(crate) fn manner(&self) -> Manner {
        self.shared.lock().unwrap().manner.clone()
    }

    pub(crate) fn set(&self, manner: Manner) {
        self.shared.lock().unwrap().manner = manner;
    }

    /// The last request.
    pub(crate) fn last(&self) -> String {
        self.shared.lock().unwrap().last.clone()
    }
}

async fn answer(mut stream: TcpStream, shared: Arc<Mutex<Shared>>) {
    let mut request = vec![0; 65_536];
    let read = stream.read(&mut request).await.unwrap_or(0);
    let manner = {
        let mut shared = shared.lock().unwrap();
        shared.last = String::from_utf8_lossy(&request[..read]).into_owned();
        shared.requested += 1;
        shared.manner.clone()
    };
    respond(stream, manner).await;
}

/// A peer that disconnects in the middle is ignored.
async fn respond(mut stream: TcpStream, manner: Manner) {
    let ok = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\n\r\n";
    match manner {
        Manner::Answers(body) => {
            let _ = stream.write_all(format!("{ok}{body}").as_bytes()).await;
        }
        Manner::Says(text) => {
            let _ = stream.write_all(text.as_bytes()).await;
        }
        Manner::NeverAnswers => std::future::pending().await,
        Manner::TalksWithoutEnd => {
            let _ = stream.write_all(ok.as_bytes()).await;
            while stream.write_all(&[b' '; 65_536]).await.is_ok() {}
        }
    }
}

pub(crate) fn good(price: &str) -> Value {
    json!({
        "price": price, "maxOutputMinor": "5000000", "validUntil": now().plus_millis(20_000).millis(),
        "lpId": "lp-7", "lpName": "Seventh", "policyBps": 3, "confidence": 0.97, "isDynamic": true,
    })
}

pub(crate) fn external(url: &str, pause: Duration) -> Arc<ExternalProvider> {
    Arc::new(ExternalProvider::new(external_config(url, pause)).unwrap())
}

pub(crate) fn external_config(url: &str, pause: Duration) -> ExternalConfig {
    let registry = registry();
    let asset = |symbol| registry.find(symbol).unwrap().clone();
    ExternalConfig {
        id: "seventh".into(),
        url: url.into(),
        deliverer: Deliverer { provider_id: "seventh".into(), wallet: "0x7".into() },
        policy: Policy::default(),
        pairs: vec![(asset("USDC"), asset("USD"), Minor::new(1_000_000_000))],
        timeout: Duration::from_secs(30),
        refresh_every: Duration::from_secs(1),
        good_for: Duration::from_secs(30),
        pause,
        candidate_ttl_sec: 5,
        firm_ttl_sec: 60,
    }
}

/// North at 10 basis points around the configured price, and another source.
fn beside_north(other: Arc<dyn LiquiditySource>) -> Liquidity {
    let registry = registry();
    let sources: Vec<Arc<dyn LiquiditySource>> = vec![Arc::new(ConfiguredProvider::new(north())), other];
    let prices: Arc<dyn ReferenceSource> = Arc::new(ConfiguredPrices::of(&registry));
    Liquidity::new(registry, sources, vec![prices])
}

pub(crate) async fn quoted(harness: &Harness, amount: u128) -> Vec<Candidate> {
    let registry: &Registry = &harness.engine.context().registry;
    let request = IndicativeRequest {
        request_id: "r",
        input: registry.find("USDC").unwrap(),
        output: registry.find("USD").unwrap(),
        amount: Minor::new(amount),
        actor: ActorType::Institution,
        settlement_pref: SettlementType::Hybrid,
        max_slippage_bps: None,
    };
    harness.engine.quote(&request).await.unwrap()
}

fn providers(candidates: &[Candidate]) -> Vec<&str> {
    candidates.iter().map(|candidate| candidate.provider.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_over_http_is_ranked_with_the_others_shows_its_own_keys_and_fills_orders() {
    let server = ExternalServer::with(Manner::Answers(good("0.9995"))).await;
    let source = external(&server.url, Duration::from_secs(60));
    let held = [("north", 100_000_000), ("seventh", 100_000_000)];
    let harness = scenes::harness_over(&held, |_| beside_north(source)).await;
    let candidates = quoted(&harness, 100_000_000).await;
    assert_eq!(providers(&candidates), ["seventh", "north"]);
    let shown = serde_json::to_value(&candidates[0]).unwrap();
    assert_eq!(shown["legs"][0]["venue"], "ExternalLP");
    assert_eq!(shown["legs"][0]["capacity"], "50000");
    let metadata = &shown["metadata"];
    for (key, value) in [
        ("venue", json!("ExternalLP")),
        ("lpId", json!("lp-7")),
        ("lpName", json!("Seventh")),
        ("policyBps", json!(3)),
        ("confidence", json!(0.97)),
        ("isDynamic", json!(true)),
        ("basePrice", json!(1)),
        ("constraintViolations", json!([])),
    ] {
        assert_eq!(metadata[key], value, "{key}");
    }
    // Orders are filled from its account at its last price.
    harness.engine.context().liquidity.refresh().await;
    let accepted = harness.accept(order("000123456789")).await;
    assert_eq!(accepted.plan.solver_id, "seventh");
    assert_eq!(accepted.plan.priced.rate, "0.9995".parse().unwrap());
    assert_eq!(accepted.plan.slices[0].venue, "ExternalLP");
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_take_no_more_of_an_answer_than_the_provider_delivers() {
    let mut body = good("0.9995");
    body["maxOutputMinor"] = json!("25000");
    let server = ExternalServer::with(Manner::Answers(body)).await;
    let source = external(&server.url, Duration::from_secs(60));
    let alone = |_: &sqlx::PgPool| Liquidity::new(registry(), vec![source], Vec::new());
    let harness = scenes::harness_over(&[("seventh", 100_000_000)], alone).await;
    for refreshed in 1..=2 {
        harness.engine.context().liquidity.refresh().await;
        let outcomes =
            futures_util::future::join_all((0..10).map(|_| harness.submit(order("000123456789")))).await;
        for outcome in &outcomes {
            let no_more = matches!(outcome, Outcome::Rejected { reason: Reason::NoLiquidity, .. });
            assert!(no_more || matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
        }
        // Each takes 99.90 dollars.
        let accepted = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Accepted(_))).count();
        assert_eq!(accepted, 2, "of the answer after refresh {refreshed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_misbehaving_provider_has_no_candidate_and_the_others_have() {
    let changed = |key: &str, value: Value| {
        let mut body = good("1");
        body[key] = value;
        Manner::Answers(body)
    };
    for (name, manner) in [
        ("slow", Manner::NeverAnswers),
        ("failing", Manner::Says("HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n")),
        ("elsewhere", Manner::Says("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\n\r\n")),
        ("garbage", Manner::Says("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{]}")),
        ("no HTTP", Manner::Says("\u{0}\u{1}\u{2}")),
        ("without end", Manner::TalksWithoutEnd),
        ("float", changed("price", json!(1.0))),
        ("negative", changed("price", json!("-1"))),
        ("zero", changed("price", json!("0"))),
        ("exponent", changed("price", json!("1e0"))),
        ("too many digits", changed("price", json!("0.99999999999999999999999999999999999999"))),
        ("stale", changed("validUntil", json!(now().millis() - 1))),
    ] {
        let server = ExternalServer::with(manner).await;
        let mut config = external_config(&server.url, Duration::from_secs(60));
        config.timeout = Duration::from_millis(300);
        let source = Arc::new(ExternalProvider::new(config).unwrap());
        let held = [("north", 100_000_000), ("seventh", 100_000_000)];
        let harness = scenes::harness_over(&held, |_| beside_north(source)).await;
        assert_eq!(providers(&quoted(&harness, 100_000_000).await), ["north"], "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_fails_three_times_is_paused() {
    // A connection per request, so that each request is counted.
    let refusal = "HTTP/1.1 500 Oops\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let server = ExternalServer::with(Manner::Says(refusal)).await;
    let source = external(&server.url, Duration::from_secs(3600));
    let harness = scenes::harness_over(&[("north", 100_000_000)], |_| beside_north(source)).await;
    for _ in 0..6 {
        assert_eq!(providers(&quoted(&harness, 100_000_000).await), ["north"]);
    }
    assert_eq!(server.requested(), 3);
}

pub(crate) async fn rest(harness: &Harness, provider: &str, rate: &str, amount: u128) {
    let level = NewRestingOrder {
        provider_id: provider.into(),
        wallet: format!("0x{provider}"),
        input_asset: "USDC".into(),
        output_asset: "USD".into(),
        rate: rate.parse().unwrap(),
        amount: Minor::new(amount),
        placed_by: None,
    };
    resting_orders::insert(&mut harness.pool().acquire().await.unwrap(), &level).await.unwrap();
}

pub(crate) fn book(pool: &sqlx::PgPool) -> Liquidity {
    let book = OrderBook::new(BookConfig::default(), pool.clone());
    Liquidity::new(registry(), vec![Arc::new(book)], Vec::new())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_order_book_is_filled_level_by_level_and_shows_its_depth() {
    let harness = scenes::harness_over(&[("a", 1_000_000), ("b", 1_000_000)], book).await;
    rest(&harness, "a", "0.99", 5_000).await;
    rest(&harness, "b", "0.995", 6_000).await;
    harness.engine.context().liquidity.refresh().await;
    let candidates = serde_json::to_value(quoted(&harness, 100_000_000).await).unwrap();
    assert_eq!(candidates[0]["metadata"]["orderbookDepth"], 2);
    assert_eq!(candidates[0]["legs"][0]["venue"], "Orderbook");
    assert_eq!(candidates[0]["legs"][0]["capacity"], "110");
    let plan = harness.accept(order("000123456789")).await.plan;
    let given: Vec<(&str, u128)> =
        plan.slices.iter().map(|slice| (slice.provider_id.as_str(), slice.output.get())).collect();
    // 99.95 USDC net: 60 dollars cost 60.301508 of them at 0.995, the rest is worth 0.99.
    assert_eq!(given, [("b", 6_000), ("a", 3_925)]);
    assert_eq!(harness.count("select sum(remaining)::int8 from resting_order").await, 11_000 - 9_925);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_of_one_provider_leaves_the_others_orders_in_the_book() {
    let harness = scenes::harness_over(&[("a", 1_000_000), ("b", 1_000_000)], book).await;
    rest(&harness, "a", "0.99", 500_000).await;
    rest(&harness, "b", "0.995", 600_000).await;
    let liquidity = &harness.engine.context().liquidity;
    liquidity.refresh().await;
    harness
        .run("insert into pause (scope, target, operator, reason) values ('provider', 'b', 'jo', 'r')")
        .await;
    let plan = harness.accept(order("000123456789")).await.plan;
    assert_eq!(plan.slices.iter().map(|slice| slice.provider_id.as_str()).collect::<Vec<_>>(), ["a"]);
    liquidity.load_controls(harness.pool()).await.unwrap();
    let candidates = serde_json::to_value(quoted(&harness, 100_000_000).await).unwrap();
    assert_eq!(candidates[0]["legs"][0]["capacity"], "5000");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_two_orders_are_filled_from_the_same_resting_units() {
    let harness = scenes::harness_over(&[("a", 1_000_000_000)], book).await;
    rest(&harness, "a", "1", 60_000).await;
    rest(&harness, "a", "0.999", 60_000).await;
    harness.engine.context().liquidity.refresh().await;
    // The offers are not refreshed in between: each order is decided by the amounts that remain in the database.
    let outcomes =
        futures_util::future::join_all((0..30).map(|_| harness.submit(order("000123456789")))).await;
    let taken: u128 = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Accepted(accepted) => Some(accepted.plan.slices.iter().map(|s| s.output.get())),
            Outcome::Rejected { reason: Reason::NoLiquidity, .. } => None,
            other => panic!("{other:?}"),
        })
        .flatten()
        .sum();
    let accepted = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Accepted(_))).count();
    assert_eq!(accepted, 12, "each takes 99.95 dollars at most, of twelve hundred");
    let gone = harness.count("select sum(placed - remaining)::int8 from resting_order").await;
    assert_eq!(u128::try_from(gone).unwrap(), taken);
}

/// A chain whose feed has the given round.
struct Feed(FeedRound);

impl FeedReader for Feed {
    fn latest_round<'a>(&'a self, _feed: &'a str) -> ChainAnswer<'a, FeedRound> {
        Box::pin(async { Ok(self.0) })
    }
}

pub(crate) fn by_feed(base: &str, quote: &str, answer: i128, updated_at: u64) -> Arc<dyn ReferenceSource> {
    let config = FeedConfig {
        id: "feed".into(),
        address: "0xfeed".into(),
        base: base.into(),
        quote: quote.into(),
        refresh_every: Duration::from_secs(1),
        stale_after: Duration::from_secs(3600),
        good_for: Duration::from_secs(60),
    };
    let block = PriceBlock { number: BlockNumber(7), time: now().unix_secs() };
    let round = FeedRound { block, answer, decimals: 8, updated_at };
    Arc::new(OnChainFeed::new(config, Arc::new(Feed(round))))
}

fn north_by(reference: Arc<dyn ReferenceSource>) -> Liquidity {
    Liquidity::new(registry(), vec![Arc::new(ConfiguredProvider::new(north()))], vec![reference])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feeds_price_works_in_both_directions_and_a_stale_one_in_none() {
    let secs = now().unix_secs();
    for (feed, base_price) in [
        (by_feed("USDC", "USD", 99_000_000, secs), Some(json!(0.99))),
        (by_feed("USD", "USDC", 200_000_000, secs), Some(json!(0.5))),
        (by_feed("USDC", "USD", 99_000_000, secs - 3601), None),
        (by_feed("USDC", "USD", 0, secs), None),
    ] {
        let harness = scenes::harness_over(&[("north", 100_000_000)], |_| north_by(feed)).await;
        assert!(quoted(&harness, 100_000_000).await.is_empty(), "nothing was read yet");
        harness.engine.context().liquidity.refresh().await;
        let candidates = serde_json::to_value(quoted(&harness, 100_000_000).await).unwrap();
        assert_eq!(candidates[0]["metadata"].get("basePrice"), base_price.as_ref());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_price_list_over_http_makes_candidates_while_it_is_fresh() {
    let listed = |price: &str, at: i64| json!({"prices": [{"base": "USDC", "quote": "USD", "price": price, "timestamp": at}]});
    let millis = now().millis();
    for (manner, priced) in [
        (Manner::Answers(listed("0.98", millis)), true),
        (Manner::Answers(listed("0.98", millis - 3_600_000)), false),
        (Manner::Answers(listed("nothing", millis)), false),
        (Manner::NeverAnswers, false),
    ] {
        let answers = !matches!(manner, Manner::NeverAnswers);
        let server = ExternalServer::with(manner).await;
        let config = HttpPricesConfig {
            id: "list".into(),
            url: server.url.clone(),
            refresh_every: Duration::from_secs(1),
            stale_after: Duration::from_secs(60),
            timeout: if answers { Duration::from_secs(30) } else { Duration::from_millis(300) },
        };
        let prices: Arc<dyn ReferenceSource> = Arc::new(HttpPrices::new(config).unwrap());
        let harness = scenes::harness_over(&[("north", 100_000_000)], |_| north_by(prices)).await;
        harness.engine.context().liquidity.refresh().await;
        assert_eq!(!quoted(&harness, 100_000_000).await.is_empty(), priced);
    }
}
