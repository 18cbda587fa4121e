use super::*;
use crate::asset::AssetKind;
use crate::decision::tests::pair;
use crate::fees::FeeSchedule;
use crate::intent::ActorType;
use crate::liquidity::route::{Want, tests as route_tests};
use crate::liquidity::{Ask, Deliverer, Market, Rung, Unlimited, Venue};
use crate::money::Minor;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn token(symbol: &str, exponent: u8) -> Asset {
    let kind = AssetKind::Erc20 { chain: "anvil".into(), address: format!("0x{symbol}") };
    Asset { symbol: symbol.into(), exponent, kind }
}

fn registry() -> Registry {
    let pairs = vec![pair("A", "B", FeeSchedule::default())];
    Registry { assets: vec![token("A", 6), token("B", 6)], pairs }
}

fn price(text: &str, good_for_ms: i64) -> Reference {
    Reference { price: text.parse().unwrap(), valid_until: NOW.plus_millis(good_for_ms) }
}

fn desk() -> Deliverer {
    Deliverer { provider_id: "north".into(), wallet: "0x1".into() }
}

fn offer(source: &str, curve: Curve) -> Offer {
    Offer { valid_until: NOW.plus_millis(60_000), ..route_tests::offer(source, Venue::OrderBook, curve) }
}

fn ladder(source: &str, rates: &[&str]) -> Offer {
    let assets = (&token("A", 6), &token("B", 6));
    let rung = |rate: &&str| Rung::new(desk(), rate.parse().unwrap(), Minor::new(1000), assets).unwrap();
    offer(source, Curve::Ladder(rates.iter().map(rung).collect()))
}

fn pool(source: &str, reserves: (u128, u128)) -> Offer {
    let pool = Pool::product(Minor::new(reserves.0), Minor::new(reserves.1), 0).unwrap();
    let guard = Guard { deviation_bps: POOL_DEVIATION_BPS, average: Some(pool.spot()) };
    offer(source, Curve::Pool { deliverer: desk(), pool, guard })
}

fn band(deviation_bps: u32, middle: Option<&str>) -> Bands {
    let middle = middle.map(|middle| middle.parse().unwrap());
    Bands::from_iter([(("A".to_owned(), "B".to_owned()), Band { deviation_bps, middle })])
}

struct Case {
    reference: Option<Reference>,
    others: Vec<Reference>,
    offers: Vec<Offer>,
}

/// The remaining offers, and the refused prices, each as `source fault`.
fn applied(bands: &Bands, case: Case) -> (Snapshot, Vec<String>) {
    let mut snapshot = Snapshot::default();
    let market = snapshot.pair_mut("A", "B");
    *market = PairMarket {
        reference: case.reference,
        other_references: case.others,
        offers: case.offers,
        ..PairMarket::default()
    };
    let refused = bands.apply(&mut snapshot, &registry(), NOW);
    let text = |one: RefusedPrice| {
        format!("{} {}", one.source.unwrap_or_else(|| "reference".into()), one.fault.as_str())
    };
    (snapshot, refused.into_iter().map(text).collect())
}

fn sources(snapshot: &Snapshot) -> Vec<&str> {
    snapshot.pair("A", "B").unwrap().offers.iter().map(|offer| offer.source.as_str()).collect()
}

#[test]
fn prices_outside_of_the_band_are_removed_and_reported() {
    let offers = || {
        vec![
            ladder("fair", &["1.01", "1", "0.99"]),
            ladder("rich", &["1.0101", "1.00"]),
            ladder("poor", &["0.9899"]),
            pool("even", (1_000_000, 1_000_000)),
            pool("moved", (1_000_000, 1_010_101)),
            pool("drained", (1_000_000, 989_999)),
        ]
    };
    let case = Case { reference: Some(price("1", 1)), others: vec![], offers: offers() };
    let (snapshot, refused) = applied(&band(100, None), case);
    assert_eq!(sources(&snapshot), ["fair", "rich", "even"]);
    assert_eq!(refused, ["rich above", "poor below", "moved above", "drained below"]);
    let rates: Vec<usize> = snapshot.pair("A", "B").unwrap().offers.iter().map(|o| o.rungs().len()).collect();
    assert_eq!(rates, [3, 1, 0], "the rung that gives too much is gone");
    // The operators' price is the middle whatever the reference says, as long as that is within the band.
    let case = Case { reference: Some(price("1", 1)), others: vec![], offers: offers() };
    let (snapshot, refused) = applied(&band(100, Some("1.005")), case);
    assert_eq!(sources(&snapshot), ["fair", "rich", "even", "moved"]);
    assert_eq!(refused, ["poor below", "drained below"]);
    let case = Case { reference: None, others: vec![], offers: vec![ladder("book", &["1"])] };
    let (snapshot, refused) = applied(&band(100, Some("1")), case);
    assert_eq!((sources(&snapshot), refused), (vec!["book"], vec![]));
}

#[test]
fn a_pair_without_a_fresh_agreed_middle_is_not_traded() {
    let stale = || price("1", 0);
    for (reference, others, middle, fault) in [
        (None, vec![], None, Some("reference no_reference")),
        (Some(stale()), vec![], None, Some("reference no_reference")),
        (Some(price("1", 1)), vec![price("1.02", 1)], None, Some("reference reference_outside")),
        (Some(price("1.02", 1)), vec![], Some("1"), Some("reference reference_outside")),
        (Some(price("1", 1)), vec![price("1.01", 1), price("2", 0)], None, None),
        (Some(stale()), vec![], Some("1"), None),
    ] {
        let case = Case { reference, others: others.clone(), offers: vec![ladder("book", &["1"])] };
        let (snapshot, refused) = applied(&band(100, middle), case);
        assert_eq!(refused, Vec::from_iter(fault), "{reference:?} {others:?}");
        assert_eq!(sources(&snapshot).is_empty(), fault.is_some());
        if fault.is_some() {
            assert_eq!(snapshot.pair("A", "B").unwrap().reference, None);
        }
    }
}

#[test]
fn an_offer_expires_with_the_reference_it_was_compared_with() {
    let case = |reference| Case { reference, others: vec![], offers: vec![ladder("book", &["1"])] };
    let until = |snapshot: &Snapshot| snapshot.pair("A", "B").unwrap().offers[0].valid_until;
    let (snapshot, _) = applied(&band(100, None), case(Some(price("1", 7))));
    assert_eq!(until(&snapshot), NOW.plus_millis(7));
    let (snapshot, _) = applied(&band(100, Some("1")), case(Some(price("1", 7))));
    assert_eq!(until(&snapshot), NOW.plus_millis(60_000));
    let (snapshot, refused) = applied(&Bands::default(), case(None));
    assert_eq!((until(&snapshot), refused), (NOW.plus_millis(60_000), vec![]));
}

#[test]
fn a_pool_of_a_pair_without_a_band_is_used_near_the_reference_price_only() {
    let case = |reference, reserves| Case {
        reference,
        others: vec![],
        offers: vec![pool("pool", reserves), ladder("book", &["2", "0.5"])],
    };
    let at = |reference, reserves| {
        let (snapshot, refused) = applied(&Bands::default(), case(reference, reserves));
        let sources: Vec<String> = sources(&snapshot).iter().map(|source| (*source).to_owned()).collect();
        (sources, refused)
    };
    let with = |sources: &[&str], refused: &[&str]| {
        let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        (owned(sources), owned(refused))
    };
    let near = (1_000_000, 1_000_000);
    // The resting orders of a pair without a band may have any price.
    assert_eq!(at(Some(price("1", 1)), near), with(&["pool", "book"], &[]));
    assert_eq!(at(Some(price("1", 1)), (1_000_000, 1_060_000)), with(&["book"], &["pool above"]));
    assert_eq!(at(Some(price("1", 1)), (1_000_000, 940_000)), with(&["book"], &["pool below"]));
    assert_eq!(at(Some(price("1", 0)), near), with(&["book"], &["pool no_reference"]));
    assert_eq!(at(None, near), with(&["book"], &["pool no_reference"]));
    // Of the pair's band and the pool's own the narrower counts.
    for (pair_bps, reserve, refusal) in [
        (1_000, 960_000, None),
        (1_000, 940_000, Some("pool below")),
        (1_000, 1_060_000, Some("pool above")),
        (100, 960_000, Some("pool below")),
    ] {
        let (snapshot, refused) =
            applied(&band(pair_bps, None), case(Some(price("1", 1)), (1_000_000, reserve)));
        let expected: Vec<&str> = refusal.into_iter().chain(["book above"]).collect();
        assert_eq!(refused, expected);
        assert_eq!(sources(&snapshot).contains(&"pool"), refusal.is_none());
    }
    // The pool ends with the reference that it was compared with.
    let (snapshot, _) = applied(&band(1_000, None), case(Some(price("1", 1)), near));
    assert_eq!(snapshot.pair("A", "B").unwrap().offers[0].valid_until, NOW.plus_millis(1));
}

#[test]
fn a_pool_is_used_near_its_average_price_only() {
    let at = |bands: &Bands, average: Option<(u128, u128)>| {
        let average = average.map(|(num, den)| Ratio { num: U512::from(num), den: U512::from(den) });
        let mut offer = pool("pool", (1_000_000, 1_000_000));
        if let Curve::Pool { guard, .. } = &mut offer.curve {
            *guard = Guard { deviation_bps: 200, average };
        }
        let case = Case { reference: Some(price("1", 1)), others: vec![], offers: vec![offer] };
        let (snapshot, refused) = applied(bands, case);
        let depth = snapshot.pair("A", "B").unwrap().offers.first().map(|offer| match &offer.curve {
            Curve::Pool { pool, .. } => pool.depth().get(),
            Curve::Ladder(_) => 0,
        });
        (depth.unwrap_or_default(), refused.into_iter().next())
    };
    for bands in [Bands::default(), band(1_000, None)] {
        let refusal = |average| at(&bands, average).1;
        assert_eq!(refusal(Some((1, 1))), None);
        assert_eq!(refusal(None).as_deref(), Some("pool no_average"));
        assert_eq!(refusal(Some((97, 100))).as_deref(), Some("pool above_average"));
        assert_eq!(refusal(Some((103, 100))).as_deref(), Some("pool below_average"));
        // The nearer the average's lower bound, the less of the pool is used.
        let depths =
            [(1_000, 1_000), (1_010, 1_000), (1_015, 1_000)].map(|average| at(&bands, Some(average)).0);
        assert!(depths.is_sorted_by(|a, b| a > b) && depths[2] > 0, "{depths:?}");
    }
}

#[test]
fn no_order_of_any_size_is_filled_beyond_the_band() {
    let registry = registry();
    let case = Case {
        reference: Some(price("1", 60_000)),
        others: vec![],
        offers: vec![
            pool("pool", (10_000_000_000, 10_000_000_000)),
            ladder("book", &["1.5", "0.999", "0.98", "0.5"]),
        ],
    };
    let (snapshot, refused) = applied(&band(100, None), case);
    assert_eq!(refused, ["book above"]);
    let market = Market { registry: &registry, snapshot: &snapshot, holdings: &Unlimited, now: NOW };
    let (input, output) = (&registry.assets[0], &registry.assets[1]);
    let ask = Ask { input, output, actor: ActorType::Institution, firm: false };
    let mut filled = 0;
    for exponent in 1..13 {
        let Some((_, fill)) = market.best(&ask, Want::Output(Minor::new(10_u128.pow(exponent)))) else {
            continue;
        };
        filled += 1;
        for slice in &fill.slices {
            // Each slice's own average is above the lowest price, up to the smallest unit.
            let (paid, given) = (slice.input.get(), slice.output.get());
            assert!(given * 10_000 + 10_000 >= paid * 9_900, "{paid} {given}");
            assert!(given <= paid, "{paid} {given}");
        }
    }
    assert_eq!(filled, 7, "the pool holds about 50 million units within the band");
}

#[test]
fn a_band_wider_than_the_price_leaves_nothing() {
    for deviation_bps in [10_000, 20_000] {
        let case =
            Case { reference: Some(price("1", 1)), others: vec![], offers: vec![ladder("book", &["1"])] };
        let (snapshot, refused) = applied(&band(deviation_bps, None), case);
        assert_eq!((sources(&snapshot).len(), refused), (0, vec!["reference no_reference".to_owned()]));
    }
}
