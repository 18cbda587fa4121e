use proptest::prelude::*;

use super::*;
use crate::decision::tests::{self as order, Each};
use crate::decision::{Decision, QuoteLookup, Reason, decide};
use crate::liquidity::{LiquidityProvider, Snapshot};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn range(max_input: u128, target: u128, limit: u128, lifetime: i64) -> Range {
    Range {
        max_input: Minor::new(max_input),
        target_output: Minor::new(target),
        min_output: Minor::new(limit),
        received_at: NOW,
        deadline: NOW.plus_millis(lifetime),
    }
}

fn request(range: &Range) -> IntentRequest {
    let Range { max_input, target_output, min_output, received_at, deadline } = *range;
    let mut request = order::request();
    request.bounds = Bounds::Range { max_input, target_output, min_output, received_at };
    request.deadline = deadline;
    request.permit.as_mut().unwrap().amount_minor = max_input;
    request
}

fn snapshot(spreads: &[u32], tier: Option<(u128, u32)>) -> Snapshot {
    let providers: Vec<LiquidityProvider> = spreads
        .iter()
        .enumerate()
        .map(|(at, spread)| {
            let mut provider = LiquidityProvider::new(format!("p{at}"), format!("0x{at}"), *spread);
            provider.tiers = tier.map(|(from, spread)| (Minor::new(from), spread)).into_iter().collect();
            provider
        })
        .collect();
    order::snapshot(&order::registry(), &providers)
}

fn decided(range: &Range, snapshot: &Snapshot, holds: u128, now: Timestamp) -> Decision {
    let registry = order::registry();
    let market = Market { registry: &registry, snapshot, holdings: &Each(holds), now };
    decide(&request(range), &market, &QuoteLookup::NotRequested, "bank")
}

#[test]
fn the_line_falls_from_the_target_to_the_limit_and_is_rounded_down() {
    let range = range(1, 10, 0, 3_000);
    let at = |millis| range.output_at(NOW.plus_millis(millis)).get();
    assert_eq!([-5, 0, 1, 1_500, 2_999, 3_000, 9_000].map(at), [10, 10, 9, 5, 0, 0, 0]);
    let falls = |output| range.falls_to(Minor::new(output)).map(|at| at.millis() - NOW.millis());
    assert_eq!([11, 10, 9, 5, 0].map(falls), [Some(0), Some(0), Some(1), Some(1_201), Some(2_701)]);
    let flat = Range { min_output: Minor::new(10), ..range };
    assert_eq!((flat.output_at(NOW), flat.falls_to(Minor::new(9))), (Minor::new(10), None));
    let gone = Range { deadline: NOW, ..range };
    assert_eq!(gone.output_at(NOW), Minor::ZERO, "at the deadline it is the limit");
}

/// 100 USDC buy 99.35 USD at the spread of the first provider.
#[test]
fn the_market_below_at_and_above_the_range() {
    let market = snapshot(&[10], None);
    let at = |target, limit, now| {
        decided(&range(100_000_000, target, limit, 600_000), &market, 1_000_000, NOW.plus_millis(now))
    };
    assert_eq!(at(9_999, 9_936, 0), Decision::Rejected(Reason::BelowMinimumOutput));
    let Decision::Accepted(plan) = at(9_935, 9_000, 0) else { panic!("the target is met") };
    assert_eq!(plan.priced.output, Minor::new(9_935));
    let Decision::Accepted(plan) = at(9_000, 8_000, 0) else { panic!("the target is exceeded") };
    assert_eq!(plan.priced.output, Minor::new(9_000), "the target, not more");
    assert!(plan.priced.input < Minor::new(100_000_000), "the input not needed stays with the user");
    let Decision::Rests(plan) = at(9_999, 9_899, 0) else { panic!("in between") };
    // 63.x of the 100 that it falls by: 64 % of the ten minutes, less the last unit's floor.
    assert_eq!(plan.priced.output, Minor::new(9_935));
    assert_eq!(plan.path.estimated_fill_time, 379);
    assert_eq!(plan.path.expires_at, NOW.plus_millis(600_000));
    let Decision::Rests(_) = at(9_999, 9_899, 378_000) else { panic!("not yet") };
    let Decision::Accepted(plan) = at(9_999, 9_899, 378_001) else { panic!("met") };
    assert_eq!(plan.priced.output, Minor::new(9_935));
    assert_eq!(decided(&range(100_000_000, 9_999, 9_899, 600_000), &market, 9_000, NOW), {
        Decision::Rejected(Reason::NoLiquidity)
    });
}

#[test]
fn the_permit_of_a_resting_order_covers_its_cap() {
    let market = snapshot(&[10], None);
    let registry = order::registry();
    let mut request = request(&range(100_000_000, 9_999, 9_899, 600_000));
    request.permit.as_mut().unwrap().amount_minor = Minor::new(99_999_999);
    let market = Market { registry: &registry, snapshot: &market, holdings: &Each(1_000_000), now: NOW };
    assert_eq!(decide(&request, &market, &QuoteLookup::NotRequested, "bank"), Decision::PermitTooSmall);
}

proptest! {
    /// The index relies on it: no fill gives more than the bound, and the bound of a unit never grows with the input.
    #[test]
    fn no_fill_gives_more_than_the_bound(
        spreads in proptest::collection::vec(0_u32..200, 1..4), tier in proptest::option::of((100_u128..1_000_000_000, 200_u32..400)),
        holds in 100_u128..100_000_000_000, input in 1_000_000_u128..1_000_000_000_000, less in 1_u128..1_000_000_000_000,
    ) {
        let (registry, snapshot) = (order::registry(), snapshot(&spreads, tier));
        let market = Market { registry: &registry, snapshot: &snapshot, holdings: &Each(holds), now: NOW };
        let (usdc, usd) = (registry.find("USDC").unwrap(), registry.find("USD").unwrap());
        let request = order::request();
        let ask = ask(&request, usdc, usd);
        let charges = market.charges(&ask).unwrap();
        let net = charges.net(Minor::new(input)).unwrap();
        let smaller = Minor::new(net.get() - less % net.get());
        let bounds = market.most(&ask, &[net, smaller]);
        if let Some((_, fill)) = market.best(&ask, Want::Input(Minor::new(input))) {
            prop_assert!(fill.priced.gross_output <= bounds[0]);
        }
        // Both were rounded up by less than a unit.
        prop_assert!(bounds[0].get() * smaller.get() <= (bounds[1].get() + 1) * net.get());
    }

    #[test]
    fn the_line_never_rises_and_stays_between_its_ends(
        limit: u64, way: u64, lifetime in 1_i64..10_000_000_000, steps in proptest::collection::vec(0_i64..1_000_000_000, 1..20),
    ) {
        let range = range(1, u128::from(limit) + u128::from(way), u128::from(limit), lifetime);
        let (mut now, mut last) = (NOW, range.target_output);
        for step in steps {
            now = now.plus_millis(step);
            let output = range.output_at(now);
            prop_assert!(output <= last && output >= range.min_output);
            last = output;
        }
    }

    #[test]
    fn the_line_has_fallen_to_an_output_first_when_it_is_said_to(
        limit in 0_u128..1_000_000_000, way in 0_u128..1_000_000_000, part in 0_u128..=1_200, lifetime in 1_i64..100_000_000,
    ) {
        let range = range(1, limit + way, limit, lifetime);
        let output = Minor::new(limit + way * part / 1_000);
        let at = range.falls_to(output).unwrap();
        prop_assert!(range.output_at(at) <= output);
        prop_assert!(at == NOW || range.output_at(at.plus_millis(-1)) > output);
        prop_assert!(limit == 0 || range.falls_to(Minor::new(limit - 1)).is_none());
    }

    /// Over random lines, prices, depths and moments: what is delivered is the line's value at that moment and never below
    /// the limit, and what is taken is never above the cap. An order that rests is filled when it was said to be, at
    /// unchanged prices, and not before.
    #[test]
    fn a_fill_is_on_the_line_within_the_cap_and_when_it_was_foreseen(
        cap in 1_000_000_u128..1_000_000_000_000, target_bps in 5_000_u128..11_000, way_bps in 0_u128..3_000,
        lifetime in 1_000_i64..100_000_000, gone_bps in 0_i64..10_000,
        spreads in proptest::collection::vec(0_u32..200, 1..4), tier in proptest::option::of((100_u128..1_000_000_000, 200_u32..400)),
        holds in 100_u128..100_000_000_000,
    ) {
        // USD has two decimal places, USDC six.
        let target = cap * target_bps / 100_000_000;
        let limit = (target - target * way_bps / 10_000).max(1);
        let range = range(cap, target.max(limit), limit, lifetime);
        let market = snapshot(&spreads, tier);
        let now = NOW.plus_millis(lifetime * gone_bps / 10_000);
        match decided(&range, &market, holds, now) {
            Decision::Accepted(plan) => {
                prop_assert_eq!(plan.priced.output, range.output_at(now));
                prop_assert!(plan.priced.output >= range.min_output && plan.priced.input <= range.max_input);
                prop_assert_eq!(plan.surplus.get(), cap - plan.priced.input.get());
            }
            Decision::Rests(plan) => {
                let secs = i64::from(plan.path.estimated_fill_time);
                let then = now.plus_millis(secs * 1_000);
                if then < range.deadline {
                    let Decision::Accepted(filled) = decided(&range, &market, holds, then) else {
                        return Err(TestCaseError::fail("not filled when it was foreseen"));
                    };
                    prop_assert_eq!(filled.priced.output, range.output_at(then));
                }
                let before = now.plus_millis((secs - 1) * 1_000 - 1).max(now);
                prop_assert!(matches!(decided(&range, &market, holds, before), Decision::Rests(_)));
                prop_assert!(plan.priced.input <= range.max_input);
            }
            Decision::Rejected(reason) => {
                prop_assert!(matches!(reason, Reason::BelowMinimumOutput | Reason::NoLiquidity));
            }
            Decision::PermitTooSmall => prop_assert!(false, "the permit covers the cap"),
        }
    }
}
