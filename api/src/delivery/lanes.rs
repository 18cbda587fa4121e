//! Concurrency of endpoints: a lane for each endpoint with deliveries in flight.
//!
//! A lane begins with a few concurrent requests and doubles with its successes up to the limit; a failure halves it,
//! and a timeout reduces it to one. An endpoint that never answers therefore holds one request and one delivery, and
//! does not affect the others.
//!
//! Pure: the worker reports events and takes jobs that may start.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

/// The initial concurrency of a lane.
const START: usize = 8;
/// A healthy lane prefetches this many times its concurrency, so that it need not wait for a read.
const AHEAD: usize = 16;
/// The maximum number of remembered lanes with failures.
const REMEMBERED: usize = 100_000;

struct Lane<J> {
    allowed: usize,
    under_way: usize,
    waiting: VecDeque<J>,
    /// No job starts after this time.
    start_by: Option<Instant>,
}

impl<J> Lane<J> {
    const fn new(cap: usize) -> Self {
        Self {
            allowed: if START < cap { START } else { cap },
            under_way: 0,
            waiting: VecDeque::new(),
            start_by: None,
        }
    }

    fn in_hand(&self) -> usize {
        self.under_way.saturating_add(self.waiting.len())
    }

    /// A lane with failures prefetches nothing.
    const fn capacity(&self, cap: usize) -> usize {
        let well = self.allowed >= if START < cap { START } else { cap };
        if well { self.allowed.saturating_mul(AHEAD) } else { self.allowed }
    }

    fn may_start(&self, now: Instant) -> bool {
        let lasts = self.start_by.is_some_and(|start_by| now <= start_by);
        lasts && self.under_way < self.allowed && !self.waiting.is_empty()
    }

    fn start(&mut self, now: Instant) -> Option<J> {
        if !self.may_start(now) {
            return None;
        }
        self.under_way = self.under_way.saturating_add(1);
        self.waiting.pop_front()
    }

    /// Removes the last waiting jobs beyond the lane's present limit.
    fn drop_surplus(&mut self, cap: usize) -> Vec<J> {
        let kept = self.capacity(cap).saturating_sub(self.under_way).min(self.waiting.len());
        self.waiting.split_off(kept).into()
    }
}

/// The result of a request, as its lane counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Went {
    Well,
    Badly,
    /// The request timed out.
    Hanging,
}

/// The consequences of a job's end.
pub(super) struct Finished<J> {
    /// The job to start next.
    pub(super) next: Option<J>,
    /// More jobs may start.
    pub(super) wider: bool,
    /// The lane has enough room for another read.
    pub(super) roomy: bool,
    /// Removed because the lane's limit decreased.
    pub(super) surplus: Vec<J>,
}

impl<J> Default for Finished<J> {
    fn default() -> Self {
        Self { next: None, wider: false, roomy: false, surplus: Vec::new() }
    }
}

pub(super) struct Lanes<J> {
    cap: usize,
    lanes: HashMap<String, Lane<J>>,
}

impl<J> Lanes<J> {
    pub(super) fn new(cap: usize) -> Self {
        Self { cap: cap.max(1), lanes: HashMap::new() }
    }

    /// How many more deliveries an endpoint may have.
    pub(super) fn room(&self, endpoint: &str) -> usize {
        match self.lanes.get(endpoint) {
            Some(lane) => lane.capacity(self.cap).saturating_sub(lane.in_hand()),
            None => Lane::<J>::new(self.cap).capacity(self.cap),
        }
    }

    /// The same if it justifies a read, otherwise zero.
    pub(super) fn wide_room(&self, endpoint: &str) -> usize {
        let room = self.room(endpoint);
        let lane = self.lanes.get(endpoint);
        if lane.is_none_or(|lane| room.saturating_mul(2) >= lane.capacity(self.cap)) { room } else { 0 }
    }

    /// Adds a job. It waits until [`start`](Self::start).
    pub(super) fn push(&mut self, endpoint: &str, job: J) {
        let cap = self.cap;
        let lane = self.lanes.entry(endpoint.to_owned()).or_insert_with(|| Lane::new(cap));
        lane.waiting.push_back(job);
    }

    /// Allows an endpoint's jobs to start until then, because the lease outlasts them.
    pub(super) fn allow_until(&mut self, endpoint: &str, start_by: Option<Instant>) {
        if let Some(lane) = self.lanes.get_mut(endpoint) {
            lane.start_by = start_by;
        }
    }

    /// The next job of an endpoint that may start.
    pub(super) fn start(&mut self, endpoint: &str, now: Instant) -> Option<J> {
        self.lanes.get_mut(endpoint)?.start(now)
    }

    /// A started job has ended.
    pub(super) fn finish(&mut self, endpoint: &str, went: Went, now: Instant) -> Finished<J> {
        let cap = self.cap;
        let Some(lane) = self.lanes.get_mut(endpoint) else { return Finished::default() };
        lane.under_way = lane.under_way.saturating_sub(1);
        lane.allowed = match went {
            Went::Well => lane.allowed.saturating_mul(2).min(cap),
            Went::Badly => (lane.allowed / 2).max(1),
            Went::Hanging => 1,
        };
        let surplus = if went == Went::Well { Vec::new() } else { lane.drop_surplus(cap) };
        let next = lane.start(now);
        let wider = next.is_some() && lane.may_start(now);
        let roomy = lane.in_hand().saturating_mul(2) <= lane.capacity(cap) && lane.allowed > 1;
        let forget = lane.in_hand() == 0 && lane.allowed >= START.min(cap);
        if forget || self.lanes.len() > REMEMBERED {
            self.lanes.retain(|_, lane| lane.in_hand() > 0 || (!forget && lane.allowed < START.min(cap)));
        }
        Finished { next, wider, roomy, surplus }
    }

    /// Removes an endpoint's jobs that have not started.
    pub(super) fn drop_waiting(&mut self, endpoint: &str) -> Vec<J> {
        let Some(lane) = self.lanes.get_mut(endpoint) else { return Vec::new() };
        lane.waiting.drain(..).collect()
    }

    /// Removes all jobs that have not started.
    pub(super) fn drop_all_waiting(&mut self) {
        self.lanes.values_mut().for_each(|lane| lane.waiting.clear());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds a job that may start.
    fn push(lanes: &mut Lanes<u32>, endpoint: &str, job: u32) {
        lanes.push(endpoint, job);
        lanes.allow_until(endpoint, Some(Instant::now() + std::time::Duration::from_secs(60)));
    }

    fn start(lanes: &mut Lanes<u32>, endpoint: &str) -> Option<u32> {
        lanes.start(endpoint, Instant::now())
    }

    #[test]
    fn nothing_starts_that_the_lease_does_not_outlast() {
        let (mut lanes, now) = (Lanes::new(32), Instant::now());
        lanes.push("e", 1);
        lanes.push("e", 2);
        assert_eq!(lanes.start("e", now), None);
        lanes.allow_until("e", Some(now));
        assert_eq!(lanes.start("e", now), Some(1));
        assert_eq!(lanes.start("e", now + std::time::Duration::from_millis(1)), None);
        assert_eq!(lanes.start("e", now), Some(2));
    }

    #[test]
    fn an_endpoint_that_hangs_holds_one_request_and_reads_nothing_ahead() {
        let mut lanes = Lanes::new(32);
        for n in 0..8 {
            push(&mut lanes, "slow", n);
        }
        let started = std::iter::from_fn(|| start(&mut lanes, "slow")).count();
        assert_eq!(started, START);
        for _ in 0..started {
            lanes.finish("slow", Went::Hanging, Instant::now());
        }
        assert_eq!(lanes.room("slow"), 1);
        push(&mut lanes, "slow", 8);
        push(&mut lanes, "slow", 9);
        assert_eq!(std::iter::from_fn(|| start(&mut lanes, "slow")).count(), 1);
        assert_eq!(lanes.room("slow"), 0);
    }

    #[test]
    fn a_lane_that_does_badly_gives_back_what_it_holds_in_advance() {
        let mut lanes = Lanes::new(32);
        for n in 0..300 {
            push(&mut lanes, "e", n);
        }
        assert_eq!(start(&mut lanes, "e"), Some(0));
        let well = lanes.finish("e", Went::Well, Instant::now());
        assert_eq!((well.next, well.wider, well.surplus.len()), (Some(1), true, 0));
        let hanging = lanes.finish("e", Went::Hanging, Instant::now());
        let given_back = (hanging.surplus.first(), hanging.surplus.len());
        assert_eq!((hanging.next, hanging.wider, given_back), (Some(2), false, (Some(&3), 297)));
    }

    #[test]
    fn success_widens_a_lane_to_the_cap_and_a_lane_at_rest_is_forgotten() {
        let mut lanes = Lanes::new(32);
        for n in 0..300 {
            push(&mut lanes, "fast", n);
        }
        let mut under_way = 0_usize;
        let mut widest = 0;
        let mut done = 0;
        while done < 300 {
            while start(&mut lanes, "fast").is_some() {
                under_way += 1;
            }
            widest = widest.max(under_way);
            if lanes.finish("fast", Went::Well, Instant::now()).next.is_none() {
                under_way -= 1;
            }
            done += 1;
        }
        assert_eq!((done, widest), (300, 32));
        assert_eq!(lanes.room("fast"), START * AHEAD);
    }

    #[test]
    fn a_lane_that_failed_recovers_by_success() {
        let mut lanes = Lanes::new(32);
        let mut go = |went| {
            push(&mut lanes, "e", 0);
            assert!(start(&mut lanes, "e").is_some());
            lanes.finish("e", went, Instant::now());
            lanes.room("e")
        };
        assert_eq!(go(Went::Badly), 4);
        assert_eq!(go(Went::Badly), 2);
        assert_eq!(go(Went::Well), 4);
        // A recovered lane behaves like a new one.
        assert_eq!(go(Went::Well), START * AHEAD);
    }
}
