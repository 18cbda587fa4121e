//! Load limits: connections, concurrent requests, and time limits.
//!
//! A request takes a permit once its caller is authenticated, and each partner has a share of the permits: beyond it
//! the partner gets 503 with `Retry-After` while others are served. A request that waits for an event releases its
//! permit and takes one of the partner's permits for waiting.
//!
//! Kept by `api/tests/it/places.rs::idle_long_polls_hold_no_permit_and_wake_for_their_partners_events`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dvp_store::orders::intents::Tenant;
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::http::error::ApiError;

/// Concurrent reads of long-polls: fewer than the connections for reads.
const LOOKS: usize = 3;
/// The permit of a long-poll to read events.
pub(crate) type Turn<'a> = SemaphorePermit<'a>;

#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections served at once; more wait to be accepted.
    pub connections: usize,
    /// Connections of one source (an IPv4 address, an IPv6 /64); more are closed. Does not hold for `proxies`.
    pub connections_per_source: usize,
    /// Networks of proxies: their `X-Forwarded-For` contains the client's address.
    pub proxies: Vec<IpNet>,
    /// Concurrent requests of authenticated callers; more are answered with 503.
    pub in_flight: usize,
    /// Of these, one partner's when half of all permits are in use; more are answered with 503.
    pub in_flight_per_partner: usize,
    /// Waiting long-polls of one partner; more are answered with 429.
    pub waiting_per_partner: usize,
    /// Unknown API keys of one source a minute; more are answered with 429.
    pub unknown_keys_per_source: u32,
    /// From the end of a request to the complete head of the next one on its connection.
    pub head: Duration,
    /// From a request's head to its answer, the arrival of its body included.
    pub request: Duration,
    /// From the moment a client stops reading an answer to the answer's last byte.
    pub answer: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            connections_per_source: 1_000,
            proxies: Vec::new(),
            in_flight: 1_024,
            in_flight_per_partner: 256,
            waiting_per_partner: 256,
            unknown_keys_per_source: 60,
            head: Duration::from_secs(20),
            request: Duration::from_secs(12),
            answer: Duration::from_secs(30),
        }
    }
}

/// The limits of a process, and its requests in progress.
pub(crate) struct Load {
    pub(crate) limits: Limits,
    counts: Mutex<Counts>,
    looks: Semaphore,
}

#[derive(Default)]
struct Counts {
    working: usize,
    partners: HashMap<Tenant, PartnerLoad>,
}

#[derive(Default)]
struct PartnerLoad {
    working: usize,
    waiting: usize,
}

/// A request's permit, released when its last clone is dropped.
#[derive(Clone)]
pub(crate) struct RequestPermit(Arc<PermitState>);

struct PermitState {
    load: Arc<Load>,
    tenant: Tenant,
    is_waiting: AtomicBool,
}

impl Load {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, counts: Mutex::default(), looks: Semaphore::new(LOOKS) }
    }

    pub(crate) fn enter(self: &Arc<Self>, tenant: &Tenant) -> Result<RequestPermit, ApiError> {
        let mut counts = self.counts.lock();
        let total = counts.working;
        let held = counts.partners.entry(tenant.clone()).or_default();
        let is_scarce = total >= self.limits.in_flight / 2;
        let may =
            total < self.limits.in_flight && (!is_scarce || held.working < self.limits.in_flight_per_partner);
        if !may {
            counts.forget_if_idle(tenant);
            return Err(ApiError::Busy);
        }
        held.working += 1;
        counts.working += 1;
        let (load, tenant) = (Arc::clone(self), tenant.clone());
        Ok(RequestPermit(Arc::new(PermitState { load, tenant, is_waiting: AtomicBool::new(false) })))
    }
}

impl Default for Load {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Counts {
    fn forget_if_idle(&mut self, tenant: &Tenant) {
        if self.partners.get(tenant).is_some_and(|held| held.working == 0 && held.waiting == 0) {
            self.partners.remove(tenant);
        }
    }
}

impl RequestPermit {
    /// Releases the permit to other requests; from now on this request waits for an event.
    pub(crate) fn wait(&self) -> Result<(), ApiError> {
        let PermitState { load, tenant, is_waiting } = &*self.0;
        let mut counts = load.counts.lock();
        let held = counts.partners.entry(tenant.clone()).or_default();
        if is_waiting.load(Ordering::Relaxed) {
            return Ok(());
        }
        if held.waiting >= load.limits.waiting_per_partner {
            return Err(ApiError::RateLimitExceeded { retry_after_secs: 1 });
        }
        is_waiting.store(true, Ordering::Relaxed);
        held.waiting += 1;
        held.working -= 1;
        counts.working -= 1;
        Ok(())
    }

    /// Waits for the permit to read events, for as long as it takes.
    pub(crate) async fn look(&self) -> Option<Turn<'_>> {
        // The semaphore is never closed.
        self.0.load.looks.acquire().await.ok()
    }

    /// Waits for the permit to read events, which few long-polls have at once. `None` when it is not available by
    /// `until`.
    pub(crate) async fn look_until(&self, until: Instant) -> Option<Turn<'_>> {
        // The semaphore is never closed.
        tokio::time::timeout_at(until, self.0.load.looks.acquire()).await.ok()?.ok()
    }
}

impl Drop for PermitState {
    fn drop(&mut self) {
        let mut counts = self.load.counts.lock();
        let is_waiting = self.is_waiting.load(Ordering::Relaxed);
        if let Some(held) = counts.partners.get_mut(&self.tenant) {
            if is_waiting {
                held.waiting -= 1;
            } else {
                held.working -= 1;
            }
        }
        counts.working -= usize::from(!is_waiting);
        counts.forget_if_idle(&self.tenant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(in_flight: usize, in_flight_per_partner: usize, waiting_per_partner: usize) -> Arc<Load> {
        let limits = Limits { in_flight, in_flight_per_partner, waiting_per_partner, ..Limits::default() };
        Arc::new(Load::new(limits))
    }

    fn tenant(name: &str) -> Tenant {
        Tenant { partner_id: name.into(), livemode: false }
    }

    #[test]
    fn one_partner_may_use_half_of_the_permits() {
        let load = load(8, 2, 8);
        let greedy: Vec<RequestPermit> = std::iter::from_fn(|| load.enter(&tenant("greedy")).ok()).collect();
        assert_eq!(greedy.len(), 4);
        for name in ["b", "c"] {
            let held: Vec<RequestPermit> = std::iter::from_fn(|| load.enter(&tenant(name)).ok()).collect();
            assert_eq!(held.len(), 2, "{name}");
            std::mem::forget(held);
        }
        assert!(load.enter(&tenant("d")).is_err());
        drop(greedy);
        assert!(load.enter(&tenant("d")).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_poll_waits_for_its_turn_until_its_deadline() {
        let load = load(8, 8, 8);
        let place = load.enter(&tenant("a")).unwrap();
        let until = Instant::now() + Duration::from_secs(8);
        let turns = [place.look_until(until).await, place.look_until(until).await];
        let last = place.look_until(until).await;
        assert!(turns.iter().all(Option::is_some) && last.is_some());
        assert!(place.look_until(until).await.is_none());
        assert_eq!(Instant::now(), until);
        // A free permit is taken even after `until`.
        drop(last);
        assert!(place.look_until(until).await.is_some());
    }

    #[test]
    fn waiting_requests_hold_no_permit_and_are_limited_per_partner() {
        let load = load(2, 2, 3);
        let enter = |name| load.enter(&tenant(name)).unwrap();
        let waiting: Vec<RequestPermit> = (0..3)
            .map(|_| {
                let place = enter("a");
                place.wait().unwrap();
                place.wait().unwrap();
                place
            })
            .collect();
        let place = enter("a");
        assert!(matches!(place.wait(), Err(ApiError::RateLimitExceeded { .. })));
        drop(place);
        enter("b").wait().unwrap();
        let working = (enter("a"), enter("b"));
        assert!(load.enter(&tenant("c")).is_err());
        drop((waiting, working));
        let counts = load.counts.lock();
        assert_eq!((counts.working, counts.partners.len()), (0, 0));
    }
}
