use proptest::prelude::*;

use super::*;

fn rate(text: &str) -> Decimal {
    text.parse().unwrap()
}

#[test]
fn minor_units_are_digits_only_and_bounded_by_u128() {
    assert_eq!(Minor::parse("0"), Ok(Minor::ZERO));
    assert_eq!(Minor::parse("340282366920938463463374607431768211455"), Ok(Minor(u128::MAX)));
    assert_eq!(Minor::parse("340282366920938463463374607431768211456"), Err(AmountError::TooLarge));
    for bad in ["", "-1", "+1", "1.0", "1e3", " 1", "٣"] {
        assert_eq!(Minor::parse(bad), Err(AmountError::NotMinorUnits), "{bad:?}");
    }
}

#[test]
fn decimal_strings_keep_every_digit_or_are_refused() {
    assert_eq!(Minor::parse_decimal("1.5", 6), Ok(Minor(1_500_000)));
    assert_eq!(Minor::parse_decimal("1.500000000", 6), Ok(Minor(1_500_000)));
    assert_eq!(Minor::parse_decimal("1.0000001", 6), Err(AmountError::TooPrecise));
    for bad in ["", ".", ".5", "5.", "-1", "1e3", "1,0", "1.2.3"] {
        assert_eq!(Minor::parse_decimal(bad, 6), Err(AmountError::NotDecimal), "{bad:?}");
    }
    assert_eq!(Minor(1_500_000).to_decimal_string(6), "1.5");
    assert_eq!(Minor(5).to_decimal_string(2), "0.05");
    assert_eq!(Minor(7).to_decimal_string(0), "7");
}

#[test]
fn what_a_floor_cuts_off_is_reported_to_eighteen_places() {
    let third = Ratio::from_rate(rate("0.333"), 6, 2).unwrap();
    let floored = third.forward(Minor(1_000_001)).unwrap();
    assert_eq!(floored.amount, Minor(33));
    assert_eq!(floored.residual_e18, 300_033_300_000_000_000);
}

#[test]
fn a_rate_that_is_not_positive_is_no_ratio() {
    assert_eq!(Ratio::from_rate(Decimal::ZERO, 6, 2), None);
    assert_eq!(Ratio::from_rate(rate("-1"), 6, 2), None);
}

proptest! {
    #[test]
    fn the_inverse_is_the_smallest_input_that_reaches_the_output(
        mantissa in 1_i64..i64::MAX, scale in 0_u32..=18, ei in 0_u8..=18, eo in 0_u8..=18, output: u128,
    ) {
        let ratio = Ratio::from_rate(Decimal::new(mantissa, scale), ei, eo).unwrap();
        if let Some(input) = ratio.inverse(Minor(output)) {
            let reaches = |input: Minor| ratio.forward(input).is_none_or(|f| f.amount >= Minor(output));
            prop_assert!(reaches(input));
            if let Some(below) = input.checked_sub(Minor(1)) {
                prop_assert!(!reaches(below));
            }
        }
    }

    #[test]
    fn grossing_up_is_the_smallest_amount_that_leaves_the_net(net: u128, bps in 0_u32..10_000) {
        if let Some(gross) = gross_up_bps(Minor(net), bps) {
            let left = |gross: Minor| gross.checked_sub(gross.bps_floor(bps)).unwrap();
            prop_assert!(left(gross) >= Minor(net));
            if let Some(below) = gross.checked_sub(Minor(1)) {
                prop_assert!(left(below) < Minor(net));
            }
        }
    }

    #[test]
    fn decimal_text_round_trips(units: u128, exponent in 0_u8..=30) {
        let text = Minor(units).to_decimal_string(exponent);
        prop_assert_eq!(Minor::parse_decimal(&text, exponent), Ok(Minor(units)));
    }
}
