//! The leased queues of this process, and their deliveries in flight.
//!
//! A delivery is in flight from its read until its outcome is written. Reading writes nothing, so the delivery stays in
//! the queue meanwhile, and this module prevents that it is sent twice: neither while it is in flight, nor by a read
//! that began before its outcome was written.
//!
//! A read continues after the position of the previous one. It ends before deliveries that became due only a moment
//! ago, because earlier ones may still appear, and starts from the front at intervals, which finds any delivery it
//! passed over.
//!
//! Pure: the worker reports events with their times.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use dvp_store::webhooks::deliveries::{Ask, Due, QueuePosition};
use dvp_store::webhooks::leases::EndpointLease;

/// How often a queue is read from its front.
const WHOLE_EVERY: Duration = Duration::from_secs(5);
/// A queue without deliveries is released after this time.
const IDLE: Duration = Duration::from_secs(10);

struct Hold {
    fence: i64,
    /// The end of the lease, by this process's clock.
    until: Instant,
    /// Everything up to this position has been read.
    after: Option<QueuePosition>,
    whole_at: Option<Instant>,
    in_hand: HashMap<i64, QueuePosition>,
    /// Outcomes written during a read, which may still return these deliveries.
    written: HashSet<i64>,
    /// The last read found as many deliveries as it could take.
    more: bool,
    busy_at: Instant,
    /// To be released as soon as no delivery is in flight.
    leaving: bool,
}

/// The parameters of a read, and the leases it covers.
#[derive(Debug, Clone, Default)]
pub(super) struct Reading {
    pub(super) leases: Vec<EndpointLease>,
    pub(super) positions: Vec<Ask>,
    /// Deliveries to exclude.
    pub(super) in_hand: Vec<i64>,
    /// The limit over all endpoints together.
    pub(super) limit: usize,
}

#[derive(Default)]
pub(super) struct LeasedQueues {
    leases: HashMap<String, Hold>,
    in_hand: usize,
    reading: bool,
    /// The endpoint that is served first.
    turn: usize,
}

impl LeasedQueues {
    /// Deliveries read, with outcomes not yet written.
    pub(super) const fn in_hand(&self) -> usize {
        self.in_hand
    }

    pub(super) fn take(&mut self, held: EndpointLease, now: Instant, until: Instant) {
        let hold = Hold {
            fence: held.fence,
            until,
            after: None,
            whole_at: None,
            in_hand: HashMap::new(),
            written: HashSet::new(),
            more: true,
            busy_at: now,
            leaving: false,
        };
        if let Some(before) = self.leases.insert(held.endpoint_id, hold) {
            self.in_hand = self.in_hand.saturating_sub(before.in_hand.len());
        }
    }

    pub(super) fn held(&self) -> Vec<EndpointLease> {
        self.leases
            .iter()
            .map(|(id, hold)| EndpointLease { endpoint_id: id.clone(), fence: hold.fence })
            .collect()
    }

    /// The parameters of the next read: of all queues, or of those with more deliveries. `room` is the number of
    /// deliveries that an endpoint may take.
    pub(super) fn read(
        &mut self,
        all: bool,
        limit: usize,
        now: Instant,
        room: impl Fn(&str) -> usize,
    ) -> Option<Reading> {
        let mut reading = Reading { limit, ..Reading::default() };
        for (id, hold) in &mut self.leases {
            let deliveries = room(id);
            if deliveries == 0 || hold.leaving || !(all || hold.more) {
                continue;
            }
            if hold.whole_at.is_none_or(|at| now.duration_since(at) >= WHOLE_EVERY) {
                (hold.after, hold.whole_at) = (None, Some(now));
            }
            reading.leases.push(EndpointLease { endpoint_id: id.clone(), fence: hold.fence });
            reading.positions.push(Ask {
                endpoint_id: id.clone(),
                after: hold.after,
                room: i64::try_from(deliveries).unwrap_or(i64::MAX),
            });
            let unread =
                hold.in_hand.iter().filter(|(_, place)| hold.after.is_none_or(|after| **place > after));
            reading.in_hand.extend(unread.map(|(id, _)| *id));
        }
        if reading.positions.is_empty() || limit == 0 {
            return None;
        }
        // The first are served first when there is not enough room for all.
        self.turn = self.turn.wrapping_add(1);
        let first = self.turn % reading.positions.len();
        reading.leases.rotate_left(first);
        reading.positions.rotate_left(first);
        self.reading = true;
        Some(reading)
    }

    /// Records the result of a read. Returns the new deliveries.
    pub(super) fn admit(&mut self, reading: &Reading, found: Vec<Due>, now: Instant) -> Vec<Due> {
        let mut counts = vec![0_i64; reading.positions.len()];
        let cut = found.len() >= reading.limit;
        let mut new = Vec::with_capacity(found.len());
        for due in found {
            let Some((lease, count)) = reading.leases.get(due.lease).zip(counts.get_mut(due.lease)) else {
                continue;
            };
            *count = count.saturating_add(1);
            let Some(hold) = self.leases.get_mut(&lease.endpoint_id) else { continue };
            if hold.fence != lease.fence || hold.leaving {
                continue;
            }
            hold.busy_at = now;
            if due.settled {
                hold.after = hold.after.max(Some(due.place));
            }
            if hold.written.contains(&due.place.id) || hold.in_hand.contains_key(&due.place.id) {
                continue;
            }
            hold.in_hand.insert(due.place.id, due.place);
            self.in_hand = self.in_hand.saturating_add(1);
            new.push(due);
        }
        for (ask, count) in reading.positions.iter().zip(counts) {
            if let Some(hold) = self.leases.get_mut(&ask.endpoint_id) {
                hold.more = cut || count >= ask.room;
            }
        }
        self.end_read();
        new
    }

    /// A read has ended, successfully or not.
    pub(super) fn end_read(&mut self) {
        self.reading = false;
        self.leases.values_mut().for_each(|hold| hold.written.clear());
    }

    /// A delivery is no longer in flight: its outcome is written, or it is to be read again.
    pub(super) fn put_down(&mut self, endpoint: &str, fence: i64, id: i64, written: bool) {
        let Some(hold) = self.leases.get_mut(endpoint).filter(|hold| hold.fence == fence) else { return };
        if hold.in_hand.remove(&id).is_some() {
            self.in_hand = self.in_hand.saturating_sub(1);
        }
        if !written {
            // Its position is before the ones read.
            hold.whole_at = None;
        } else if self.reading {
            hold.written.insert(id);
        }
    }

    /// The queue of a deactivated endpoint is read from its front when it is active again.
    pub(super) fn begin_again(&mut self, endpoint: &str) {
        if let Some(hold) = self.leases.get_mut(endpoint) {
            hold.whole_at = None;
        }
    }

    pub(super) fn until(&self, endpoint: &str) -> Option<Instant> {
        self.leases.get(endpoint).map(|hold| hold.until)
    }

    /// Extends the `leases` that were renewed until `until`; returns the endpoints of those that were lost.
    pub(super) fn renew(&mut self, leases: &[EndpointLease], held: &[String], until: Instant) -> Vec<String> {
        let held: HashSet<&String> = held.iter().collect();
        let mut lost = Vec::new();
        for lease in leases {
            let Some(hold) = self.leases.get_mut(&lease.endpoint_id).filter(|hold| hold.fence == lease.fence)
            else {
                continue;
            };
            if held.contains(&lease.endpoint_id) {
                hold.until = until;
                continue;
            }
            self.in_hand = self.in_hand.saturating_sub(hold.in_hand.len());
            self.leases.remove(&lease.endpoint_id);
            lost.push(lease.endpoint_id.clone());
        }
        lost
    }

    /// Marks idle queues for release. Returns their endpoints.
    pub(super) fn idle(&mut self, now: Instant) -> Vec<String> {
        let mut idle = Vec::new();
        for (id, hold) in &mut self.leases {
            if hold.in_hand.is_empty() && now.duration_since(hold.busy_at) >= IDLE {
                hold.leaving = true;
                idle.push(id.clone());
            }
        }
        idle
    }

    /// Marks the queues beyond this process's share for release, those with the fewest deliveries in flight first.
    /// Returns their endpoints: no more of their deliveries may start.
    pub(super) fn leave(&mut self, share: usize) -> Vec<String> {
        let surplus = self.leases.len().saturating_sub(share.max(1));
        let mut leases: Vec<(&String, &mut Hold)> = self.leases.iter_mut().collect();
        leases.sort_by_key(|(_, hold)| hold.in_hand.len());
        let leaving = leases.into_iter().take(surplus).map(|(id, hold)| {
            hold.leaving = true;
            id.clone()
        });
        leaving.collect()
    }

    /// Removes and returns the marked queues without deliveries in flight.
    pub(super) fn left(&mut self) -> Vec<EndpointLease> {
        let left = |hold: &Hold| hold.leaving && hold.in_hand.is_empty();
        self.leases
            .extract_if(|_, hold| left(hold))
            .map(|(endpoint_id, hold)| EndpointLease { endpoint_id, fence: hold.fence })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, TimeDelta};

    use super::*;

    fn lease(fence: i64) -> EndpointLease {
        EndpointLease { endpoint_id: "e".to_owned(), fence }
    }

    fn due(id: i64, settled: bool) -> Due {
        let due_at = DateTime::UNIX_EPOCH + TimeDelta::seconds(id);
        let (event_id, body) = (String::new(), String::new());
        Due {
            lease: 0,
            place: QueuePosition { due_at, id },
            settled,
            event_id,
            attempts: 0,
            body,
            trace: None,
        }
    }

    struct World {
        queues: LeasedQueues,
        start: Instant,
    }

    impl World {
        fn new() -> Self {
            let (mut queues, start) = (LeasedQueues::default(), Instant::now());
            queues.take(lease(1), start, start + Duration::from_secs(60));
            Self { queues, start }
        }

        fn read_at(&mut self, secs: u64, limit: usize) -> Reading {
            self.queues.read(true, limit, self.start + Duration::from_secs(secs), |_| 2).unwrap()
        }

        fn admit(&mut self, reading: &Reading, found: Vec<Due>) -> Vec<i64> {
            self.queues.admit(reading, found, self.start).into_iter().map(|due| due.place.id).collect()
        }
    }

    #[test]
    fn a_read_continues_after_settled_deliveries_and_restarts_at_intervals() {
        let mut world = World::new();
        let first = world.read_at(0, 9);
        assert_eq!(world.admit(&first, vec![due(1, true), due(2, false)]), [1, 2]);
        let second = world.read_at(1, 9);
        assert_eq!((second.positions[0].after, second.in_hand), (Some(due(1, true).place), vec![2]));
        world.queues.end_read();
        let mut whole = world.read_at(5, 9);
        whole.in_hand.sort_unstable();
        assert_eq!((whole.positions[0].after, whole.in_hand), (None, vec![1, 2]));
    }

    #[test]
    fn a_read_ignores_deliveries_that_ended_during_it() {
        let mut world = World::new();
        let first = world.read_at(0, 9);
        assert_eq!(world.admit(&first, vec![due(1, true), due(2, true)]), [1, 2]);
        let during = world.read_at(5, 9);
        world.queues.put_down("e", 1, 1, true);
        assert!(world.admit(&during, vec![due(1, true), due(2, true)]).is_empty());
        assert_eq!(world.queues.in_hand(), 1);
        world.queues.put_down("e", 1, 2, false);
        let next = world.read_at(6, 9);
        assert_eq!((next.positions[0].after, &next.in_hand), (None, &vec![]));
        assert_eq!(world.admit(&next, vec![due(2, true)]), [2]);
    }

    #[test]
    fn a_lost_or_retaken_lease_forgets_its_deliveries() {
        let mut world = World::new();
        let first = world.read_at(0, 9);
        world.admit(&first, vec![due(1, true)]);
        let late = world.read_at(1, 9);
        assert_eq!(world.queues.renew(&[lease(1)], &[], world.start), ["e"]);
        assert_eq!((world.queues.in_hand(), world.admit(&late, vec![due(2, true)])), (0, vec![]));
        world.queues.take(lease(2), world.start, world.start);
        world.queues.put_down("e", 1, 1, true);
        let again = world.read_at(1, 9);
        assert_eq!(world.admit(&again, vec![due(1, true)]), [1]);
        // A renewal under an earlier fence does not concern this lease.
        assert!(world.queues.renew(&[lease(1)], &[], world.start).is_empty());
        assert_eq!(world.queues.held(), [lease(2)]);
    }

    #[test]
    fn a_renewal_extends_the_leases_still_held() {
        let mut world = World::new();
        let later = world.start + Duration::from_secs(75);
        assert!(world.queues.renew(&[lease(1)], &["e".to_owned()], later).is_empty());
        assert_eq!((world.queues.until("e"), world.queues.until("other")), (Some(later), None));
    }

    #[test]
    fn idle_and_surplus_leases_are_released_without_deliveries_in_flight() {
        let mut world = World::new();
        let first = world.read_at(0, 9);
        world.admit(&first, vec![due(1, true)]);
        let later = world.start + IDLE;
        assert!(world.queues.idle(later).is_empty());
        world.queues.take(EndpointLease { endpoint_id: "idle".to_owned(), fence: 7 }, world.start, later);
        assert_eq!(world.queues.leave(1), ["idle"]);
        assert_eq!(world.queues.left(), [EndpointLease { endpoint_id: "idle".to_owned(), fence: 7 }]);
        world.queues.put_down("e", 1, 1, true);
        assert_eq!(world.queues.idle(later), ["e"]);
        assert!(world.queues.read(true, 9, later, |_| 2).is_none());
        assert_eq!(world.queues.left(), [lease(1)]);
        assert!(world.queues.held().is_empty());
    }

    #[test]
    fn a_full_read_means_that_more_deliveries_may_follow() {
        let mut world = World::new();
        for (limit, found, more) in [(9, 2, true), (9, 1, false), (1, 1, true)] {
            let reading = world.read_at(0, limit);
            world.admit(&reading, (0..found).map(|id| due(id, true)).collect());
            let on = world.queues.read(false, 9, world.start, |_| 2);
            assert_eq!(on.is_some(), more, "{limit} {found}");
            world.queues.end_read();
        }
    }
}
