//! Concurrent requests through two processes: no balance is overspent, no quote used twice, no two
//! intents made of one idempotency key.

use std::collections::{HashMap, HashSet};

use dvp_domain::ledger::Owner;
use dvp_store::ledger::balances;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{Answer, ApiHarness, Call, changed, firm, order};

const QUOTES: usize = 3;
const KEYS: usize = 6;
/// In cents: of the prefunded 500,000.00 four are paid.
const FIAT_INPUT: u128 = 12_000_000;
const PREFUNDED: u128 = 50_000_000;

/// One request, of several sent at once.
#[derive(Debug, Clone)]
enum Sent {
    /// An order paid from the balance, under a key of its own.
    Fiat,
    /// The same order under the same key as others of this number.
    Repeated(usize),
    /// Another order under the key of this number.
    OtherBody(usize),
    /// The order of this number under a key of its own.
    OtherKey(usize),
    /// A new order that takes the quote of this number.
    Quoted(usize),
}

fn sent() -> impl Strategy<Value = Sent> {
    prop_oneof![
        2 => Just(Sent::Fiat),
        3 => (0..KEYS).prop_map(Sent::Repeated),
        1 => (0..KEYS).prop_map(Sent::OtherBody),
        1 => (0..KEYS).prop_map(Sent::OtherKey),
        3 => (0..QUOTES).prop_map(Sent::Quoted),
    ]
}

fn fiat() -> Value {
    json!({
        "intentId": Uuid::new_v4(), "user": "desk", "inputAsset": {"type": "fiat", "symbol": "USD"},
        "outputAsset": {"type": "fiat", "symbol": "EUR"}, "inputAmountMinor": FIAT_INPUT.to_string(),
        "minOutputAmountMinor": "1", "deadline": dvp_core::context::now().plus_millis(3_600_000),
        "settlementType": "hybrid", "beneficiary": {"account": "bene_1:dest_1", "name": "Jane Doe"},
    })
}

struct Scene {
    harness: ApiHarness,
    quotes: Vec<Value>,
    /// An order and its key, for each number.
    orders: Vec<(Value, String)>,
}

impl Scene {
    async fn new() -> Self {
        let harness = ApiHarness::new().await;
        harness.prefund().await;
        let mut quotes = Vec::new();
        for _ in 0..QUOTES {
            quotes.push(harness.post(&harness.acme, "/v1/quotes/firm", &firm()).await.ok(201));
        }
        let orders = (0..KEYS).map(|_| (fiat(), Uuid::new_v4().to_string())).collect();
        Self { harness, quotes, orders }
    }

    fn call(&self, sent: &Sent) -> Call {
        let fresh = Uuid::new_v4().to_string();
        let (body, key) = match sent {
            Sent::Fiat => (fiat(), fresh),
            Sent::Repeated(n) => self.orders[*n].clone(),
            Sent::OtherBody(n) => (fiat(), self.orders[*n].1.clone()),
            Sent::OtherKey(n) => (self.orders[*n].0.clone(), fresh),
            Sent::Quoted(n) => {
                (changed(order(), "/quoteId", Some(self.quotes[*n]["quoteId"].clone())), fresh)
            }
        };
        let call = Call::post(&self.harness.acme, "/v1/intents", &body).with("X-Idempotency-Key", &key);
        call.signed(&self.harness.acme, self.harness.now.unix_secs())
    }

    async fn send_all(&self, sent: &[Sent]) -> Vec<Answer> {
        let other = self.harness.another_process();
        let calls: Vec<Call> = sent.iter().map(|one| self.call(one)).collect();
        let sending = calls.iter().enumerate().map(|(n, call)| {
            let door = if n % 2 == 0 { self.harness.router() } else { other.clone() };
            self.harness.send_to(door, call)
        });
        futures_util::future::join_all(sending).await
    }
}

/// An intent that this very answer made, not a replay of one.
fn made(answer: &Answer) -> bool {
    answer.status == 202 && answer.header("x-idempotency-replayed").is_none()
}

async fn check(scene: &Scene, sent: &[Sent], answers: &[Answer]) {
    let mut by_key: HashMap<usize, Vec<&Answer>> = HashMap::new();
    let mut by_order: HashMap<usize, usize> = HashMap::new();
    let mut by_quote: HashMap<usize, usize> = HashMap::new();
    let mut fiat = 0_u128;
    for (one, answer) in sent.iter().zip(answers) {
        assert!(answer.status.is_success() || answer.status.is_client_error(), "{}", answer.text);
        let mades = usize::from(made(answer));
        match one {
            Sent::Quoted(n) => *by_quote.entry(*n).or_default() += mades,
            Sent::Repeated(n) | Sent::OtherKey(n) => *by_order.entry(*n).or_default() += mades,
            Sent::Fiat | Sent::OtherBody(_) => {}
        }
        if let Sent::Repeated(n) | Sent::OtherBody(n) = one {
            by_key.entry(*n).or_default().push(answer);
        }
        if made(answer) && !matches!(one, Sent::Quoted(_)) {
            fiat += 1;
        }
    }
    for (key, answers) in by_key {
        assert!(answers.iter().filter(|answer| made(answer)).count() <= 1, "key {key} made two intents");
        let accepted: HashSet<&str> =
            answers.iter().filter(|answer| answer.status == 202).map(|answer| answer.text.as_str()).collect();
        assert!(accepted.len() <= 1, "key {key} was given two answers: {accepted:?}");
    }
    assert!(by_order.values().all(|made| *made <= 1), "an intentId made two intents");
    assert!(by_quote.values().all(|made| *made == 1), "each quote that was tried is used once: {by_quote:?}");
    let spent = fiat * FIAT_INPUT;
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let owner = Owner::Partner { id: "ptn_acme".into(), livemode: false };
    let held = balances::find(&mut conn, &owner, "USD").await.unwrap();
    assert_eq!((held.available.get(), held.reserved.get()), (PREFUNDED - spent, spent));
    let executions = answers.iter().filter(|answer| made(answer)).count();
    assert_eq!(
        scene.harness.count("select count(*) from execution").await,
        i64::try_from(executions).unwrap()
    );
}

#[test]
fn no_interleaving_spends_a_balance_quote_or_key_twice() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    // A case is a database and some fifty requests: few cases, each with many interleavings.
    let config = Config { cases: 8, max_shrink_iters: 30, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let strategy = proptest::collection::vec(sent(), 24..56);
    let outcome = runner.run(&strategy, |sent| {
        runtime.block_on(async {
            let scene = Scene::new().await;
            let answers = scene.send_all(&sent).await;
            check(&scene, &sent, &answers).await;
        });
        Ok(())
    });
    outcome.unwrap();
}
