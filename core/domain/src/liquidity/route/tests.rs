use proptest::prelude::*;
use serde_json::Map;

use super::*;
use crate::asset::{Asset, AssetKind, Registry};
use crate::decision::tests::{Each, pair};
use crate::fees::FeeSchedule;
use crate::intent::ActorType;
use crate::liquidity::band::POOL_DEVIATION_BPS;
use crate::liquidity::{
    AnswerId, Guard, LiquidityProvider, Offer, Policy, Reference, Snapshot, Unlimited, Venue,
};
use crate::quote::explain::{Unit, explain};
use crate::time::Timestamp;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const FOREVER: Timestamp = Timestamp::from_millis(i64::MAX);

fn asset(symbol: &str, exponent: u8) -> Asset {
    Asset { symbol: symbol.into(), exponent, kind: AssetKind::Fiat { currency: symbol.into() } }
}

/// A registry of one pair.
fn registry(input: u8, output: u8, fees: FeeSchedule) -> Registry {
    Registry { assets: vec![asset("IN", input), asset("OUT", output)], pairs: vec![pair("IN", "OUT", fees)] }
}

fn deliverer(id: &str) -> Deliverer {
    Deliverer { provider_id: id.into(), wallet: format!("0x{id}") }
}

pub(crate) fn offer(source: &str, venue: Venue, curve: Curve) -> Offer {
    Offer {
        source: source.into(),
        venue,
        curve,
        policy: Policy::default(),
        full_depth_bps: 0,
        valid_until: FOREVER,
        ttl_sec: 15,
        firm_ttl_sec: Some(30),
        latency_ms: None,
        answer: None,
        metadata: Map::new(),
    }
}

/// An offer of rungs: rate and capacity each.
fn ladder(registry: &Registry, id: &str, rungs: &[(Decimal, u128)]) -> Offer {
    let (input, output) = (&registry.assets[0], &registry.assets[1]);
    let rung = |(rate, capacity): &(Decimal, u128)| {
        Rung::new(deliverer(id), *rate, Minor::new(*capacity), (input, output)).unwrap()
    };
    let mut rungs: Vec<Rung> = rungs.iter().map(rung).collect();
    rungs.sort_by_key(|rung| std::cmp::Reverse(rung.ratio));
    offer(id, Venue::Provider(id.into()), Curve::Ladder(rungs))
}

fn pool(id: &str, reserve_in: u128, reserve_out: u128) -> Offer {
    let pool = Pool::product(Minor::new(reserve_in), Minor::new(reserve_out), 30).unwrap();
    let guard = Guard { deviation_bps: POOL_DEVIATION_BPS, average: Some(pool.spot()) };
    offer(id, Venue::Pool, Curve::Pool { deliverer: deliverer(id), pool, guard })
}

#[derive(Debug)]
struct World {
    registry: Registry,
    snapshot: Snapshot,
}

impl World {
    fn new(registry: Registry, offers: Vec<Offer>) -> Self {
        let mut snapshot = Snapshot::default();
        snapshot.pair_mut("IN", "OUT").offers = offers;
        Self { registry, snapshot }
    }

    fn market<'a>(&'a self, holdings: &'a dyn Holdings) -> Market<'a> {
        Market { registry: &self.registry, snapshot: &self.snapshot, holdings, now: NOW }
    }

    fn ask(&self) -> Ask<'_> {
        let (input, output) = (&self.registry.assets[0], &self.registry.assets[1]);
        Ask { input, output, actor: ActorType::Institution, firm: false }
    }

    fn best(&self, want: Want) -> Option<Fill> {
        self.market(&Unlimited).best(&self.ask(), want).map(|(_, fill)| fill)
    }
}

/// Orders have taken this much from every answer.
struct Given(u128);

impl Holdings for Given {
    fn available(&self, _provider_id: &str, _asset: &str) -> Minor {
        Minor::new(u128::MAX)
    }

    fn taken_of(&self, _answer: AnswerId) -> Minor {
        Minor::new(self.0)
    }
}

fn rate(text: &str) -> Decimal {
    text.parse().unwrap()
}

fn given(fill: &Fill) -> Vec<(&str, u128)> {
    fill.slices.iter().map(|slice| (slice.provider_id.as_str(), slice.output.get())).collect()
}

#[test]
fn orders_pay_together_what_one_order_of_their_sum_pays() {
    let answered = |offer: Offer| Offer { answer: Some(AnswerId(1)), ..offer };
    let registry = registry(2, 2, FeeSchedule::default());
    let rungs = [(rate("1"), 6_000), (rate("0.9"), 9_000)];
    let offers = [answered(ladder(&registry, "north", &rungs)), answered(pool("pool", 50_000, 60_000))];
    for offer in offers {
        let world = World::new(registry.clone(), vec![offer]);
        let cost = |given: u128, output: u128| {
            let holdings = Given(given);
            let best = world.market(&holdings).best(&world.ask(), Want::Output(Minor::new(output)));
            best.map(|(_, fill)| fill.priced.input.get())
        };
        let whole = cost(0, 10_000).unwrap();
        let parts = cost(0, 4_000).unwrap() + cost(4_000, 4_000).unwrap() + cost(8_000, 2_000).unwrap();
        assert!((whole..=whole + 2).contains(&parts), "{whole} {parts}");
        assert!(cost(4_000, 4_000) > cost(0, 4_000));
    }
    let world = World::new(registry.clone(), vec![answered(ladder(&registry, "north", &rungs))]);
    let holdings = Given(14_000);
    let market = world.market(&holdings);
    assert!(market.best(&world.ask(), Want::Output(Minor::new(1_000))).is_some());
    assert!(market.best(&world.ask(), Want::Output(Minor::new(1_001))).is_none());
}

#[test]
fn the_best_price_is_used_first_and_the_next_fills_the_rest() {
    let registry = registry(2, 2, FeeSchedule::default());
    let offers = vec![
        ladder(&registry, "near", &[(rate("0.9"), 1_000_000)]),
        ladder(&registry, "best", &[(rate("1"), 6_000)]),
    ];
    let world = World::new(registry, offers);
    let whole = world.best(Want::Input(Minor::new(5_000))).unwrap();
    assert_eq!(given(&whole), [("best", 5_000)]);
    let split = world.best(Want::Input(Minor::new(10_000))).unwrap();
    assert_eq!(given(&split), [("best", 6_000), ("near", 3_600)]);
    assert_eq!(split.priced.gross_output, Minor::new(9_600));
    assert_eq!(split.priced.rate, rate("0.96"));
    assert_eq!(split.primary().unwrap().provider_id, "best");
}

#[test]
fn the_parts_of_a_fill_have_their_residuals_whichever_amount_is_fixed() {
    let payout_fee_minor = Minor::new(50);
    let registry = registry(6, 2, FeeSchedule { payout_fee_minor, ..FeeSchedule::default() });
    let offers = vec![
        ladder(&registry, "near", &[(rate("0.998"), 1_000_000)]),
        ladder(&registry, "best", &[(rate("0.999"), 10_050)]),
    ];
    let world = World::new(registry, offers);
    let residuals = |fill: &Fill| -> Vec<u64> {
        fill.slices.iter().map(|slice| slice.residual_e18.split().unwrap().1).collect()
    };
    // 100,600,601 × 0.0000999 = 10,050.0000399.
    let target = world.best(Want::Output(Minor::new(10_000))).unwrap();
    assert_eq!(
        (target.priced.input, residuals(&target)),
        (Minor::new(100_600_601), vec![39_900_000_000_000])
    );
    assert_eq!(world.best(Want::Input(target.priced.input)), Some(target));
    // And 10,020,041 × 0.0000998 = 1,000.0000918.
    let split = world.best(Want::Output(Minor::new(11_000))).unwrap();
    assert_eq!(given(&split), [("best", 10_050), ("near", 1_000)]);
    assert_eq!(residuals(&split), [39_900_000_000_000, 91_800_000_000_000]);
    assert_eq!(split.priced.residual_e18, 131_700_000_000_000.into());
    assert_eq!(world.best(Want::Input(split.priced.input)), Some(split));
}

#[test]
fn residuals_of_many_pieces_are_summed() {
    let registry = registry(2, 2, FeeSchedule::default());
    // Two units of input give one of output, and 0.998 of another, 0.996, and so on.
    let rungs: Vec<(Decimal, u128)> = (1..=40).map(|n| (Decimal::new(1_000 - n, 3), 1)).collect();
    let offers = vec![ladder(&registry, "deep", &rungs)];
    let fill = World::new(registry, offers).best(Want::Output(Minor::new(40))).unwrap();
    assert_eq!(given(&fill), [("deep", 40)]);
    // 0.998 + 0.996 + … + 0.92.
    assert_eq!(fill.priced.residual_e18, Residual::of(Minor::new(38), 360_000_000_000_000_000));
    assert_eq!(fill.slices[0].residual_e18, fill.priced.residual_e18);
}

#[test]
fn an_exact_output_of_an_input_whose_unit_is_worth_many_leaves_its_surplus() {
    let fees = FeeSchedule { protocol_fee_bps: 5, ..FeeSchedule::default() };
    // A yen is 600 tokens of eighteen places.
    let registry = registry(0, 18, fees);
    let offers = vec![ladder(&registry, "lp", &[(rate("600"), u128::MAX)])];
    let world = World::new(registry, offers);
    let unit = 1_000_000_000_000_000_000_u128;
    let fill = world.best(Want::Output(Minor::new(5_000 * unit + 1))).unwrap();
    assert_eq!((fill.priced.input, fill.priced.protocol_fee), (Minor::new(9), Minor::ZERO));
    assert_eq!(fill.priced.residual_e18, Residual::of(Minor::new(400 * unit - 1), 0));
    assert_eq!(fill.priced.fee_residual_e18, Residual::of(Minor::ZERO, 4_500_000_000_000_000));
    assert!(fill.priced.is_exact(0, 18), "the receipt adds up");
    let stored = serde_json::to_string(&fill.priced).unwrap();
    assert_eq!(serde_json::from_str::<crate::pricing::Priced>(&stored).unwrap(), fill.priced);
}

#[test]
fn an_order_is_filled_between_the_pairs_smallest_and_largest() {
    let mut registry = registry(2, 2, FeeSchedule::default());
    registry.pairs[0].min_input = Minor::new(100);
    registry.pairs[0].max_input = Some(Minor::new(200));
    let offers = vec![ladder(&registry, "a", &[(rate("1"), 1_000)])];
    let world = World::new(registry, offers);
    let paid = |want| world.best(want).map(|fill| fill.priced.input.get());
    let input = |amount| paid(Want::Input(Minor::new(amount)));
    assert_eq!([99, 100, 200, 201].map(input), [None, Some(100), Some(200), None]);
    let output = |amount| paid(Want::Output(Minor::new(amount)));
    assert_eq!([99, 100, 200, 201].map(output), [None, Some(100), Some(200), None]);
}

#[test]
fn a_fill_never_exceeds_the_balance() {
    let registry = registry(2, 2, FeeSchedule::default());
    let offers = vec![
        ladder(&registry, "a", &[(rate("1"), u128::MAX)]),
        ladder(&registry, "b", &[(rate("0.5"), u128::MAX)]),
    ];
    let world = World::new(registry, offers);
    let held = Each(1_000);
    let best = |input| world.market(&held).best(&world.ask(), Want::Input(Minor::new(input)));
    assert_eq!(given(&best(1_400).unwrap().1), [("a", 1_000), ("b", 200)]);
    assert!(best(3_002).is_none(), "two thousand is all there is");
    assert_eq!(given(&best(3_001).unwrap().1), [("a", 1_000), ("b", 1_000)]);
}

#[test]
fn a_provider_behind_two_offers_is_counted_once() {
    let registry = registry(2, 2, FeeSchedule::default());
    let mut second = ladder(&registry, "a", &[(rate("0.9"), u128::MAX)]);
    second.source = "book".into();
    second.venue = Venue::OrderBook;
    let offers = vec![ladder(&registry, "a", &[(rate("1"), u128::MAX)]), second];
    let world = World::new(registry, offers);
    let held = Each(1_000);
    assert!(world.market(&held).best(&world.ask(), Want::Output(Minor::new(1_001))).is_none());
}

#[test]
fn a_pool_and_a_provider_share_an_order_where_their_prices_meet() {
    let registry = registry(6, 6, FeeSchedule::default());
    let offers = vec![
        pool("pool", 1_000_000_000_000, 1_000_000_000_000),
        ladder(&registry, "flat", &[(rate("0.99"), u128::MAX)]),
    ];
    let world = World::new(registry, offers);
    let fill = world.best(Want::Input(Minor::new(10_000_000_000))).unwrap();
    let names: Vec<&str> = fill.slices.iter().map(|slice| slice.provider_id.as_str()).collect();
    assert_eq!(names, ["pool", "flat"]);
    let alone = |id: &str| {
        let market = world.market(&Unlimited);
        let routes = market.single_routes(&world.ask());
        let route = routes.iter().find(|route| route.offers().any(|offer| offer.source == id)).unwrap();
        route.fill(Want::Input(Minor::new(10_000_000_000))).unwrap().priced.output
    };
    assert!(fill.priced.output > alone("pool") && fill.priced.output > alone("flat"));
}

#[test]
fn a_provider_that_takes_no_small_orders_is_left_out_of_them() {
    let registry = registry(2, 2, FeeSchedule::default());
    let mut choosy = ladder(&registry, "choosy", &[(rate("1"), 500)]);
    choosy.policy.min_order = Minor::new(1_000);
    let offers = vec![choosy, ladder(&registry, "open", &[(rate("0.9"), u128::MAX)])];
    let world = World::new(registry, offers);
    assert_eq!(given(&world.best(Want::Input(Minor::new(999))).unwrap()), [("open", 899)]);
    assert_eq!(given(&world.best(Want::Input(Minor::new(1_000))).unwrap()), [("choosy", 500), ("open", 450)]);
}

#[test]
fn expired_offers_and_those_for_other_partners_are_ignored() {
    let registry = registry(2, 2, FeeSchedule::default());
    let mut lapsed = ladder(&registry, "lapsed", &[(rate("1"), u128::MAX)]);
    lapsed.valid_until = NOW;
    let mut retail = ladder(&registry, "retail", &[(rate("1"), u128::MAX)]);
    retail.policy.institution = false;
    let world = World::new(registry, vec![lapsed, retail]);
    assert_eq!(world.best(Want::Input(Minor::new(999))), None);
}

#[test]
fn tiers_price_only_the_part_beyond_them_and_only_their_pairs() {
    let registry = registry(2, 2, FeeSchedule::default());
    let provider = LiquidityProvider {
        id: "tiered".into(),
        wallet: "0x1".into(),
        spread_bps: 0,
        tiers: vec![(Minor::new(1_000), 1_000)],
        full_depth_bps: 0,
        policy: Policy::default(),
        pairs: vec![("IN".into(), "OUT".into())],
        candidate_ttl_sec: 15,
        firm_ttl_sec: 30,
    };
    let reference = Reference { price: Decimal::ONE, valid_until: FOREVER };
    let (input, output) = (&registry.assets[0], &registry.assets[1]);
    assert!(provider.offer(&reference, output, input).is_none());
    let offer = provider.offer(&reference, input, output).unwrap();
    let world = World::new(registry.clone(), vec![offer]);
    let fill = world.best(Want::Input(Minor::new(2_000))).unwrap();
    assert_eq!(given(&fill), [("tiered", 1_900)]);
}

/// Amounts of every magnitude.
fn amount() -> impl Strategy<Value = u128> {
    (0_u32..128, any::<u128>()).prop_map(|(shift, raw)| (raw >> shift).max(1))
}

fn any_rate() -> impl Strategy<Value = Decimal> {
    (1_i64..i64::MAX, 0_u32..=28).prop_map(|(mantissa, scale)| Decimal::new(mantissa, scale))
}

fn any_fees() -> impl Strategy<Value = FeeSchedule> {
    (0_u32..2_000, 0_u32..100, amount()).prop_map(|(protocol_fee_bps, shift, fee)| FeeSchedule {
        protocol_fee_bps,
        payout_fee_minor: Minor::new((fee >> 28) >> shift),
        network_fee_minor: Minor::new(fee),
    })
}

/// A provider, an external one, an order book and a pool, in any mixture.
fn any_world() -> impl Strategy<Value = World> {
    let rungs = proptest::collection::vec((any_rate(), amount()), 1..4);
    let ladders = proptest::collection::vec(rungs, 0..4);
    let pools = proptest::collection::vec((amount(), amount()), 0..2);
    (0_u8..=38, 0_u8..=38, any_fees(), ladders, pools).prop_map(|(ei, eo, fees, ladders, pools)| {
        let registry = registry(ei, eo, fees);
        let mut offers: Vec<Offer> = ladders
            .iter()
            .enumerate()
            .map(|(n, rungs)| ladder(&registry, &format!("lp{n}"), rungs))
            .collect();
        offers.extend(pools.iter().enumerate().map(|(n, (i, o))| pool(&format!("amm{n}"), *i, *o)));
        World::new(registry, offers)
    })
}

fn adds_up(world: &World, fill: &Fill) -> Result<(), TestCaseError> {
    let priced = &fill.priced;
    let sum = |of: fn(&Slice) -> Minor| fill.slices.iter().map(|slice| of(slice).get()).sum::<u128>();
    prop_assert_eq!(sum(|slice| slice.output), priced.gross_output.get());
    prop_assert_eq!(sum(|slice| slice.input) + priced.protocol_fee.get(), priced.input.get());
    prop_assert_eq!(priced.output.get() + priced.payout_fee.get(), priced.gross_output.get());
    let [paid, given] = [0, 1].map(|at| world.registry.assets[at].exponent);
    // A rate has 28 digits and 28 places; amounts that need more are neither quoted nor filled.
    let magnitude = |minor: Minor, exponent: u8| i64::from(minor.get().ilog10()) - i64::from(exponent);
    let rate = magnitude(priced.gross_output, given) - magnitude(priced.net_input(), paid);
    let digits = i64::from(priced.gross_output.get().ilog10()) + 2;
    if digits <= 27 && rate >= digits - 26 && rate <= 26 {
        prop_assert!(priced.is_exact(paid, given), "{} at {}", priced.net_input(), priced.rate);
        let (input, output) = (Unit { asset: "IN", exponent: paid }, Unit { asset: "OUT", exponent: given });
        let explained = explain(priced, &fill.slices, (input, output));
        prop_assert_eq!(explained.unwrap().steps.last().map(|step| step.amount_minor), Some(priced.output));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_input_of_a_target_is_the_smallest_on_every_route(
        world in any_world(), target in amount(), held in amount(),
    ) {
        let held = Each(held);
        let market = world.market(&held);
        let routes = market.single_routes(&world.ask()).into_iter().chain(market.split_routes(&world.ask()));
        for route in routes {
            let Some(inverse) = route.fill(Want::Output(Minor::new(target))) else { continue };
            adds_up(&world, &inverse)?;
            prop_assert_eq!(inverse.priced.output, Minor::new(target));
            // Beyond the last piece's capacity by less than a unit of input, there is no forward result.
            if let Some(forward) = route.fill(Want::Input(inverse.priced.input)) {
                prop_assert!(forward.priced.output >= inverse.priced.output);
            }
            if let Some(below) = inverse.priced.input.checked_sub(Minor::new(1)) {
                let less = route.fill(Want::Input(below));
                prop_assert!(less.is_none_or(|less| less.priced.output < inverse.priced.output));
            }
        }
    }

    #[test]
    fn the_residual_of_a_target_is_what_the_rate_gives_beyond_it(
        (paid, given) in (0_u8..=18, 0_u8..=18), fees in any_fees(), rate in any_rate(), target in amount(),
    ) {
        let registry = registry(paid, given, fees);
        let offers = vec![ladder(&registry, "lp", &[(rate, u128::MAX)])];
        if let Some(fill) = World::new(registry, offers).best(Want::Output(Minor::new(target))) {
            let forward = Ratio::from_rate(rate, paid, given).unwrap().forward(fill.priced.net_input());
            let rest = forward.and_then(|floored| floored.cut_to(fill.priced.gross_output));
            prop_assert_eq!(Some(fill.priced.residual_e18), rest.map(|floored| floored.residual_e18));
            prop_assert_eq!(fill.slices[0].residual_e18, fill.priced.residual_e18);
        }
    }

    #[test]
    fn no_larger_input_is_needed_for_the_output_of_an_input(
        world in any_world(), input in amount(), held in amount(),
    ) {
        let held = Each(held);
        let market = world.market(&held);
        let routes = market.single_routes(&world.ask()).into_iter().chain(market.split_routes(&world.ask()));
        for route in routes {
            let Some(forward) = route.fill(Want::Input(Minor::new(input))) else { continue };
            adds_up(&world, &forward)?;
            let back = route.fill(Want::Output(forward.priced.output)).unwrap();
            prop_assert!(back.priced.input <= forward.priced.input);
        }
    }

    #[test]
    fn the_best_input_over_the_whole_market_is_the_smallest(world in any_world(), target in amount()) {
        let best = world.best(Want::Output(Minor::new(target)));
        if let Some(below) = best.as_ref().and_then(|best| best.priced.input.checked_sub(Minor::new(1))) {
            let less = world.best(Want::Input(below));
            prop_assert!(less.is_none_or(|less| less.priced.output < Minor::new(target)));
        }
    }

    #[test]
    fn no_provider_delivers_more_than_it_holds(world in any_world(), input in amount(), held in amount()) {
        let each = Each(held);
        if let Some((_, fill)) = world.market(&each).best(&world.ask(), Want::Input(Minor::new(input))) {
            for slice in &fill.slices {
                let of_provider = fill.slices.iter().filter(|other| other.provider_id == slice.provider_id);
                prop_assert!(of_provider.map(|other| other.output.get()).sum::<u128>() <= held);
            }
        }
    }
}
