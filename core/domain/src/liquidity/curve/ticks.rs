//! A pool with concentrated liquidity (Uniswap v3): its liquidity changes at ticks.
//!
//! The curve is a list of steps, each with one liquidity. A step ends where the contract's swap ends one: at a tick with
//! liquidity, and at each end of a word of the tick bitmap, because the contract rounds there. Beyond the ticks that
//! were read the curve ends.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::sqrt_price::{self, SwapDirection, TICK_MAX};
use crate::money::{Minor, Ratio, U512};

/// Ticks in a word of the tick bitmap.
const WORD_TICKS: i32 = 256;
/// More than a reading has.
const STEPS_MAX: usize = 1024;

/// A pool's state as read at one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TickState {
    /// The square root of the price of token 0 in token 1, times 2^96.
    pub sqrt_price: [u64; 4],
    pub tick: i32,
    pub liquidity: u128,
    pub tick_spacing: i32,
    /// In millionths of the input.
    pub fee_pips: u32,
    /// The change of the liquidity at each tick that has any, when the price rises over it.
    pub net: BTreeMap<i32, i128>,
    /// The ticks that were read: `net` has all changes of this range.
    pub known: RangeInclusive<i32>,
}

/// A part of the curve with one liquidity.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    from: U512,
    to: U512,
    liquidity: U512,
    /// For the whole step, the fee included.
    input: u128,
    output: u128,
    /// Of the steps before.
    paid: u128,
    taken: u128,
}

/// A pool with concentrated liquidity, in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TickPool {
    direction: SwapDirection,
    fee_pips: u32,
    steps: Arc<[Step]>,
    depth: Minor,
}

impl TickState {
    /// The next tick at which a step ends, and whether liquidity changes there.
    fn next_tick(&self, tick: i32, direction: SwapDirection) -> Option<(i32, bool)> {
        let spacing = self.tick_spacing;
        let compressed = tick.div_euclid(spacing);
        let end = match direction {
            SwapDirection::ZeroForOne => compressed.div_euclid(WORD_TICKS).checked_mul(WORD_TICKS)?,
            SwapDirection::OneForZero => {
                let word = compressed.checked_add(1)?.div_euclid(WORD_TICKS);
                word.checked_mul(WORD_TICKS)?.checked_add(WORD_TICKS - 1)?
            }
        };
        let end = end.checked_mul(spacing)?;
        let found = match direction {
            SwapDirection::ZeroForOne => self.net.range(end..=tick).next_back(),
            SwapDirection::OneForZero => self.net.range(tick.checked_add(1)?..=end).next(),
        };
        Some(found.map_or((end, false), |(tick, _)| (*tick, true)))
    }
}

impl Step {
    fn new(
        direction: SwapDirection,
        (from, to): (U512, U512),
        liquidity: u128,
        fee_pips: u32,
        before: Option<&Self>,
    ) -> Option<Self> {
        let liquidity = U512::from(liquidity);
        let net = sqrt_price::paid(direction, from, to, liquidity, true);
        let input = u128::try_from(net + sqrt_price::fee_on(net, fee_pips)).ok()?;
        let output = u128::try_from(sqrt_price::given(direction, from, to, liquidity)).ok()?;
        let (paid, taken) = match before {
            Some(before) => before.end()?,
            None => (0, 0),
        };
        let step = Self { from, to, liquidity, input, output, paid, taken };
        step.end().map(|_| step)
    }

    /// What is paid and taken at its end.
    fn end(&self) -> Option<(u128, u128)> {
        Some((self.paid.checked_add(self.input)?, self.taken.checked_add(self.output)?))
    }
}

impl TickPool {
    /// `None` for a state that no pool has, and for one without liquidity in this direction.
    pub fn new(state: &TickState, direction: SwapDirection) -> Option<Self> {
        let is_valid = state.tick_spacing > 0 && state.fee_pips < 1_000_000;
        let mut price = U512::from_limbs_slice(&state.sqrt_price);
        if !is_valid || price.is_zero() || !state.known.contains(&state.tick) {
            return None;
        }
        let (mut tick, mut liquidity) = (state.tick, state.liquidity);
        let mut steps: Vec<Step> = Vec::new();
        while steps.len() < STEPS_MAX {
            let Some((next, is_changing)) = state.next_tick(tick, direction) else { break };
            let bounded = next.clamp(-TICK_MAX, TICK_MAX);
            if !state.known.contains(&bounded) {
                break;
            }
            let Some(to) = sqrt_price::at_tick(bounded) else { break };
            let step = Step::new(direction, (price, to), liquidity, state.fee_pips, steps.last());
            // Beyond 2^128 - 1.
            let Some(step) = step else { break };
            steps.push(step);
            let change = if is_changing { state.net.get(&next).copied().unwrap_or_default() } else { 0 };
            let changed = match direction {
                SwapDirection::ZeroForOne => {
                    change.checked_neg().and_then(|c| liquidity.checked_add_signed(c))
                }
                SwapDirection::OneForZero => liquidity.checked_add_signed(change),
            };
            let Some(changed) = changed.filter(|_| bounded.unsigned_abs() < TICK_MAX.unsigned_abs()) else {
                break;
            };
            (liquidity, price) = (changed, to);
            tick = match direction {
                SwapDirection::ZeroForOne => bounded.saturating_sub(1),
                SwapDirection::OneForZero => bounded,
            };
        }
        let depth = steps.last().and_then(Step::end).map(|(_, taken)| Minor::new(taken))?;
        let pool = Self { direction, fee_pips: state.fee_pips, steps: steps.into(), depth };
        (!depth.is_zero()).then_some(pool)
    }

    /// The pool, limited to the point at which the next unit would cost more than at `worst`.
    #[must_use]
    pub fn until(self, worst: &Ratio) -> Self {
        let end = self.forward(self.input_until(worst)).unwrap_or_default();
        Self { depth: end.min(self.depth), ..self }
    }

    /// The pool without any output to give.
    #[must_use]
    pub fn emptied(self) -> Self {
        Self { depth: Minor::ZERO, ..self }
    }

    /// The most output that the pool gives.
    pub const fn depth(&self) -> Minor {
        self.depth
    }

    /// The output for `input`, as the contract gives it. `None` beyond the curve's end.
    pub fn forward(&self, input: Minor) -> Option<Minor> {
        let input = input.get();
        let at = self.steps.partition_point(|step| step.end().is_some_and(|(paid, _)| paid < input));
        let step = self.steps.get(at)?;
        let rest = input.checked_sub(step.paid)?;
        if rest == step.input {
            return step.taken.checked_add(step.output).map(Minor::new);
        }
        let net = sqrt_price::less_fee(U512::from(rest), self.fee_pips);
        let price = sqrt_price::after_input(self.direction, step.from, step.liquidity, net);
        let given = sqrt_price::given(self.direction, step.from, price, step.liquidity);
        step.taken.checked_add(u128::try_from(given).ok()?).map(Minor::new)
    }

    /// What the contract takes for exactly this output. A smaller input may give as much: see
    /// [`inverse`](Self::inverse). `None` beyond the curve's end.
    pub fn exact_output(&self, output: Minor) -> Option<Minor> {
        let output = output.get();
        let at = self.steps.partition_point(|step| step.end().is_some_and(|(_, taken)| taken < output));
        let step = self.steps.get(at)?;
        let rest = output.checked_sub(step.taken)?;
        if rest == step.output {
            return step.paid.checked_add(step.input).map(Minor::new);
        }
        let price = sqrt_price::after_output(self.direction, step.from, step.liquidity, U512::from(rest))?;
        let net = sqrt_price::paid(self.direction, step.from, price, step.liquidity, true);
        let gross = u128::try_from(net + sqrt_price::fee_on(net, self.fee_pips)).ok()?;
        step.paid.checked_add(gross).map(Minor::new)
    }

    /// The smallest input for `output`. `None` when there is none.
    pub fn inverse(&self, output: Minor) -> Option<Minor> {
        if output.is_zero() {
            return Some(Minor::ZERO);
        }
        let reaches = |input: u128| self.forward(Minor::new(input)).is_some_and(|reached| reached >= output);
        let mut enough = self.exact_output(output)?.get();
        // The distance is a rounding: it is doubled until an input is too small, and then halved.
        let (mut distance, mut short) = (1_u128, None);
        while short.is_none() {
            let below = enough.saturating_sub(distance);
            if below > 0 && reaches(below) {
                (enough, distance) = (below, distance.saturating_mul(2));
            } else {
                short = Some(below);
            }
        }
        let mut short = short.unwrap_or_default();
        while enough.saturating_sub(short) > 1 {
            let middle = u128::midpoint(short, enough);
            if reaches(middle) { enough = middle } else { short = middle }
        }
        reaches(enough).then_some(Minor::new(enough))
    }

    /// The price of the first unit.
    pub fn spot(&self) -> Ratio {
        let first = self.steps.iter().find(|step| step.output > 0);
        let (num, den) = first.map_or((U512::ZERO, U512::from(1_u8)), |step| {
            sqrt_price::rate(self.direction, step.from, self.fee_pips)
        });
        Ratio { num, den }
    }

    /// The input up to which the next unit costs no more than at `ratio`, rounded down. Zero when it costs more from
    /// the start.
    pub fn input_until(&self, ratio: &Ratio) -> Minor {
        let Some(price) = sqrt_price::at_rate(self.direction, (ratio.num, ratio.den), self.fee_pips) else {
            return Minor::ZERO;
        };
        let is_before = |end: &U512| match self.direction {
            SwapDirection::ZeroForOne => *end >= price,
            SwapDirection::OneForZero => *end <= price,
        };
        let at = self.steps.partition_point(|step| is_before(&step.to));
        let Some(step) = self.steps.get(at) else {
            return self.steps.last().and_then(Step::end).map_or(Minor::ZERO, |(paid, _)| Minor::new(paid));
        };
        if !is_before(&step.from) {
            return Minor::new(step.paid);
        }
        let net = sqrt_price::paid(self.direction, step.from, price, step.liquidity, false);
        let gross = u128::try_from(sqrt_price::gross_floor(net, self.fee_pips)).unwrap_or(u128::MAX);
        Minor::new(step.paid.saturating_add(gross.min(step.input)))
    }
}

/// The price of token 1 per token 0, or the other way round, at a tick: without a fee.
pub fn tick_price(tick: i32, direction: SwapDirection) -> Option<Ratio> {
    let (num, den) = sqrt_price::rate(direction, sqrt_price::at_tick(tick)?, 0);
    (!num.is_zero()).then_some(Ratio { num, den })
}

#[cfg(test)]
mod tests;
