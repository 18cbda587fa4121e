//! Claims what is due, sends it, and hands on what came of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dvp_core::context::now;
use dvp_core::engine::Engine;
use dvp_core::store::webhook_deliveries::{self as deliveries, Claimed, Ended, Next, Room};
use dvp_core::store::{PgPool, StoreError};
use dvp_core::webhooks::signing_secrets;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::Limits;
use super::client::{Client, Fault, Post, Sent};
use super::lanes::{Lanes, Went};
use super::outcome::{self, Outcome};
use super::signature::{sign, sign_standard};
use super::wake::Wake;

/// Deliveries of one claim.
const CLAIM_MAX: usize = 256;
/// How long requests under way may take to end when the service stops.
const DRAIN: Duration = Duration::from_secs(5);
/// Outcomes on their way to the database.
const OUTCOMES_MAX: usize = 1024;

/// A delivery in hand, and until when it may be started.
struct Job {
    claimed: Claimed,
    start_by: Instant,
}

struct Worker<'a> {
    engine: &'a Engine,
    client: &'a Arc<Client>,
    limits: Limits,
    lanes: Lanes<Job>,
    sending: JoinSet<(Claimed, Outcome)>,
    claiming: JoinSet<Result<Vec<Claimed>, StoreError>>,
    /// The last claim found something, so there may be more.
    more: bool,
    outcomes: mpsc::Sender<Ready>,
}

/// An outcome and the delivery it belongs to.
pub(super) type Ready = (Claimed, Outcome);

pub(super) async fn run(
    engine: &Engine,
    client: &Arc<Client>,
    limits: Limits,
    wake: &Wake,
    shutdown: &CancellationToken,
) {
    let (outcomes, ready) = mpsc::channel(OUTCOMES_MAX);
    let worker = Worker {
        engine,
        client,
        limits,
        lanes: Lanes::new(limits.per_endpoint),
        sending: JoinSet::new(),
        claiming: JoinSet::new(),
        more: false,
        outcomes,
    };
    tokio::join!(worker.run(wake, shutdown), outcome::run(engine.pool(), ready));
}

impl Worker<'_> {
    async fn run(mut self, wake: &Wake, shutdown: &CancellationToken) {
        let mut poll = tokio::time::interval(self.limits.poll);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                _ = poll.tick() => self.claim(),
                () = wake.workers.notified() => self.claim(),
                Some(sent) = self.sending.join_next() => self.finish(sent).await,
                Some(claimed) = self.claiming.join_next() => self.take(claimed),
            }
        }
        self.stop().await;
    }

    /// Starts a claim, unless one is under way or the hands are full.
    fn claim(&mut self) {
        let free = self.limits.in_hand.saturating_sub(self.lanes.in_hand());
        if free == 0 || !self.claiming.is_empty() {
            return;
        }
        let count = |room: usize| i64::try_from(room).unwrap_or(i64::MAX);
        let rooms: Vec<Room> = self
            .lanes
            .rooms()
            .map(|(id, room)| Room { endpoint_id: id.to_owned(), deliveries: count(room) })
            .collect();
        let (room, limit) = (count(self.lanes.room_of_new()), count(free.min(CLAIM_MAX)));
        let (pool, lease) = (self.engine.pool().clone(), self.limits.lease);
        self.claiming.spawn(async move { claim(&pool, &rooms, room, limit, lease).await });
    }

    fn take(&mut self, claimed: Result<Result<Vec<Claimed>, StoreError>, tokio::task::JoinError>) {
        let claimed = match claimed {
            Ok(Ok(claimed)) => claimed,
            Ok(Err(error)) => {
                error!(%error, "deliveries cannot be claimed");
                return;
            }
            Err(error) => {
                error!(%error, "a claim failed");
                return;
            }
        };
        self.more = !claimed.is_empty();
        // A request needs its time and its outcome some before the lease ends.
        let slack = self.limits.lease.saturating_sub(self.limits.timeout.saturating_mul(5) / 4);
        let start_by = Instant::now() + slack;
        for claimed in claimed {
            let endpoint = claimed.endpoint_id.clone();
            self.lanes.push(&endpoint, Job { claimed, start_by });
            self.start(&endpoint);
        }
    }

    fn start(&mut self, endpoint: &str) {
        while let Some(Job { claimed, start_by }) = self.lanes.start(endpoint) {
            if Instant::now() > start_by {
                // Its lease is nearly over: it will be due again.
                self.lanes.finish(endpoint, Went::Badly);
                continue;
            }
            let (engine, client) = (self.engine.clone(), Arc::clone(self.client));
            self.sending.spawn(async move {
                let outcome = attempt(&engine, &client, &claimed).await;
                (claimed, outcome)
            });
        }
    }

    async fn finish(&mut self, sent: Result<Ready, tokio::task::JoinError>) {
        let (claimed, outcome) = match sent {
            Ok(ready) => ready,
            Err(error) => {
                error!(%error, "an attempt failed here; its delivery will be due again");
                return;
            }
        };
        let went = match outcome.sent.fault {
            None => Went::Well,
            Some(Fault::Timeout) => Went::Hanging,
            Some(_) => Went::Badly,
        };
        let endpoint = claimed.endpoint_id.clone();
        let roomy = self.lanes.finish(&endpoint, went);
        self.start(&endpoint);
        if self.outcomes.send((claimed, outcome)).await.is_err() {
            warn!("an outcome found nobody to write it");
        }
        if roomy && self.more {
            self.claim();
        }
    }

    /// Ends what is under way, within a moment, and gives back what has not started.
    async fn stop(mut self) {
        let unsent: Vec<Ended> = self
            .lanes
            .drain()
            .into_iter()
            .map(|job| Ended {
                id: job.claimed.id,
                fence: job.claimed.fence,
                next: Next::Again(Duration::ZERO),
                attempt: None,
            })
            .collect();
        let ending = async {
            while let Some(sent) = self.sending.join_next().await {
                if let Ok(ready) = sent {
                    let _ = self.outcomes.send(ready).await;
                }
            }
        };
        if tokio::time::timeout(DRAIN, ending).await.is_err() {
            warn!("requests under way were cut; their deliveries will be due again");
        }
        if let Err(error) = give_back(self.engine.pool(), &unsent).await {
            warn!(%error, "claims run out by themselves");
        }
    }
}

async fn give_back(pool: &PgPool, unsent: &[Ended]) -> Result<(), StoreError> {
    deliveries::end(&mut *pool.acquire().await?, unsent).await?;
    Ok(())
}

async fn claim(
    pool: &PgPool,
    rooms: &[Room],
    room: i64,
    limit: i64,
    lease: Duration,
) -> Result<Vec<Claimed>, StoreError> {
    let mut tx = pool.begin().await?;
    let claimed = deliveries::claim(&mut tx, rooms, room, limit, lease).await?;
    tx.commit().await?;
    Ok(claimed)
}

/// Signs a delivery with the secrets in force now and sends it.
async fn attempt(engine: &Engine, client: &Client, claimed: &Claimed) -> Outcome {
    let at = now();
    let vault = &engine.context().vault;
    let secrets = match signing_secrets(vault, &claimed.endpoint_id, &claimed.secrets, at) {
        Ok(secrets) => secrets,
        Err(error) => {
            error!(endpoint = claimed.endpoint_id, %error, "a signing secret does not open");
            let sent =
                Sent { status: None, fault: Some(Fault::Ours), latency: Duration::ZERO, body_prefix: None };
            return Outcome { at, sent };
        }
    };
    let t = at.unix_secs();
    let body = claimed.body.as_bytes();
    let post = Post {
        url: claimed.url.clone(),
        event_id: claimed.event_id.clone(),
        t,
        signature: sign(&secrets, t, body),
        standard_signature: sign_standard(&secrets, &claimed.event_id, t, body),
        body: claimed.body.clone(),
    };
    Outcome { at, sent: client.send(post).await }
}
