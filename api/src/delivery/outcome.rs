//! What came of attempts, written in batches: the attempt, when the delivery is due again, and the endpoint's health.

use std::collections::BTreeMap;
use std::time::Duration;

use dvp_core::context::now;
use dvp_core::store::webhook_deliveries::{self as deliveries, Attempt, Claimed, Ended, Next};
use dvp_core::store::webhooks::{self as endpoints, NoticeKind};
use dvp_core::store::{PgPool, StoreError};
use dvp_domain::time::Timestamp;
use dvp_domain::webhook::{Action, Verdict, pause_after};
use tokio::sync::mpsc;
use tracing::{error, warn};

use super::client::{Fault, Sent};
use super::worker::Ready;

/// Outcomes of one transaction.
const BATCH: usize = 256;
/// How often a batch is tried before its deliveries are left to fall due again.
const TRIES: u32 = 3;
const TRY_AGAIN: Duration = Duration::from_millis(200);
/// When something of ours was out of order, the delivery waits this long.
const OURS_PAUSE: Duration = Duration::from_secs(60);
const GONE: u16 = 410;

/// An attempt that began at `at`.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) at: Timestamp,
    pub(super) sent: Sent,
}

impl Outcome {
    const fn verdict(&self) -> Verdict {
        match (self.sent.fault, self.sent.status) {
            (None, _) => Verdict::Delivered,
            (Some(Fault::Ours), _) => Verdict::OurFault,
            (Some(_), Some(GONE)) => Verdict::Gone,
            (Some(_), _) => Verdict::Failed,
        }
    }

    /// What becomes of the delivery; `share` of the jitter is taken.
    fn end(&self, claimed: &Claimed, share: u16) -> Ended {
        let number = claimed.attempts.saturating_add(1);
        let next = match self.verdict() {
            Verdict::Delivered => Next::Delivered,
            Verdict::OurFault => Next::Again(OURS_PAUSE),
            Verdict::Failed | Verdict::Gone => pause_after(number, share).map_or(Next::Failed, Next::Again),
        };
        let attempt = Attempt {
            number,
            at: self.at.to_utc(),
            status: self.sent.status,
            latency_ms: i64::try_from(self.sent.latency.as_millis()).unwrap_or(i64::MAX),
            error: self.sent.fault.map(Fault::as_str),
            body_prefix: self.sent.body_prefix.clone(),
        };
        let used = self.verdict() != Verdict::OurFault;
        Ended { id: claimed.id, fence: claimed.fence, next, attempt: used.then_some(attempt) }
    }
}

/// Writes outcomes until their sender is gone.
pub(super) async fn run(pool: &PgPool, mut ready: mpsc::Receiver<Ready>) {
    let mut batch = Vec::with_capacity(BATCH);
    while ready.recv_many(&mut batch, BATCH).await > 0 {
        let ended: Vec<Ended> =
            batch.iter().map(|(claimed, outcome)| outcome.end(claimed, share())).collect();
        for left in (0..TRIES).rev() {
            match write(pool, &batch, &ended).await {
                Ok(()) => break,
                Err(error) if left == 0 => {
                    error!(%error, count = batch.len(), "outcomes are not written: what they tell is sent again");
                }
                Err(error) => {
                    warn!(%error, "outcomes are written again");
                    tokio::time::sleep(TRY_AGAIN).await;
                }
            }
        }
        batch.clear();
    }
}

/// A random share of the jitter. Without randomness there is none, and nothing is wrong.
fn share() -> u16 {
    let mut bytes = [0; 2];
    if getrandom::fill(&mut bytes).is_err() {
        return 0;
    }
    u16::from_ne_bytes(bytes)
}

async fn write(pool: &PgPool, batch: &[Ready], ended: &[Ended]) -> Result<(), StoreError> {
    let mut tx = pool.begin().await?;
    let held = deliveries::end(&mut tx, ended).await?;
    let mut verdicts: BTreeMap<&str, Vec<Verdict>> = BTreeMap::new();
    for (claimed, outcome) in batch.iter().filter(|(claimed, _)| held.contains(&claimed.id)) {
        verdicts.entry(&claimed.endpoint_id).or_default().push(outcome.verdict());
    }
    let all_well = |verdicts: &[Verdict]| verdicts.iter().all(|verdict| *verdict == Verdict::Delivered);
    let (well, mixed): (BTreeMap<_, _>, BTreeMap<_, _>) =
        verdicts.into_iter().partition(|(_, verdicts)| all_well(verdicts));
    endpoints::forget_failures(&mut tx, &well.into_keys().collect::<Vec<_>>()).await?;
    if !mixed.is_empty() {
        judge(&mut tx, &mixed).await?;
    }
    tx.commit().await?;
    Ok(())
}

/// What failures mean for their endpoints.
async fn judge(
    conn: &mut dvp_core::store::PgConnection,
    verdicts: &BTreeMap<&str, Vec<Verdict>>,
) -> Result<(), StoreError> {
    let ids: Vec<&str> = verdicts.keys().copied().collect();
    let at = now();
    for endpoint in endpoints::lock_many(conn, &ids).await?.iter().filter(|endpoint| endpoint.is_active) {
        let (mut health, mut active, mut notices) = (endpoint.health, true, Vec::new());
        for verdict in verdicts.get(endpoint.id.as_str()).into_iter().flatten() {
            let (after, action) = health.after(*verdict, at);
            health = after;
            match action {
                None => {}
                Some(Action::TellOwner) => notices.push(NoticeKind::Failing),
                Some(Action::DeactivateFailing) => {
                    active = false;
                    notices.push(NoticeKind::DeactivatedFailing);
                }
                Some(Action::DeactivateGone) => {
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
            warn!(endpoint = id, partner, notice = kind.as_str(), "webhook endpoint: tell its owner");
            endpoints::insert_notice(conn, id, kind).await?;
        }
    }
    Ok(())
}
