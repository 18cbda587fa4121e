//! What these tests share beside the harness: the market they trade in, a database behind a proxy, and units of FIX and
//! REST as the services hand them in.

use std::sync::Arc;

use dvp_core::engine::Engine;
use dvp_core::liquidity::Liquidity;
use dvp_core::writer::{FixChain, FixPart, IdempotencyPart, Outcome, Writer, WriterLimits};
use dvp_domain::asset::{Pair, Registry};
use dvp_domain::liquidity::LiquidityProvider;
use dvp_domain::money::Minor;
use dvp_store::fix::rows::{FixNumbers, FixOrder, FixOutbound, FixRows};
use dvp_store::fix::{self, NewFixSession};
use dvp_store::orders::idempotency::{RecordId, StoredResponse};
use dvp_store::orders::intents::Tenant;
use dvp_testing::market::pair;
use dvp_testing::{Harness, Market};
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;

use crate::proxy::Proxy;

/// Every kind of order there is: north fills all of them, south beside it those of one pair of currencies.
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

/// `usd` is what north holds, in minor units.
pub(crate) async fn harness_with(usd: u128) -> Harness {
    Harness::new(market().with_funds("north", "USD", usd)).await
}

/// With prices of the test's. `held` is what each provider holds of US dollars, in minor units.
pub(crate) async fn harness_over(
    held: &[(&str, u128)],
    liquidity: impl FnOnce(&PgPool) -> Liquidity,
) -> Harness {
    let market = held.iter().fold(market(), |market, (id, usd)| market.with_funds(id, "USD", *usd));
    Harness::with_liquidity(market, liquidity).await
}

/// Engines with a writer each, as other processes on the same database have them.
pub(crate) fn engines(harness: &Harness, count: usize) -> Vec<Engine> {
    (0..count).map(|_| harness.another_engine()).collect()
}

/// An engine whose writer reaches the database through a proxy, and nothing else does.
pub(crate) async fn engine_behind_proxy(harness: &Harness, limits: WriterLimits) -> (Engine, Proxy) {
    let direct: PgConnectOptions = harness.database.url().parse().unwrap();
    let proxy = Proxy::before(direct).await;
    let context = harness.context();
    let (writer, _) = Writer::start_with(proxy.pool(), Arc::clone(&context), limits);
    (Engine::new(harness.pool().clone(), writer, context, harness.node.clone()), proxy)
}

/// A FIX session of a partner, with numbers that begin at 1. Returns its id.
pub(crate) async fn fix_session(harness: &Harness, tenant: &Tenant, client: &str) -> String {
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
    let mut conn = harness.pool().acquire().await.unwrap();
    fix::upsert_session(&mut conn, &session).await.unwrap();
    session.session_id()
}

/// The part of a session's message that takes the session from one outbound number to the next and stores a report.
pub(crate) fn part_of(session_id: &str, chain: &FixChain, before: u64, body: &[u8]) -> FixPart {
    let report = FixOutbound { seq: before, msg_type: "8".into(), body: body.to_vec(), sending_time: 0 };
    let rows = FixRows { outbound: vec![report], ..FixRows::default() };
    FixPart {
        numbers: FixNumbers {
            session_id: session_id.to_owned(),
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

/// A part whose rows the database refuses: text may not hold a NUL.
pub(crate) fn unwritable_part_of(session_id: &str, chain: &FixChain, before: u64) -> FixPart {
    let order = FixOrder {
        cl_ord_id: "a\0b".into(),
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
