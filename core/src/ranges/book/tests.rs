use dvp_domain::asset::{Asset, AssetKind, Pair as ListedPair};
use dvp_domain::fees::FeeSchedule;
use dvp_domain::liquidity::{Holdings, LiquidityProvider, Reference, Snapshot, Unlimited};

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn registry() -> Registry {
    let asset = |symbol: &str, exponent| Asset {
        symbol: symbol.into(),
        exponent,
        kind: AssetKind::Fiat { currency: symbol.into() },
    };
    let fees =
        FeeSchedule { protocol_fee_bps: 5, payout_fee_minor: Minor::new(50), network_fee_minor: Minor::ZERO };
    let pair = ListedPair {
        base: "USD".into(),
        quote: "EUR".into(),
        reference_price: None,
        fees,
        min_input: Minor::ZERO,
        max_input: None,
    };
    Registry { assets: vec![asset("USD", 2), asset("EUR", 2)], pairs: vec![pair] }
}

/// One provider around a price; from 1 000 EUR on, 1 % worse.
fn snapshot(registry: &Registry, price: &str) -> Snapshot {
    let mut provider = LiquidityProvider::new("north", "0x1", 0);
    provider.tiers = vec![(Minor::new(100_000), 100)];
    let reference =
        Reference { price: price.parse().unwrap(), valid_until: Timestamp::from_millis(i64::MAX) };
    let (input, output) = (registry.find("USD").unwrap(), registry.find("EUR").unwrap());
    let mut snapshot = Snapshot::default();
    snapshot.pair_mut("USD", "EUR").offers = provider.offer(&reference, input, output).into_iter().collect();
    snapshot
}

/// 100 USD for a falling amount of EUR.
fn resting(number: i64, target: u128, limit: u128, lifetime: i64) -> RestingRange {
    sized(number, 10_000, target, limit, lifetime)
}

fn sized(number: i64, cap: u128, target: u128, limit: u128, lifetime: i64) -> RestingRange {
    let range = Range {
        max_input: Minor::new(cap),
        target_output: Minor::new(target),
        min_output: Minor::new(limit),
        received_at: NOW,
        deadline: NOW.plus_millis(lifetime),
    };
    RestingRange {
        number,
        rested: NewRestingRange {
            reference: format!("exec_{number}"),
            input_asset: "USD".into(),
            output_asset: "EUR".into(),
            actor: ActorType::Institution,
            range,
        },
    }
}

struct Scene {
    registry: Registry,
    book: Book,
}

impl Scene {
    fn new(orders: impl IntoIterator<Item = RestingRange>) -> Self {
        let mut scene = Self { registry: registry(), book: Book::default() };
        for order in orders {
            scene.book.add(&scene.registry, order);
        }
        scene
    }

    fn met(&mut self, price: &str, after: i64) -> Vec<i64> {
        self.met_of(price, &Unlimited, after)
    }

    fn met_of(&mut self, price: &str, holdings: &dyn Holdings, after: i64) -> Vec<i64> {
        let snapshot = snapshot(&self.registry, price);
        let now = NOW.plus_millis(after);
        let market = Market { registry: &self.registry, snapshot: &snapshot, holdings, now };
        self.book.met(&market).into_iter().map(|met| met.number).collect()
    }
}

/// The free balance of every provider.
struct Free(u128);

impl Holdings for Free {
    fn available(&self, _provider_id: &str, _asset: &str) -> Minor {
        Minor::new(self.0)
    }
}

/// At 0.9, 100 USD give 89.455 EUR after the protocol fee, less 0.50.
#[test]
fn orders_are_met_by_time_and_by_price_the_most_modest_first_and_of_equals_the_oldest() {
    let mut scene = Scene::new([
        resting(5, 9_000, 8_000, 10_000),
        resting(3, 9_000, 8_000, 10_000),
        resting(4, 9_050, 8_000, 10_000),
    ]);
    assert_eq!(scene.met("0.9", 0), Vec::<i64>::new());
    let due = scene.book.next_due().unwrap().millis() - NOW.millis();
    assert!((500..=560).contains(&due), "{due}");
    assert_eq!(scene.met("0.9", 540), Vec::<i64>::new());
    let next = scene.book.next_due().unwrap().millis() - NOW.millis();
    assert_eq!(scene.met("0.9", next.max(560)), [3, 5]);
    assert_eq!(scene.met("0.92", 600), [4], "the price rose");
    assert_eq!(scene.met("0.92", 700), Vec::<i64>::new(), "they are with the writer");
}

#[test]
fn unchanged_prices_and_falling_ones_test_no_order() {
    let mut scene = Scene::new(
        (0..2_000).map(|number| resting(number, 9_100 + u128::try_from(number).unwrap(), 8_000, 600_000)),
    );
    scene.met("0.9", 0);
    let tested = scene.book.figures().tested;
    for (price, after) in [("0.9", 100), ("0.89", 200), ("0.85", 300), ("0.9", 400)] {
        assert!(scene.met(price, after).is_empty());
    }
    assert_eq!(scene.book.figures().tested, tested);
    let met = scene.met("0.93", 500).len();
    let tested = usize::try_from(scene.book.figures().tested - tested).unwrap();
    assert!(met > 50 && tested <= met + 5, "{tested} tested, {met} met");
}

#[test]
fn an_order_that_could_not_be_filled_is_tried_again_later_and_later() {
    let mut scene = Scene::new([resting(1, 8_900, 8_000, 600_000)]);
    assert_eq!(scene.met("0.9", 0), [1]);
    scene.book.postpone(1, NOW);
    assert!(scene.met("0.95", 999).is_empty(), "whatever the price");
    assert_eq!(scene.met("0.9", 1_000), [1]);
    scene.book.postpone(1, NOW.plus_millis(1_000));
    assert!(scene.met("0.9", 2_999).is_empty());
    assert_eq!(scene.met("0.9", 3_000), [1]);
    scene.book.remove("exec_1");
    scene.book.postpone(1, NOW);
    assert_eq!((scene.book.figures().resting, scene.book.next_due()), (0, None));
}

#[test]
fn a_large_order_waits_for_its_own_price_and_a_removed_one_for_nothing() {
    // 5 000 USD: the first 1 000 EUR at the price, the rest 1 % worse.
    let large = sized(1, 500_000, 448_000, 440_000, 100_000);
    let mut scene = Scene::new([large, resting(2, 9_000, 8_000, 100_000)]);
    assert!(scene.met("0.9", 0).is_empty());
    scene.book.remove("exec_2");
    let due = scene.book.next_due().unwrap();
    let after = due.millis() - NOW.millis();
    assert!(after > 10_000, "{after}");
    let met: Vec<i64> = (0..200).flat_map(|step| scene.met("0.9", after + step * 100)).collect();
    assert_eq!(met, [1]);
}

#[test]
fn an_order_past_its_deadline_is_not_met() {
    let mut scene = Scene::new([resting(1, 9_000, 8_000, 1_000)]);
    assert!(scene.met("0.8", 0).is_empty());
    assert!(scene.met("0.95", 1_000).is_empty());
}

#[test]
fn an_order_is_met_when_enough_is_free_again_at_an_unchanged_price() {
    let mut scene = Scene::new([resting(1, 9_000, 8_800, 10_000)]);
    assert!(scene.met("0.9", 0).is_empty());
    assert!(scene.met_of("0.9", &Free(8_000), 5_000).is_empty(), "nobody can deliver the limit");
    let due = scene.book.next_due().unwrap();
    assert!((5_001..=6_000).contains(&(due.millis() - NOW.millis())), "{due:?}");
    assert_eq!(scene.met("0.9", 6_000), [1]);
}

#[test]
fn an_order_that_was_not_filled_is_tried_again_though_it_was_not_met_in_between() {
    let mut scene = Scene::new([resting(1, 8_900, 8_800, 600_000)]);
    assert_eq!(scene.met("0.9", 0), [1]);
    scene.book.postpone(1, NOW);
    assert!(scene.met_of("0.9", &Free(8_000), 1_000).is_empty());
    assert_eq!(scene.met("0.9", 2_000), [1]);
}

#[test]
fn orders_that_stay_unmet_are_tested_less_and_less_often_and_not_all_at_once() {
    const ORDERS: i64 = 1_000;
    const SLOTS: i64 = 6_000;
    let mut scene = Scene::new((0..ORDERS).map(|number| resting(number, 8_900, 8_800, 6_000_000)));
    let mut most_at_once = 0;
    for slot in 0..SLOTS {
        let before = scene.book.figures().tested;
        assert!(scene.met_of("0.9", &Free(8_000), slot * SLOT_MS).is_empty());
        if slot * SLOT_MS > 2 * RETRY_MS_MAX {
            most_at_once = most_at_once.max(scene.book.figures().tested - before);
        }
    }
    let tested = i64::try_from(scene.book.figures().tested).unwrap() / ORDERS;
    // Ten minutes.
    assert!((20..=35).contains(&tested), "{tested}");
    assert!(most_at_once < 200, "{most_at_once}");
    assert_eq!(scene.met("0.9", SLOTS * SLOT_MS + RETRY_MS_MAX).len(), 1_000);
}

#[test]
fn a_rise_that_is_seen_with_an_added_order_brings_back_those_aside() {
    let mut scene = Scene::new([resting(1, 9_000, 8_800, 10_000)]);
    assert!(scene.met_of("0.9", &Free(8_000), 5_000).is_empty());
    scene.book.add(&scene.registry, resting(2, 9_000, 8_800, 10_000));
    assert_eq!(scene.met("0.95", 5_001), [1, 2]);
}
