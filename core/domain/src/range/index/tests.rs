use proptest::prelude::*;

use super::*;
use crate::asset::Registry;
use crate::decision::tests::registry;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn charges(registry: &Registry) -> Charges<'_> {
    let pair = registry.pair("USDC", "USD").unwrap();
    Charges {
        gas: &[],
        fees: pair.fees,
        sizes: pair.sizes(),
        input: registry.find("USDC").unwrap(),
        output: registry.find("USD").unwrap(),
    }
}

fn range(target: u128, limit: u128, received: i64, lifetime: i64) -> Range {
    let received_at = NOW.plus_millis(received);
    Range {
        max_input: Minor::new(1_000_000_000),
        target_output: Minor::new(target),
        min_output: Minor::new(limit.min(target)),
        received_at,
        deadline: received_at.plus_millis(lifetime),
    }
}

/// The price at which the cap, less the protocol fee of 5 basis points, buys so much and the payout fee.
fn price(output: u128, charges: &Charges<'_>) -> Price {
    let gross = charges.gross_for(Minor::new(output)).unwrap();
    Price::of(gross, charges.net(Minor::new(1_000_000_000)).unwrap(), charges).unwrap()
}

#[test]
fn a_line_is_reached_by_the_price_that_its_cap_and_fees_ask_for() {
    let registry = registry();
    let charges = charges(&registry);
    let mut index = Index::default();
    index.insert(1, Line::of(&range(100_000, 90_000, 0, 10_000), &charges).unwrap());
    let reached =
        |index: &mut Index, output, at| index.reached(price(output, &charges), NOW.plus_millis(at)).len();
    assert_eq!([reached(&mut index, 100_000, 0), reached(&mut index, 99_990, 0)], [1, 0]);
    assert_eq!([reached(&mut index, 95_000, 5_000), reached(&mut index, 94_990, 5_000)], [1, 0]);
    let next = index.next_reached(price(95_000, &charges), NOW).unwrap();
    // The output is rounded down, so that the order is met up to a unit before: a millisecond.
    assert!((4_999..=5_000).contains(&(next.millis() - NOW.millis())), "{next:?}");
    assert!(index.remove(1) && !index.remove(1) && index.is_empty());
    assert_eq!(index.next_reached(price(95_000, &charges), NOW), None);
}

#[test]
fn a_price_looks_at_the_lines_that_it_reaches_and_at_few_others() {
    let registry = registry();
    let charges = charges(&registry);
    let mut index = Index::default();
    for number in 0..20_000_u32 {
        let target = 100_000 + u128::from(number);
        let falls = u128::from(number * 7_919 % 5_000);
        let line = range(target, target - falls, -i64::from(number % 977), 40_000_000);
        index.insert(i64::from(number), Line::of(&line, &charges).unwrap());
    }
    assert!(index.reached(price(99_000, &charges), NOW).is_empty());
    let before = index.examined();
    assert!(index.reached(price(99_000, &charges), NOW.plus_millis(1)).is_empty());
    assert_eq!(index.examined(), before, "an unchanged price looks at no line");
    let found = index.reached(price(100_100, &charges), NOW.plus_millis(2)).len();
    assert!((101..130).contains(&found), "{found}");
    let looked = usize::try_from(index.examined() - before).unwrap();
    assert!(looked <= found + 10, "{looked} for {found}");
}

#[test]
fn of_equal_prices_the_oldest_goes_first_and_a_lower_one_before_it() {
    let registry = registry();
    let charges = charges(&registry);
    let mut index = Index::default();
    for (number, target) in [(7, 1_000), (3, 1_000), (5, 999), (4, 2_000)] {
        index.insert(number, Line::of(&range(target, 1, 0, 10_000), &charges).unwrap());
    }
    let order: Vec<Number> = index.reached(price(1_000, &charges), NOW).iter().map(|found| found.1).collect();
    assert_eq!(order, [5, 3, 7]);
}

proptest! {
    /// Against looking at every line, with lines added and removed, over hours.
    #[test]
    fn the_index_finds_what_a_look_at_every_line_finds(
        lines in proptest::collection::vec((1_u128..2_000_000, 0_u128..2_000_000, -5_000_000_i64..5_000_000, 1_i64..20_000_000), 1..300),
        steps in proptest::collection::vec((0_i64..2_000_000, 0_u128..2_000_000, any::<bool>(), any::<prop::sample::Index>()), 1..20),
    ) {
        let registry = registry();
        let charges = charges(&registry);
        let mut index = Index::default();
        let mut all: Vec<(Number, Line)> = Vec::new();
        let mut waiting = lines.iter().zip(1_i64..).map(|((target, way, received, lifetime), number)| {
            (number, Line::of(&range(*target, target.saturating_sub(*way), *received, *lifetime), &charges).unwrap())
        });
        for (number, line) in waiting.by_ref().take(200) {
            index.insert(number, line);
            all.push((number, line));
        }
        let mut now = NOW;
        for (wait, output, adds, pick) in steps {
            now = now.plus_millis(wait);
            let price = price(output, &charges);
            let mut expected: Vec<(Price, Number)> =
                all.iter().map(|(number, line)| (line.at(now), *number)).filter(|(value, _)| *value <= price).collect();
            expected.sort_unstable();
            prop_assert_eq!(index.reached(price, now), expected);
            let first = index.next_reached(price, now);
            let is_met = |at: Timestamp| all.iter().any(|(_, line)| line.at(at) <= price);
            match first {
                Some(at) => prop_assert!(is_met(at) && (at == now || !is_met(at.plus_millis(-1)))),
                None => prop_assert!(!is_met(index.horizon())),
            }
            if adds {
                if let Some((number, line)) = waiting.next() {
                    index.insert(number, line);
                    all.push((number, line));
                }
            } else if !all.is_empty() {
                let (number, _) = all.swap_remove(pick.index(all.len()));
                prop_assert!(index.remove(number));
            }
            prop_assert_eq!(index.len(), all.len());
        }
    }
}
