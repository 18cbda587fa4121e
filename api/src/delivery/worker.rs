//! Acquires endpoint leases, reads due deliveries, and passes them to the senders.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dvp_core::engine::Engine;
use dvp_store::StoreError;
use dvp_store::webhooks::leases::{EndpointLease, Renewed};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};
use uuid::Uuid;

use super::DeliveryLimits;
use super::client::Client;
use super::lease::{self, Looked};
use super::leased_queues::LeasedQueues;
use super::outcome::{self, SenderEvent};
use super::route::EndpointRoute;
use super::sender::{self, Job, Sender};
use super::wake::Wake;

/// Deliveries per read.
const READ_MAX: usize = 1024;
/// Leases acquired at once.
const TAKE_MAX: i64 = 1000;
/// The time limit for requests and queries in flight at a stop.
const DRAIN: Duration = Duration::from_secs(5);

enum Chore {
    Looked(Box<Looked>),
    /// The leases that were held then.
    Renewed {
        held: Vec<EndpointLease>,
        at: Instant,
        renewed: Result<Renewed, StoreError>,
    },
    Released,
}

struct Worker<'a> {
    engine: &'a Engine,
    sender: Arc<Sender>,
    limits: DeliveryLimits,
    owner: Uuid,
    queues: LeasedQueues,
    sending: JoinSet<()>,
    chores: JoinSet<Chore>,
    is_looking: bool,
    /// A poll that was requested during another one.
    look_again: Option<Look>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Look {
    /// More deliveries of the last read.
    On,
    /// All due deliveries, also of endpoints without a lease.
    Everywhere,
}

pub(super) async fn run(
    engine: &Engine,
    client: &Arc<Client>,
    limits: DeliveryLimits,
    wake: &Wake,
    shutdown: &CancellationToken,
) {
    let (sender_events, events) = mpsc::unbounded_channel();
    let (outcomes, ready) = mpsc::unbounded_channel();
    let owner = Uuid::new_v4();
    let worker = Worker {
        engine,
        sender: Arc::new(Sender::new(client, limits.per_endpoint, sender_events.clone(), outcomes)),
        limits,
        owner,
        queues: LeasedQueues::default(),
        sending: JoinSet::new(),
        chores: JoinSet::new(),
        is_looking: false,
        look_again: None,
    };
    let (held, ()) =
        tokio::join!(worker.run(events, wake, shutdown), outcome::run(engine.pool(), ready, sender_events));
    if let Err(error) = lease::give_up(engine.pool(), owner, &held).await {
        warn!(%error, "endpoint leases were not released, they will expire");
    }
}

impl Worker<'_> {
    /// Returns the leases it holds at the end.
    async fn run(
        mut self,
        mut events: mpsc::UnboundedReceiver<SenderEvent>,
        wake: &Wake,
        shutdown: &CancellationToken,
    ) -> Vec<EndpointLease> {
        let mut poll = tokio::time::interval(self.limits.poll);
        let mut renew = tokio::time::interval(self.limits.lease / 4);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        renew.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                _ = renew.tick() => self.renew(),
                _ = poll.tick() => self.look(Look::Everywhere),
                () = wake.workers.notified() => self.look(Look::Everywhere),
                Some(event) = events.recv() => self.handle(event),
                Some(ended) = self.sending.join_next() => {
                    if let Err(error) = ended {
                        error!(%error, "webhook sender task failed");
                    }
                }
                Some(chore) = self.chores.join_next() => self.take(chore),
            }
        }
        self.stop().await
    }

    /// Starts a poll, or remembers it if one is in progress. A poll for more of the last read needs enough room.
    fn look(&mut self, what: Look) {
        if self.is_looking {
            self.look_again = self.look_again.max(Some(what));
            return;
        }
        let free = self.limits.in_hand.saturating_sub(self.queues.in_hand());
        let (sender, everywhere) = (&self.sender, what == Look::Everywhere);
        let queues = sender.queues();
        let reading =
            self.queues.read(everywhere, free.min(READ_MAX), Instant::now(), |endpoint| match what {
                Look::On => queues.wide_room(endpoint),
                Look::Everywhere => queues.room(endpoint),
            });
        drop(queues);
        let acquire = (everywhere && free > 0).then_some((self.owner, self.limits.lease, TAKE_MAX));
        if reading.is_none() && acquire.is_none() {
            self.sender.has_looked();
            return;
        }
        self.is_looking = true;
        let look = lease::look(self.engine.pool().clone(), reading, acquire);
        self.chores.spawn(async move { Chore::Looked(Box::new(look.await)) });
    }

    fn renew(&mut self) {
        for endpoint in self.queues.idle(Instant::now()) {
            self.drop_waiting(&endpoint);
        }
        self.release();
        let (held, at) = (self.queues.held(), Instant::now());
        let (pool, owner, lease) = (self.engine.pool().clone(), self.owner, self.limits.lease);
        self.chores.spawn(async move {
            let renewed = lease::renew(&pool, owner, &held, lease).await;
            Chore::Renewed { held, at, renewed }
        });
    }

    fn take(&mut self, chore: Result<Chore, JoinError>) {
        match chore {
            Ok(Chore::Looked(looked)) => self.admit(*looked),
            Ok(Chore::Renewed { held, at, renewed: Ok(renewed) }) => self.renewed(&held, at, &renewed),
            Ok(Chore::Renewed { renewed: Err(error), .. }) => {
                error!(%error, "endpoint leases could not be renewed, will retry")
            }
            Ok(Chore::Released) => {}
            Err(error) => {
                error!(%error, "polling due deliveries failed");
                self.is_looking = false;
                self.sender.has_looked();
                self.queues.end_read();
            }
        }
        if !self.is_looking
            && let Some(what) = self.look_again.take()
        {
            self.look(what);
        }
    }

    fn admit(&mut self, looked: Looked) {
        let Looked { at, reading, found } = looked;
        self.is_looking = false;
        self.sender.has_looked();
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                error!(%error, "due deliveries could not be read, will retry");
                self.queues.end_read();
                return;
            }
        };
        let vault = &self.engine.context().vault;
        let mut routes: Vec<Option<Arc<EndpointRoute>>> = Vec::with_capacity(reading.leases.len());
        for lease in &reading.leases {
            let endpoint = found.endpoints.iter().find(|endpoint| endpoint.id == lease.endpoint_id);
            let active = endpoint.filter(|endpoint| endpoint.is_active);
            routes.push(active.map(|endpoint| {
                Arc::new(EndpointRoute::new(lease.fence, endpoint, self.sender.client(), vault))
            }));
        }
        let now = Instant::now();
        let mut queues = self.sender.queues();
        for due in self.queues.admit(&reading, found.due, now) {
            let Some((lease, route)) = reading.leases.get(due.lease).zip(routes.get(due.lease)) else {
                continue;
            };
            let id = due.place.id;
            if let Some(route) = route {
                let (route, event_id) = (Arc::clone(route), due.event_id);
                let job =
                    Job { route, id, event_id, attempts: due.attempts, body: due.body, trace: due.trace };
                queues.push(&lease.endpoint_id, job);
            } else {
                self.queues.put_down(&lease.endpoint_id, lease.fence, id, false);
            }
        }
        drop(queues);
        for (lease, route) in reading.leases.iter().zip(&routes) {
            if route.is_some() {
                self.start(&lease.endpoint_id);
            } else {
                self.drop_waiting(&lease.endpoint_id);
                self.queues.begin_again(&lease.endpoint_id);
            }
        }
        if !found.acquired.is_empty() {
            let until = at + self.limits.lease;
            found.acquired.into_iter().for_each(|held| self.queues.take(held, now, until));
            self.look(Look::On);
        }
    }

    fn renewed(&mut self, held: &[EndpointLease], at: Instant, renewed: &Renewed) {
        for endpoint in self.queues.renew(held, &renewed.held, at + self.limits.lease) {
            warn!(endpoint, "endpoint lease lost to another process");
            self.sender.queues().drop_waiting(&endpoint);
        }
        for endpoint in self.queues.leave(usize::try_from(renewed.share).unwrap_or(usize::MAX)) {
            self.drop_waiting(&endpoint);
        }
        self.release();
        for lease in held {
            self.start(&lease.endpoint_id);
        }
    }

    /// Unstarted deliveries of an endpoint stay in the queue.
    fn drop_waiting(&mut self, endpoint: &str) {
        let dropped = self.sender.queues().drop_waiting(endpoint);
        for job in dropped {
            self.queues.put_down(endpoint, job.route.fence, job.id, false);
        }
    }

    /// Releases the marked queues without deliveries in flight.
    fn release(&mut self) {
        let left = self.queues.left();
        if left.is_empty() {
            return;
        }
        let pool = self.engine.pool().clone();
        self.chores.spawn(async move {
            if let Err(error) = lease::release(&pool, &left).await {
                warn!(%error, "endpoint leases were not released, they will expire");
            }
            Chore::Released
        });
    }

    /// Starts an endpoint's jobs, as long as its lease lasts.
    fn start(&mut self, endpoint: &str) {
        // A request and its outcome need time before the lease ends.
        let needed = self.limits.timeout.saturating_mul(5) / 4;
        let start_by = self.queues.until(endpoint).and_then(|until| until.checked_sub(needed));
        let now = Instant::now();
        let mut queues = self.sender.queues();
        queues.allow_until(endpoint, start_by);
        while let Some(job) = queues.start(endpoint, now) {
            self.sending.spawn(sender::send(Arc::clone(&self.sender), job));
        }
    }

    fn handle(&mut self, event: SenderEvent) {
        match event {
            SenderEvent::Roomy => self.look(Look::On),
            SenderEvent::Wider(route) => self.start(&route.endpoint_id),
            SenderEvent::PutDown { batch, written } => {
                let full = self.queues.in_hand() >= self.limits.in_hand;
                for (route, id) in &batch {
                    self.queues.put_down(&route.endpoint_id, route.fence, *id, written);
                }
                self.release();
                if full {
                    self.look(Look::Everywhere);
                }
            }
        }
    }

    /// Ends requests and queries in flight within the time limit. Unstarted deliveries stay in the queue.
    async fn stop(mut self) -> Vec<EndpointLease> {
        self.sender.queues().drop_all_waiting();
        let mut held = self.queues.held();
        let ending = async {
            while self.sending.join_next().await.is_some() {}
            // The server completes a query that nobody waits for: a poll may still take leases, a renewal extend them.
            while let Some(chore) = self.chores.join_next().await {
                if let Ok(Chore::Looked(looked)) = chore
                    && let Ok(found) = looked.found
                {
                    held.extend(found.acquired);
                }
            }
        };
        if tokio::time::timeout(DRAIN, ending).await.is_err() {
            warn!("requests in flight were aborted at shutdown; their deliveries will be sent again");
        }
        self.sending.shutdown().await;
        held
    }
}
