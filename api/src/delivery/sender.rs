//! Sends the deliveries that wait in the queues.
//!
//! A sender is a task that continues with the next delivery of its queue as long as there is one, so that a busy queue
//! needs neither a task nor a message to the worker per delivery. The worker is notified only of what a sender cannot
//! decide.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use dvp_core::context::{now, system};
use dvp_core::trace;
use dvp_domain::trace::TraceContext;
use dvp_store::StoreError;
use dvp_store::workers::{self, Step, guarded};
use metrics::{counter, histogram};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc::UnboundedSender;
use tracing::field::Empty;
use tracing::{Instrument as _, error, info_span};

use super::client::{Client, Fault, Post, Sent};
use super::endpoint_queues::{EndpointQueues, Finished, Went};
use super::outcome::{Outcome, Ready, SenderEvent};
use super::route::EndpointRoute;
use super::signature::{svc_signature, webhook_signature};

/// A delivery in flight.
pub(super) struct Job {
    pub(super) route: Arc<EndpointRoute>,
    pub(super) id: i64,
    pub(super) event_id: String,
    /// The number of earlier attempts.
    pub(super) attempts: u32,
    pub(super) body: String,
    pub(super) trace: Option<String>,
}

/// The state shared by the worker and its senders. Its channels are bounded by the number of deliveries in flight.
pub(super) struct Sender {
    client: Arc<Client>,
    queues: Mutex<EndpointQueues<Job>>,
    events: UnboundedSender<SenderEvent>,
    outcomes: UnboundedSender<Ready>,
    /// The worker was notified of room and has not read since.
    roomy: AtomicBool,
}

impl Sender {
    pub(super) fn new(
        client: &Arc<Client>,
        per_endpoint: usize,
        events: UnboundedSender<SenderEvent>,
        outcomes: UnboundedSender<Ready>,
    ) -> Self {
        Self {
            client: Arc::clone(client),
            queues: Mutex::new(EndpointQueues::new(per_endpoint)),
            events,
            outcomes,
            roomy: AtomicBool::new(false),
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// The worker has read, and must be notified of room again.
    pub(super) fn has_looked(&self) {
        self.roomy.store(false, Ordering::Relaxed);
    }

    /// Must not be held across an await.
    pub(super) fn queues(&self) -> MutexGuard<'_, EndpointQueues<Job>> {
        self.queues.lock()
    }

    /// Passes on an attempt's outcome. Returns the next delivery of its queue that may start.
    fn finish(&self, ready: Ready) -> Option<Job> {
        let sent = &ready.outcome.sent;
        let result = sent.fault.map_or("delivered", Fault::as_str);
        counter!("dvp_webhook_attempts_total", "result" => result).increment(1);
        histogram!("dvp_webhook_attempt_seconds").record(sent.latency);
        let went = match ready.outcome.sent.fault {
            None => Went::Well,
            Some(Fault::Timeout) => Went::Hanging,
            Some(_) => Went::Badly,
        };
        let route = Arc::clone(&ready.route);
        let endpoint = route.endpoint_id.as_str();
        let Finished { next, wider, roomy, surplus } = self.queues().finish(endpoint, went, Instant::now());
        // The task that writes outcomes outlives the senders.
        let _ = self.outcomes.send(ready);
        if !surplus.is_empty() {
            // The delivery stays in the queue, and others use the room.
            let batch = surplus.into_iter().map(|job| (job.route, job.id)).collect();
            self.notify(SenderEvent::PutDown { batch, written: false });
        }
        if roomy && !self.roomy.swap(true, Ordering::Relaxed) {
            self.notify(SenderEvent::Roomy);
        }
        if wider {
            self.notify(SenderEvent::Wider(route));
        }
        next
    }

    /// After the worker's end no delivery is in flight.
    fn notify(&self, event: SenderEvent) {
        let _ = self.events.send(event);
    }
}

/// Sends a delivery, and then its successors in the queue.
pub(super) async fn send(sender: Arc<Sender>, mut job: Job) {
    loop {
        let ready = attempt(&sender.client, job).await;
        match sender.finish(ready) {
            Some(next) => job = next,
            None => return,
        }
    }
}

/// Signs a delivery with the present secrets and sends it.
async fn attempt(client: &Client, job: Job) -> Ready {
    let at = now();
    let Job { route, id, event_id, attempts, body, trace } = job;
    let placed: Option<TraceContext> = trace.and_then(|text| text.parse().ok());
    let trace = trace::child(placed);
    let sent = match (&route.url, &route.keys) {
        (Some(url), Some(keys)) => {
            let t = system().unix_secs().to_string();
            let post = Post {
                endpoint: route.endpoint_id.clone(),
                url: url.clone(),
                signature: svc_signature(keys.in_force(at), &t, body.as_bytes()),
                standard_signature: webhook_signature(keys.in_force(at), &event_id, &t, body.as_bytes()),
                event_id,
                t,
                body,
                trace,
            };
            let span = info_span!(
                "webhook",
                endpoint = route.endpoint_id,
                trace_id = Empty,
                span_id = Empty,
                parent_span_id = Empty,
            );
            trace::mark(&span, trace, placed);
            // After any failure the delivery must not stay in flight.
            let endpoint = route.endpoint_id.clone();
            let sending = async {
                workers::at(Step::DeliverySend, &endpoint).await?;
                Ok::<_, StoreError>(client.send(post).instrument(span).await)
            };
            guarded(client.attempt_max(), sending).await.unwrap_or_else(|error| {
                error!(%error, endpoint, "an attempt of a delivery failed in this process");
                Sent::failed(Fault::Ours)
            })
        }
        (None, _) => Sent::failed(Fault::UrlRefused),
        (Some(_), None) => Sent::failed(Fault::Ours),
    };
    Ready { route, id, attempts, outcome: Outcome { at, sent } }
}
