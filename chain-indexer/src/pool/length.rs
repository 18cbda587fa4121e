//! The number of blocks to request from an endpoint at once. Pure.

use crate::reader::Fault;

const RANGE_MAX: u64 = 2_000;
/// The first range: the density of events is not known yet.
const RANGE_FIRST: u64 = 64;
/// The desired number of events in an answer: more take memory and time, fewer cause more requests.
pub(crate) const EVENTS_WANTED: u64 = 4_000;
/// A hint may have been about the number of events, which varies along the chain, so it expires after this many ranges.
const FORGET_HINT_AFTER: u32 = 64;

/// The length of an endpoint's next range: it follows the number of events in the last ones, and refusals.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RangeLength {
    blocks: u64,
    /// The longest range that the endpoint accepts, as far as known.
    max: u64,
    /// Ranges read since the longest one was set.
    at_max: u32,
    /// Whether a range was read, so that its length is meaningful for the next ones.
    probed: bool,
}

impl RangeLength {
    pub(crate) const fn unknown() -> Self {
        Self { blocks: RANGE_FIRST, max: RANGE_MAX, at_max: 0, probed: false }
    }

    pub(crate) const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Whether several ranges of this length may be requested at once.
    pub(crate) const fn is_probed(&self) -> bool {
        self.probed
    }

    /// A range of `requested` blocks had `events` events: the next ones may be longer, beyond a hint only after many,
    /// with about the desired number of events.
    pub(crate) fn worked(&mut self, requested: u64, events: u64) {
        self.at_max += 1;
        if self.at_max >= FORGET_HINT_AFTER {
            self.at_max = 0;
            self.max = (self.max * 2).min(RANGE_MAX);
        }
        self.probed = true;
        let fits = requested.saturating_mul(EVENTS_WANTED) / events.max(1);
        self.blocks = requested.saturating_mul(2).min(self.max).min(fits.max(1));
    }

    /// A range of `requested` blocks could not be read.
    pub(crate) fn failed(&mut self, requested: u64, fault: Fault) {
        let half = (requested / 2).max(1);
        self.blocks = match fault {
            Fault::Range { hint } => {
                let fits = hint.filter(|&hint| hint < requested).unwrap_or(half).max(1);
                if hint.is_some() {
                    self.max = fits;
                    self.at_max = 0;
                }
                fits
            }
            Fault::Limited | Fault::Refused | Fault::Broken => half,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_shrinks_to_the_hint_and_grows_again() {
        let mut length = RangeLength::unknown();
        length.failed(2_000, Fault::Range { hint: Some(800) });
        assert_eq!(length.blocks(), 800);
        length.failed(800, Fault::Broken);
        assert_eq!(length.blocks(), 400);
        length.worked(400, 0);
        length.worked(800, 0);
        assert_eq!(length.blocks(), 800, "no further than the hint");
        (0..FORGET_HINT_AFTER).for_each(|_| length.worked(length.blocks(), 0));
        assert_eq!(length.blocks(), 1_600, "until it is forgotten");
    }

    #[test]
    fn a_range_has_about_the_desired_number_of_events() {
        let mut length = RangeLength::unknown();
        length.worked(64, 64 * 1_000);
        assert_eq!(length.blocks(), 4, "a thousand a block");
        length.worked(4, 4);
        assert_eq!(length.blocks(), 8, "no more than double");
        length.worked(8, u64::MAX);
        assert_eq!(length.blocks(), 1, "never nothing");
    }

    #[test]
    fn concurrent_ranges_of_one_length_count_once() {
        let mut length = RangeLength::unknown();
        (0..4).for_each(|_| length.worked(64, 0));
        assert_eq!(length.blocks(), 128);
    }
}
