//! Numbers that a seed gives again (splitmix64).

use std::time::Duration;

pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Less than `sides`.
    pub(crate) const fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    pub(crate) const fn millis(&mut self, sides: u64) -> Duration {
        Duration::from_millis(self.roll(sides))
    }

    /// An index of a list of this length; 0 of an empty one.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        let sides = u64::try_from(length).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.roll(sides)).unwrap_or(0)
    }

    /// One of a list that is not empty.
    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.index(all.len())]
    }

    pub(crate) fn shuffle<T>(&mut self, all: &mut [T]) {
        for n in (1..all.len()).rev() {
            let other = self.index(n + 1);
            all.swap(n, other);
        }
    }
}
