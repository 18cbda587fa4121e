//! Concurrency of endpoints: a queue for each endpoint with deliveries in flight.
//!
//! A queue begins with a few concurrent requests and doubles with its successes up to the limit; a failure halves it,
//! and a timeout reduces it to one. An endpoint that never answers therefore holds one request and one delivery, and
//! does not affect the others.
//!
//! Pure: the worker reports events and takes jobs that may start.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

/// The initial concurrency of a queue.
const START: usize = 8;
/// A healthy queue prefetches this many times its concurrency, so that it need not wait for a read.
const AHEAD: usize = 16;
/// The maximum number of remembered queues with failures.
const REMEMBERED: usize = 100_000;

struct EndpointQueue<J> {
    allowed: usize,
    under_way: usize,
    waiting: VecDeque<J>,
    /// No job starts after this time.
    start_by: Option<Instant>,
}

impl<J> EndpointQueue<J> {
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

    /// A queue with failures prefetches nothing.
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

    /// Removes the last waiting jobs beyond the queue's present limit.
    fn drop_surplus(&mut self, cap: usize) -> Vec<J> {
        let kept = self.capacity(cap).saturating_sub(self.under_way).min(self.waiting.len());
        self.waiting.split_off(kept).into()
    }
}

/// The result of a request, as its queue counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Went {
    Well,
    Badly,
    /// The request timed out.
    Hanging,
}

/// The consequences of a job's end.
pub(super) struct Finished<J> {
    pub(super) next: Option<J>,
    /// More jobs may start.
    pub(super) wider: bool,
    /// The queue has enough room for another read.
    pub(super) roomy: bool,
    /// Removed because the queue's limit decreased.
    pub(super) surplus: Vec<J>,
}

impl<J> Default for Finished<J> {
    fn default() -> Self {
        Self { next: None, wider: false, roomy: false, surplus: Vec::new() }
    }
}

pub(super) struct EndpointQueues<J> {
    cap: usize,
    queues: HashMap<String, EndpointQueue<J>>,
}

impl<J> EndpointQueues<J> {
    pub(super) fn new(cap: usize) -> Self {
        Self { cap: cap.max(1), queues: HashMap::new() }
    }

    /// How many more deliveries an endpoint may have.
    pub(super) fn room(&self, endpoint: &str) -> usize {
        match self.queues.get(endpoint) {
            Some(queue) => queue.capacity(self.cap).saturating_sub(queue.in_hand()),
            None => EndpointQueue::<J>::new(self.cap).capacity(self.cap),
        }
    }

    /// The same if it justifies a read, otherwise zero.
    pub(super) fn wide_room(&self, endpoint: &str) -> usize {
        let room = self.room(endpoint);
        let queue = self.queues.get(endpoint);
        if queue.is_none_or(|queue| room.saturating_mul(2) >= queue.capacity(self.cap)) { room } else { 0 }
    }

    /// Adds a job. It waits until [`start`](Self::start).
    pub(super) fn push(&mut self, endpoint: &str, job: J) {
        let cap = self.cap;
        let queue = self.queues.entry(endpoint.to_owned()).or_insert_with(|| EndpointQueue::new(cap));
        queue.waiting.push_back(job);
    }

    /// Allows an endpoint's jobs to start until then, because the lease outlasts them.
    pub(super) fn allow_until(&mut self, endpoint: &str, start_by: Option<Instant>) {
        if let Some(queue) = self.queues.get_mut(endpoint) {
            queue.start_by = start_by;
        }
    }

    pub(super) fn start(&mut self, endpoint: &str, now: Instant) -> Option<J> {
        self.queues.get_mut(endpoint)?.start(now)
    }

    /// A started job has ended.
    pub(super) fn finish(&mut self, endpoint: &str, went: Went, now: Instant) -> Finished<J> {
        let cap = self.cap;
        let Some(queue) = self.queues.get_mut(endpoint) else { return Finished::default() };
        queue.under_way = queue.under_way.saturating_sub(1);
        queue.allowed = match went {
            Went::Well => queue.allowed.saturating_mul(2).min(cap),
            Went::Badly => (queue.allowed / 2).max(1),
            Went::Hanging => 1,
        };
        let surplus = if went == Went::Well { Vec::new() } else { queue.drop_surplus(cap) };
        let next = queue.start(now);
        let wider = next.is_some() && queue.may_start(now);
        let roomy = queue.in_hand().saturating_mul(2) <= queue.capacity(cap) && queue.allowed > 1;
        let forget = queue.in_hand() == 0 && queue.allowed >= START.min(cap);
        if forget || self.queues.len() > REMEMBERED {
            self.queues.retain(|_, queue| queue.in_hand() > 0 || (!forget && queue.allowed < START.min(cap)));
        }
        Finished { next, wider, roomy, surplus }
    }

    /// Removes an endpoint's jobs that have not started.
    pub(super) fn drop_waiting(&mut self, endpoint: &str) -> Vec<J> {
        let Some(queue) = self.queues.get_mut(endpoint) else { return Vec::new() };
        queue.waiting.drain(..).collect()
    }

    pub(super) fn drop_all_waiting(&mut self) {
        self.queues.values_mut().for_each(|queue| queue.waiting.clear());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(queues: &mut EndpointQueues<u32>, endpoint: &str, job: u32) {
        queues.push(endpoint, job);
        queues.allow_until(endpoint, Some(Instant::now() + std::time::Duration::from_secs(60)));
    }

    fn start(queues: &mut EndpointQueues<u32>, endpoint: &str) -> Option<u32> {
        queues.start(endpoint, Instant::now())
    }

    #[test]
    fn nothing_starts_that_the_lease_does_not_outlast() {
        let (mut queues, now) = (EndpointQueues::new(32), Instant::now());
        queues.push("e", 1);
        queues.push("e", 2);
        assert_eq!(queues.start("e", now), None);
        queues.allow_until("e", Some(now));
        assert_eq!(queues.start("e", now), Some(1));
        assert_eq!(queues.start("e", now + std::time::Duration::from_millis(1)), None);
        assert_eq!(queues.start("e", now), Some(2));
    }

    #[test]
    fn an_endpoint_that_hangs_holds_one_request_and_reads_nothing_ahead() {
        let mut queues = EndpointQueues::new(32);
        for n in 0..8 {
            push(&mut queues, "slow", n);
        }
        let started = std::iter::from_fn(|| start(&mut queues, "slow")).count();
        assert_eq!(started, START);
        for _ in 0..started {
            queues.finish("slow", Went::Hanging, Instant::now());
        }
        assert_eq!(queues.room("slow"), 1);
        push(&mut queues, "slow", 8);
        push(&mut queues, "slow", 9);
        assert_eq!(std::iter::from_fn(|| start(&mut queues, "slow")).count(), 1);
        assert_eq!(queues.room("slow"), 0);
    }

    #[test]
    fn a_failing_queue_returns_its_prefetched_deliveries() {
        let mut queues = EndpointQueues::new(32);
        for n in 0..300 {
            push(&mut queues, "e", n);
        }
        assert_eq!(start(&mut queues, "e"), Some(0));
        let well = queues.finish("e", Went::Well, Instant::now());
        assert_eq!((well.next, well.wider, well.surplus.len()), (Some(1), true, 0));
        let hanging = queues.finish("e", Went::Hanging, Instant::now());
        let given_back = (hanging.surplus.first(), hanging.surplus.len());
        assert_eq!((hanging.next, hanging.wider, given_back), (Some(2), false, (Some(&3), 297)));
    }

    #[test]
    fn success_doubles_the_concurrency_up_to_the_cap_and_an_idle_queue_is_forgotten() {
        let mut queues = EndpointQueues::new(32);
        for n in 0..300 {
            push(&mut queues, "fast", n);
        }
        let mut under_way = 0_usize;
        let mut widest = 0;
        let mut done = 0;
        while done < 300 {
            while start(&mut queues, "fast").is_some() {
                under_way += 1;
            }
            widest = widest.max(under_way);
            if queues.finish("fast", Went::Well, Instant::now()).next.is_none() {
                under_way -= 1;
            }
            done += 1;
        }
        assert_eq!((done, widest), (300, 32));
        assert_eq!(queues.room("fast"), START * AHEAD);
    }

    #[test]
    fn a_queue_that_failed_recovers_by_success() {
        let mut queues = EndpointQueues::new(32);
        let mut go = |went| {
            push(&mut queues, "e", 0);
            assert!(start(&mut queues, "e").is_some());
            queues.finish("e", went, Instant::now());
            queues.room("e")
        };
        assert_eq!(go(Went::Badly), 4);
        assert_eq!(go(Went::Badly), 2);
        assert_eq!(go(Went::Well), 4);
        // A recovered queue behaves like a new one.
        assert_eq!(go(Went::Well), START * AHEAD);
    }
}
