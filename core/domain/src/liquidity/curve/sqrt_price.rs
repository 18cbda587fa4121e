//! The fixed-point arithmetic of a pool with concentrated liquidity, rounded at each step as its contract rounds.
//!
//! A price is its square root times 2^96, of token 1 per token 0. Tick `t` is the price `1.0001^t`.

use crate::money::U512;

/// The lowest and the highest tick.
pub(super) const TICK_MAX: i32 = 887_272;
/// Bits behind the point of a square root of a price.
const POINT: usize = 96;
/// Values of the contract that do not fit are computed another way there.
const WORD_BITS: usize = 256;
const WHOLE_PIPS: u32 = 1_000_000;

/// Which token is paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwapDirection {
    /// Token 0 is paid: the price falls.
    ZeroForOne,
    /// Token 1 is paid: the price rises.
    OneForZero,
}

/// `2^128 ÷ 1.0001^(2^n ÷ 2)`, rounded to the nearest integer.
const ROOTS: [u128; 20] = [
    0xfffc_b933_bd6f_ad37_aa2d_162d_1a59_4001,
    0xfff9_7272_373d_4132_59a4_6990_580e_213a,
    0xfff2_e50f_5f65_6932_ef12_357c_f3c7_fdcc,
    0xffe5_caca_7e10_e4e6_1c36_24ea_a094_1cd0,
    0xffcb_9843_d60f_6159_c9db_5883_5c92_6644,
    0xff97_3b41_fa98_c081_472e_6896_dfb2_54c0,
    0xff2e_a164_66c9_6a38_43ec_78b3_26b5_2861,
    0xfe5d_ee04_6a99_a2a8_11c4_61f1_969c_3053,
    0xfcbe_86c7_900a_88ae_dcff_c83b_479a_a3a4,
    0xf987_a725_3ac4_1317_6f2b_074c_f781_5e54,
    0xf339_2b08_22b7_0005_940c_7a39_8e4b_70f3,
    0xe715_9475_a2c2_9b74_43b2_9c7f_a6e8_89d9,
    0xd097_f3bd_fd20_22b8_845a_d8f7_92aa_5825,
    0xa9f7_4646_2d87_0fdf_8a65_dc1f_90e0_61e5,
    0x70d8_69a1_56d2_a1b8_90bb_3df6_2baf_32f7,
    0x31be_135f_97d0_8fd9_8123_1505_542f_cfa6,
    0x09aa_508b_5b7a_84e1_c677_de54_f3e9_9bc9,
    0x005d_6af8_dedb_8119_6699_c329_225e_e604,
    0x0000_2216_e584_f5fa_1ea9_2604_1bed_fe98,
    0x0000_0000_048a_1703_91f7_dc42_444e_8fa2,
];

/// The square root of a tick's price. `None` beyond the outermost ticks.
pub(super) fn at_tick(tick: i32) -> Option<U512> {
    if tick.unsigned_abs() > TICK_MAX.unsigned_abs() {
        return None;
    }
    let one = U512::from(1_u8);
    let mut root: U512 = one << 128;
    for (n, factor) in ROOTS.iter().enumerate() {
        if tick.unsigned_abs() >> n & 1 == 1 {
            root = (root * U512::from(*factor)) >> 128;
        }
    }
    if tick > 0 {
        root = ((one << WORD_BITS) - one) / root;
    }
    // From 128 bits behind the point to 96, rounded up.
    Some(root.div_ceil(one << 32_usize))
}

fn fits(number: &U512) -> bool {
    number.bit_len() <= WORD_BITS
}

/// The amount of token 0 between two prices.
fn amount0(a: U512, b: U512, liquidity: U512, up: bool) -> U512 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    let product = (liquidity << POINT) * (high - low);
    if up { product.div_ceil(high).div_ceil(low) } else { product / high / low }
}

/// The amount of token 1 between two prices.
fn amount1(a: U512, b: U512, liquidity: U512, up: bool) -> U512 {
    let product = liquidity * (if a < b { b - a } else { a - b });
    if up { product.div_ceil(U512::from(1_u8) << POINT) } else { product >> POINT }
}

/// What is paid, without the fee, to move the price: rounded up, or down.
pub(super) fn paid(direction: SwapDirection, from: U512, to: U512, liquidity: U512, up: bool) -> U512 {
    match direction {
        SwapDirection::ZeroForOne => amount0(from, to, liquidity, up),
        SwapDirection::OneForZero => amount1(from, to, liquidity, up),
    }
}

/// What a move of the price gives, rounded down.
pub(super) fn given(direction: SwapDirection, from: U512, to: U512, liquidity: U512) -> U512 {
    match direction {
        SwapDirection::ZeroForOne => amount1(from, to, liquidity, false),
        SwapDirection::OneForZero => amount0(from, to, liquidity, false),
    }
}

/// The price after an input, less its fee. `liquidity` is not zero.
pub(super) fn after_input(direction: SwapDirection, price: U512, liquidity: U512, input: U512) -> U512 {
    match direction {
        SwapDirection::OneForZero => price + (input << POINT) / liquidity,
        SwapDirection::ZeroForOne => {
            let numerator = liquidity << POINT;
            let product = input * price;
            let denominator = numerator + product;
            if fits(&product) && fits(&denominator) {
                (numerator * price).div_ceil(denominator)
            } else {
                numerator.div_ceil(numerator / price + input)
            }
        }
    }
}

/// The price after an output. `None` when the liquidity does not have it. `liquidity` is not zero.
pub(super) fn after_output(
    direction: SwapDirection,
    price: U512,
    liquidity: U512,
    output: U512,
) -> Option<U512> {
    match direction {
        SwapDirection::ZeroForOne => {
            let down = (output << POINT).div_ceil(liquidity);
            price.checked_sub(down).filter(|left| !left.is_zero())
        }
        SwapDirection::OneForZero => {
            let numerator = liquidity << POINT;
            let product = output * price;
            let denominator = numerator.checked_sub(product).filter(|left| !left.is_zero())?;
            fits(&product).then(|| (numerator * price).div_ceil(denominator))
        }
    }
}

/// The part of an input that is left after the fee, rounded down.
pub(super) fn less_fee(input: U512, fee_pips: u32) -> U512 {
    input * U512::from(kept_pips(fee_pips)) / U512::from(WHOLE_PIPS)
}

/// The fee on top of a net input, rounded up.
pub(super) fn fee_on(net: U512, fee_pips: u32) -> U512 {
    (net * U512::from(fee_pips)).div_ceil(U512::from(kept_pips(fee_pips)))
}

/// The largest input whose part after the fee is no more than `net`, about.
pub(super) fn gross_floor(net: U512, fee_pips: u32) -> U512 {
    net * U512::from(WHOLE_PIPS) / U512::from(kept_pips(fee_pips))
}

const fn kept_pips(fee_pips: u32) -> u32 {
    WHOLE_PIPS.saturating_sub(fee_pips)
}

/// Output per input in minor units at a price, after the fee: numerator and denominator, of at most 256 bits.
pub(super) fn rate(direction: SwapDirection, price: U512, fee_pips: u32) -> (U512, U512) {
    let square = price * price;
    let one = U512::from(1_u8) << (2 * POINT);
    let (up, down) = match direction {
        SwapDirection::ZeroForOne => (square, one),
        SwapDirection::OneForZero => (one, square),
    };
    let (num, den) = (up * U512::from(kept_pips(fee_pips)), down * U512::from(WHOLE_PIPS));
    let shift = num.bit_len().max(den.bit_len()).saturating_sub(WORD_BITS);
    (num >> shift, (den >> shift).max(U512::from(1_u8)))
}

/// The price down or up to which one input converts to at least `num ÷ den`, after the fee. `None` beyond the
/// arithmetic.
pub(super) fn at_rate(direction: SwapDirection, (num, den): (U512, U512), fee_pips: u32) -> Option<U512> {
    let one = U512::from(1_u8);
    let (whole, kept) = (U512::from(WHOLE_PIPS), U512::from(kept_pips(fee_pips)));
    let scaled = |n: U512, by: U512| n.checked_mul(by)?.checked_mul(one << (2 * POINT));
    match direction {
        SwapDirection::ZeroForOne => {
            let square = scaled(num, whole)?.checked_div(den.checked_mul(kept)?)?;
            // Not below the exact price.
            crate::money::floor_root(square).checked_add(one)
        }
        SwapDirection::OneForZero => {
            let square = scaled(den, kept)?.checked_div(num.checked_mul(whole)?)?;
            Some(crate::money::floor_root(square))
        }
    }
}
