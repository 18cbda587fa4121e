//! Shared setup beside the harness: the market of the tests, a database behind a proxy, and units of FIX and REST as
//! the services queue them.

use std::sync::Arc;
use std::time::Duration;

use dvp_core::chain::WalletReader;
use dvp_core::engine::Engine;
use dvp_core::liquidity::{ConfiguredProvider, Liquidity, LiquiditySource, ReferenceSource};
use dvp_core::operators::operations::{Action, OperatorDecision, ResolveError};
use dvp_core::writer::{FixChain, FixPart, IdempotencyPart, Outcome, Writer, WriterLimits};
use dvp_domain::asset::{Pair, Registry};
use dvp_domain::beneficiary::PayoutMethod;
use dvp_domain::chain::ChainFact;
use dvp_domain::liquidity::LiquidityProvider;
use dvp_domain::money::Minor;
use dvp_store::PgConnection;
use dvp_store::fix::rows::{FixNumbers, FixOrder, FixOutbound, FixRows};
use dvp_store::fix::{self, NewFixSession};
use dvp_store::orders::idempotency::{RecordId, StoredResponse};
use dvp_store::orders::intents::Tenant;
use dvp_store::partners::beneficiaries::{NewDestination, insert_destination};
use dvp_testing::harness::readers;
use dvp_testing::market::{Price, north, pair};
use dvp_testing::orders::order;
use dvp_testing::wait::wait_for;
use dvp_testing::{Harness, Market};
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use sqlx::types::Json;

use crate::proxy::Proxy;

/// Every kind of order: north fills all of them, south those of one pair of currencies.
pub(crate) fn market() -> Market {
    let pairs = vec![
        Pair { min_input: Minor::new(1_000_000), ..pair("USDC", "USD", "1") },
        pair("WETH", "USDC", "2000"),
        pair("USD", "EUR", "0.92"),
        pair("USD", "USDC", "1"),
    ];
    let south = LiquidityProvider {
        pairs: vec![("USD".into(), "EUR".into())],
        ..LiquidityProvider::new("south", "0x0000000000000000000000000000000000000002", 20)
    };
    Market::new(pairs).with_provider(south)
}

pub(crate) fn registry() -> Registry {
    market().registry
}

pub(crate) async fn harness() -> Harness {
    harness_with(100_000_000_000).await
}

/// `usd` is north's balance, in minor units.
pub(crate) async fn harness_with(usd: u128) -> Harness {
    Harness::new(market().with_funds("north", "USD", usd)).await
}

/// A fact as the indexer of a chain reports it, so many hours after its block.
pub(crate) async fn report_on(harness: &Harness, chain: i64, entity: &[u8], fact: &ChainFact, hours: i32) {
    sqlx::query(
        "insert into chain_fact (chain_id, entity, kind, payload, block_hash, tx_hash, log_index, block_time) \
         values ($1, $2, 'x', $3, sha256(random()::text::bytea), sha256(random()::text::bytea), 0, \
                 now() - make_interval(hours => $4))",
    )
    .bind(chain)
    .bind(entity)
    .bind(Json(fact))
    .bind(hours)
    .execute(harness.pool())
    .await
    .unwrap();
}

/// An order of tokens that was accepted, with workers over simulated rails.
pub(crate) async fn begun(account: &str) -> (Harness, String) {
    let harness = harness().await;
    harness.start_workers();
    let reference = harness.accept(order(account)).await.reference;
    (harness, reference)
}

/// The same in a state, after the chain has carried out its commands up to a kind.
pub(crate) async fn played(account: &str, last: &str, state: &str) -> (Harness, String) {
    let (harness, reference) = begun(account).await;
    harness.play_until(&reference, |kind| kind == last).await;
    harness.wait_for_state(&reference, state).await;
    (harness, reference)
}

/// Money of the partner in dollars and of north in euros.
pub(crate) async fn prefunded() -> Harness {
    let harness = harness().await;
    harness.fund("north", "EUR", 1_000_000).await;
    harness.deposit("USD", 1_000_000).await;
    harness
}

/// With the test's own prices. `held` is each provider's balance of US dollars, in minor units.
pub(crate) async fn harness_over(
    held: &[(&str, u128)],
    liquidity: impl FnOnce(&PgPool) -> Liquidity,
) -> Harness {
    let market = held.iter().fold(market(), |market, (id, usd)| market.with_funds(id, "USD", *usd));
    Harness::with_liquidity(market, liquidity).await
}

/// North at the test's own prices.
pub(crate) fn priced(registry: Registry, prices: &[&Price]) -> Liquidity {
    let provider = Arc::new(ConfiguredProvider::new(north())) as Arc<dyn LiquiditySource>;
    let references = prices.iter().map(|price| Arc::new((*price).clone()) as Arc<dyn ReferenceSource>);
    Liquidity::new(registry, vec![provider], references.collect())
}

/// Limits of a writer that waits for what a test holds, as long as a slow machine needs.
pub(crate) const PATIENT: WriterLimits = WriterLimits {
    connect: Duration::from_secs(20),
    transaction: Duration::from_secs(60),
    statement: Duration::from_secs(40),
    lock: Duration::from_secs(30),
};

/// Engines with a writer each, like other processes on the same database.
pub(crate) fn engines(harness: &Harness, count: usize) -> Vec<Engine> {
    (0..count).map(|_| engine_over(harness, harness.pool().clone(), PATIENT)).collect()
}

/// An engine of which only the writer reaches the database through a proxy.
pub(crate) async fn engine_behind_proxy(harness: &Harness, limits: WriterLimits) -> (Engine, Proxy) {
    let direct: PgConnectOptions = harness.database.url().parse().unwrap();
    let proxy = Proxy::before(direct).await;
    (engine_over(harness, proxy.pool(), limits), proxy)
}

/// An engine whose writer has connections as those of the pool.
pub(crate) fn engine_over(harness: &Harness, pool: PgPool, limits: WriterLimits) -> Engine {
    let context = harness.context();
    let (writer, _) = Writer::start_with(pool, Arc::clone(&context), limits);
    let node: Arc<dyn WalletReader> = harness.node.clone();
    let wallets = readers(&context, &node);
    Engine::new(harness.pool().clone(), writer, context, wallets)
}

/// What an operator decides as soon as no call can be in flight.
pub(crate) async fn decide_in_time(
    harness: &Harness,
    operator: &str,
    reference: &str,
    action: Action,
) -> Result<OperatorDecision, ResolveError> {
    wait_for("the decision", || async {
        harness.run("update effect set called_at = now() - interval '1 minute'").await;
        match harness.decide(operator, reference, action.clone()).await {
            Err(ResolveError::InFlight) => None,
            decided => Some(decided),
        }
    })
    .await
}

/// One operator requests, and another one carries it out. Where the order has moved between the two, the second request
/// is a new one.
pub(crate) async fn both_decide(harness: &Harness, reference: &str, action: Action) {
    let requested = decide_in_time(harness, "jo", reference, action.clone()).await.unwrap();
    assert!(requested.is_proposal);
    for operator in ["mika", "jo", "mika"] {
        if !decide_in_time(harness, operator, reference, action.clone()).await.unwrap().is_proposal {
            return;
        }
    }
    panic!("{reference} moves again and again");
}

/// The order's lock is to be settled now, as if that much time had passed.
pub(crate) async fn is_near_its_timelock(harness: &Harness, reference: &str) {
    let near = "with near as (update execution set state = jsonb_set(state, '{lock,deadlines,settle_at}', '0')) \
                update effect set run_at = now()";
    harness.run(near).await;
    harness.wait_for_state(reference, "owing").await;
}

/// The lock of an order that is owed is settled.
pub(crate) async fn is_settled(harness: &Harness, reference: &str) {
    harness.play_until(reference, |kind| kind == "settle").await;
    let settled = "select count(*) from execution where state ->> 'settle_tx' is not null";
    harness.wait_for_count(settled, 1).await;
}

/// A FIX session of a partner, with numbers that begin at 1. Returns its id.
pub(crate) async fn fix_session(pool: &PgPool, tenant: &Tenant, client: &str) -> String {
    let session = NewFixSession {
        partner_id: tenant.partner_id.clone(),
        livemode: tenant.livemode,
        begin_string: "FIX.4.4".into(),
        client_comp_id: client.into(),
        service_comp_id: "DVP".into(),
        default_appl_ver_id: None,
        username: client.into(),
        password_hash: [0; 32],
        password_key: "1".into(),
    };
    let mut conn = pool.acquire().await.unwrap();
    fix::upsert_session(&mut conn, &session).await.unwrap();
    session.session_id()
}

/// The part of a session's message that advances the outbound number and stores a report.
pub(crate) fn part_of(session_id: &str, chain: &FixChain, before: u64, body: &[u8]) -> FixPart {
    let report = FixOutbound {
        seq: before,
        msg_type: "8".into(),
        body: body.to_vec(),
        sending_time: 0,
        fraction_digits: 3,
    };
    let rows = FixRows { outbound: vec![report], ..FixRows::default() };
    FixPart {
        numbers: FixNumbers {
            session_id: session_id.to_owned(),
            owner: None,
            next_in: before + 1,
            next_out_before: before,
            next_out: before + 1,
            seen_out: 0,
            written_out: 0,
            feed_position: None,
            renumber: None,
        },
        cl_ord_id: None,
        render: Arc::new(move |_| rows.clone()),
        chain: chain.clone(),
    }
}

/// The same part with no outbound number, as of a message that is parked.
pub(crate) fn unnumbered(mut part: FixPart) -> FixPart {
    part.numbers.next_out = part.numbers.next_out_before;
    part
}

/// A part whose rows the database refuses: text must not contain a NUL.
pub(crate) fn unwritable_part_of(session_id: &str, chain: &FixChain, before: u64) -> FixPart {
    let order = FixOrder {
        cl_ord_id: "a\0b".into(),
        trading_day: 0,
        reference: None,
        intent_id: "i".into(),
        details: serde_json::json!({}),
    };
    let rows = FixRows { orders: vec![order], ..FixRows::default() };
    FixPart { render: Arc::new(move |_| rows.clone()), ..part_of(session_id, chain, before, b"") }
}

/// An idempotency key of a partner, whose answer is the outcome as text.
pub(crate) fn key_of(tenant: &Tenant, uuid: uuid::Uuid, path: &str) -> IdempotencyPart {
    let id = RecordId {
        partner_id: tenant.partner_id.clone(),
        livemode: tenant.livemode,
        method: "POST".into(),
        path: path.into(),
        key: uuid,
    };
    let render = |outcome: &Outcome| StoredResponse { status: 202, body: format!("{outcome:?}") };
    IdempotencyPart { id, fingerprint: [1; 32], render: Arc::new(render) }
}

/// A bank account in dollars of the beneficiary `bene_1`.
pub(crate) async fn enter_destination(conn: &mut PgConnection, id: &str, account: &str) {
    let new = NewDestination {
        id,
        beneficiary_id: "bene_1",
        account,
        currency: "USD",
        method: PayoutMethod::Ach,
        swift_code: None,
        bank: Some("USABA021000021"),
        operator: "jo",
    };
    insert_destination(conn, &new).await.unwrap();
}
