//! Random choices from a seed: the same seed makes the same choices, in the order of the calls.

/// SplitMix64. Not for secrets.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// `from` to `to`, both included.
    pub const fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from + 1)
    }

    /// True in this many cases of a thousand.
    pub const fn chance(&mut self, per_mille: u64) -> bool {
        self.next() % 1_000 < per_mille
    }

    /// One of the list.
    ///
    /// # Panics
    /// When it is empty.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let count = u64::try_from(from.len()).unwrap_or(u64::MAX);
        let at = usize::try_from(self.next() % count.max(1)).unwrap_or_default();
        &from[at]
    }
}
