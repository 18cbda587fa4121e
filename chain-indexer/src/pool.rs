//! The endpoints of one chain: which one a step queries, and which are suspended.
//!
//! A step queries one endpoint, so that its answers come from one view of the chain; an endpoint whose answer, or
//! silence, made a step fail is suspended for some turns. Time is counted in turns, not by a clock: a chain that is
//! queried more often resumes its endpoints sooner.

mod length;

use std::sync::Arc;

pub(crate) use length::{EVENTS_WANTED, RangeLength};

/// After this many consecutive failures the suspension does not grow any more.
const FAILURES_MAX: u32 = 6;

#[derive(Debug)]
pub(crate) struct Endpoint<R> {
    pub(crate) reader: Arc<R>,
    /// Whether its chain id was checked.
    pub(crate) chain_checked: bool,
    /// Whether it has ever reported a finalized block, and how often it has not before.
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

    /// The endpoint for the next step: the same as before unless it is suspended; when all are, the one whose
    /// suspension ends first.
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

    /// The other endpoints, those that are not suspended first.
    pub(crate) fn others(&self, but: usize) -> Vec<Arc<R>> {
        let mut others: Vec<usize> = (0..self.len()).filter(|&at| at != but).collect();
        others.sort_by_key(|&at| self.endpoints[at].out_until > self.turn);
        others.into_iter().map(|at| Arc::clone(&self.endpoints[at].reader)).collect()
    }

    /// A range length that every endpoint accepts, as far as known.
    pub(crate) fn shortest_range(&self) -> u64 {
        self.endpoints.iter().map(|endpoint| endpoint.length.blocks()).min().unwrap_or(1).max(1)
    }

    /// The endpoint answered correctly.
    pub(crate) fn record_success(&mut self, at: usize) {
        self.endpoints[at].failures = 0;
    }

    /// The step failed because of the endpoint: it is suspended, longer after each consecutive failure.
    pub(crate) fn record_failure(&mut self, at: usize) {
        let turn = self.turn;
        let endpoint = &mut self.endpoints[at];
        endpoint.failures = (endpoint.failures + 1).min(FAILURES_MAX);
        endpoint.out_until = turn + (1 << endpoint.failures);
    }

    /// The endpoint lags: another one may be ahead.
    pub(crate) fn rotate(&mut self) {
        self.pinned = (self.pinned + 1) % self.endpoints.len();
    }

    /// This endpoint is ahead of the others.
    pub(crate) const fn pin(&mut self, at: usize) {
        self.pinned = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_endpoint_is_suspended_and_resumed() {
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
