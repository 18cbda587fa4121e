use proptest::prelude::*;

use super::*;

const SPACING: i32 = 60;

/// A pool at a tick, between positions `(lower, upper, liquidity)` in units of the spacing.
fn state(tick: i32, positions: &[(i32, i32, u128)], fee_pips: u32) -> TickState {
    let mut net: BTreeMap<i32, i128> = BTreeMap::new();
    let mut liquidity = 0;
    for (lower, upper, amount) in positions {
        let (lower, upper) = (lower * SPACING, upper * SPACING);
        *net.entry(lower).or_default() += i128::try_from(*amount).unwrap();
        *net.entry(upper).or_default() -= i128::try_from(*amount).unwrap();
        if (lower..upper).contains(&tick) {
            liquidity += amount;
        }
    }
    net.retain(|_, change| *change != 0);
    let words = SPACING * WORD_TICKS;
    let mut limbs = [0; 4];
    limbs.copy_from_slice(&sqrt_price::at_tick(tick).unwrap().as_limbs()[..4]);
    TickState {
        sqrt_price: limbs,
        tick,
        liquidity,
        tick_spacing: SPACING,
        fee_pips,
        net,
        known: -2 * words..=2 * words - SPACING,
    }
}

const BOTH: [SwapDirection; 2] = [SwapDirection::ZeroForOne, SwapDirection::OneForZero];

#[test]
fn roots_of_tick_prices_are_the_contracts() {
    // The contract's own bounds, and the price of one.
    let at = |tick| sqrt_price::at_tick(tick).unwrap().to_string();
    assert_eq!(at(-TICK_MAX), "4295128739");
    assert_eq!(at(TICK_MAX), "1461446703485210103287273052203988822378723970342");
    assert_eq!(at(0), (1_u128 << 96).to_string());
    assert_eq!(sqrt_price::at_tick(TICK_MAX + 1), None);
    let price =
        tick_price(23_027, SwapDirection::ZeroForOne).unwrap().forward(Minor::new(1_000_000)).unwrap();
    assert_eq!(price.amount.get() / 1_000, 9_999, "1.0001^23027 is about ten");
}

#[test]
fn the_curve_ends_with_the_known_ticks_and_is_not_continued() {
    let known = state(0, &[(-300, 300, 1_000_000_000_000)], 3_000);
    for direction in BOTH {
        let whole = TickPool::new(&known, direction).unwrap();
        let less = TickState { known: -600..=600, ..known.clone() };
        assert_eq!(TickPool::new(&less, direction), None, "no step of it is known to its end");
        let mut net = known.net.clone();
        net.extend([(-600, 1), (600, -1)]);
        let less = TickPool::new(&TickState { net, ..less }, direction).unwrap();
        let most = less.inverse(less.depth()).unwrap();
        assert!(less.depth() < whole.depth());
        assert_eq!(less.forward(most), Some(less.depth()));
        let (end, _) = less.steps.last().unwrap().end().unwrap();
        assert_eq!(less.forward(Minor::new(end + 1)), None);
        assert!(whole.forward(Minor::new(end + 1)).is_some());
        assert_eq!(less.inverse(Minor::new(less.depth().get() + 1)), None);
    }
}

#[test]
fn a_pool_without_liquidity_in_a_direction_has_no_curve() {
    let above = state(0, &[(1, 2, 1_000_000)], 500);
    assert_eq!(TickPool::new(&above, SwapDirection::ZeroForOne), None);
    let pool = TickPool::new(&above, SwapDirection::OneForZero).unwrap();
    // The first unit costs what it costs where the liquidity begins.
    assert!(pool.spot() < tick_price(59, SwapDirection::OneForZero).unwrap());
    assert!(
        TickPool::new(&TickState { fee_pips: 1_000_000, ..above.clone() }, SwapDirection::OneForZero)
            .is_none()
    );
    assert!(TickPool::new(&TickState { tick_spacing: 0, ..above }, SwapDirection::OneForZero).is_none());
}

fn pools() -> impl Strategy<Value = TickPool> {
    let position = (-200_i32..199, 1_i32..200, 1_u128..1 << 80);
    (
        prop::collection::vec(position, 1..6),
        -5_000_i32..5_000,
        prop_oneof![Just(0_u32), Just(100), Just(3_000), 1_u32..500_000],
        prop::bool::ANY,
    )
        .prop_filter_map("liquidity", |(positions, tick, fee, is_first)| {
            let positions: Vec<_> = positions
                .into_iter()
                .map(|(lower, width, amount)| (lower, (lower + width).min(200), amount))
                .filter(|(lower, upper, _)| lower < upper)
                .collect();
            TickPool::new(&state(tick, &positions, fee), BOTH[usize::from(is_first)])
        })
}

proptest! {
    #[test]
    fn the_inverse_is_the_smallest_input_for_an_output(pool in pools(), part in 0_u128..=1_000) {
        let output = Minor::new((pool.depth().get() / 1_000) * part + u128::from(part < 1_000));
        if let Some(input) = pool.inverse(output) {
            prop_assert!(pool.forward(input).unwrap() >= output);
            prop_assert!(pool.exact_output(output).unwrap() >= input);
            if let Some(below) = input.checked_sub(Minor::new(1)) {
                prop_assert!(pool.forward(below).unwrap() < output);
            }
        } else {
            prop_assert!(output > pool.depth());
        }
    }

    #[test]
    fn more_input_never_gives_less_and_never_a_better_price(pool in pools(), a in 1_u128..1 << 90, b in 0_u128..1 << 90) {
        let (less, more) = (Minor::new(a), Minor::new(a + b));
        if let (Some(first), Some(both)) = (pool.forward(less), pool.forward(more)) {
            prop_assert!(both >= first);
            // Two parts give as much as the whole, but for the roundings of each.
            let spot = pool.spot().forward(more).unwrap();
            prop_assert!(both <= spot.amount.checked_add(Minor::new(1)).unwrap());
        }
    }

    #[test]
    fn a_pool_that_is_cut_gives_its_last_unit_within_the_bound(pool in pools(), bps in 1_u32..9_000) {
        let spot = pool.spot();
        let worst = Ratio {
            num: (spot.num * U512::from(10_000 - bps)) >> 20,
            den: (spot.den * U512::from(10_000_u32)) >> 20,
        };
        if worst.num.is_zero() || worst.den.is_zero() {
            return Ok(());
        }
        let end = pool.input_until(&worst);
        let depth = pool.clone().until(&worst).depth();
        let all = pool.steps.last().unwrap().end().unwrap().0;
        prop_assert!(end.get() <= all);
        if end.is_zero() {
            return Ok(());
        }
        // All of it is at least at the worst price, up to what each step's rounding keeps.
        let least = worst.forward(end).unwrap().amount.get();
        let steps = u128::try_from(pool.steps.len()).unwrap();
        let unit = worst.forward(Minor::new(2 * steps)).unwrap().amount.get() + steps + 1;
        prop_assert!(depth.get() + unit >= least, "{depth:?} {least} {unit}");
    }
}
