//! Leases lanes, reads what is due in them, sends it, and hands on what came of it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dvp_core::context::now;
use dvp_core::engine::Engine;
use dvp_core::store::StoreError;
use dvp_core::store::webhook_lanes::Renewed;
use futures_util::FutureExt as _;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};
use uuid::Uuid;

use super::Limits;
use super::client::{Client, Fault, Post, Sent};
use super::holds::Holds;
use super::lanes::{Lanes, Went};
use super::lease::{self, Asked, Hands, Looked};
use super::outcome::{self, Outcome};
use super::route::Route;
use super::signature::{svc_signature, webhook_signature};
use super::wake::Wake;

/// Deliveries of one read.
const READ_MAX: usize = 1024;
/// Lanes taken at once.
const TAKE_MAX: i64 = 1000;
/// How long requests under way may take to end when the service stops.
const DRAIN: Duration = Duration::from_secs(5);
/// Batches of outcomes that were written and are not yet put down.
const WRITTEN_MAX: usize = 16;

/// A delivery in hand.
pub(super) struct Job {
    pub(super) route: Arc<Route>,
    pub(super) id: i64,
    pub(super) event_id: String,
    /// Attempts already made.
    pub(super) attempts: u32,
    pub(super) body: String,
}

/// An attempt that is over, of a delivery that is in hand until this is written.
pub(super) struct Ready {
    pub(super) route: Arc<Route>,
    pub(super) id: i64,
    pub(super) attempts: u32,
    pub(super) outcome: Outcome,
}

/// A batch that its writer is done with.
pub(super) struct Written {
    pub(super) batch: Vec<(Arc<Route>, i64)>,
    /// Otherwise the deliveries are as they were.
    pub(super) well: bool,
}

/// Something asked of the database that is over.
enum Chore {
    Looked(Box<Looked>),
    Renewed { asked: Asked, renewed: Result<Renewed, StoreError> },
    Released,
}

struct Worker<'a> {
    engine: &'a Engine,
    client: &'a Arc<Client>,
    limits: Limits,
    holder: Uuid,
    holds: Holds,
    lanes: Lanes<Job>,
    sending: JoinSet<Ready>,
    chores: JoinSet<Chore>,
    hands: Hands,
    /// A look that was asked for while one was under way.
    look_again: Option<Look>,
    outcomes: mpsc::Sender<Ready>,
}

/// What to look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Look {
    /// More of what was found.
    On,
    /// Whatever is due, in lanes that nobody holds too.
    Everywhere,
}

pub(super) async fn run(
    engine: &Engine,
    client: &Arc<Client>,
    limits: Limits,
    wake: &Wake,
    shutdown: &CancellationToken,
) {
    // What is in hand has a place here, so that sending never waits for writing.
    let (outcomes, ready) = mpsc::channel(limits.in_hand.max(1));
    let (done, written) = mpsc::channel(WRITTEN_MAX);
    let holder = Uuid::new_v4();
    let worker = Worker {
        engine,
        client,
        limits,
        holder,
        holds: Holds::default(),
        lanes: Lanes::new(limits.per_endpoint),
        sending: JoinSet::new(),
        chores: JoinSet::new(),
        hands: Hands::new(engine.pool()),
        look_again: None,
        outcomes,
    };
    let (held, ()) =
        tokio::join!(worker.run(written, wake, shutdown), outcome::run(engine.pool(), ready, done));
    if let Err(error) = lease::give_up(engine.pool(), holder, &held).await {
        warn!(%error, "leases run out by themselves");
    }
}

impl Worker<'_> {
    /// Returns the lanes it holds at the end.
    async fn run(
        mut self,
        mut written: mpsc::Receiver<Written>,
        wake: &Wake,
        shutdown: &CancellationToken,
    ) -> Vec<dvp_core::store::webhook_lanes::Held> {
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
                Some(sent) = self.sending.join_next() => self.finish(sent),
                Some(written) = written.recv() => self.put_down(&written),
                Some(chore) = self.chores.join_next() => self.take(chore),
            }
        }
        drop(written);
        self.stop().await
    }

    /// Starts a look, or remembers it if one is under way.
    fn look(&mut self, what: Look) {
        if self.hands.are_full() {
            self.look_again = self.look_again.max(Some(what));
            return;
        }
        let free = self.limits.in_hand.saturating_sub(self.holds.in_hand());
        let (lanes, everywhere) = (&self.lanes, what == Look::Everywhere);
        let reading =
            self.holds.read(everywhere, free.min(READ_MAX), Instant::now(), |endpoint| lanes.room(endpoint));
        let take = (everywhere && free > 0).then_some((self.holder, self.limits.lease, TAKE_MAX));
        if reading.is_none() && take.is_none() {
            return;
        }
        let look = self.hands.look(reading, take);
        self.chores.spawn(async move { Chore::Looked(Box::new(look.await)) });
    }

    fn renew(&mut self) {
        for endpoint in self.holds.idle(Instant::now()) {
            self.drop_waiting(&endpoint);
        }
        self.release();
        let asked = Asked { held: self.holds.held(), at: Instant::now() };
        let (pool, holder, lease) = (self.engine.pool().clone(), self.holder, self.limits.lease);
        self.chores.spawn(async move {
            let renewed = lease::renew(&pool, holder, &asked.held, lease).await;
            Chore::Renewed { asked, renewed }
        });
    }

    fn take(&mut self, chore: Result<Chore, JoinError>) {
        match chore {
            Ok(Chore::Looked(looked)) => self.admit(*looked),
            Ok(Chore::Renewed { asked, renewed: Ok(renewed) }) => self.renewed(&asked, &renewed),
            Ok(Chore::Renewed { renewed: Err(error), .. }) => error!(%error, "lanes are not renewed"),
            Ok(Chore::Released) => {}
            Err(error) => {
                error!(%error, "a look at what is due failed");
                self.hands = Hands::new(self.engine.pool());
                self.holds.end_read();
            }
        }
        if !self.hands.are_full()
            && let Some(what) = self.look_again.take()
        {
            self.look(what);
        }
    }

    fn admit(&mut self, looked: Looked) {
        let Looked { conn, at, reading, found } = looked;
        self.hands.put_back(conn);
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                error!(%error, "what is due cannot be read");
                self.holds.end_read();
                return;
            }
        };
        let vault = &self.engine.context().vault;
        let mut routes: Vec<Option<Arc<Route>>> = Vec::with_capacity(reading.lanes.len());
        for lane in &reading.lanes {
            let endpoint = found.endpoints.iter().find(|endpoint| endpoint.id == lane.endpoint_id);
            let active = endpoint.filter(|endpoint| endpoint.is_active);
            routes
                .push(active.map(|endpoint| Arc::new(Route::new(lane.fence, endpoint, self.client, vault))));
        }
        let now = Instant::now();
        for (lane, due) in self.holds.admit(&reading, found.due, now) {
            let Some(Some(route)) = routes.get(due.lane) else {
                self.holds.put_down(&lane.endpoint_id, lane.fence, due.place.id, false);
                continue;
            };
            let (route, id) = (Arc::clone(route), due.place.id);
            let job = Job { route, id, event_id: due.event_id, attempts: due.attempts, body: due.body };
            self.lanes.push(&lane.endpoint_id, job);
        }
        for (lane, route) in reading.lanes.iter().zip(&routes) {
            if route.is_some() {
                self.start(&lane.endpoint_id);
            } else {
                self.drop_waiting(&lane.endpoint_id);
                self.holds.begin_again(&lane.endpoint_id);
            }
        }
        if !found.taken.is_empty() {
            let until = at + self.limits.lease;
            found.taken.into_iter().for_each(|held| self.holds.take(held, now, until));
            self.look(Look::On);
        }
    }

    fn renewed(&mut self, asked: &Asked, renewed: &Renewed) {
        for endpoint in self.holds.renew(&asked.held, &renewed.standing, asked.at + self.limits.lease) {
            warn!(endpoint, "another process took this endpoint's deliveries");
            self.lanes.drop_waiting(&endpoint);
        }
        for endpoint in self.holds.leave(usize::try_from(renewed.share).unwrap_or(usize::MAX)) {
            self.drop_waiting(&endpoint);
        }
        self.release();
        // A lease that was nearly over held them up.
        for endpoint in self.lanes.waiting() {
            self.start(&endpoint);
        }
    }

    /// What has not started of an endpoint stays in the queue.
    fn drop_waiting(&mut self, endpoint: &str) {
        for job in self.lanes.drop_waiting(endpoint) {
            self.holds.put_down(endpoint, job.route.fence, job.id, false);
        }
    }

    /// Gives up the lanes that are to be given up and have nothing in hand.
    fn release(&mut self) {
        let left = self.holds.left();
        if left.is_empty() {
            return;
        }
        let pool = self.engine.pool().clone();
        self.chores.spawn(async move {
            if let Err(error) = lease::release(&pool, &left).await {
                warn!(%error, "leases run out by themselves");
            }
            Chore::Released
        });
    }

    fn start(&mut self, endpoint: &str) {
        // A request needs its time, and its outcome some, before the lease ends.
        let needed = self.limits.timeout.saturating_mul(5) / 4;
        if !self.holds.lasts(endpoint, Instant::now(), needed) {
            return;
        }
        while let Some(job) = self.lanes.start(endpoint) {
            let client = Arc::clone(self.client);
            self.sending.spawn(attempt(client, job));
        }
    }

    fn finish(&mut self, sent: Result<Ready, JoinError>) {
        let ready = match sent {
            Ok(ready) => ready,
            Err(error) => {
                error!(%error, "an attempt was cut; its delivery stays in hand until this process ends");
                return;
            }
        };
        let went = match ready.outcome.sent.fault {
            None => Went::Well,
            Some(Fault::Timeout) => Went::Hanging,
            Some(_) => Went::Badly,
        };
        let route = Arc::clone(&ready.route);
        let endpoint = route.endpoint_id.as_str();
        let roomy = self.lanes.finish(endpoint, went);
        if went != Went::Well {
            // It stays in the queue, and others have the room.
            let surplus = self.lanes.drop_surplus(endpoint);
            surplus.iter().for_each(|job| self.holds.put_down(endpoint, job.route.fence, job.id, false));
        }
        if self.outcomes.try_send(ready).is_err() {
            error!("an outcome found no place; what it tells is sent again");
        }
        self.start(endpoint);
        if roomy && self.holds.has_more(endpoint) {
            self.look(Look::On);
        }
    }

    fn put_down(&mut self, written: &Written) {
        let full = self.holds.in_hand() >= self.limits.in_hand;
        for (route, id) in &written.batch {
            self.holds.put_down(&route.endpoint_id, route.fence, *id, written.well);
        }
        self.release();
        if full {
            self.look(Look::Everywhere);
        }
    }

    /// Ends what is under way, within a moment. What has not started is in the queue.
    async fn stop(mut self) -> Vec<dvp_core::store::webhook_lanes::Held> {
        let ending = async {
            while let Some(sent) = self.sending.join_next().await {
                if let Ok(ready) = sent {
                    let _ = self.outcomes.send(ready).await;
                }
            }
        };
        if tokio::time::timeout(DRAIN, ending).await.is_err() {
            warn!("requests under way were cut; their deliveries are sent again");
        }
        self.holds.held()
    }
}

/// Signs a delivery with the secrets in force now and sends it.
async fn attempt(client: Arc<Client>, job: Job) -> Ready {
    let at = now();
    let Job { route, id, event_id, attempts, body } = job;
    let sent = match (&route.url, &route.keys) {
        (Some(url), Some(keys)) => {
            let t = at.unix_secs().to_string();
            let post = Post {
                url: url.clone(),
                signature: svc_signature(keys.in_force(at), &t, body.as_bytes()),
                standard_signature: webhook_signature(keys.in_force(at), &event_id, &t, body.as_bytes()),
                event_id,
                t,
                body,
            };
            // Whatever breaks here must not keep the delivery in hand.
            let sent = AssertUnwindSafe(client.send(post)).catch_unwind().await;
            sent.unwrap_or_else(|_| Sent::failed(Fault::Ours))
        }
        (None, _) => Sent::failed(Fault::UrlRefused),
        (Some(_), None) => Sent::failed(Fault::Ours),
    };
    Ready { route, id, attempts, outcome: Outcome { at, sent } }
}
