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
const AHEAD: usize = 8;
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
    in_hand: usize,
    lanes: HashMap<String, Lane<J>>,
}

impl<J> Lanes<J> {
    pub(super) fn new(cap: usize) -> Self {
        Self { cap: cap.max(1), in_hand: 0, lanes: HashMap::new() }
    }

    /// Jobs waiting and under way.
    pub(super) const fn in_hand(&self) -> usize {
        self.in_hand
    }

    /// How much an endpoint without a lane may have.
    pub(super) fn room_of_new(&self) -> usize {
        Lane::<J>::new(self.cap).capacity(self.cap)
    }

    /// How much more each endpoint with a lane may have.
    pub(super) fn rooms(&self) -> impl Iterator<Item = (&str, usize)> {
        self.lanes
            .iter()
            .map(|(id, lane)| (id.as_str(), lane.capacity(self.cap).saturating_sub(lane.in_hand())))
    }

    /// Takes a job in. It waits until [`start`](Self::start).
    pub(super) fn push(&mut self, endpoint: &str, job: J) {
        let cap = self.cap;
        let lane = self.lanes.entry(endpoint.to_owned()).or_insert_with(|| Lane::new(cap));
        lane.waiting.push_back(job);
        self.in_hand = self.in_hand.saturating_add(1);
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
        self.in_hand = self.in_hand.saturating_sub(1);
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

    /// Gives everything back that has not started.
    pub(super) fn drain(&mut self) -> Vec<J> {
        let waiting: Vec<J> = self.lanes.values_mut().flat_map(|lane| lane.waiting.drain(..)).collect();
        self.in_hand = self.in_hand.saturating_sub(waiting.len());
        waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(lanes: &Lanes<u32>, endpoint: &str) -> Option<usize> {
        lanes.rooms().find(|(id, _)| *id == endpoint).map(|(_, room)| room)
    }

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
        assert_eq!((lanes.in_hand(), room(&lanes, "slow")), (0, Some(1)));
        lanes.push("slow", 8);
        lanes.push("slow", 9);
        assert_eq!(std::iter::from_fn(|| lanes.start("slow")).count(), 1);
        assert_eq!(room(&lanes, "slow"), Some(0));
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
        while lanes.in_hand() > 0 {
            while lanes.start("fast").is_some() {
                under_way += 1;
            }
            widest = widest.max(under_way);
            lanes.finish("fast", Went::Well);
            under_way -= 1;
            done += 1;
        }
        assert_eq!((done, widest), (300, 32));
        assert_eq!(room(&lanes, "fast"), None);
    }

    #[test]
    fn a_lane_that_failed_recovers_by_success() {
        let mut lanes = Lanes::new(32);
        let mut go = |went| {
            lanes.push("e", 0);
            assert!(lanes.start("e").is_some());
            lanes.finish("e", went);
            room(&lanes, "e")
        };
        assert_eq!(go(Went::Badly), Some(4));
        assert_eq!(go(Went::Badly), Some(2));
        assert_eq!(go(Went::Well), Some(4));
        // Well again: as good as new.
        assert_eq!(go(Went::Well), None);
    }
}
