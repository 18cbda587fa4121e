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
fn a_rounding_fraction_is_reported_to_eighteen_places() {
    let third = Ratio::from_rate(rate("0.333"), 6, 2).unwrap();
    let floored = third.forward(Minor(1_000_001)).unwrap();
    assert_eq!(floored.amount, Minor(33));
    assert_eq!(floored.residual_e18, 300_033_300_000_000_000.into());
}

#[test]
fn a_rate_that_is_not_positive_is_rejected() {
    assert_eq!(Ratio::from_rate(Decimal::ZERO, 6, 2), None);
    assert_eq!(Ratio::from_rate(rate("-1"), 6, 2), None);
}

proptest! {
    #[test]
    fn machine_arithmetic_and_wide_arithmetic_agree(
        num in 1_u128.., den in 1_u128.., narrow in 0_u32..128, amount: u128, other in 1_u128..,
    ) {
        let (num, den) = ((num >> narrow).max(1), (den >> narrow).max(1));
        let amount = Minor(amount >> narrow);
        let by = |factor: U512| Ratio { num: U512::from(num) * factor, den: U512::from(den) * factor };
        let (plain, wide) = (by(U512::from(1_u8)), by(U512::from(3_u8) << 130));
        prop_assert_eq!(plain.inverse(amount), wide.inverse(amount));
        // The residual is multiplied before it is divided, so that the wide one keeps within its width.
        prop_assert_eq!(plain.forward(amount), wide.forward(amount));
        prop_assert_eq!(plain.to_rate(18, 6), wide.to_rate(18, 6));
        let than = Ratio { num: U512::from(other), den: U512::from(den) };
        prop_assert_eq!(plain.cmp(&than), wide.cmp(&than));
        prop_assert!(plain == wide);
    }

    #[test]
    fn an_executed_rate_gives_the_output_to_the_unit(
        output in 1_u128.., input in 1_u128.., narrow in 40_u32..128, ei in 0_u8..=18, eo in 0_u8..=18,
    ) {
        let (output, input) = (Minor((output >> narrow).max(1)), Minor((input >> narrow).max(1)));
        // A rate for which a decimal has enough digits and places.
        let magnitude = |minor: Minor, exponent: u8| i64::from(minor.0.ilog10()) - i64::from(exponent);
        let (rate, digits) = (magnitude(output, eo) - magnitude(input, ei), i64::from(output.0.ilog10()) + 2);
        prop_assume!(digits <= 27 && rate >= digits - 26 && rate <= 26);
        let reported = executed_rate((input, ei), (output, eo)).unwrap();
        let forward = Ratio::from_rate(reported, ei, eo).unwrap().forward(input).unwrap();
        prop_assert_eq!(forward.amount, output);
    }

    #[test]
    fn a_shown_rate_is_the_quotient_cut_to_eighteen_digits(output: u128, input in 1_u128.., narrow in 0_u32..128) {
        let (output, input) = (output >> narrow, (input >> narrow).max(1));
        let ten = U512::from(10_u8);
        let mut digits = U512::from(output) * ten.pow(U512::from(18 + 28)) / (U512::from(input) * ten.pow(U512::from(6)));
        let mut places = 28;
        while places > 0 && digits >= ten.pow(U512::from(18)) {
            digits /= ten;
            places -= 1;
        }
        let mantissa = i128::try_from(digits).unwrap_or(i128::MAX);
        let cut = Decimal::try_from_i128_with_scale(mantissa, places).unwrap_or(Decimal::MAX).normalize();
        let reported = Ratio { num: U512::from(output), den: U512::from(input) }.to_rate(18, 6);
        prop_assert_eq!((reported, reported.scale()), (cut, cut.scale()));
    }

    #[test]
    fn a_root_is_the_largest_whose_square_is_not_above(limbs: [u64; 8], narrow in 0_usize..512) {
        let square = U512::from_limbs(limbs) >> narrow;
        let root = floor_root(square);
        prop_assert!(root * root <= square);
        let next = root + U512::from(1_u8);
        prop_assert!(next.checked_mul(next).is_none_or(|above| above > square));
    }

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

#[test]
fn a_fee_and_what_its_rounding_cuts_off_are_exact() {
    for (amount, bps, fee, cut_off) in [
        (1_999, 5, 0, 999_500_000_000_000_000_u64),
        (2_000, 5, 1, 0),
        (100_000_001, 5, 50_000, 500_000_000_000_000),
        (u128::MAX, 9_999, u128::MAX - u128::MAX / 10_000 - 1, 854_500_000_000_000_000),
        (7, 10_000, 7, 0),
    ] {
        let amount = Minor::new(amount);
        assert_eq!(amount.bps_floor(bps), Minor::new(fee), "{amount} {bps}");
        assert_eq!(amount.bps_residual_e18(bps), cut_off.into(), "{amount} {bps}");
    }
}

#[test]
fn a_residual_is_stored_whatever_its_size() {
    let most = Residual::of(Minor::new(u128::MAX), 999_999_999_999_999_999);
    for residual in [Residual::ZERO, u64::MAX.into(), most] {
        let stored = serde_json::to_value(residual).unwrap();
        assert_eq!(serde_json::from_value::<Residual>(stored).unwrap(), residual);
    }
    assert_eq!(serde_json::to_value(Residual::from(7)).unwrap(), 7, "as before");
    assert_eq!(most.split(), Some((Minor::new(u128::MAX), 999_999_999_999_999_999)));
}
