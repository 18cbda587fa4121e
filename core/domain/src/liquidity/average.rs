//! Time-weighted average prices of a constant-product pair, from its cumulative prices.
//!
//! A pair adds `price × seconds` to its cumulative prices at the first trade of a block. Between two moments the
//! average price is the difference of the cumulative prices divided by the seconds; both run over, and the difference
//! stays right. A single trade moves the spot price at once, and the average only by what it lasts.
//!
//! Invariants: the number of kept moments is bounded; no average is made over less than the window, nor over more than
//! twice of it.

use std::collections::VecDeque;

use ruint::aliases::U256;

use crate::money::{Ratio, U512};

/// Bits behind the point of the pair's prices.
const POINT: usize = 112;
/// Kept moments to a window, about.
const TO_A_WINDOW: u32 = 32;
const _: () = assert!(TO_A_WINDOW > 0, "a window is divided");

/// What a pair contract says at a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairState {
    pub reserve0: u128,
    pub reserve1: u128,
    /// The time of the last accumulation, modulo 2^32.
    pub accumulated_at: u32,
    /// Of token 0 in token 1, and of token 1 in token 0, with 112 bits behind the point, times seconds.
    pub cumulative: [U256; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cumulative {
    /// Unix seconds.
    pub time: u64,
    pub prices: [U256; 2],
}

impl PairState {
    /// What the pair would accumulate at `time`, the time of its block. `None` without reserves.
    pub fn at(&self, time: u64) -> Option<Cumulative> {
        let passed = mod_u32(time).wrapping_sub(self.accumulated_at);
        let [first, second] = self.cumulative;
        let (zero, one) = (self.reserve0, self.reserve1);
        let grown = |known: U256, num: u128, den: u128| {
            let price = (U256::from(num) << POINT).checked_div(U256::from(den))?;
            (!price.is_zero()).then(|| known.wrapping_add(price.wrapping_mul(U256::from(passed))))
        };
        Some(Cumulative { time, prices: [grown(first, one, zero)?, grown(second, zero, one)?] })
    }
}

fn mod_u32(time: u64) -> u32 {
    let [_, _, _, _, a, b, c, d] = time.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// The moments of a pair that an average is made from.
#[derive(Debug, Clone)]
pub struct History {
    window_secs: u32,
    kept: VecDeque<Cumulative>,
    newest: Option<Cumulative>,
}

impl History {
    pub const fn new(window_secs: u32) -> Self {
        Self { window_secs, kept: VecDeque::new(), newest: None }
    }

    /// Adds a moment. One that is not newer than the newest is of an endpoint that lags.
    pub fn add(&mut self, now: Cumulative) {
        if self.newest.is_some_and(|newest| now.time <= newest.time) {
            return;
        }
        self.newest = Some(now);
        let spacing = u64::from(self.window_secs.div_ceil(TO_A_WINDOW));
        let age = |kept: &Cumulative| now.time.saturating_sub(kept.time);
        if self.kept.back().is_none_or(|last| age(last) >= spacing) {
            self.kept.push_back(now);
        }
        let window = u64::from(self.window_secs);
        // Of those that are as old as the window, the newest is needed alone.
        while self.kept.get(1).is_some_and(|second| age(second) >= window) {
            self.kept.pop_front();
        }
        if self.kept.front().is_some_and(|first| age(first) > window.saturating_mul(2)) {
            self.kept.pop_front();
        }
    }

    /// The average prices of token 0 in token 1 and of token 1 in token 0, over the window and a little more. `None`
    /// until there is a moment that is old enough.
    pub fn average(&self) -> Option<[Ratio; 2]> {
        let (first, newest) = (self.kept.front()?, self.newest?);
        let seconds = newest.time.checked_sub(first.time)?;
        if seconds < u64::from(self.window_secs.max(1)) {
            return None;
        }
        let of = |then: U256, now: U256| {
            let num = U512::from(now.wrapping_sub(then));
            let den = U512::from(seconds) << POINT;
            (!num.is_zero()).then_some(Ratio { num, den })
        };
        let ([a, b], [c, d]) = (first.prices, newest.prices);
        Some([of(a, c)?, of(b, d)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::money::Minor;

    /// A pair that trades at these times to these reserves, and is read at each second.
    struct Pair {
        state: PairState,
        history: History,
        now: u64,
    }

    impl Pair {
        fn new(start: u64, cumulative: U256, window: u32) -> Self {
            let state = PairState {
                reserve0: 1_000,
                reserve1: 2_000,
                accumulated_at: mod_u32(start),
                cumulative: [cumulative; 2],
            };
            Self { state, history: History::new(window), now: start }
        }

        fn run(&mut self, seconds: u64) {
            for _ in 0..seconds {
                self.now += 1;
                self.history.add(self.state.at(self.now).unwrap());
            }
        }

        /// As the contract does at the first trade of a block.
        fn trade(&mut self, reserve0: u128, reserve1: u128) {
            let cumulative = self.state.at(self.now).unwrap().prices;
            self.state = PairState { reserve0, reserve1, accumulated_at: mod_u32(self.now), cumulative };
        }

        /// What a million units convert to at the averages.
        fn average(&self) -> Option<[u128; 2]> {
            let million = |ratio: Ratio| ratio.forward(Minor::new(1_000_000)).unwrap().amount.get();
            self.history.average().map(|both| both.map(million))
        }
    }

    #[test]
    fn an_average_needs_the_window_and_a_trade_moves_it_by_its_share_of_time() {
        // Both the clock of the contract and its sums run over meanwhile.
        let start = (1_u64 << 32) - 100;
        for cumulative in [U256::ZERO, U256::MAX - (U256::from(7_u8) << POINT)] {
            let mut pair = Pair::new(start, cumulative, 600);
            pair.run(600);
            assert_eq!(pair.average(), None, "599 seconds were seen");
            pair.run(1);
            assert_eq!(pair.average(), Some([2_000_000, 500_000]));
            // A trade to four times the price lasts a minute of ten.
            pair.trade(500, 4_000);
            assert_eq!(pair.average(), Some([2_000_000, 500_000]), "in its own block it moves nothing");
            pair.run(60);
            let [there, back] = pair.average().unwrap();
            assert!((2_550_000..=2_620_000).contains(&there), "{there}");
            assert!((459_000..=463_000).contains(&back), "{back}");
            pair.trade(1_000, 2_000);
            pair.run(700);
            assert_eq!(pair.average(), Some([2_000_000, 500_000]));
        }
    }

    #[test]
    fn the_kept_moments_are_bounded_and_an_outage_leaves_no_average() {
        let mut pair = Pair::new(1_800_000_000, U256::ZERO, 600);
        pair.run(5_000);
        assert!(pair.history.kept.len() <= 34, "{}", pair.history.kept.len());
        assert!(pair.average().is_some());
        let lagging = pair.state.at(pair.now - 50).unwrap();
        let newest = pair.history.newest;
        pair.history.add(lagging);
        assert_eq!(pair.history.newest, newest, "an endpoint that lags changes nothing");
        pair.now += 1_300;
        pair.run(1);
        assert_eq!(pair.average(), None, "an average over the outage says nothing of now");
        pair.run(600);
        assert!(pair.average().is_some());
    }

    #[test]
    fn a_pair_without_reserves_has_no_price() {
        let state = PairState { reserve0: 0, reserve1: 5, accumulated_at: 0, cumulative: [U256::ZERO; 2] };
        assert_eq!(state.at(9), None);
    }
}
