//! Range orders: rejected, filled or resting by the market; filled by price and by time; cancelled, expired, and filled once
//! whoever tries.

use std::sync::Arc;

use alloy::signers::local::PrivateKeySigner;
use dvp_core::context::now;
use dvp_core::engine::{CancelOutcome, Engine};
use dvp_core::liquidity::{ConfiguredProvider, Liquidity, LiquiditySource, ReferenceSource};
use dvp_core::ranges::{self, RangesView};
use dvp_core::writer::{
    Accepted, FillAttempt, KnownWallet, Outcome, Refusal, Submission, Unit, WriteError, Writer,
};
use dvp_domain::decision::Reason;
use dvp_domain::intent::{Bounds, IntentRequest};
use dvp_domain::ledger::Owner;
use dvp_domain::limit::{Exceeded, LimitScope, Period};
use dvp_domain::liquidity::LiquidityProvider;
use dvp_domain::money::Minor;
use dvp_domain::pause::Scope;
use dvp_domain::range::Range;
use dvp_domain::terms::Terms;
use dvp_store::operators::pauses::{self, Decided};
use dvp_store::orders::executions::{self, RefType};
use dvp_store::orders::intents::Tenant;
use dvp_store::orders::ranges::{RESTING_MAX, WALLET_RESTING_MAX};
use dvp_testing::Harness;
use dvp_testing::market::{Price, north};
use dvp_testing::orders::{Terms as OrderTerms, order, order_by, order_of, ranged, submit};
use dvp_testing::wait::wait_until;
use futures_util::future::join_all;

use crate::scenes::{self, registry};

/// What 100 USDC give at a price of 1, and what is reserved for it.
const GIVES: u128 = 9_935;

fn liquidity(price: &Price) -> Liquidity {
    // Dearer than north, and without money at first.
    let late = LiquidityProvider::new("late", "0x0000000000000000000000000000000000000003", 30);
    let source = |provider| Arc::new(ConfiguredProvider::new(provider)) as Arc<dyn LiquiditySource>;
    Liquidity::new(
        registry(),
        vec![source(north()), source(late)],
        vec![Arc::new(price.clone()) as Arc<dyn ReferenceSource>],
    )
}

async fn scene(usd: u128) -> (Harness, Price) {
    let price = Price::of("USDC", "USD", "1");
    let harness = scenes::harness_over(&[("north", usd)], |_| liquidity(&price)).await;
    (harness, price)
}

/// 100 USDC for an output that falls over a time.
pub(crate) fn falling(target: u128, limit: u128, lifetime_ms: i64) -> IntentRequest {
    ranged(order("000123456789"), target, limit, lifetime_ms)
}

/// Ten minutes from 100 to 95 dollars.
pub(crate) fn patient() -> IntentRequest {
    falling(10_000, 9_500, 600_000)
}

fn start(harness: &Harness, engine: &Engine) -> RangesView {
    let view = RangesView::default();
    tokio::spawn(ranges::run_with(engine.clone(), view.clone(), harness.stopped()));
    view
}

pub(crate) async fn started(harness: &Harness) -> RangesView {
    let view = start(harness, &harness.engine);
    wait_until("the lease", || view.is_owner()).await;
    view
}

pub(crate) async fn resting(harness: &Harness, request: IntentRequest) -> Accepted {
    let accepted = harness.accept(request).await;
    assert_eq!(harness.state(&accepted.reference).await, "resting");
    accepted
}

pub(crate) async fn terms(harness: &Harness, reference: &str) -> Terms {
    let mut conn = harness.pool().acquire().await.unwrap();
    let named = RefType::ExecutionId;
    executions::find_for_tenant(&mut conn, &harness.tenant, named, reference).await.unwrap().unwrap().terms
}

async fn reserved(harness: &Harness) -> u128 {
    harness.balance(&Owner::Provider("north".into()), "USD").await.1
}

#[tokio::test(flavor = "multi_thread")]
async fn the_market_decides_whether_a_range_is_rejected_filled_or_rests() {
    let (harness, _) = scene(1_000_000).await;
    let below = harness.submit(falling(10_100, 10_000, 600_000)).await;
    assert!(matches!(below, Outcome::Rejected { reason: Reason::BelowMinimumOutput, .. }), "{below:?}");
    let met = harness.accept(falling(9_900, 9_000, 600_000)).await;
    assert_eq!(harness.state(&met.reference).await, "accepted");
    assert_eq!(met.plan.priced.output, Minor::new(9_900));
    assert!(met.plan.priced.input < Minor::new(100_000_000));
    assert_eq!(reserved(&harness).await, 9_950);
    let rests = resting(&harness, patient()).await;
    // 65 of the 500 that it falls by, of ten minutes.
    assert!((76..=78).contains(&rests.plan.path.estimated_fill_time), "{:?}", rests.plan.path);
    assert_eq!(reserved(&harness).await, 9_950, "nothing more");
    let kept = terms(&harness, &rests.reference).await;
    assert_eq!((kept.input.amount.get(), kept.output.amount.get()), (100_000_000, 9_500));
    assert_eq!(harness.events(&rests.reference).await, ["intent.accepted"]);
    assert_eq!(harness.count("select count(*) from permit_use where amount = 100000000").await, 1);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resting_order_is_filled_when_its_output_has_fallen_to_the_market() {
    let (harness, _) = scene(1_000_000).await;
    started(&harness).await;
    let rests = resting(&harness, falling(9_985, 9_885, 8_000)).await;
    harness.wait_for_state(&rests.reference, "accepted").await;
    let filled = terms(&harness, &rests.reference).await;
    let range = Range::of(&filled.request).unwrap();
    let output = filled.output.amount;
    assert!(output <= Minor::new(GIVES + 1) && output >= range.min_output, "{output}");
    assert!(filled.input.amount <= range.max_input);
    assert_eq!((filled.plan.priced.input, filled.plan.priced.output), (filled.input.amount, output));
    assert!(filled.counts_as_open && filled.accepted_at <= range.falls_to(output).unwrap());
    assert_eq!(reserved(&harness).await, output.get() + 50);
    assert_eq!(harness.events(&rests.reference).await, ["intent.accepted"]);
    assert_eq!(harness.count("select count(*) from resting_range").await, 0);
    let held: String =
        sqlx::query_scalar("select amount::text from permit_use").fetch_one(harness.pool()).await.unwrap();
    assert_eq!(held, filled.input.amount.to_string());
    // Its settlement begins like any other's.
    assert_eq!(harness.count("select count(*) from effect where kind = 'lock' and run_at <= now()").await, 1);
    harness.start_workers();
    harness.wait_for_state(&rests.reference, "locking").await;
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_better_price_fills_the_orders_that_it_reaches_and_looks_at_no_other() {
    let (harness, price) = scene(100_000_000).await;
    let view = started(&harness).await;
    let mut orders = Vec::new();
    for target in 0..20 {
        orders.push(resting(&harness, falling(10_000 + target * 10, 9_500, 6_000_000)).await);
    }
    wait_until("all in memory", || view.figures().resting == 20).await;
    let before = view.figures().tested;
    price.set(&harness.engine, "1.0001");
    price.set(&harness.engine, "1.0112");
    // 100 USDC now give 100.46: the first five.
    harness.wait_for_count("select count(*) from execution where state_name = 'accepted'", 5).await;
    for (at, order) in orders.iter().enumerate() {
        let expected = if at < 5 { "accepted" } else { "resting" };
        assert_eq!(harness.state(&order.reference).await, expected, "{at}");
    }
    wait_until("the book knows", || view.figures().resting == 15).await;
    assert!(view.figures().tested - before <= 6, "{:?}", view.figures());
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_known_though_notifications_were_lost_while_prices_change() {
    let (harness, _) = scene(1_000_000).await;
    let view = started(&harness).await;
    let publishing = tokio::spawn({
        let engine = harness.engine.clone();
        async move {
            loop {
                engine.context().liquidity.publish();
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    });
    let cut = "select pg_terminate_backend(pid) from pg_stat_activity \
               where datname = current_database() and query ilike 'listen%'";
    harness.run(cut).await;
    resting(&harness, patient()).await;
    wait_until("the order in memory", || view.figures().resting == 1).await;
    publishing.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resting_order_expires_at_its_deadline_and_leaves_nothing_behind() {
    let (harness, price) = scene(1_000_000).await;
    price.set(&harness.engine, "1.0");
    harness.start_workers();
    // Nobody fills it.
    let rests = resting(&harness, falling(10_000, 9_930, 5_000)).await;
    harness.wait_for_state(&rests.reference, "expired").await;
    assert_eq!(harness.events(&rests.reference).await, ["intent.accepted", "intent.expired"]);
    for left in ["resting_range", "permit_use", "effect", "ledger_entry where reason = 'reserve'"] {
        let count: (i64,) = sqlx::query_as(sqlx::AssertSqlSafe(format!("select count(*) from {left}")))
            .fetch_one(harness.pool())
            .await
            .unwrap();
        assert_eq!(count.0, 0, "{left}");
    }
    assert_eq!(harness.count("select count(*) from open_change").await, 0);
    assert_eq!(reserved(&harness).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_filled_or_cancelled_and_never_both() {
    let (harness, price) = scene(100_000_000).await;
    started(&harness).await;
    let mut orders = Vec::new();
    for _ in 0..24 {
        orders.push(resting(&harness, patient()).await.reference);
    }
    price.set(&harness.engine, "1.1");
    let cancelled = join_all(orders.iter().map(|order| harness.engine.cancel(&harness.tenant, order, None)));
    let cancelled = cancelled.await.into_iter().map(Result::unwrap);
    let cancelled = cancelled.filter(|outcome| *outcome == CancelOutcome::Cancelled).count();
    harness.wait_for_count("select count(*) from resting_range", 0).await;
    let filled = harness.count("select count(*) from execution where state_name = 'accepted'").await;
    let ended = harness.count("select count(*) from execution where state_name = 'cancelled'").await;
    assert_eq!(filled + ended, 24);
    // An order that was filled first can be cancelled until its lock is requested.
    let held = "select count(*) filter (where reason = 'reserve') / 2 - count(*) filter (where reason = 'release') / 2 \
                from ledger_entry";
    assert_eq!(harness.count(held).await, filled);
    assert!(i64::try_from(cancelled).unwrap() <= ended, "{cancelled} {ended}");
    harness.check_books().await;
}

async fn attempt(harness: &Harness, reference: &str) -> Unit {
    let mut conn = harness.pool().acquire().await.unwrap();
    let execution = executions::find_by_reference(&mut conn, reference).await.unwrap().unwrap();
    let request = execution.terms.request.clone();
    let key = dvp_core::chain::WalletKey {
        chain_id: 31337,
        owner: request.user.to_ascii_lowercase(),
        token: dvp_testing::market::TOKEN.into(),
    };
    let facts = dvp_core::chain::WalletFacts { nonce: 0, balance: u128::MAX, allowance: u128::MAX };
    let wallet = Some(KnownWallet { key, facts });
    let tenant = harness.tenant.clone();
    Unit::of_fill(FillAttempt {
        filled_as: None,
        execution,
        submission: Submission { tenant, request, wallet, turn: None, fills: None, trace: None },
        deposited: None,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn several_writers_fill_an_order_once() {
    let (harness, price) = scene(1_000_000).await;
    price.set(&harness.engine, "0.99");
    let rests = resting(&harness, falling(9_900, 9_500, 600_000)).await;
    // Processes whose prices meet it.
    let writers: Vec<Writer> =
        (0..3).map(|_| Writer::start(harness.pool().clone(), harness.context()).0).collect();
    let mut units = Vec::new();
    for writer in writers.iter().chain(&writers) {
        units.push((writer, attempt(&harness, &rests.reference).await));
    }
    let done = join_all(units.into_iter().map(|(writer, unit)| writer.write(unit))).await;
    let filled =
        done.iter().filter(|done| matches!(done, Ok(done) if matches!(done.outcome, Outcome::Written)));
    assert_eq!(filled.count(), 1, "{done:?}");
    assert!(done.iter().all(|done| matches!(done, Ok(_) | Err(WriteError::Stale { .. }))), "{done:?}");
    assert_eq!(harness.count("select count(*) from ledger_entry where reason = 'reserve'").await, 2);
    assert_eq!(harness.state(&rests.reference).await, "accepted");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_equal_orders_the_oldest_is_filled_first_whoever_placed_it() {
    let (harness, price) = scene(21_000).await;
    let other = harness.other_tenant().await;
    let received_at = now();
    let mut orders = Vec::new();
    for at in 0..4 {
        let tenant = if at % 2 == 0 { harness.tenant.clone() } else { other.clone() };
        let bounds = Bounds::Range {
            max_input: Minor::new(100_000_000),
            target_output: Minor::new(10_100),
            min_output: Minor::new(9_500),
            received_at,
        };
        let request =
            IntentRequest { bounds, deadline: received_at.plus_millis(600_000), ..order("000123456789") };
        match submit(&harness.engine, &tenant, request).await.unwrap() {
            Outcome::Accepted(accepted) => orders.push(accepted.reference.clone()),
            other => panic!("{other:?}"),
        }
    }
    price.set(&harness.engine, "1.1");
    started(&harness).await;
    harness.wait_for_count("select count(*) from execution where state_name = 'accepted'", 2).await;
    let mut states = Vec::new();
    for order in &orders {
        states.push(harness.state(order).await);
    }
    assert_eq!(states, ["accepted", "accepted", "resting", "resting"]);
    // What there is to deliver comes later.
    harness.fund("late", "USD", 1_000_000).await;
    harness.wait_for_count("select count(*) from resting_range", 0).await;
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_keeps_an_order_resting_and_its_end_fills_it() {
    let (harness, price) = scene(1_000_000).await;
    let view = started(&harness).await;
    let rests = resting(&harness, patient()).await;
    let by = Decided { operator: "jo", reason: "to be sure" };
    let partner = harness.tenant.partner_id.clone();
    let mut conn = harness.pool().acquire().await.unwrap();
    pauses::insert(&mut conn, Scope::Partner, &partner, by).await.unwrap();
    price.set(&harness.engine, "1.1");
    wait_until("an attempt", || view.figures().tested >= 2).await;
    assert_eq!(harness.state(&rests.reference).await, "resting");
    assert_eq!(reserved(&harness).await, 0);
    pauses::delete(&mut conn, Scope::Partner, &partner, by).await.unwrap();
    harness.wait_for_state(&rests.reference, "accepted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_ten_thousand_resting_orders_at_most() {
    let (harness, _) = scene(1_000_000).await;
    let fill = "insert into resting_range (reference, input_asset, output_asset, actor, max_input, target_output, \
                                           min_output, received_at, deadline, partner_id, livemode) \
                select 'other-' || n, 'USDC', 'USD', 'institution', 2, 2, 1, now(), now() + interval '1 h', $1, $2 \
                from generate_series(1, $3) n";
    let Tenant { partner_id, livemode } = harness.tenant.clone();
    let rows = sqlx::query(fill).bind(partner_id).bind(livemode).bind(RESTING_MAX - 1);
    rows.execute(harness.pool()).await.unwrap();
    let last = resting(&harness, patient()).await;
    let refused = harness.submit(patient()).await;
    let open = Reason::Limit(Exceeded { scope: LimitScope::Partner, period: Period::Open });
    assert!(matches!(refused, Outcome::Rejected { reason, .. } if reason == open), "{refused:?}");
    // Another tenant's orders rest, and one that the market meets is filled.
    let tenant = harness.other_tenant().await;
    let others = submit(&harness.engine, &tenant, patient()).await.unwrap();
    assert!(matches!(others, Outcome::Accepted(_)), "{others:?}");
    let met = harness.accept(falling(9_900, 9_000, 600_000)).await;
    assert_eq!(harness.state(&met.reference).await, "accepted");
    // The end of one makes place.
    let cancelled = harness.engine.cancel(&harness.tenant, &last.reference, None).await.unwrap();
    assert_eq!(cancelled, CancelOutcome::Cancelled);
    resting(&harness, patient()).await;
}

fn of_wallet(wallet: &PrivateKeySigner, nonce: u128) -> IntentRequest {
    order_by(
        wallet,
        nonce,
        &OrderTerms { input: ("USDC", 100_000_000), output: "USD", account: "000123456789" },
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn later_orders_of_a_wallet_wait_behind_a_resting_one_or_are_refused() {
    let (harness, price) = scene(100_000_000).await;
    let wallet = PrivateKeySigner::random();
    // At these prices it is filled in a minute: an order behind it can still be locked.
    let first = resting(&harness, ranged(of_wallet(&wallet, 0), 10_000, 9_500, 600_000)).await;
    let held = harness.submit(of_wallet(&wallet, 0)).await;
    assert!(matches!(held, Outcome::Refused(Refusal::InvalidPermit(_))), "{held:?}");
    let behind = harness.accept(of_wallet(&wallet, 1)).await;
    assert_eq!(harness.state(&behind.reference).await, "accepted");
    // At a worse price it would be filled in seven minutes, when the path of an order behind it has expired.
    price.set(&harness.engine, "0.97");
    let refused = harness.submit(of_wallet(&wallet, 2)).await;
    assert!(matches!(refused, Outcome::Rejected { reason: Reason::NoLiquidity, .. }), "{refused:?}");
    price.set(&harness.engine, "1.1");
    started(&harness).await;
    harness.wait_for_state(&first.reference, "accepted").await;
    harness.accept(of_wallet(&wallet, 2)).await;
    let poor = harness.submit(of_wallet(&wallet, 4)).await;
    assert!(matches!(poor, Outcome::Refused(Refusal::InvalidPermit(_))), "{poor:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wallet_has_a_hundred_resting_orders_at_most() {
    let (harness, price) = scene(100_000_000).await;
    let wallet = PrivateKeySigner::random();
    let behind = |nonce: u128| ranged(of_wallet(&wallet, nonce), 10_000, 9_500, 600_000);
    let most = u128::try_from(WALLET_RESTING_MAX).unwrap();
    let mut references = Vec::new();
    for nonce in 0..most {
        references.push(resting(&harness, behind(nonce)).await.reference);
    }
    let refused = harness.submit(behind(most)).await;
    let open = Reason::Limit(Exceeded { scope: LimitScope::Partner, period: Period::Open });
    assert!(matches!(refused, Outcome::Rejected { reason, .. } if reason == open), "{refused:?}");
    resting(&harness, patient()).await;
    // All would be filled in a minute: an order behind them can still be locked.
    harness.accept(of_wallet(&wallet, most)).await;
    let extra = "insert into permit_use (chain_id, owner, nonce, token, amount, reference) \
                 select chain_id, owner, $1::numeric, token, 1, 'other' from permit_use where reference = $2";
    let pool = harness.pool();
    let next = (most + 1).to_string();
    sqlx::query(extra).bind(&next).bind(&references[0]).execute(pool).await.unwrap();
    let rests = "insert into resting_range (reference, input_asset, output_asset, actor, max_input, target_output, \
                                            min_output, received_at, deadline, partner_id, livemode) \
                 select 'other', input_asset, output_asset, actor, max_input, target_output, min_output, received_at, \
                        deadline, partner_id, livemode from resting_range where reference = $1";
    sqlx::query(rests).bind(&references[0]).execute(pool).await.unwrap();
    let refused = harness.submit(of_wallet(&wallet, most + 2)).await;
    assert!(matches!(refused, Outcome::Rejected { reason: Reason::NoLiquidity, .. }), "{refused:?}");
    sqlx::query("delete from resting_range where reference = 'other'").execute(pool).await.unwrap();
    harness.accept(of_wallet(&wallet, most + 2)).await;
    price.set(&harness.engine, "1.1");
    started(&harness).await;
    for reference in &references {
        harness.wait_for_state(reference, "accepted").await;
    }
    // They make place.
    resting(&harness, ranged(of_wallet(&wallet, most + 3), 12_000, 9_500, 600_000)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_permit_was_used_elsewhere_fails() {
    let (harness, price) = scene(1_000_000).await;
    let rests = resting(&harness, patient()).await;
    harness.node.set_next_nonce(1);
    price.set(&harness.engine, "1.1");
    // A process that has not read the wallet before.
    start(&harness, &harness.engine_with(liquidity(&price)));
    harness.wait_for_state(&rests.reference, "failed").await;
    assert_eq!(harness.events(&rests.reference).await, ["intent.accepted", "intent.failed"]);
    assert_eq!(harness.count("select count(*) from permit_use").await, 0);
    assert_eq!(harness.count("select count(*) from resting_range").await, 0);
    assert_eq!(reserved(&harness).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_order_is_filled_from_what_there_is() {
    let (harness, price) = scene(5_000).await;
    started(&harness).await;
    // Nobody can deliver even its limit.
    let refused = harness.submit(patient()).await;
    assert!(matches!(refused, Outcome::Rejected { reason: Reason::NoLiquidity, .. }), "{refused:?}");
    let small = ranged(order_of(30_000_000, "000123456789"), 3_000, 2_800, 600_000);
    let rests = resting(&harness, small).await;
    price.set(&harness.engine, "1.1");
    harness.wait_for_state(&rests.reference, "accepted").await;
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_ends_while_notifications_are_lost_does_not_stay_in_memory() {
    let (harness, _) = scene(1_000_000).await;
    let view = started(&harness).await;
    let rests = resting(&harness, patient()).await;
    wait_until("it is in memory", || view.figures().resting == 1).await;
    let listeners = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                     where datname = current_database() and query ilike 'listen%'";
    assert!(harness.count(listeners).await > 0);
    let cancelled = harness.engine.cancel(&harness.tenant, &rests.reference, None).await.unwrap();
    assert_eq!(cancelled, CancelOutcome::Cancelled);
    wait_until("the book knows", || view.figures().resting == 0).await;
}
