//! Makers' resting orders: placed once, cancelled permanently, and restored by what takers return.

use dvp_core::operators::approvals::approve;
use dvp_core::operators::makers::{self, MakerChange, MakerError, Placing};
use dvp_core::operators::requests;
use dvp_core::writer::Outcome;
use dvp_domain::address::OwnContracts;
use dvp_domain::money::Minor;
use dvp_store::operators::makers::Maker;
use dvp_store::orders::intents::Tenant;
use dvp_store::orders::resting_orders::{self, LEVELS_MAX};
use dvp_testing::Harness;
use dvp_testing::market::TOKEN;
use dvp_testing::orders::{order, submit};

use crate::liquidity::{book, rest};
use crate::scenes;

async fn harness() -> (Harness, Maker) {
    let harness = scenes::harness_over(&[("desk", 10_000_000)], book).await;
    let maker = become_maker(&harness, false).await.unwrap();
    (harness, maker)
}

const BY: requests::Maker<'_> =
    requests::Maker { operator: "jo", reason: "agreement", evidence: "contract 4" };
const WALLET: &str = "0x9999999999999999999999999999999999999999";
const OTHER_WALLET: &str = "0xaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

async fn become_maker(harness: &Harness, is_ended: bool) -> Result<Maker, MakerError> {
    let found = set_maker(harness, ("desk", WALLET), is_ended, is_ended).await;
    assert_eq!(found.is_ok(), !is_ended);
    found
}

/// `was_maker`: the partner is a maker already.
async fn set_maker(
    harness: &Harness,
    terms: (&str, &str),
    is_ended: bool,
    was_maker: bool,
) -> Result<Maker, MakerError> {
    set_maker_of(harness, &harness.tenant.partner_id, terms, is_ended, was_maker).await
}

async fn set_maker_of(
    harness: &Harness,
    partner_id: &str,
    (provider, wallet): (&str, &str),
    is_ended: bool,
    was_maker: bool,
) -> Result<Maker, MakerError> {
    let change = MakerChange {
        partner_id: partner_id.to_owned(),
        provider_id: provider.into(),
        wallet: wallet.into(),
        is_ended,
    };
    let mut conn = harness.pool().acquire().await.unwrap();
    let requested = makers::request(&mut conn, &change, BY, &OwnContracts::default()).await.unwrap();
    let before = makers::find(&mut conn, partner_id).await;
    assert_eq!(before.is_ok(), was_maker, "it is not approved yet");
    approve(&mut conn, &requested.approval.id, "mika", "seen").await.unwrap();
    makers::find(&mut conn, partner_id).await
}

#[tokio::test]
async fn a_makers_wallet_is_one_that_somebody_can_spend_from() {
    let (harness, _) = harness().await;
    let contracts = harness.engine.context().chains.contracts();
    let mut conn = harness.pool().acquire().await.unwrap();
    for (wallet, fault) in [
        ("wallet".to_owned(), "must be 0x and 40 hex digits"),
        (format!("0x{:040x}", 0), "is the zero address"),
        (TOKEN.to_owned(), "is the token contract of USDC"),
        ("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD".to_owned(), "has a wrong checksum"),
    ] {
        let change = MakerChange {
            partner_id: harness.tenant.partner_id.clone(),
            provider_id: "north".into(),
            wallet: wallet.clone(),
            is_ended: false,
        };
        let refused = makers::request(&mut conn, &change, BY, contracts).await.unwrap_err();
        assert!(refused.to_string().starts_with(&format!("the wallet {wallet} {fault}")), "{refused}");
    }
}

fn placing(id: &str, rate: &str, amount: u128) -> Placing {
    Placing {
        client_order_id: id.into(),
        input: "USDC".into(),
        output: "USD".into(),
        rate: rate.parse().unwrap(),
        amount: Minor::new(amount),
    }
}

async fn place(harness: &Harness, maker: &Maker, placing: &Placing) -> Result<(i64, bool), MakerError> {
    let mut conn = harness.pool().acquire().await.unwrap();
    let placed = makers::place(&mut conn, maker, placing).await;
    harness.engine.context().liquidity.refresh().await;
    placed.map(|(row, is_new)| (row.id, is_new))
}

/// The remaining and the cancelled amount of an order.
async fn rests(harness: &Harness, maker: &Maker, id: i64) -> (String, Option<String>) {
    let mut conn = harness.pool().acquire().await.unwrap();
    let row = resting_orders::find(&mut conn, maker.placer(), id).await.unwrap().unwrap();
    (row.remaining, row.cancelled)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_placed_once_and_only_by_the_providers_maker() {
    let (harness, maker) = harness().await;
    let first = place(&harness, &maker, &placing("R-1", "0.999", 20_000)).await.unwrap();
    assert!(first.1);
    assert_eq!(place(&harness, &maker, &placing("R-1", "0.9990", 20_000)).await.unwrap(), (first.0, false));
    for other in [placing("R-1", "0.998", 20_000), placing("R-1", "0.999", 20_001)] {
        assert!(matches!(place(&harness, &maker, &other).await, Err(MakerError::AlreadyExists)));
    }
    for (wrong, code) in [
        (placing("", "1", 1), "id"),
        (placing("a\nb", "1", 1), "id"),
        (placing("R-2", "0", 1), "rate"),
        (placing("R-2", "0.1234567890123456789", 1), "rate"),
        (placing("R-2", "1", 0), "amount"),
        (Placing { output: "USDC".into(), ..placing("R-2", "1", 1) }, "pair"),
    ] {
        let refused = place(&harness, &maker, &wrong).await.unwrap_err();
        assert!(refused.to_string().contains(code), "{wrong:?}: {refused}");
    }
    let at_once = futures_util::future::join_all((0..8).map(|_| {
        let (harness, maker) = (&harness, &maker);
        async move { place(harness, maker, &placing("R-3", "0.999", 1_000)).await.unwrap() }
    }))
    .await;
    assert_eq!(at_once.iter().filter(|(_, is_new)| *is_new).count(), 1, "{at_once:?}");
    let other_maker = Maker { provider_id: "other".into(), ..maker.clone() };
    let mut conn = harness.pool().acquire().await.unwrap();
    let refused = makers::cancel(&mut conn, &other_maker, first.0).await;
    assert!(matches!(refused, Err(MakerError::Unknown)), "{refused:?}");
    drop(conn);
    let ended = become_maker(&harness, true).await;
    assert!(matches!(ended, Err(MakerError::NotMaker)), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taker_that_is_cancelled_or_fails_returns_what_it_took() {
    let (harness, maker) = harness().await;
    let (id, _) = place(&harness, &maker, &placing("R-1", "1", 20_000)).await.unwrap();
    // 99.95 dollars each: the protocol's fee is deducted from the hundred.
    let cancelled = harness.accept(order("000123450008")).await.reference;
    assert_eq!(rests(&harness, &maker, id).await.0, "10005");
    let failing = harness.accept(order("000123450003")).await.reference;
    assert_eq!(rests(&harness, &maker, id).await.0, "10");
    for _ in 0..2 {
        harness.engine.cancel(&harness.tenant, &cancelled, None).await.unwrap();
    }
    assert_eq!(rests(&harness, &maker, id).await.0, "10005", "once");
    harness.start_workers();
    harness.play_until(&failing, |kind| kind == "create").await;
    harness.wait_for_state(&failing, "conversion_failed").await;
    assert_eq!(rests(&harness, &maker, id).await.0, "20000");
    let unpaid = harness.accept(order("000123450002")).await.reference;
    harness.play_until(&unpaid, |kind| kind == "fill").await;
    harness.wait_for_state(&unpaid, "payout_failed").await;
    assert_eq!(rests(&harness, &maker, id).await.0, "20000");
    let paid = harness.accept(order("000123450000")).await.reference;
    harness.play_until(&paid, |kind| kind == "settle").await;
    harness.wait_for_state(&paid, "completed").await;
    assert_eq!(rests(&harness, &maker, id).await.0, "10005", "what is delivered stays taken");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_resting_order_fills_nothing_and_gets_nothing_back() {
    let (harness, maker) = harness().await;
    let (id, _) = place(&harness, &maker, &placing("R-1", "1", 20_000)).await.unwrap();
    let taker = harness.accept(order("000123450008")).await.reference;
    let mut conn = harness.pool().acquire().await.unwrap();
    for _ in 0..2 {
        let row = makers::cancel(&mut conn, &maker, id).await.unwrap();
        assert_eq!((row.remaining.as_str(), row.cancelled.as_deref()), ("0", Some("10005")));
    }
    drop(conn);
    // This process still offers it, but the row decides.
    is_refused(&harness, &harness.tenant).await;
    harness.engine.cancel(&harness.tenant, &taker, None).await.unwrap();
    assert_eq!(rests(&harness, &maker, id).await, ("0".into(), Some("10005".into())));
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_orders_of_a_disabled_or_paused_maker_are_not_filled_until_it_goes_on() {
    let disable = "update partner set disabled_at = now() where id = $1";
    let enable = "update partner set disabled_at = null where id = $1";
    let pause =
        "insert into pause (scope, target, operator, reason) values ('partner', $1, 'jo', 'a stolen key')";
    let resume = "delete from pause where target = $1";
    for (stop, go_on) in [(disable, enable), (pause, resume)] {
        let (harness, maker) = harness().await;
        place(&harness, &maker, &placing("R-1", "1", 20_000)).await.unwrap();
        let taker = harness.other_tenant().await;
        harness.run_of(stop, &maker.partner_id).await;
        // This process still offers it, but the row decides.
        is_refused(&harness, &taker).await;
        place(&harness, &maker, &placing("R-2", "1", 20_000)).await.unwrap();
        offers_nothing(&harness).await;
        harness.run_of(go_on, &maker.partner_id).await;
        harness.engine.context().liquidity.refresh().await;
        let filled = submit(&harness.engine, &taker, order("000123450000")).await.unwrap();
        assert!(matches!(filled, Outcome::Accepted(_)), "{filled:?}");
    }
}

/// An order finds nothing.
async fn is_refused(harness: &Harness, taker: &Tenant) {
    let refused = submit(&harness.engine, taker, order("000123450000")).await.unwrap();
    assert!(matches!(refused, Outcome::Rejected { .. }), "{refused:?}");
}

async fn offers_nothing(harness: &Harness) {
    let liquidity = &harness.engine.context().liquidity;
    liquidity.refresh().await;
    assert!(liquidity.snapshot().pair("USDC", "USD").unwrap().offers.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_makers_orders_end_with_it_and_what_takers_return_is_not_offered() {
    let (harness, maker) = harness().await;
    let (open, _) = place(&harness, &maker, &placing("R-1", "0.999", 20_000)).await.unwrap();
    let (filled, _) = place(&harness, &maker, &placing("R-2", "1", 9_995)).await.unwrap();
    let taker = harness.accept(order("000123450008")).await.reference;
    assert_eq!(rests(&harness, &maker, filled).await, ("0".into(), None));
    let other = harness.other_tenant().await;
    become_maker(&harness, true).await.unwrap_err();
    assert_eq!(rests(&harness, &maker, open).await, ("0".into(), Some("20000".into())));
    // This process still offers it, but the row decides.
    is_refused(&harness, &other).await;
    // The next maker of the provider offers its own orders only: what a taker returns was for the former one's wallet.
    set_maker_of(&harness, &other.partner_id, ("desk", OTHER_WALLET), false, false).await.unwrap();
    harness.engine.cancel(&harness.tenant, &taker, None).await.unwrap();
    assert_eq!(rests(&harness, &maker, filled).await, ("0".into(), Some("0".into())));
    is_refused(&harness, &other).await;
    offers_nothing(&harness).await;
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_makers_orders_are_cancelled_when_its_provider_changes_and_kept_when_it_does_not() {
    let (harness, maker) = harness().await;
    let (id, _) = place(&harness, &maker, &placing("R-1", "1", 20_000)).await.unwrap();
    // An order of the operators stays.
    rest(&harness, "desk", "0.5", 10).await;
    set_maker(&harness, ("desk", WALLET), false, true).await.unwrap();
    assert_eq!(rests(&harness, &maker, id).await, ("20000".into(), None));
    set_maker(&harness, ("other", WALLET), false, true).await.unwrap();
    assert_eq!(rests(&harness, &maker, id).await, ("0".into(), Some("20000".into())));
    let mut conn = harness.pool().acquire().await.unwrap();
    assert_eq!(resting_orders::list_open(&mut conn).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_makers_orders_for_a_wallet_that_it_gave_up_are_not_filled() {
    let (harness, maker) = harness().await;
    let (open, _) = place(&harness, &maker, &placing("R-1", "0.999", 20_000)).await.unwrap();
    let maker = set_maker(&harness, ("desk", OTHER_WALLET), false, true).await.unwrap();
    assert_eq!(rests(&harness, &maker, open).await, ("0".into(), Some("20000".into())));
    // One that was being placed for the earlier wallet meanwhile is not offered.
    let (late, _) = place(&harness, &maker, &placing("R-3", "1", 10)).await.unwrap();
    sqlx::query("update resting_order set wallet = $2 where id = $1")
        .bind(late)
        .bind(WALLET)
        .execute(harness.pool())
        .await
        .unwrap();
    let mut conn = harness.pool().acquire().await.unwrap();
    assert!(resting_orders::list_open(&mut conn).await.unwrap().is_empty());
    assert!(resting_orders::lock(&mut conn, &[late]).await.unwrap()[&late].is_zero());
}

/// A taker's cancellation returns its amount to an order that was placed for earlier terms than those of now.
async fn check_not_offered_again(harness: &Harness, maker: &Maker, taken: i64, taker: &str) {
    assert_eq!(rests(harness, maker, taken).await, ("0".into(), None), "it was filled");
    harness.engine.cancel(&harness.tenant, taker, None).await.unwrap();
    assert_eq!(rests(harness, maker, taken).await, ("0".into(), Some("0".into())));
    let mut conn = harness.pool().acquire().await.unwrap();
    assert!(resting_orders::list_open(&mut conn).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maker_that_is_set_again_offers_new_orders_only() {
    let (harness, maker) = harness().await;
    let (ended, _) = place(&harness, &maker, &placing("R-1", "1", 9_995)).await.unwrap();
    let first = harness.accept(order("000123450008")).await.reference;
    become_maker(&harness, true).await.unwrap_err();
    let maker = set_maker(&harness, ("desk", WALLET), false, false).await.unwrap();
    let (changed, _) = place(&harness, &maker, &placing("R-2", "1", 9_995)).await.unwrap();
    let second = harness.accept(order("000123450008")).await.reference;
    set_maker(&harness, ("desk", OTHER_WALLET), false, true).await.unwrap();
    let maker = set_maker(&harness, ("desk", WALLET), false, true).await.unwrap();
    check_not_offered_again(&harness, &maker, ended, &first).await;
    check_not_offered_again(&harness, &maker, changed, &second).await;
    // The same terms again are no change: what is returned is offered.
    let (kept, _) = place(&harness, &maker, &placing("R-3", "1", 9_995)).await.unwrap();
    let third = harness.accept(order("000123450008")).await.reference;
    let maker = set_maker(&harness, ("desk", WALLET), false, true).await.unwrap();
    harness.engine.cancel(&harness.tenant, &third, None).await.unwrap();
    assert_eq!(rests(&harness, &maker, kept).await, ("9995".into(), None));
    harness.check_books().await;
}

/// Ends the maker while a transaction is open, which is committed half a second later.
async fn end_beside(harness: &Harness, tx: sqlx::Transaction<'static, sqlx::Postgres>) {
    let commit = async {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        tx.commit().await.unwrap();
    };
    let (ended, ()) = tokio::join!(become_maker(harness, true), commit);
    assert!(matches!(ended, Err(MakerError::NotMaker)), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_placed_or_returned_while_a_maker_ends_is_cancelled() {
    let (harness, maker) = harness().await;
    let (taken, _) = place(&harness, &maker, &placing("R-1", "1", 9_995)).await.unwrap();
    harness.accept(order("000123450008")).await;
    let mut tx = harness.pool().begin().await.unwrap();
    resting_orders::lock(&mut tx, &[taken]).await.unwrap();
    resting_orders::restore(&mut tx, &[(taken, Minor::new(9_995))].into()).await.unwrap();
    end_beside(&harness, tx).await;
    assert_eq!(rests(&harness, &maker, taken).await, ("0".into(), Some("9995".into())));

    let maker = set_maker(&harness, ("desk", WALLET), false, false).await.unwrap();
    let mut tx = harness.pool().begin().await.unwrap();
    let (placed, _) = makers::place(&mut tx, &maker, &placing("R-2", "1", 10)).await.unwrap();
    end_beside(&harness, tx).await;
    assert_eq!(rests(&harness, &maker, placed.id).await, ("0".into(), Some("10".into())));

    // A request that found the maker before its end.
    let refused = place(&harness, &maker, &placing("R-3", "1", 10)).await;
    assert!(matches!(refused, Err(MakerError::NotMaker)), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_return_does_not_wait_for_the_end_of_its_maker_and_is_not_offered() {
    let (harness, maker) = harness().await;
    let (taken, _) = place(&harness, &maker, &placing("R-1", "1", 9_995)).await.unwrap();
    let taker = harness.accept(order("000123450008")).await.reference;
    let mut tx = harness.pool().begin().await.unwrap();
    sqlx::query("select from maker where partner_id = $1 for update")
        .bind(&maker.partner_id)
        .execute(&mut *tx)
        .await
        .unwrap();
    let cancelled = harness.engine.cancel(&harness.tenant, &taker, None);
    tokio::time::timeout(std::time::Duration::from_secs(60), cancelled).await.unwrap().unwrap();
    tx.commit().await.unwrap();
    assert_eq!(rests(&harness, &maker, taken).await, ("0".into(), Some("0".into())));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_takers_and_cancellations_neither_lose_nor_add_a_unit() {
    let (harness, maker) = harness().await;
    let (id, _) = place(&harness, &maker, &placing("R-1", "1", 120_000)).await.unwrap();
    let engines = scenes::engines(&harness, 2);
    for engine in &engines {
        engine.context().liquidity.refresh().await;
    }
    let orders = (0..24).map(|_| harness.submit(order("000123450008")));
    let outcomes = futures_util::future::join_all(orders).await;
    let accepted: Vec<&str> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Accepted(accepted) => Some(accepted.reference.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(accepted.len(), 12);
    let (ended, kept) = accepted.split_at(7);
    let cancels = ended.iter().enumerate().map(|(n, reference)| {
        let engine = if n % 2 == 0 { &harness.engine } else { &engines[0] };
        engine.cancel(&harness.tenant, reference, None)
    });
    let more = (0..4).map(|_| harness.submit(order("000123450008")));
    let (_, taken) =
        tokio::join!(futures_util::future::join_all(cancels), futures_util::future::join_all(more));
    let taken = taken.iter().filter(|outcome| matches!(outcome, Outcome::Accepted(_))).count();
    let left = 120_000 - 9_995 * (kept.len() + taken);
    assert_eq!(rests(&harness, &maker, id).await.0, left.to_string());
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_providers_next_maker_sees_its_own_orders_only() {
    let (harness, maker) = harness().await;
    let (filled, _) = place(&harness, &maker, &placing("R-1", "1", 9_995)).await.unwrap();
    let (open, _) = place(&harness, &maker, &placing("R-2", "0.5", 10)).await.unwrap();
    let taker = harness.accept(order("000123450008")).await.reference;
    become_maker(&harness, true).await.unwrap_err();
    let other = harness.other_tenant().await;
    let next = set_maker_of(&harness, &other.partner_id, ("desk", WALLET), false, false).await.unwrap();
    let mut conn = harness.pool().acquire().await.unwrap();
    assert_eq!(resting_orders::list_of(&mut conn, next.placer(), false, None, 10).await.unwrap(), []);
    for id in [filled, open] {
        let refused = makers::cancel(&mut conn, &next, id).await;
        assert!(matches!(refused, Err(MakerError::Unknown)), "{refused:?}");
    }
    assert_eq!(rests(&harness, &maker, filled).await, ("0".into(), None), "it is filled");
    // An id is its maker's own.
    for placing in [placing("R-1", "1", 9_995), placing("R-2", "0.7", 20)] {
        let (row, is_new) = makers::place(&mut conn, &next, &placing).await.unwrap();
        assert!(is_new && ![filled, open].contains(&row.id), "{row:?}");
    }
    assert_eq!(resting_orders::list_of(&mut conn, next.placer(), true, None, 10).await.unwrap().len(), 2);
    drop(conn);
    // Nor is what a taker returns offered for it.
    harness.engine.cancel(&harness.tenant, &taker, None).await.unwrap();
    assert_eq!(rests(&harness, &maker, filled).await, ("0".into(), Some("0".into())));
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_that_nobody_can_take_hide_no_other_providers() {
    let (harness, maker) = harness().await;
    for n in 0..LEVELS_MAX {
        let mut conn = harness.pool().acquire().await.unwrap();
        makers::place(&mut conn, &maker, &placing(&format!("M-{n}"), "1000", 1)).await.unwrap();
    }
    for (provider, count) in [("south", 3), ("west", LEVELS_MAX)] {
        for n in 0..count {
            rest(&harness, provider, &format!("0.{}", 1000 + n), 10).await;
        }
    }
    let mut conn = harness.pool().acquire().await.unwrap();
    let open = resting_orders::list_open(&mut conn).await.unwrap();
    let of = |provider: &str| open.iter().filter(|one| one.provider_id == provider).count();
    assert_eq!((open.len(), of("south")), (usize::try_from(LEVELS_MAX).unwrap(), 3));
    assert!(
        (98..=99).contains(&of("desk")) && (98..=99).contains(&of("west")),
        "{} {}",
        of("desk"),
        of("west")
    );
    assert!(open.is_sorted_by(|one, next| (next.rate, one.id) <= (one.rate, next.id)), "the best first");
    // Each provider's best are among them.
    assert!(open.iter().any(|one| one.provider_id == "west" && one.rate.to_string() == "0.1199"), "{open:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_best_orders_of_each_pair_are_offered() {
    let (harness, maker) = harness().await;
    for n in 0..LEVELS_MAX + 50 {
        rest(&harness, "crowd", &format!("0.{}", 1000 + n), 10).await;
    }
    // The newest is the best one, and no pair hides another.
    let (id, _) = place(&harness, &maker, &placing("R-1", "0.999", 20_000)).await.unwrap();
    let mut conn = harness.pool().acquire().await.unwrap();
    let other = Placing { input: "USD".into(), output: "EUR".into(), ..placing("R-2", "0.9", 10) };
    makers::place(&mut conn, &maker, &other).await.unwrap();
    let open = resting_orders::list_open(&mut conn).await.unwrap();
    let of = |input: &str| open.iter().filter(|one| one.input_asset == input).count();
    assert_eq!((of("USDC"), of("USD")), (usize::try_from(LEVELS_MAX).unwrap(), 1));
    assert!(open.iter().any(|one| one.id == id));
    drop(conn);
    harness.engine.context().liquidity.refresh().await;
    assert_eq!(harness.accept(order("000123450000")).await.plan.solver_id, "desk");
    // The maker's orders of one pair are limited to the offered number.
    for n in 0..LEVELS_MAX - 1 {
        let mut conn = harness.pool().acquire().await.unwrap();
        makers::place(&mut conn, &maker, &placing(&format!("M-{n}"), "0.5", 1)).await.unwrap();
    }
    let refused = place(&harness, &maker, &placing("M-last", "0.5", 1)).await;
    assert!(matches!(refused, Err(MakerError::TooMany)), "{refused:?}");
}
