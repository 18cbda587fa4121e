//! The endpoints of one chain: which one a step asks, and which sit out.
//!
//! A step asks one endpoint, so that its answers come from one view of the chain; a step that fails because of what
//! the endpoint said, or did not say, costs it some turns. Time is counted in turns, not by a clock: a chain that is
//! asked more often forgives sooner.

use crate::reader::Fault;
use std::sync::Arc;

/// The longest range asked for.
const RANGE_MAX: u64 = 2_000;
/// The first range: how many events there are is not known yet.
const RANGE_FIRST: u64 = 64;
/// So many events make a good answer: more cost memory and take long, fewer cost exchanges.
pub(crate) const EVENTS_WANTED: u64 = 4_000;
/// After so many failures in a row the pause does not grow any more.
const STRIKES_MAX: u32 = 6;
/// A hint may have been about the number of events, which is another one elsewhere in the chain.
const FORGET_HINT_AFTER: u32 = 64;

#[derive(Debug)]
pub(crate) struct Endpoint<R> {
    pub(crate) reader: Arc<R>,
    /// Whether it was asked which chain it is on.
    pub(crate) chain_checked: bool,
    /// The newest head and finalized block it has told of.
    pub(crate) told: (u64, u64),
    /// Whether it has ever told a finalized block, and how often it has not before.
    pub(crate) knows_finalized: bool,
    pub(crate) tagless: u32,
    /// How often in a row its finalized block was lower than before though its head was not.
    pub(crate) regressions: u32,
    /// Blocks in a range.
    range: u64,
    /// The longest range it takes, as far as we know.
    range_max: u64,
    /// Ranges read since the longest one was set.
    at_max: u32,
    /// Whether a range was read, so that its length says something about the next ones.
    probed: bool,
    out_until: u64,
    strikes: u32,
}

/// Never empty.
#[derive(Debug)]
pub(crate) struct Pool<R> {
    endpoints: Vec<Endpoint<R>>,
    pinned: usize,
    turn: u64,
}

impl<R> Pool<R> {
    /// `None` without endpoints.
    pub(crate) fn new(readers: Vec<R>) -> Option<Self> {
        let endpoints: Vec<_> = readers
            .into_iter()
            .map(|reader| Endpoint {
                reader: Arc::new(reader),
                chain_checked: false,
                told: (0, 0),
                knows_finalized: false,
                tagless: 0,
                regressions: 0,
                range: RANGE_FIRST,
                range_max: RANGE_MAX,
                at_max: 0,
                probed: false,
                out_until: 0,
                strikes: 0,
            })
            .collect();
        (!endpoints.is_empty()).then_some(Self { endpoints, pinned: 0, turn: 0 })
    }

    /// The endpoint for the next step: the same as before unless it sits out; when all do, the one whose turn comes
    /// first.
    pub(crate) fn pick(&mut self) -> usize {
        self.turn += 1;
        if self.endpoints[self.pinned].out_until > self.turn {
            let (pinned, count) = (self.pinned, self.endpoints.len());
            let others = (0..count).map(|step| (pinned + step) % count);
            self.pinned =
                others.min_by_key(|&at| self.endpoints[at].out_until.max(self.turn)).unwrap_or(pinned);
        }
        self.pinned
    }

    pub(crate) fn len(&self) -> usize {
        self.endpoints.len()
    }

    pub(crate) fn at(&self, at: usize) -> &Endpoint<R> {
        &self.endpoints[at]
    }

    pub(crate) fn at_mut(&mut self, at: usize) -> &mut Endpoint<R> {
        &mut self.endpoints[at]
    }

    /// The other endpoints, those first that do not sit out.
    pub(crate) fn others(&self, but: usize) -> Vec<Arc<R>> {
        let mut others: Vec<usize> = (0..self.len()).filter(|&at| at != but).collect();
        others.sort_by_key(|&at| self.endpoints[at].out_until > self.turn);
        others.into_iter().map(|at| Arc::clone(&self.endpoints[at].reader)).collect()
    }

    /// A length that every endpoint takes, as far as we know.
    pub(crate) fn shortest_range(&self) -> u64 {
        self.endpoints.iter().map(|endpoint| endpoint.range).min().unwrap_or(1).max(1)
    }

    /// The endpoint did its part.
    pub(crate) fn praise(&mut self, at: usize) {
        self.endpoints[at].strikes = 0;
    }

    /// The step failed because of the endpoint: it sits out, longer each time in a row.
    pub(crate) fn strike(&mut self, at: usize) {
        let turn = self.turn;
        let endpoint = &mut self.endpoints[at];
        endpoint.strikes = (endpoint.strikes + 1).min(STRIKES_MAX);
        endpoint.out_until = turn + (1 << endpoint.strikes);
    }

    /// The endpoint is behind: another one may know more.
    pub(crate) fn rotate(&mut self) {
        self.pinned = (self.pinned + 1) % self.endpoints.len();
    }
}

impl<R> Endpoint<R> {
    pub(crate) fn range(&self) -> u64 {
        self.range
    }

    /// Whether several ranges of this length may be asked for at once.
    pub(crate) fn is_probed(&self) -> bool {
        self.probed
    }

    /// Ranges were read, the fullest one with so many events: the next ones may be longer, beyond a hint only after
    /// many, and hold about as many events as we want.
    pub(crate) fn range_worked(&mut self, fullest: u64) {
        self.at_max += 1;
        if self.at_max >= FORGET_HINT_AFTER {
            self.at_max = 0;
            self.range_max = (self.range_max * 2).min(RANGE_MAX);
        }
        self.probed = true;
        let fits = self.range.saturating_mul(EVENTS_WANTED) / fullest.max(1);
        self.range = (self.range * 2).min(self.range_max).min(fits.max(1));
    }

    /// A range of so many blocks was not read.
    pub(crate) fn range_failed(&mut self, asked: u64, fault: Fault) {
        let half = (asked / 2).max(1);
        self.range = match fault {
            Fault::Range { hint } => {
                let fits = hint.filter(|&hint| hint < asked).unwrap_or(half).max(1);
                if hint.is_some() {
                    self.range_max = fits;
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
    fn an_endpoint_that_fails_sits_out_and_comes_back() {
        let mut pool = Pool::new(vec!["a", "b"]).unwrap();
        assert_eq!((pool.pick(), pool.pick()), (0, 0), "pinned");
        pool.strike(0);
        assert_eq!(pool.pick(), 1);
        pool.strike(1);
        pool.strike(1);
        let picks: Vec<usize> = (0..4).map(|_| pool.pick()).collect();
        assert!(picks.contains(&0), "{picks:?}");
    }

    #[test]
    fn a_range_shrinks_to_the_hint_and_grows_again() {
        let mut pool = Pool::new(vec![()]).unwrap();
        let endpoint = pool.at_mut(0);
        endpoint.range_failed(2_000, Fault::Range { hint: Some(800) });
        assert_eq!(endpoint.range(), 800);
        endpoint.range_failed(800, Fault::Broken);
        assert_eq!(endpoint.range(), 400);
        endpoint.range_worked(0);
        endpoint.range_worked(0);
        assert_eq!(endpoint.range(), 800, "no further than the hint");
        (0..FORGET_HINT_AFTER).for_each(|_| endpoint.range_worked(0));
        assert_eq!(endpoint.range(), 1_600, "until it is forgotten");
    }

    #[test]
    fn a_range_holds_about_as_many_events_as_are_wanted() {
        let mut pool = Pool::new(vec![()]).unwrap();
        let endpoint = pool.at_mut(0);
        endpoint.range_worked(64 * 1_000);
        assert_eq!(endpoint.range(), 4, "a thousand a block");
        endpoint.range_worked(4);
        assert_eq!(endpoint.range(), 8, "no more than double");
        endpoint.range_worked(u64::MAX);
        assert_eq!(endpoint.range(), 1, "never nothing");
    }
}
