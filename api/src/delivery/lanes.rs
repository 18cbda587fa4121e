//! Who may have how much: a lane for each endpoint that has work in hand.
//!
//! A lane begins with a few requests at a time and doubles with its successes up to the cap; a failure halves it, and
//! an endpoint that lets us wait falls to one. So an endpoint that never answers holds one request and one delivery,
//! and the others do not notice it.
//!
//! Pure: the worker tells what happened and takes what may start.

use std::collections::{HashMap, VecDeque};

/// What a lane begins with.
const START: usize = 8;
/// A lane that does well holds so many times more than it has under way, so that it need not wait for a claim.
const AHEAD: usize = 16;
/// Lanes that are remembered for doing badly.
const REMEMBERED: usize = 100_000;

struct Lane<J> {
    allowed: usize,
    under_way: usize,
    waiting: VecDeque<J>,
}

impl<J> Lane<J> {
    const fn new(cap: usize) -> Self {
        Self { allowed: if START < cap { START } else { cap }, under_way: 0, waiting: VecDeque::new() }
    }

    fn in_hand(&self) -> usize {
        self.under_way.saturating_add(self.waiting.len())
    }

    /// A lane that did badly holds nothing in advance.
    const fn capacity(&self, cap: usize) -> usize {
        let well = self.allowed >= if START < cap { START } else { cap };
        if well { self.allowed.saturating_mul(AHEAD) } else { self.allowed }
    }
}

/// How a request went, as a lane sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Went {
    Well,
    Badly,
    /// It let us wait until we gave up.
    Hanging,
}

pub(super) struct Lanes<J> {
    cap: usize,
    lanes: HashMap<String, Lane<J>>,
}

impl<J> Lanes<J> {
    pub(super) fn new(cap: usize) -> Self {
        Self { cap: cap.max(1), lanes: HashMap::new() }
    }

    /// How much more an endpoint may have.
    pub(super) fn room(&self, endpoint: &str) -> usize {
        match self.lanes.get(endpoint) {
            Some(lane) => lane.capacity(self.cap).saturating_sub(lane.in_hand()),
            None => Lane::<J>::new(self.cap).capacity(self.cap),
        }
    }

    /// Takes a job in. It waits until [`start`](Self::start).
    pub(super) fn push(&mut self, endpoint: &str, job: J) {
        let cap = self.cap;
        let lane = self.lanes.entry(endpoint.to_owned()).or_insert_with(|| Lane::new(cap));
        lane.waiting.push_back(job);
    }

    /// The next job of an endpoint that may start now.
    pub(super) fn start(&mut self, endpoint: &str) -> Option<J> {
        let lane = self.lanes.get_mut(endpoint)?;
        if lane.under_way >= lane.allowed {
            return None;
        }
        let job = lane.waiting.pop_front()?;
        lane.under_way = lane.under_way.saturating_add(1);
        Some(job)
    }

    /// A job that was started is over. Returns whether its lane has room enough to claim more.
    pub(super) fn finish(&mut self, endpoint: &str, went: Went) -> bool {
        let cap = self.cap;
        let Some(lane) = self.lanes.get_mut(endpoint) else { return false };
        lane.under_way = lane.under_way.saturating_sub(1);
        lane.allowed = match went {
            Went::Well => lane.allowed.saturating_mul(2).min(cap),
            Went::Badly => (lane.allowed / 2).max(1),
            Went::Hanging => 1,
        };
        let roomy = lane.in_hand().saturating_mul(2) <= lane.capacity(cap) && lane.allowed > 1;
        let forget = lane.in_hand() == 0 && lane.allowed >= START.min(cap);
        if forget || self.lanes.len() > REMEMBERED {
            self.lanes.retain(|_, lane| lane.in_hand() > 0 || (!forget && lane.allowed < START.min(cap)));
        }
        roomy
    }

    /// Gives back what has not started.
    pub(super) fn drop_waiting(&mut self, endpoint: &str) -> Vec<J> {
        let Some(lane) = self.lanes.get_mut(endpoint) else { return Vec::new() };
        lane.waiting.drain(..).collect()
    }

    /// Gives back the last of what waits, as far as it is more than the lane may hold by now.
    pub(super) fn drop_surplus(&mut self, endpoint: &str) -> Vec<J> {
        let cap = self.cap;
        let Some(lane) = self.lanes.get_mut(endpoint) else { return Vec::new() };
        let kept = lane.capacity(cap).saturating_sub(lane.under_way).min(lane.waiting.len());
        lane.waiting.split_off(kept).into()
    }

    /// The endpoints with jobs that have not started.
    pub(super) fn waiting(&self) -> Vec<String> {
        let waits = self.lanes.iter().filter(|(_, lane)| !lane.waiting.is_empty());
        waits.map(|(endpoint, _)| endpoint.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_hangs_holds_one_request_and_claims_nothing_ahead() {
        let mut lanes = Lanes::new(32);
        for n in 0..8 {
            lanes.push("slow", n);
        }
        let started = std::iter::from_fn(|| lanes.start("slow")).count();
        assert_eq!(started, START);
        for _ in 0..started {
            lanes.finish("slow", Went::Hanging);
        }
        assert_eq!(lanes.room("slow"), 1);
        lanes.push("slow", 8);
        lanes.push("slow", 9);
        assert_eq!(std::iter::from_fn(|| lanes.start("slow")).count(), 1);
        assert_eq!(lanes.room("slow"), 0);
    }

    #[test]
    fn a_lane_that_does_badly_gives_back_what_it_holds_in_advance() {
        let mut lanes = Lanes::new(32);
        for n in 0..300 {
            lanes.push("e", n);
        }
        for _ in 0..8 {
            assert!(lanes.start("e").is_some());
            lanes.finish("e", Went::Well);
        }
        assert!(lanes.drop_surplus("e").is_empty());
        assert!(lanes.start("e").is_some());
        lanes.finish("e", Went::Hanging);
        let given_back = lanes.drop_surplus("e");
        assert_eq!((given_back.first(), given_back.len()), (Some(&10), 290));
        assert_eq!(lanes.start("e"), Some(9));
    }

    #[test]
    fn success_widens_a_lane_to_the_cap_and_a_lane_at_rest_is_forgotten() {
        let mut lanes = Lanes::new(32);
        for n in 0..300 {
            lanes.push("fast", n);
        }
        let mut under_way = 0_usize;
        let mut widest = 0;
        let mut done = 0;
        while done < 300 {
            while lanes.start("fast").is_some() {
                under_way += 1;
            }
            widest = widest.max(under_way);
            lanes.finish("fast", Went::Well);
            under_way -= 1;
            done += 1;
        }
        assert_eq!((done, widest), (300, 32));
        assert_eq!(lanes.room("fast"), START * AHEAD);
    }

    #[test]
    fn a_lane_that_failed_recovers_by_success() {
        let mut lanes = Lanes::new(32);
        let mut go = |went| {
            lanes.push("e", 0);
            assert!(lanes.start("e").is_some());
            lanes.finish("e", went);
            lanes.room("e")
        };
        assert_eq!(go(Went::Badly), 4);
        assert_eq!(go(Went::Badly), 2);
        assert_eq!(go(Went::Well), 4);
        // Well again: as good as new.
        assert_eq!(go(Went::Well), START * AHEAD);
    }
}
