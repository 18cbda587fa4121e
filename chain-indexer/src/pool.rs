//! The endpoints of one chain: which one a step asks, and which sit out.
//!
//! A step asks one endpoint, so that its answers come from one view of the chain; a step that fails because of what
//! the endpoint said, or did not say, costs it some turns. Time is counted in turns, not by a clock: a chain that is
//! asked more often forgives sooner.

mod length;

use std::sync::Arc;

pub(crate) use length::{EVENTS_WANTED, RangeLength};

/// After so many failures in a row the pause does not grow any more.
const FAILURES_MAX: u32 = 6;

#[derive(Debug)]
pub(crate) struct Endpoint<R> {
    pub(crate) reader: Arc<R>,
    /// Whether it was asked which chain it is on.
    pub(crate) chain_checked: bool,
    /// Whether it has ever told a finalized block, and how often it has not before.
    pub(crate) knows_finalized: bool,
    pub(crate) tagless: u32,
    pub(crate) length: RangeLength,
    out_until: u64,
    failures: u32,
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
                knows_finalized: false,
                tagless: 0,
                length: RangeLength::unknown(),
                out_until: 0,
                failures: 0,
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
        self.endpoints.iter().map(|endpoint| endpoint.length.blocks()).min().unwrap_or(1).max(1)
    }

    /// The endpoint did its part.
    pub(crate) fn record_success(&mut self, at: usize) {
        self.endpoints[at].failures = 0;
    }

    /// The step failed because of the endpoint: it sits out, longer each time in a row.
    pub(crate) fn record_failure(&mut self, at: usize) {
        let turn = self.turn;
        let endpoint = &mut self.endpoints[at];
        endpoint.failures = (endpoint.failures + 1).min(FAILURES_MAX);
        endpoint.out_until = turn + (1 << endpoint.failures);
    }

    /// The endpoint is behind: another one may know more.
    pub(crate) fn rotate(&mut self) {
        self.pinned = (self.pinned + 1) % self.endpoints.len();
    }

    /// This endpoint knows more than the others.
    pub(crate) const fn pin(&mut self, at: usize) {
        self.pinned = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_fails_sits_out_and_comes_back() {
        let mut pool = Pool::new(vec!["a", "b"]).unwrap();
        assert_eq!((pool.pick(), pool.pick()), (0, 0), "pinned");
        pool.record_failure(0);
        assert_eq!(pool.pick(), 1);
        pool.record_failure(1);
        pool.record_failure(1);
        let picks: Vec<usize> = (0..4).map(|_| pool.pick()).collect();
        assert!(picks.contains(&0), "{picks:?}");
    }
}
