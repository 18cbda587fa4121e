//! Sends what waits in the lanes.
//!
//! A sender is a task that goes on with the next delivery of its lane as long as there is one, so that a busy lane
//! costs no task and no way through the worker for each. The worker hears only of what a sender cannot decide.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use dvp_core::context::now;
use futures_util::FutureExt as _;
use tokio::sync::mpsc::UnboundedSender;

use super::client::{Client, Fault, Post, Sent};
use super::lanes::{Finished, Lanes, Went};
use super::outcome::Outcome;
use super::route::EndpointRoute;
use super::signature::{svc_signature, webhook_signature};

/// A delivery in hand.
pub(super) struct Job {
    pub(super) route: Arc<EndpointRoute>,
    pub(super) id: i64,
    pub(super) event_id: String,
    /// Attempts already made.
    pub(super) attempts: u32,
    pub(super) body: String,
}

/// An attempt that is over, of a delivery that is in hand until this is written.
pub(super) struct Ready {
    pub(super) route: Arc<EndpointRoute>,
    pub(super) id: i64,
    pub(super) attempts: u32,
    pub(super) outcome: Outcome,
}

/// What the worker is told.
pub(super) enum SenderEvent {
    /// These are in hand no more: `written`, or else as they were.
    PutDown { batch: Vec<(Arc<EndpointRoute>, i64)>, written: bool },
    /// A lane has room for more.
    Roomy,
    /// A lane may have more requests under way than before.
    Wider(Arc<EndpointRoute>),
}

/// What the worker and its senders share. Its channels are bounded by what is in hand.
pub(super) struct Sender {
    client: Arc<Client>,
    lanes: Mutex<Lanes<Job>>,
    told: UnboundedSender<SenderEvent>,
    outcomes: UnboundedSender<Ready>,
    /// The worker was told of room and has not looked since.
    roomy: AtomicBool,
}

impl Sender {
    pub(super) fn new(
        client: &Arc<Client>,
        per_endpoint: usize,
        told: UnboundedSender<SenderEvent>,
        outcomes: UnboundedSender<Ready>,
    ) -> Self {
        Self {
            client: Arc::clone(client),
            lanes: Mutex::new(Lanes::new(per_endpoint)),
            told,
            outcomes,
            roomy: AtomicBool::new(false),
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// The worker has looked, and is to be told of room again.
    pub(super) fn has_looked(&self) {
        self.roomy.store(false, Ordering::Relaxed);
    }

    /// Not to be held while anything is waited for.
    pub(super) fn lanes(&self) -> MutexGuard<'_, Lanes<Job>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// PollConnection an attempt's outcome on. Returns the next delivery of its lane that may start.
    fn finish(&self, ready: Ready) -> Option<Job> {
        let went = match ready.outcome.sent.fault {
            None => Went::Well,
            Some(Fault::Timeout) => Went::Hanging,
            Some(_) => Went::Badly,
        };
        let route = Arc::clone(&ready.route);
        let endpoint = route.endpoint_id.as_str();
        let Finished { next, wider, roomy, surplus } = self.lanes().finish(endpoint, went, Instant::now());
        // Whoever would write it outlives the senders.
        let _ = self.outcomes.send(ready);
        if !surplus.is_empty() {
            // It stays in the queue, and others have the room.
            let batch = surplus.into_iter().map(|job| (job.route, job.id)).collect();
            self.tell(SenderEvent::PutDown { batch, written: false });
        }
        if roomy && !self.roomy.swap(true, Ordering::Relaxed) {
            self.tell(SenderEvent::Roomy);
        }
        if wider {
            self.tell(SenderEvent::Wider(route));
        }
        next
    }

    /// A worker that is gone has nothing in hand any more.
    fn tell(&self, told: SenderEvent) {
        let _ = self.told.send(told);
    }
}

/// Sends a delivery, and then what follows it in its lane.
pub(super) async fn send(sender: Arc<Sender>, mut job: Job) {
    loop {
        let ready = attempt(&sender.client, job).await;
        match sender.finish(ready) {
            Some(next) => job = next,
            None => return,
        }
    }
}

/// Signs a delivery with the secrets in force now and sends it.
async fn attempt(client: &Client, job: Job) -> Ready {
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
