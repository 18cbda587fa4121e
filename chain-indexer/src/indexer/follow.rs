//! Runs the indexer: holds the lease, takes step after step, and reports the state.

use super::gate::GateKeeper;
use super::{IndexError, Indexer, STEP_WITHIN, Step};
use crate::config::ChainConfig;
use crate::lease_guard::{self, Backoff};
use crate::reader::{ChainReader, HttpReader};
use crate::wake;
use dvp_store::PgPool;
use dvp_store::chain::{self as store, IndexerState};
use dvp_store::database::clock;
use dvp_store::database::lease::LeaseGuard;
use dvp_store::workers::{ItemError, guarded};
use metrics::{counter, gauge};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// After this many consecutive failures the indexer is reported as stalled.
const HOLDING_AFTER: u32 = 3;
/// The interval at which an unchanged state is reported again.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// The interval of checking whether an operator has resumed a halted chain.
const HALTED_PAUSE: Duration = Duration::from_secs(2);

/// Runs until cancelled. Errors of the node and the database are logged and tried again.
pub async fn run_indexer(
    pool: PgPool,
    config: ChainConfig,
    shutdown: CancellationToken,
) -> Result<(), IndexError> {
    let indexer = Indexer::<HttpReader>::new(pool, config)?;
    Box::pin(run_indexer_on(indexer, shutdown)).await
}

/// The same for an indexer with endpoints of its own.
pub async fn run_indexer_on<R: ChainReader>(
    mut indexer: Indexer<R>,
    shutdown: CancellationToken,
) -> Result<(), IndexError> {
    let name = format!("indexer:{}", indexer.config.chain_id);
    // Without it the first block would be no increase to who reads the counter.
    counter!("dvp_chain_disputed_blocks_total", "chain" => indexer.config.name.clone()).increment(0);
    let pool = indexer.pool.clone();
    let news = Arc::new(Notify::new());
    let _waker = indexer.config.ws_url.clone().map(|url| wake::on_heads(url, Arc::clone(&news)));
    while let Some(mut guard) = lease_guard::acquire(&pool, &name, &shutdown).await {
        indexer.follow(&mut guard, &news, &shutdown).await;
        guard.release(&pool).await;
    }
    Ok(())
}

impl<R: ChainReader> Indexer<R> {
    async fn follow(&mut self, guard: &mut LeaseGuard, news: &Notify, shutdown: &CancellationToken) {
        // Another process may have held the lease meanwhile.
        self.gate = GateKeeper::default();
        self.doubt_the_end();
        let mut backoff = Backoff::new();
        let mut failures = 0_u32;
        let mut reporter = Reporter::default();
        while !shutdown.is_cancelled() {
            let (pause, state) = match self.caught_turn(guard).await {
                Ok(None) => {
                    tracing::warn!(chain = self.config.name, "the indexer's lease was lost");
                    return;
                }
                Ok(Some(step)) => {
                    backoff.reset();
                    failures = 0;
                    self.items.note(&self.config.name, "chain", Ok(())).await;
                    let pause = if step == Step::Idle { self.config.poll_interval } else { Duration::ZERO };
                    (pause, Some(self.state(step)))
                }
                Err(IndexError::Halted(halted)) => {
                    let reason = format!("{}: {}", halted.reason.as_str(), halted.detail);
                    (HALTED_PAUSE, Some(IndexerState::Halted { reason }))
                }
                Err(error) => {
                    failures += 1;
                    counter!("dvp_chain_indexer_failures_total", "chain" => self.config.name.clone())
                        .increment(1);
                    let reason = error.to_string();
                    tracing::warn!(chain = self.config.name, %error, failures, "indexer step failed, will retry");
                    if failures >= HOLDING_AFTER {
                        self.items.note(&self.config.name, "chain", Err(reason.clone())).await;
                    }
                    (backoff.next(), (failures >= HOLDING_AFTER).then_some(IndexerState::Holding { reason }))
                }
            };
            if let Some(state) = state {
                reporter.report(self, state).await;
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = news.notified(), if failures == 0 => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// The state after a step. At the head it also reports when there was no block for too long.
    fn state(&self, step: Step) -> IndexerState {
        let now = clock::now().unix_secs();
        let age = now.saturating_sub(self.newest);
        gauge!("dvp_chain_head_age_seconds", "chain" => self.config.name.clone())
            .set(f64::from(u32::try_from(age).unwrap_or(u32::MAX)));
        gauge!("dvp_chain_head_timestamp_seconds", "chain" => self.config.name.clone())
            .set(f64::from(u32::try_from(self.newest).unwrap_or(u32::MAX)));
        if let Some(backfill) = self.backfill.clone() {
            return IndexerState::Backfilling(backfill);
        }
        let stalled = self.config.stalled_after.is_some_and(|limit| Duration::from_secs(age) > limit);
        if stalled && step == Step::Idle {
            let reason = format!("the newest block of all endpoints is {age} s old");
            return IndexerState::Holding { reason };
        }
        IndexerState::Following
    }

    /// A panic is an error: the step is tried again, and has committed completely or not at all.
    async fn caught_turn(&mut self, guard: &mut LeaseGuard) -> Result<Option<Step>, IndexError> {
        guarded(STEP_WITHIN, self.turn(guard)).await.map_err(|error| match error {
            ItemError::Failed(error) => error,
            error => IndexError::Unfinished(error.to_string()),
        })
    }

    async fn turn(&mut self, guard: &mut LeaseGuard) -> Result<Option<Step>, IndexError> {
        if !guard.keep(&self.pool).await? {
            return Ok(None);
        }
        let (lease, pool) = (guard.lease().clone(), self.pool.clone());
        tokio::select! {
            step = self.step(&lease) => step.map(Some),
            () = guard.keep_until_lost(&pool) => Ok(None),
        }
    }
}

/// Reports a change immediately, and an unchanged state at intervals.
#[derive(Default)]
struct Reporter {
    last: Option<(IndexerState, Instant)>,
}

impl Reporter {
    async fn report<R>(&mut self, indexer: &Indexer<R>, state: IndexerState) {
        let same_kind = self.last.as_ref().is_some_and(|(last, at)| {
            std::mem::discriminant(last) == std::mem::discriminant(&state) && at.elapsed() < REPORT_EVERY
        });
        if same_kind {
            return;
        }
        if let IndexerState::Holding { reason } = &state
            && !self.last.as_ref().is_some_and(|(last, _)| matches!(last, IndexerState::Holding { .. }))
        {
            let chain = &indexer.config.name;
            tracing::error!(chain, reason, "indexer stalled, will retry");
        }
        let (chain_id, name) = (indexer.config.chain_id, &indexer.config.name);
        if let IndexerState::Backfilling(backfill) = &state {
            let (to, events) = (backfill.to, backfill.events);
            tracing::info!(chain = name, from = %backfill.from, %to, events, "backfilling");
        }
        let written = async {
            let mut conn = indexer.pool.acquire().await?;
            store::report_status(&mut conn, chain_id, name, &state, indexer.node).await
        };
        match written.await {
            Ok(()) => self.last = Some((state, Instant::now())),
            Err(error) => tracing::warn!(chain = name, %error, "indexer status could not be written"),
        }
    }
}
