//! Orders and the node: an order of a known wallet does not wait, one of an unknown wallet delays no other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dvp_core::chain::wallets::{LookUp, LookedUp, Wallets};
use dvp_core::chain::{
    ChainAnswer, ChainHead, ChainUnavailable, Confirmation, SignedHash, WalletFacts, WalletKey, WalletReader,
    WalletReaders, WalletReading,
};
use dvp_core::engine::{Engine, EngineError};
use dvp_core::writer::{Outcome, Refusal};
use dvp_domain::chain::BlockNumber;
use dvp_domain::intent::IntentRequest;
use dvp_domain::permit::PermitDefect;
use dvp_store::workers::Step;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::scenes;
use dvp_testing::Harness;
use dvp_testing::failing::{NamedScene, named_others_go_on};
use dvp_testing::market::TOKEN;
use dvp_testing::orders::{self, Terms, order_for, order_of};

const RICH: WalletFacts = WalletFacts { nonce: 0, balance: u128::MAX, allowance: u128::MAX };

/// A node that gives only the permitted number of answers.
struct Node {
    facts: WalletFacts,
    answers: Semaphore,
    block: AtomicU64,
    requested: AtomicUsize,
    reads: AtomicUsize,
    at_once: AtomicUsize,
    at_once_max: AtomicUsize,
}

impl Node {
    fn answering(facts: WalletFacts, answers: usize) -> Arc<Self> {
        Arc::new(Self {
            facts,
            answers: Semaphore::new(answers),
            block: AtomicU64::new(1),
            requested: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
            at_once: AtomicUsize::new(0),
            at_once_max: AtomicUsize::new(0),
        })
    }

    fn requested(&self) -> usize {
        self.requested.load(Ordering::SeqCst)
    }

    async fn answer(&self) -> Result<ChainHead, ChainUnavailable> {
        self.requested.fetch_add(1, Ordering::SeqCst);
        let at_once = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.at_once_max.fetch_max(at_once, Ordering::SeqCst);
        self.answers.acquire().await.unwrap().forget();
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        Ok(ChainHead { number: BlockNumber(self.block.load(Ordering::SeqCst)), hash: [1; 32] })
    }
}

impl WalletReader for Node {
    fn head(&self) -> ChainAnswer<'_, ChainHead> {
        Box::pin(self.answer())
    }

    fn confirm<'a>(&'a self, _: &'a str, _: &'a SignedHash) -> ChainAnswer<'a, Confirmation> {
        Box::pin(async { self.answer().await.map(|_| Confirmation::NoContract) })
    }

    fn read<'a>(&'a self, wallets: &'a [WalletKey]) -> ChainAnswer<'a, WalletReading> {
        Box::pin(async {
            self.reads.fetch_add(1, Ordering::SeqCst);
            let head = self.answer().await?;
            Ok(WalletReading { head, facts: vec![self.facts; wallets.len()] })
        })
    }
}

async fn submit(harness: &Harness, engine: &Engine, request: IntentRequest) -> Result<Outcome, EngineError> {
    orders::submit(engine, &harness.tenant, request).await
}

const CHAIN: i64 = 1;

fn readers(node: Arc<Node>) -> WalletReaders {
    WalletReaders::from([(CHAIN, node as Arc<dyn WalletReader>)])
}

fn look_up(wallets: &Wallets, partner: &str, n: usize) -> LookUp {
    wallets.look_up(partner, &(&wallet(n)).into())
}

fn wallet(n: usize) -> WalletKey {
    WalletKey { chain_id: CHAIN, owner: format!("0x{n:040x}"), token: TOKEN.to_owned() }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_of_a_known_wallet_is_decided_while_the_node_is_frozen() {
    let harness = scenes::harness().await;
    let node = Node::answering(RICH, 1);
    let engine = harness.engine_over(node.clone());
    let first = order_of(100_000_000, "12345678");
    let mut second = first.clone();
    second.intent_id.push_str("-again");
    second.client_reference = None;
    assert!(matches!(submit(&harness, &engine, first).await, Ok(Outcome::Accepted(_))));
    assert_eq!(node.requested(), 1);
    let again = submit(&harness, &engine, second).await;
    assert!(
        matches!(again, Ok(Outcome::Refused(Refusal::InvalidPermit(PermitDefect::NonceHeld { next: 1 })))),
        "{again:?}"
    );
    assert_eq!(node.requested(), 1, "the wallet is known");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_of_an_unknown_wallet_is_refused_in_time_and_delays_none() {
    let harness = scenes::harness().await;
    harness.deposit("USD", 50_000_000).await;
    let node = Node::answering(RICH, 0);
    let engine = harness.engine_over(node.clone());
    let waiting = {
        let (engine, tenant) = (engine.clone(), harness.tenant.clone());
        let request = order_of(100_000_000, "12345678");
        tokio::spawn(async move { orders::submit(&engine, &tenant, request).await })
    };
    let fiat = order_for(&Terms { input: ("USD", 10_000), output: "EUR", account: "12345678" });
    harness.fund("south", "EUR", 100_000_000).await;
    assert!(matches!(submit(&harness, &engine, fiat).await, Ok(Outcome::Accepted(_))));
    assert!(!waiting.is_finished(), "the order of a fiat input waits for no node");
    let refused = waiting.await.unwrap();
    assert!(matches!(refused, Err(EngineError::Unavailable(_))), "{refused:?}");
    assert_eq!(
        harness.count("select count(*) from intent where reference is null").await,
        0,
        "nothing was written"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_data_of_unsigned_wallets_is_not_read() {
    let harness = scenes::harness().await;
    let node = Node::answering(RICH, 10);
    let engine = harness.engine_over(node.clone());
    let mut forged = order_of(100_000_000, "12345678");
    forged.user = "0x00000000000000000000000000000000000000cc".to_owned();
    let refused = submit(&harness, &engine, forged).await;
    assert!(
        matches!(refused, Ok(Outcome::Refused(Refusal::InvalidPermit(PermitDefect::Signer)))),
        "{refused:?}"
    );
    assert_eq!(node.requested(), 1, "whether it is a contract");
    assert_eq!(node.reads.load(Ordering::SeqCst), 0);
    let mut short = order_of(100_000_000, "12345678");
    short.permit.as_mut().unwrap().signature.pop();
    let refused = submit(&harness, &engine, short).await;
    assert!(
        matches!(refused, Ok(Outcome::Refused(Refusal::InvalidPermit(PermitDefect::SignatureLength)))),
        "{refused:?}"
    );
    assert_eq!(node.requested(), 1, "no wallet signs so");
}

#[tokio::test]
async fn one_partners_look_ups_leave_the_node_to_the_others() {
    let node = Node::answering(RICH, 0);
    let wallets = Wallets::new(readers(node.clone()));
    let flood: Vec<_> = (0..400).map(|n| look_up(&wallets, "hostile", n)).collect();
    let _joined: Vec<_> = (0..400).map(|n| look_up(&wallets, "hostile", n)).collect();
    while node.requested() < 8 {
        tokio::task::yield_now().await;
    }
    let good = look_up(&wallets, "good", 1000);
    while node.requested() < 9 {
        tokio::task::yield_now().await;
    }
    assert_eq!(node.at_once_max.load(Ordering::SeqCst), 9, "eight of the one, one of the other");
    node.answers.add_permits(500);
    assert_eq!(good.await.unwrap(), LookedUp::Facts(RICH));
    for look_up in flood {
        assert_eq!(look_up.await.unwrap(), LookedUp::Facts(RICH));
    }
    assert_eq!(node.requested(), 401, "look-ups of the same wallet are shared");
    assert!(node.at_once_max.load(Ordering::SeqCst) <= 9);
    assert_eq!(wallets.find("good", &wallet(1000)), Some(RICH));
    assert_eq!(wallets.find("good", &wallet(0)), None);
}

#[tokio::test]
async fn a_partner_with_too_many_unknown_wallets_is_refused_at_once() {
    let wallets = Wallets::new(readers(Node::answering(RICH, 0)));
    let waiting: Vec<_> = (0..1024).map(|n| look_up(&wallets, "hostile", n)).collect();
    assert!(look_up(&wallets, "hostile", 1024).await.is_err());
    assert!(waiting.iter().all(|look_up| look_up.peek().is_none()), "the others still wait");
}

#[tokio::test]
async fn known_wallets_are_read_again_after_a_new_block() {
    let node = Node::answering(RICH, 1000);
    let wallets = Wallets::new(readers(node.clone()));
    look_up(&wallets, "acme", 1).await.unwrap();
    let stop = tokio::sync::watch::Sender::new(false);
    let pool = PgPoolOptions::new().connect_lazy("postgres://nobody@127.0.0.1:1/none").unwrap();
    let running = tokio::spawn(wallets.clone().run(pool, stop.subscribe()));
    while node.requested() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(node.reads.load(Ordering::SeqCst), 1, "the newest block is the one the facts are of");
    node.block.store(2, Ordering::SeqCst);
    while node.reads.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    stop.send_replace(true);
    running.await.unwrap();
    assert_eq!(wallets.find("acme", &wallet(1)), Some(RICH));
}

/// Cached wallets on a chain with a new block every second.
struct Cached(Harness, Vec<WalletKey>);

impl NamedScene for Cached {
    fn pool(&self) -> &PgPool {
        self.0.pool()
    }

    fn items(&self, _: Step) -> Vec<String> {
        let item = |WalletKey { chain_id, owner, token }: &WalletKey| format!("{chain_id} {owner} {token}");
        self.1.iter().map(item).collect()
    }

    fn start(&self) -> JoinHandle<()> {
        let node = Node::answering(RICH, 1_000_000);
        let (pool, stop, keys) = (self.pool().clone(), watch::Sender::new(false), self.1.clone());
        tokio::spawn(async move {
            let wallets = Wallets::new(readers(node.clone()));
            for key in &keys {
                wallets.look_up("acme", &key.into()).await.unwrap();
            }
            let blocks = async {
                loop {
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                    node.block.fetch_add(1, Ordering::SeqCst);
                }
            };
            tokio::select! {
                () = wallets.run(pool, stop.subscribe()) => {}
                () = blocks => {}
            }
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wallet_that_cannot_be_read_holds_up_no_other() {
    // Other tests of the process have wallets, too.
    let owner = || format!("0x{}00000000", Uuid::new_v4().simple());
    let key = |_| WalletKey { chain_id: CHAIN, owner: owner(), token: TOKEN.to_owned() };
    let scene = Cached(scenes::harness().await, (0..4).map(key).collect());
    named_others_go_on(&scene, Step::WalletRead).await;
}
