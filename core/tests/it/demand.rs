//! Providers that subscribe to the demand of resting orders: what they receive, and what their quotes fill.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dvp_core::context::now;
use dvp_core::engine::CancelOutcome;
use dvp_core::liquidity::{
    ConfiguredProvider, DemandConfig, ExternalConfig, ExternalProvider, Liquidity, LiquiditySource,
    ReferenceSource,
};
use dvp_domain::liquidity::band::{Band, Bands};
use dvp_domain::range::Range;
use dvp_testing::Harness;
use dvp_testing::market::north;
use dvp_testing::wait::wait_until;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::liquidity::{Manner, external_config, good, respond};
use crate::ranges::{falling, patient, resting, started, state, terms};
use crate::scenes::{self, Price, registry};

type Answering = dyn Fn(&Value) -> Manner + Send + Sync;

/// A provider's server for demand: records each body, and answers it while its gate is open.
struct Subscriber {
    url: String,
    received: Arc<Mutex<Vec<Value>>>,
    is_open: watch::Sender<bool>,
}

impl Subscriber {
    async fn new(answering: impl Fn(&Value) -> Manner + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/demand", listener.local_addr().unwrap());
        let received = Arc::<Mutex<Vec<Value>>>::default();
        let is_open = watch::Sender::new(true);
        let answering: Arc<Answering> = Arc::new(answering);
        let (bodies, gate) = (Arc::clone(&received), is_open.subscribe());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (bodies, answering, mut gate) =
                    (Arc::clone(&bodies), Arc::clone(&answering), gate.clone());
                tokio::spawn(async move {
                    let (body, stream) = read(stream).await;
                    let manner = answering(&body);
                    bodies.lock().unwrap().push(body);
                    let _ = gate.wait_for(|is_open| *is_open).await;
                    respond(stream, manner).await;
                });
            }
        });
        Self { url, received, is_open }
    }

    /// The demand of each request so far. Nothing else but a request's id is in a body.
    fn received(&self) -> Vec<Value> {
        let of = |body: &Value| {
            let fields = body.as_object().unwrap();
            let keys: Vec<&str> = fields.keys().map(String::as_str).collect();
            assert_eq!(keys, ["demand", "requestId"]);
            fields["demand"].clone()
        };
        self.received.lock().unwrap().iter().map(of).collect()
    }

    async fn wait_for(&self, demand: &Value) {
        wait_until("demand", || self.received().last() == Some(demand)).await;
    }

    async fn wait_for_count(&self, count: usize) {
        wait_until("requests", || self.received().len() >= count).await;
    }

    fn config(&self) -> ExternalConfig {
        // Its prices are of no interest here, and are requested nowhere.
        let prices = external_config("http://127.0.0.1:1/rfq", Duration::from_secs(3_600));
        let demand = DemandConfig { url: self.url.clone(), interval: Duration::from_millis(20) };
        ExternalConfig { demand: Some(demand), timeout: Duration::from_secs(30), ..prices }
    }
}

async fn read(stream: TcpStream) -> (Value, TcpStream) {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await.unwrap();
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await.unwrap();
    (serde_json::from_slice(&body).unwrap(), reader.into_inner())
}

fn quote(price: &str) -> Value {
    let mut quote = good(price);
    quote["source"] = json!("USDC");
    quote["target"] = json!("USD");
    quote
}

/// A quote for each pair with demand.
fn quotes(body: &Value, price: &str) -> Manner {
    let demanded = body["demand"].as_array().unwrap().len();
    Manner::Answers(json!({"quotes": vec![quote(price); demanded]}))
}

/// The demand of orders for 100 USDC.
fn demand(orders: u128) -> Value {
    json!([{
        "source": "USDC", "target": "USD", "orders": orders,
        "amountMinor": (orders * 100_000_000).to_string(),
    }])
}

/// North at 10 basis points around a price, and a subscriber.
async fn scene(config: ExternalConfig, bands: Bands) -> (Harness, Price) {
    let price = Price::of("USDC", "USD", "1");
    let external: Arc<dyn LiquiditySource> = Arc::new(ExternalProvider::new(config).unwrap());
    let sources = vec![Arc::new(ConfiguredProvider::new(north())) as Arc<dyn LiquiditySource>, external];
    let references: Vec<Arc<dyn ReferenceSource>> = vec![Arc::new(price.clone())];
    let held = [("north", 100_000_000), ("seventh", 100_000_000)];
    let liquidity = Liquidity::with_bands(registry(), sources, references, bands);
    (scenes::harness_over(&held, |_| liquidity).await, price)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quote_for_resting_demand_fills_the_order_and_the_demand_ends() {
    let subscriber = Subscriber::new(|body| quotes(body, "1.02")).await;
    let (harness, _) = scene(subscriber.config(), Bands::default()).await;
    started(&harness).await;
    subscriber.wait_for(&json!([])).await;
    let rests = harness.accept(patient()).await;
    assert_eq!(rests.plan.solver_id, "north", "no other would fill it at these prices");
    harness.wait_for_state(&rests.reference, "accepted").await;
    let filled = terms(&harness, &rests.reference).await;
    assert_eq!(filled.plan.slices[0].venue, "ExternalLP");
    assert_eq!(filled.plan.solver_id, "seventh");
    assert_eq!(filled.plan.priced.rate, "1.02".parse().unwrap());
    // The order's line decides what it gives, not the quote.
    let range = Range::of(&filled.request).unwrap();
    assert!(filled.output.amount <= range.target_output && filled.output.amount >= range.output_at(now()));
    assert!(filled.input.amount < range.max_input);
    wait_until("the end", || subscriber.received().len() == 3).await;
    assert_eq!(subscriber.received(), [json!([]), demand(1), json!([])]);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_demand_is_sent_once_whatever_the_prices_do() {
    let subscriber = Subscriber::new(|_| Manner::Answers(json!({"quotes": []}))).await;
    let (harness, price) = scene(subscriber.config(), Bands::default()).await;
    harness.start_workers();
    let view = started(&harness).await;
    subscriber.wait_for(&json!([])).await;
    let first = resting(&harness, patient()).await;
    subscriber.wait_for(&demand(1)).await;
    for worse in ["0.9999", "0.9998", "0.9997"] {
        let before = view.figures().prices;
        price.set(&harness, worse);
        wait_until("a look", || view.figures().prices > before).await;
    }
    let brief = resting(&harness, falling(10_000, 9_930, 8_000)).await;
    subscriber.wait_for(&demand(2)).await;
    // Nobody gives its limit any more.
    price.set(&harness, "0.99");
    harness.wait_for_state(&brief.reference, "expired").await;
    subscriber.wait_for(&demand(1)).await;
    let cancelled = harness.engine.cancel(&harness.tenant, &first.reference, None).await.unwrap();
    assert_eq!(cancelled, CancelOutcome::Cancelled);
    subscriber.wait_for(&json!([])).await;
    let expected = [json!([]), demand(1), demand(2), demand(1), json!([])];
    assert_eq!(subscriber.received(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_is_under_way_and_the_next_has_the_newest_demand() {
    let subscriber = Subscriber::new(|_| Manner::Answers(json!({"quotes": []}))).await;
    subscriber.is_open.send_replace(false);
    let (harness, _) = scene(subscriber.config(), Bands::default()).await;
    let view = started(&harness).await;
    subscriber.wait_for(&json!([])).await;
    for _ in 0..5 {
        resting(&harness, patient()).await;
    }
    wait_until("all in memory", || view.figures().resting == 5).await;
    assert_eq!(subscriber.received(), [json!([])]);
    subscriber.is_open.send_replace(true);
    subscriber.wait_for(&demand(5)).await;
    assert_eq!(subscriber.received().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_misbehaving_subscriber_delays_no_order_and_fills_none() {
    let changed = |key: &str, value: Value| {
        let mut changed = quote("1.02");
        changed[key] = value;
        Manner::Answers(json!({"quotes": [changed]}))
    };
    for (name, manner) in [
        ("slow", Manner::NeverAnswers),
        ("failing", Manner::Says("HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n")),
        ("without end", Manner::TalksWithoutEnd),
        ("no list", Manner::Answers(good("1.02"))),
        ("twice", Manner::Answers(json!({"quotes": [quote("1.02"), quote("1.03")]}))),
        ("one good, one bad", Manner::Answers(json!({"quotes": [quote("1.02"), {}]}))),
        ("another pair", changed("target", json!("EUR"))),
        ("negative", changed("price", json!("-1"))),
        ("float", changed("price", json!(1.02))),
        ("stale", changed("validUntil", json!(now().millis() - 1))),
    ] {
        let subscriber = Subscriber::new(move |body| match &body["demand"] {
            Value::Array(pairs) if pairs.is_empty() => Manner::Answers(json!({"quotes": []})),
            _ => manner.clone(),
        })
        .await;
        let config = ExternalConfig { timeout: Duration::from_millis(300), ..subscriber.config() };
        let (harness, price) = scene(config, Bands::default()).await;
        started(&harness).await;
        subscriber.wait_for(&json!([])).await;
        let rests = resting(&harness, patient()).await;
        // The second request begins when the first answer was refused.
        subscriber.wait_for_count(3).await;
        assert_eq!(state(&harness, &rests.reference).await, "resting", "{name}");
        price.set(&harness, "1.1");
        harness.wait_for_state(&rests.reference, "accepted").await;
        assert_eq!(terms(&harness, &rests.reference).await.plan.solver_id, "north", "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_that_fails_three_times_is_left_alone() {
    let subscriber =
        Subscriber::new(|_| Manner::Says("HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n")).await;
    let (harness, price) = scene(subscriber.config(), Bands::default()).await;
    let view = started(&harness).await;
    subscriber.wait_for_count(3).await;
    for _ in 0..3 {
        resting(&harness, patient()).await;
    }
    wait_until("all in memory", || view.figures().resting == 3).await;
    price.set(&harness, "1.1");
    harness.wait_for_count("select count(*) from resting_range", 0).await;
    wait_until("the book knows", || view.figures().resting == 0).await;
    assert_eq!(subscriber.received().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quote_outside_of_the_pairs_band_fills_nothing() {
    // Too good for one order, and within the band for two.
    let subscriber = Subscriber::new(|body| {
        quotes(body, if body["demand"][0]["orders"] == json!(1) { "1.5" } else { "1.005" })
    })
    .await;
    let band = Band { deviation_bps: 100, middle: None };
    let bands = [(("USDC".to_owned(), "USD".to_owned()), band)].into_iter().collect();
    let (harness, _) = scene(subscriber.config(), bands).await;
    started(&harness).await;
    subscriber.wait_for(&json!([])).await;
    let first = resting(&harness, falling(9_990, 9_500, 600_000)).await;
    subscriber.wait_for(&demand(1)).await;
    resting(&harness, falling(11_000, 9_500, 600_000)).await;
    harness.wait_for_state(&first.reference, "accepted").await;
    let filled = terms(&harness, &first.reference).await;
    assert_eq!(filled.plan.solver_id, "seventh");
    assert_eq!(filled.plan.priced.rate, "1.005".parse().unwrap());
}
