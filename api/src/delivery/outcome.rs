//! Outcomes of attempts, written in batches: the end of the delivery or its next due time, the attempt, and the
//! endpoint's health.
//!
//! While one batch is written the next one gathers; everything gathered is one transaction.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use dvp_core::context::now;
use dvp_domain::time::Timestamp;
use dvp_domain::webhook::{AttemptResult, EndpointAction, pause_after};
use dvp_store::database::changes::{Announcer, Subject};
use dvp_store::database::pool::answers;
use dvp_store::webhooks::deliveries::{self, Attempt, Ended, Next};
use dvp_store::webhooks::leases::EndpointLease;
use dvp_store::webhooks::{self as endpoints, NoticeKind};
use dvp_store::workers::{self, ItemError, Items, Step, Worker, guarded};
use dvp_store::{Acquire as _, PgConnection, PgPool, PoolConnection, StoreError};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tracing::{error, warn};

use super::client::{Fault, Sent};
use super::route::EndpointRoute;

/// Outcomes per transaction.
const BATCH: usize = 1024;
/// How often a batch is retried before its deliveries stay in the queue unchanged.
const TRIES: u32 = 3;
const TRY_AGAIN: Duration = Duration::from_millis(200);
/// How many parts of an endpoint's outcomes are refused before all others that are refused are put off together.
const REFUSED_MAX: u32 = 4;
/// How many endpoints' outcomes are written at once after a batch was refused.
const PARTS_AT_ONCE: usize = 4;
/// The delay of a delivery after a fault of our own.
const OURS_PAUSE: Duration = Duration::from_secs(60);
/// The longest time to write a batch.
const OUTCOME_MAX: Duration = Duration::from_secs(5);
const GONE: u16 = 410;

/// An attempt that began at `at`.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) at: Timestamp,
    pub(super) sent: Sent,
}

/// A completed attempt of a delivery that is in flight until the outcome is written.
pub(super) struct Ready {
    pub(super) route: Arc<EndpointRoute>,
    pub(super) id: i64,
    pub(super) attempts: u32,
    pub(super) outcome: Outcome,
}

pub(super) enum SenderEvent {
    /// These deliveries are no longer in flight: their outcomes are `written`, or they are unchanged.
    PutDown { batch: Vec<(Arc<EndpointRoute>, i64)>, written: bool },
    /// A queue has room for more.
    Roomy,
    /// A queue's concurrency has increased.
    Wider(Arc<EndpointRoute>),
}

impl Outcome {
    const fn verdict(&self) -> AttemptResult {
        match (self.sent.fault, self.sent.status) {
            (None, _) => AttemptResult::Delivered,
            (Some(Fault::Ours), _) => AttemptResult::OurFault,
            (Some(_), Some(GONE)) => AttemptResult::Gone,
            (Some(_), _) => AttemptResult::Failed,
        }
    }

    /// The consequence for the delivery; `share` is the random part of the jitter.
    fn end(self, route: &EndpointRoute, id: i64, attempts: u32, share: u16) -> Ended {
        let number = attempts.saturating_add(1);
        let next = match self.verdict() {
            AttemptResult::Delivered => Next::Delivered,
            AttemptResult::OurFault => Next::Again(OURS_PAUSE),
            AttemptResult::Failed | AttemptResult::Gone => {
                pause_after(number, share).map_or(Next::Failed, Next::Again)
            }
        };
        let used = self.verdict() != AttemptResult::OurFault;
        let attempt = Attempt {
            number,
            at: self.at.to_utc(),
            status: self.sent.status,
            latency_ms: i64::try_from(self.sent.latency.as_millis()).unwrap_or(i64::MAX),
            error: self.sent.fault.map(Fault::as_str),
            body_prefix: self.sent.body_prefix,
        };
        Ended { id, fence: route.fence, next, attempt: used.then_some(attempt) }
    }
}

struct OutcomeBatch {
    leases: Vec<EndpointLease>,
    ended: Vec<Ended>,
    /// One for each of `ended`.
    verdicts: Vec<(Arc<EndpointRoute>, AttemptResult)>,
}

impl OutcomeBatch {
    fn new(ready: impl Iterator<Item = Ready>) -> Self {
        let (mut leases, mut ended, mut verdicts) = (BTreeMap::new(), Vec::new(), Vec::new());
        for Ready { route, id, attempts, outcome } in ready {
            leases.entry(Arc::as_ptr(&route)).or_insert_with(|| Arc::clone(&route));
            let verdict = outcome.verdict();
            // Only a postponed delivery has jitter.
            let share = if verdict == AttemptResult::Delivered { 0 } else { share() };
            ended.push(outcome.end(&route, id, attempts, share));
            verdicts.push((route, verdict));
        }
        let held = |route: Arc<EndpointRoute>| EndpointLease {
            endpoint_id: route.endpoint_id.clone(),
            fence: route.fence,
        };
        let mut leases: Vec<EndpointLease> = leases.into_values().map(held).collect();
        leases.sort_unstable();
        leases.dedup();
        Self { leases, ended, verdicts }
    }

    /// The outcomes of each endpoint.
    fn of_each_endpoint(self) -> BTreeMap<String, Self> {
        let mut parts: BTreeMap<String, Self> = BTreeMap::new();
        for (end, (route, verdict)) in self.ended.into_iter().zip(self.verdicts) {
            let part = parts.entry(route.endpoint_id.clone()).or_insert_with_key(|id| {
                let leases = self.leases.iter().filter(|lease| lease.endpoint_id == *id).cloned().collect();
                Self { leases, ended: Vec::new(), verdicts: Vec::new() }
            });
            part.ended.push(end);
            part.verdicts.push((route, verdict));
        }
        parts
    }

    fn halves(mut self) -> [Self; 2] {
        let middle = self.ended.len() / 2;
        let (ended, verdicts) = (self.ended.split_off(middle), self.verdicts.split_off(middle));
        let second = Self { leases: self.leases.clone(), ended, verdicts };
        [second, self]
    }
}

/// Writes outcomes until their sender is gone, and reports the deliveries that have ended.
pub(super) async fn run(
    pool: &PgPool,
    mut ready: mpsc::UnboundedReceiver<Ready>,
    events: mpsc::UnboundedSender<SenderEvent>,
) {
    let mut conn = None;
    let mut gathered = Vec::with_capacity(BATCH);
    let mut announcer = Announcer::new(pool.clone(), Subject::Webhooks);
    let items = Items::new(pool.clone(), Worker::Outcomes, OUTCOME_MAX);
    let sending = Items::new(pool.clone(), Worker::Deliveries, OUTCOME_MAX);
    let mut apart = Apart::new(pool, &items);
    // At a stop the receiver may be gone.
    let put_down = |batch: OutcomeBatch, written| {
        let ids = batch.ended.iter().map(|end| end.id);
        let batch = batch.verdicts.into_iter().map(|(route, _)| route).zip(ids).collect();
        let _ = events.send(SenderEvent::PutDown { batch, written });
    };
    loop {
        let received = tokio::select! {
            received = ready.recv_many(&mut gathered, BATCH) => received,
            Some(parts) = apart.next() => {
                announcer.changed();
                parts.into_iter().for_each(|(part, written)| put_down(part, written));
                continue;
            }
            () = announcer.due() => {
                announcer.tell().await;
                continue;
            }
        };
        if received == 0 {
            break;
        }
        tokio::join!(items.refresh(), sending.refresh());
        note_own_faults(&sending, &gathered).await;
        let (suspected, others): (Vec<Ready>, Vec<Ready>) =
            gathered.drain(..).partition(|one| apart.suspects.contains(&one.route.endpoint_id));
        apart.write(OutcomeBatch::new(suspected.into_iter()));
        if others.is_empty() {
            continue;
        }
        let batch = OutcomeBatch::new(others.into_iter());
        let written = match write_or_leave(pool, &mut conn, &batch, TRIES).await {
            Written::Yes => {
                note_written(&items, &batch).await;
                true
            }
            Written::No => false,
            Written::Refused | Written::TimedOut => {
                apart.write(batch);
                continue;
            }
        };
        announcer.changed();
        put_down(batch, written);
    }
    while let Some(parts) = apart.next().await {
        parts.into_iter().for_each(|(part, written)| put_down(part, written));
    }
}

/// Parts of a batch, and whether each was written.
type Parts = Vec<(OutcomeBatch, bool)>;

/// Outcomes whose batch was refused: those of each endpoint are written by themselves, beside all others, until the
/// endpoint's are written again. So no endpoint takes another along, and at most one batch waits for it.
struct Apart<'a> {
    pool: &'a PgPool,
    items: &'a Items,
    suspects: HashSet<String>,
    room: Arc<Semaphore>,
    writing: JoinSet<(String, bool, Parts)>,
}

impl<'a> Apart<'a> {
    fn new(pool: &'a PgPool, items: &'a Items) -> Self {
        let room = Arc::new(Semaphore::new(PARTS_AT_ONCE));
        Self { pool, items, suspects: HashSet::new(), room, writing: JoinSet::new() }
    }

    fn write(&mut self, batch: OutcomeBatch) {
        for (endpoint, part) in batch.of_each_endpoint() {
            self.suspects.insert(endpoint.clone());
            let (pool, items, room) = (self.pool.clone(), self.items.clone(), Arc::clone(&self.room));
            self.writing.spawn(async move {
                // It is never closed.
                let _place = room.acquire_owned().await;
                let (is_well, parts) = write_apart(&pool, &items, part).await;
                (endpoint, is_well, parts)
            });
        }
    }

    /// The next parts that were written or put off. `None`: there are none.
    async fn next(&mut self) -> Option<Parts> {
        match self.writing.join_next().await? {
            Ok((endpoint, is_well, parts)) => {
                if is_well {
                    self.suspects.remove(&endpoint);
                }
                Some(parts)
            }
            Err(error) => {
                error!(%error, "writing delivery outcomes failed, they will be sent again");
                Some(Vec::new())
            }
        }
    }
}

/// Writes the outcomes of one endpoint; of those that are refused, the halves. Returns whether none was put off, and the
/// parts.
async fn write_apart(pool: &PgPool, items: &Items, batch: OutcomeBatch) -> (bool, Parts) {
    let (mut conn, mut parts, mut done, mut refused) = (None, vec![batch], Vec::new(), 0);
    while let Some(batch) = parts.pop() {
        let is_one = batch.ended.len() == 1;
        let written = match write_or_leave(pool, &mut conn, &batch, if is_one { TRIES } else { 1 }).await {
            Written::Yes => {
                note_written(items, &batch).await;
                true
            }
            Written::No => false,
            Written::Refused if !is_one && refused < REFUSED_MAX => {
                parts.extend(batch.halves());
                continue;
            }
            // The halves would take as long again.
            Written::Refused | Written::TimedOut => {
                refused += 1;
                put_off(pool, items, &batch).await
            }
        };
        done.push((batch, written));
    }
    (refused == 0, done)
}

/// An endpoint that nothing is sent to because of a fault of our own is set aside until an attempt is made.
async fn note_own_faults(items: &Items, gathered: &[Ready]) {
    let mut seen = HashSet::new();
    for Ready { route, outcome, .. } in gathered.iter().rev() {
        let (endpoint, is_ours) = (route.endpoint_id.as_str(), outcome.sent.fault == Some(Fault::Ours));
        if !seen.insert(endpoint) || !is_ours && !items.is_set_aside(endpoint) {
            continue;
        }
        let why = "an attempt failed in this process before it reached the receiver";
        items.note(endpoint, endpoint, if is_ours { Err(why.to_owned()) } else { Ok(()) }).await;
    }
}

/// Deliveries that were set aside are so no longer.
async fn note_written(items: &Items, batch: &OutcomeBatch) {
    if items.are_well() {
        return;
    }
    for (end, (route, _)) in batch.ended.iter().zip(&batch.verdicts) {
        let id = end.id.to_string();
        if items.is_set_aside(&id) {
            items.note(&id, &route.endpoint_id, Ok(())).await;
        }
    }
}

/// Outcomes of one endpoint cannot be written as they are: their deliveries are due again later. Returns whether that
/// was written.
async fn put_off(pool: &PgPool, items: &Items, batch: &OutcomeBatch) -> bool {
    let Some((end, (route, _))) = batch.ended.first().zip(batch.verdicts.first()) else { return true };
    let why = format!("the outcomes of {} attempts cannot be written", batch.ended.len());
    items.note(&end.id.to_string(), &route.endpoint_id, Err(why)).await;
    let off = |end: &Ended| Ended { attempt: None, next: Next::Again(OURS_PAUSE), ..end.clone() };
    let off: Vec<Ended> = batch.ended.iter().map(off).collect();
    let putting = async {
        let mut conn = pool.acquire().await?;
        deliveries::end(&mut conn, &batch.leases, &off).await
    };
    let written: Result<_, ItemError<StoreError>> = guarded(OUTCOME_MAX, putting).await;
    if let Err(error) = &written {
        error!(%error, delivery = end.id, "deliveries could not be put off, they will be sent again");
    }
    written.is_ok()
}

enum Written {
    Yes,
    /// The database was not available. Its deliveries will be sent again.
    No,
    /// It contains something that the database does not take.
    Refused,
    /// The database answers, but not to this.
    TimedOut,
}

/// The connection is kept for the next batch.
async fn write_or_leave(
    pool: &PgPool,
    kept: &mut Option<PoolConnection>,
    batch: &OutcomeBatch,
    mut left: u32,
) -> Written {
    let error = loop {
        left -= 1;
        match guarded(OUTCOME_MAX, write(pool, kept, batch)).await {
            Ok(()) => return Written::Yes,
            Err(ItemError::Failed(error)) if left > 0 => {
                warn!(%error, "writing delivery outcomes failed, retrying");
                // A partition may be missing, when no process has run for a week.
                if let Err(error) = create_log(pool).await {
                    warn!(%error, "the partitions of the webhook log could not be created");
                }
                tokio::time::sleep(TRY_AGAIN).await;
            }
            Err(error) => break error,
        }
    };
    let count = batch.ended.len();
    error!(%error, count, "delivery outcomes could not be written");
    // While the database answers, it is about these outcomes.
    match error {
        _ if !answers(pool).await => Written::No,
        ItemError::TimedOut(_) => Written::TimedOut,
        ItemError::Failed(_) | ItemError::Panicked(_) => Written::Refused,
    }
}

async fn create_log(pool: &PgPool) -> Result<(), StoreError> {
    let mut conn = pool.acquire().await?;
    deliveries::create_log(&mut conn, 0).await
}

/// A random share of the jitter; zero if no randomness is available, which does no harm.
fn share() -> u16 {
    let mut bytes = [0; 2];
    if getrandom::fill(&mut bytes).is_err() {
        return 0;
    }
    u16::from_ne_bytes(bytes)
}

/// One statement when all attempts succeeded, which is a transaction by itself.
async fn write(
    pool: &PgPool,
    kept: &mut Option<PoolConnection>,
    batch: &OutcomeBatch,
) -> Result<(), StoreError> {
    for (route, _) in &batch.verdicts {
        workers::at(Step::OutcomeWrite, &route.endpoint_id).await?;
    }
    let mut conn = match kept.take() {
        Some(conn) => conn,
        None => pool.acquire().await?,
    };
    if batch.verdicts.iter().all(|(_, verdict)| *verdict == AttemptResult::Delivered) {
        deliveries::end(&mut conn, &batch.leases, &batch.ended).await?;
    } else {
        write_and_judge(&mut conn, batch).await?;
    }
    *kept = Some(conn);
    Ok(())
}

async fn write_and_judge(conn: &mut PgConnection, batch: &OutcomeBatch) -> Result<(), StoreError> {
    let mut tx = conn.begin().await?;
    let counted = deliveries::end(&mut tx, &batch.leases, &batch.ended).await?;
    let counted: HashSet<i64> = counted.into_iter().collect();
    let mut verdicts: BTreeMap<&str, Vec<(&str, AttemptResult)>> = BTreeMap::new();
    for ((route, verdict), end) in batch.verdicts.iter().zip(&batch.ended) {
        if counted.contains(&end.id) {
            verdicts.entry(&route.endpoint_id).or_default().push((&route.target, *verdict));
        }
    }
    verdicts.retain(|_, verdicts| verdicts.iter().any(|(_, verdict)| *verdict != AttemptResult::Delivered));
    judge(&mut tx, &verdicts).await?;
    tx.commit().await?;
    Ok(())
}

/// The consequences of failures for their endpoints. What a former URL of an endpoint answered says nothing about its
/// present one.
async fn judge(
    conn: &mut PgConnection,
    verdicts: &BTreeMap<&str, Vec<(&str, AttemptResult)>>,
) -> Result<(), StoreError> {
    let ids: Vec<&str> = verdicts.keys().copied().collect();
    let at = now();
    for endpoint in endpoints::lock_many(conn, &ids).await?.iter().filter(|endpoint| endpoint.is_active) {
        let (mut health, mut active, mut notices) = (endpoint.health, true, Vec::new());
        let of_endpoint = verdicts.get(endpoint.id.as_str()).into_iter().flatten();
        for (_, verdict) in of_endpoint.filter(|(target, _)| *target == endpoint.url) {
            let (after, action) = health.after(*verdict, at);
            health = after;
            match action {
                None => {}
                Some(EndpointAction::TellOwner) => notices.push(NoticeKind::Failing),
                Some(EndpointAction::DeactivateFailing) => {
                    active = false;
                    notices.push(NoticeKind::DeactivatedFailing);
                }
                Some(EndpointAction::DeactivateGone) => {
                    active = false;
                    notices.push(NoticeKind::DeactivatedGone);
                }
            }
            if !active {
                break;
            }
        }
        endpoints::update_health(conn, &endpoint.id, health, active).await?;
        for kind in notices {
            let (id, partner) = (&endpoint.id, &endpoint.tenant.partner_id);
            warn!(
                endpoint = id,
                partner,
                notice = kind.as_str(),
                "webhook endpoint is failing: notify its owner"
            );
            endpoints::insert_notice(conn, id, kind).await?;
        }
    }
    Ok(())
}
