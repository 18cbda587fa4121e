//! The requirements of an order's acceptance: a permit that continues the wallet's pending ones, funds for all of them,
//! a signature that the chain accepts, an amount worth its transactions, and enough time for its lock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use alloy::signers::local::PrivateKeySigner;
use dvp_core::chain::backlog;
use dvp_core::chain::{
    ChainAnswer, ChainHead, Confirmation, SignedHash, WalletFacts, WalletKey, WalletReader, WalletReading,
};
use dvp_core::context::now;
use dvp_core::engine::{CancelOutcome, Engine};
use dvp_core::writer::{Outcome, Refusal};
use dvp_domain::chain::{BlockNumber, ChainFact};
use dvp_domain::decision::Reason;
use dvp_domain::intent::{Bounds, IntentRequest};
use dvp_domain::money::Minor;
use dvp_domain::permit::PermitDefect;
use dvp_store::chain::commands::count_open;
use dvp_store::orders::intents::Tenant;
use futures_util::future::join_all;

use crate::scenes;
use dvp_testing::Harness;
use dvp_testing::chain::failed;
use dvp_testing::orders::{self, Terms, order_at, order_by};

const HOME: i64 = 31_337;
const AMOUNT: u128 = 100_000_000;
const RICH: WalletFacts = WalletFacts { nonce: 0, balance: u128::MAX, allowance: u128::MAX };

/// A chain on which every wallet has the same data. Wallet data is cached for a few seconds.
struct Chain(Mutex<WalletFacts>, Confirmation);

impl WalletReader for Chain {
    fn head(&self) -> ChainAnswer<'_, ChainHead> {
        Box::pin(async { Ok(ChainHead { number: BlockNumber(1), hash: [1; 32] }) })
    }

    fn confirm<'a>(&'a self, _: &'a str, _: &'a SignedHash) -> ChainAnswer<'a, Confirmation> {
        Box::pin(async { Ok(self.1) })
    }

    fn read<'a>(&'a self, wallets: &'a [WalletKey]) -> ChainAnswer<'a, WalletReading> {
        let facts = vec![*self.0.lock().unwrap(); wallets.len()];
        Box::pin(async { Ok(WalletReading { head: self.head().await?, facts }) })
    }
}

fn engine(harness: &Harness, facts: WalletFacts) -> Engine {
    harness.engine_over(Arc::new(Chain(Mutex::new(facts), Confirmation::NoContract)))
}

fn of(wallet: &PrivateKeySigner, nonce: u128) -> IntentRequest {
    paid_to(wallet, nonce, "000123456789")
}

fn paid_to(wallet: &PrivateKeySigner, nonce: u128, account: &str) -> IntentRequest {
    order_by(wallet, nonce, &terms(account))
}

fn terms(account: &str) -> Terms<'_> {
    Terms { input: ("USDC", AMOUNT), output: "USD", account }
}

async fn submit(harness: &Harness, engine: &Engine, request: IntentRequest) -> Outcome {
    orders::submit(engine, &harness.tenant, request).await.unwrap()
}

/// The reference of an accepted order, or the defect of its permit.
async fn decide(harness: &Harness, engine: &Engine, request: IntentRequest) -> Result<String, PermitDefect> {
    decided(submit(harness, engine, request).await)
}

fn decided(outcome: Outcome) -> Result<String, PermitDefect> {
    match outcome {
        Outcome::Accepted(accepted) => Ok(accepted.reference),
        Outcome::Refused(Refusal::InvalidPermit(defect)) => Err(defect),
        other => panic!("{other:?}"),
    }
}

/// The counts of everything that an accepted order changes.
async fn reserved(harness: &Harness) -> [i64; 5] {
    [
        harness.count("select coalesce(sum(reserved), 0)::int8 from account_balance").await,
        harness.count("select count(*) from ledger_entry").await,
        harness.count("select count(*) from execution").await,
        harness.count("select count(*) from effect").await,
        harness.count("select count(*) from permit_use").await,
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn nonces_continue_pending_ones_and_a_refused_one_reserves_nothing() {
    use PermitDefect::{NonceGap, NonceHeld, NonceUsed};
    let harness = scenes::harness().await;
    let engine = engine(&harness, WalletFacts { nonce: 7, ..RICH });
    let wallet = PrivateKeySigner::random();
    let before = reserved(&harness).await;
    for (nonce, defect) in
        [(8, NonceGap { next: 7 }), (6, NonceUsed { next: 7 }), (u128::MAX, NonceGap { next: 7 })]
    {
        assert_eq!(decide(&harness, &engine, of(&wallet, nonce)).await, Err(defect));
        assert_eq!(reserved(&harness).await, before);
    }
    decide(&harness, &engine, of(&wallet, 7)).await.unwrap();
    let one = reserved(&harness).await;
    for (nonce, defect) in [(7, NonceHeld { next: 8 }), (9, NonceGap { next: 8 })] {
        assert_eq!(decide(&harness, &engine, of(&wallet, nonce)).await, Err(defect));
        assert_eq!(reserved(&harness).await, one);
    }
    decide(&harness, &engine, of(&wallet, 8)).await.unwrap();
    let other = PrivateKeySigner::random();
    decide(&harness, &engine, of(&other, 7)).await.unwrap();
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_concurrent_orders_with_one_nonce_exactly_one_is_accepted() {
    let harness = scenes::harness().await;
    let engines: Vec<Engine> = (0..3).map(|_| engine(&harness, RICH)).collect();
    for nonce in 0..4 {
        let wallet = PrivateKeySigner::random();
        for before in 0..nonce {
            decide(&harness, &engines[0], of(&wallet, before)).await.unwrap();
        }
        let sent = (0..12).map(|n| decide(&harness, &engines[n % engines.len()], of(&wallet, nonce)));
        let decided = join_all(sent).await;
        assert_eq!(decided.iter().filter(|one| one.is_ok()).count(), 1, "{decided:?}");
        let held = Err(PermitDefect::NonceHeld { next: nonce + 1 });
        assert!(decided.iter().all(|one| one.is_ok() || *one == held), "{decided:?}");
    }
    assert_eq!(harness.count("select count(*) from permit_use").await, 1 + 2 + 3 + 4);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn balance_and_allowance_must_cover_pending_orders_and_the_new_one() {
    let harness = scenes::harness().await;
    let held = 3 * AMOUNT - 1;
    let needed = 3 * AMOUNT;
    for (facts, defect) in [
        (WalletFacts { balance: held, ..RICH }, PermitDefect::Balance { held, needed }),
        (WalletFacts { allowance: held, ..RICH }, PermitDefect::Allowance { held, needed }),
    ] {
        let (engine, wallet) = (engine(&harness, facts), PrivateKeySigner::random());
        for nonce in 0..2 {
            decide(&harness, &engine, of(&wallet, nonce)).await.unwrap();
        }
        let before = reserved(&harness).await;
        assert_eq!(decide(&harness, &engine, of(&wallet, 2)).await, Err(defect));
        // The input of an exact output is known when it is priced.
        let (output, max_input) = (Minor::new(9_985), AMOUNT + AMOUNT / 10);
        let bounds = Bounds::ExactOutput { output, max_input: Minor::new(max_input) };
        let wanted = Terms { input: ("USDC", max_input), output: "USD", account: "000123456789" };
        let request = IntentRequest { bounds, ..order_by(&wallet, 2, &wanted) };
        let priced = decide(&harness, &engine, request).await;
        assert!(matches!(
            (priced, defect),
            (Err(PermitDefect::Balance { .. }), PermitDefect::Balance { .. })
                | (Err(PermitDefect::Allowance { .. }), PermitDefect::Allowance { .. })
        ));
        assert_eq!(reserved(&harness).await, before);
        let small = Bounds::ExactInput { input: Minor::new(AMOUNT - 1), min_output: Minor::new(1) };
        decide(&harness, &engine, IntentRequest { bounds: small, ..of(&wallet, 2) }).await.unwrap();
    }
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_orders_never_reserve_more_than_a_wallet_has() {
    let harness = scenes::harness().await;
    let wallet = PrivateKeySigner::random();
    let facts = WalletFacts { balance: 5 * AMOUNT, ..RICH };
    let engines: Vec<Engine> = (0..3).map(|_| engine(&harness, facts)).collect();
    let sent = (0..10_u128).flat_map(|nonce| engines.iter().map(move |engine| (nonce, engine)));
    let sent = sent.map(|(nonce, engine)| decide(&harness, engine, of(&wallet, nonce)));
    let accepted = join_all(sent).await.iter().filter(|one| one.is_ok()).count();
    assert!((1..=5).contains(&accepted), "{accepted}");
    let promised = "select (sum(amount) / 100000000)::int8 from permit_use";
    assert_eq!(harness.count(promised).await, i64::try_from(accepted).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_orders_nonce_is_the_next_one_again() {
    let harness = scenes::harness().await;
    let engine = engine(&harness, RICH);
    let wallet = PrivateKeySigner::random();
    // It waits before its lock, so that it can be cancelled.
    let first = decide(&harness, &engine, paid_to(&wallet, 0, "000123450008")).await.unwrap();
    decide(&harness, &engine, of(&wallet, 1)).await.unwrap();
    let cancelled = engine.cancel(&harness.tenant, &first, None).await.unwrap();
    assert_eq!(cancelled, CancelOutcome::Cancelled);
    assert_eq!(decide(&harness, &engine, of(&wallet, 2)).await, Err(PermitDefect::NonceGap { next: 0 }));
    decide(&harness, &engine, of(&wallet, 0)).await.unwrap();
    decide(&harness, &engine, of(&wallet, 2)).await.unwrap();
}

/// The relayer gives a lock up whose transaction was sent.
async fn fail_lock(harness: &Harness, reference: &str) {
    let (entity, _) = harness.command(reference, "create").await;
    harness.report_fact(&entity, &failed("create", "lock_rejected")).await;
    harness.wait_for_state(reference, "failed").await;
}

/// The same permit in a new order.
fn again(request: &IntentRequest) -> IntentRequest {
    let id = uuid::Uuid::new_v4().to_string();
    IntentRequest { client_reference: Some(format!("ref-{id}")), intent_id: id, ..request.clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_that_a_failed_lock_made_public_is_its_partners_and_its_payees() {
    let harness = scenes::harness().await;
    harness.start_workers();
    // Enough for one order: each failed lock releases its nonce and its amount.
    let engine = engine(&harness, WalletFacts { balance: AMOUNT, ..RICH });
    let wallet = PrivateKeySigner::random();
    let first = of(&wallet, 0);
    let reference = decide(&harness, &engine, first.clone()).await.unwrap();
    fail_lock(&harness, &reference).await;
    let before = reserved(&harness).await;
    let tenant = harness.other_tenant().await;
    let live = Tenant { livemode: true, ..harness.tenant.clone() };
    for tenant in [tenant, live] {
        let outcome = orders::submit(&engine, &tenant, again(&first)).await.unwrap();
        assert_eq!(decided(outcome), Err(PermitDefect::Published));
    }
    // The partner's own end users can read it, too.
    let mut stolen = again(&first);
    stolen.beneficiary.as_mut().unwrap().account = Some("000123456780".into());
    assert_eq!(decide(&harness, &engine, stolen).await, Err(PermitDefect::Published));
    let mut stolen = again(&first);
    stolen.output_recipient = Some("0x00000000000000000000000000000000000000aa".into());
    assert_eq!(decide(&harness, &engine, stolen).await, Err(PermitDefect::Published));
    assert_eq!(reserved(&harness).await, before);
    // Its own order may be tried again, more than once.
    for _ in 0..2 {
        let reference = decide(&harness, &engine, again(&first)).await.unwrap();
        fail_lock(&harness, &reference).await;
    }
    assert_eq!(harness.count("select count(*) from permit_published").await, 1);
    // Another permit is a new permission.
    let other = order_at(now().plus_millis(5_000), &wallet, 0, &terms("000123456780"));
    decide(&harness, &engine, other).await.unwrap();
    harness.check_books().await;
}

/// An order that a contract pays for, with a signature in its owners' form.
fn by_contract(signature: &str) -> IntentRequest {
    let mut request = of(&PrivateKeySigner::random(), 0);
    request.user = "0x00000000000000000000000000000000000000C7".to_owned();
    request.permit.as_mut().unwrap().signature = signature.to_owned();
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn a_contract_pays_with_what_it_confirms() {
    let harness = scenes::harness().await;
    harness.start_workers();
    // Its owners' recovery ids are none of an account's.
    for signature in [format!("0x{}", "aB00".repeat(65)), format!("{}05", "00".repeat(64))] {
        let request = by_contract(&signature);
        let refused = [
            (Confirmation::Refused, PermitDefect::Unconfirmed),
            (
                Confirmation::NoContract,
                match signature.len() {
                    130 => PermitDefect::SignatureV,
                    _ => PermitDefect::SignatureLength,
                },
            ),
        ];
        for (answer, defect) in refused {
            let engine = harness.engine_over(Arc::new(Chain(Mutex::new(RICH), answer)));
            assert_eq!(decide(&harness, &engine, request.clone()).await, Err(defect));
        }
        let engine = harness.engine_over(Arc::new(Chain(Mutex::new(RICH), Confirmation::Confirmed)));
        let reference = decide(&harness, &engine, request).await.unwrap();
        let sent = serde_json::to_value(harness.command(&reference, "create").await.1).unwrap();
        let digits = signature.trim_start_matches("0x").to_lowercase();
        assert_eq!(sent["permit"]["signature"], format!("0x{digits}"), "byte for byte");
        assert_eq!(sent["maker"], "0x00000000000000000000000000000000000000C7");
        harness.run("delete from permit_use").await;
    }
    let poor = WalletFacts { balance: AMOUNT - 1, ..RICH };
    let engine = harness.engine_over(Arc::new(Chain(Mutex::new(poor), Confirmation::Confirmed)));
    let short = PermitDefect::Balance { held: AMOUNT - 1, needed: AMOUNT };
    assert_eq!(decide(&harness, &engine, by_contract(&"11".repeat(65))).await, Err(short));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_public_permit_of_a_contract_stays_its_partners_in_other_bytes() {
    let harness = scenes::harness().await;
    harness.start_workers();
    let engine = harness.engine_over(Arc::new(Chain(Mutex::new(RICH), Confirmation::Confirmed)));
    let first = by_contract(&"11".repeat(130));
    let reference = decide(&harness, &engine, first.clone()).await.unwrap();
    fail_lock(&harness, &reference).await;
    let mut other_bytes = again(&first);
    let permit = other_bytes.permit.as_mut().unwrap();
    permit.signature.push_str("00");
    permit.token = permit.token.to_uppercase().replace("0X", "0x");
    let outcome = orders::submit(&engine, &harness.other_tenant().await, other_bytes).await.unwrap();
    assert_eq!(decided(outcome), Err(PermitDefect::Published));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_whose_lock_a_reorganization_removed_is_its_partners() {
    let harness = scenes::harness().await;
    harness.start_workers();
    let engine = engine(&harness, RICH);
    let request = of(&PrivateKeySigner::random(), 0);
    // Its conversion is not answered.
    let reference = decide(&harness, &engine, request.clone()).await.unwrap();
    harness.play_until(&reference, |kind| kind == "create").await;
    let (entity, _) = harness.command(&reference, "create").await;
    harness.report_fact(&entity, &ChainFact::LockLost).await;
    harness.wait_for_count("select count(*) from permit_published", 1).await;
    // Long after the lock.
    harness.run("delete from permit_use").await;
    let tenant = harness.other_tenant().await;
    let outcome = orders::submit(&engine, &tenant, again(&request)).await.unwrap();
    assert_eq!(decided(outcome), Err(PermitDefect::Published));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_counts_once_even_if_the_wallet_was_read_before_it() {
    let harness = scenes::harness().await;
    harness.start_workers();
    let facts = WalletFacts { balance: 2 * AMOUNT, ..RICH };
    let engine = engine(&harness, facts);
    let wallet = PrivateKeySigner::random();
    let reference = decide(&harness, &engine, of(&wallet, 0)).await.unwrap();
    harness.play_until(&reference, |kind| kind == "create").await;
    let locked = "select count(*) from permit_use where locked_at is not null";
    harness.wait_for_count(locked, 1).await;
    // Its nonce and its amount are used on the chain, and the wallet was read before.
    assert_eq!(decide(&harness, &engine, of(&wallet, 0)).await, Err(PermitDefect::NonceHeld { next: 1 }));
    decide(&harness, &engine, of(&wallet, 1)).await.unwrap();
    let short = PermitDefect::Balance { held: 2 * AMOUNT, needed: 3 * AMOUNT };
    assert_eq!(decide(&harness, &engine, of(&wallet, 2)).await, Err(short));
    // A process that has read the wallet since.
    let later = self::engine(&harness, WalletFacts { nonce: 1, balance: AMOUNT, ..RICH });
    let short = PermitDefect::Balance { held: AMOUNT, needed: 2 * AMOUNT };
    assert_eq!(decide(&harness, &later, of(&wallet, 2)).await, Err(short));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_below_the_pairs_minimum_is_no_liquidity_and_reserves_nothing() {
    let harness = scenes::harness().await;
    let engine = engine(&harness, RICH);
    let wallet = PrivateKeySigner::random();
    let before = reserved(&harness).await;
    let small =
        |input| order_by(&wallet, 0, &Terms { input: ("USDC", input), output: "USD", account: "1234" });
    let dust = Bounds::ExactOutput { output: Minor::new(1), max_input: Minor::new(AMOUNT) };
    for request in [small(999_999), IntentRequest { bounds: dust, ..of(&wallet, 0) }] {
        let refused = submit(&harness, &engine, request).await;
        assert!(matches!(refused, Outcome::Rejected { reason: Reason::NoLiquidity, .. }), "{refused:?}");
    }
    assert_eq!(reserved(&harness).await, before);
    decide(&harness, &engine, small(1_000_000)).await.unwrap();
}

/// Inserts commands of a chain, of one kind and in one state, as of that many orders in progress.
pub(crate) async fn commands(harness: &Harness, chain_id: i64, kind: &str, state: &str, count: i32) {
    sqlx::query(
        "insert into chain_command (chain_id, reference, intent_id, entity, escrow, kind, payload, state, done_at) \
         select $4, $1 || n, 'i', sha256(n::text::bytea), decode(repeat('00', 20), 'hex'), $1, '{}', $2, case when $2 = 'done' then now() end \
         from generate_series(1, $3) n",
    )
    .bind(kind)
    .bind(state)
    .bind(count)
    .bind(chain_id)
    .execute(harness.pool())
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_cannot_be_locked_in_time_is_refused_and_reserves_nothing() {
    let harness = scenes::harness().await;
    harness.deposit("USD", 50_000_000).await;
    harness.fund("south", "EUR", 100_000_000).await;
    let engine = engine(&harness, RICH);
    let backlog = engine.context().chains.home().backlog.clone();
    let look = async || {
        let mut conn = harness.pool().acquire().await.unwrap();
        backlog.look(&count_open(&mut conn, 31337, backlog::WINDOW).await.unwrap());
    };
    // At first a rate of sixty commands a second is assumed, and three commands for each lock: 6,000 locks in five
    // minutes.
    commands(&harness, HOME, "anchor", "pending", 5_000).await;
    commands(&harness, HOME, "create", "sent", 6_000).await;
    look().await;
    decide(&harness, &engine, of(&PrivateKeySigner::random(), 0)).await.unwrap();
    let full = reserved(&harness).await;
    let refused = submit(&harness, &engine, of(&PrivateKeySigner::random(), 0)).await;
    assert!(matches!(refused, Outcome::Rejected { reason: Reason::NoLiquidity, .. }), "{refused:?}");
    assert_eq!(reserved(&harness).await, full);
    // An order without a lock does not wait for the chain.
    let fiat = order_by(
        &PrivateKeySigner::random(),
        0,
        &Terms { input: ("USD", 10_000), output: "EUR", account: "12345678" },
    );
    decide(&harness, &engine, fiat).await.unwrap();
    // The relayer was measured at a thousand a second.
    commands(&harness, HOME, "settle", "done", 30_000).await;
    look().await;
    assert_eq!(backlog.wait(), Duration::from_secs(18));
    decide(&harness, &engine, of(&PrivateKeySigner::random(), 0)).await.unwrap();
    let hurried = IntentRequest { deadline: now().plus_millis(6_000), ..of(&PrivateKeySigner::random(), 0) };
    let refused = submit(&harness, &engine, hurried).await;
    assert!(matches!(refused, Outcome::Rejected { reason: Reason::NoLiquidity, .. }), "{refused:?}");
    commands(&harness, HOME, "fill", "pending", 300_000).await;
    look().await;
    let refused = submit(&harness, &engine, of(&PrivateKeySigner::random(), 0)).await;
    assert!(matches!(refused, Outcome::Rejected { reason: Reason::NoLiquidity, .. }), "{refused:?}");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signature_is_sent_in_the_contracts_form() {
    let harness = scenes::harness().await;
    harness.start_workers();
    let engine = engine(&harness, RICH);
    for (shift, v) in [("as signed", 0), ("as a recovery id", 27)] {
        let mut request = of(&PrivateKeySigner::random(), 0);
        let permit = request.permit.as_mut().unwrap();
        let signed = permit.signature.clone();
        let mut bytes = hex::decode(signed.trim_start_matches("0x")).unwrap();
        bytes[64] -= v;
        permit.signature = hex::encode(bytes).to_uppercase();
        let reference = decide(&harness, &engine, request).await.unwrap();
        let (_, create) = harness.command(&reference, "create").await;
        let sent = serde_json::to_value(create).unwrap();
        assert_eq!(sent["permit"]["signature"], signed, "{shift}");
    }
}
