//! Totals of reports, computed once for all pages of a report: the events up to a position of the feed do not change.
//!
//! Totals may take as long as a statement may, and a report of a long range visits each of its executions. So a partner
//! has one counted at a time, all partners together a few, fewer than the connections for reads, and the others wait
//! without a connection. Counting goes on when its request has ended: the next request for it finds the result.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dvp_core::engine::{Engine, EngineError};
use dvp_store::orders::intents::Tenant;
use dvp_store::orders::reports::{CurrencyTotal, Range};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// How long totals are cached for the following pages.
const KEPT: Duration = Duration::from_secs(600);
const REPORTS_MAX: usize = 1_000;
/// The number of reports whose totals are counted at once.
const COUNTED_MAX: usize = 2;

type Counted = Arc<Vec<CurrencyTotal>>;

pub(crate) struct Totals {
    kept: Mutex<HashMap<Range, (Instant, Counted)>>,
    /// The one turn of each tenant that has a report counted, or waits for one.
    turns: Mutex<HashMap<Tenant, Arc<Semaphore>>>,
    places: Arc<Semaphore>,
}

impl Default for Totals {
    fn default() -> Self {
        let places = Arc::new(Semaphore::new(COUNTED_MAX));
        Self { kept: Mutex::default(), turns: Mutex::default(), places }
    }
}

impl Totals {
    pub(crate) async fn of(self: &Arc<Self>, engine: &Engine, range: &Range) -> Result<Counted, EngineError> {
        if let Some(counted) = self.find(range) {
            return Ok(counted);
        }
        let stopped = |_| EngineError::Unavailable("counting has stopped".into());
        let turn = self.turn(&range.tenant).acquire_owned().await.map_err(stopped)?;
        if let Some(counted) = self.find(range) {
            return Ok(counted);
        }
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(stopped)?;
        let (totals, engine, range) = (Arc::clone(self), engine.clone(), range.clone());
        let counting = tokio::spawn(async move {
            let counted = engine.report_totals(&range).await.map(Arc::new);
            if let Ok(counted) = &counted {
                totals.keep(&range, counted);
            }
            drop((turn, place));
            counted
        });
        counting.await.map_err(|_| EngineError::Unavailable("counting has stopped".into()))?
    }

    fn turn(&self, tenant: &Tenant) -> Arc<Semaphore> {
        let mut turns = self.turns.lock();
        // Nobody else has one that is not in use.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(tenant.clone()).or_insert_with(|| Arc::new(Semaphore::new(1))))
    }

    fn keep(&self, range: &Range, counted: &Counted) {
        let now = Instant::now();
        let mut kept = self.kept.lock();
        if kept.len() >= REPORTS_MAX {
            kept.retain(|_, (at, _)| now.saturating_duration_since(*at) < KEPT);
        }
        if kept.len() >= REPORTS_MAX {
            kept.clear();
        }
        kept.insert(range.clone(), (now, Arc::clone(counted)));
    }

    fn find(&self, range: &Range) -> Option<Counted> {
        self.kept
            .lock()
            .get(range)
            .filter(|(at, _)| at.elapsed() < KEPT)
            .map(|(_, counted)| Arc::clone(counted))
    }
}
