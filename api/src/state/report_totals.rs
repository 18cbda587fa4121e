//! Totals of reports, computed once for all pages of a report: the events up to a position of the feed do not change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dvp_core::engine::{Engine, EngineError};
use dvp_store::orders::reports::{CurrencyTotal, Range};

/// How long totals are cached for the following pages.
const KEPT: Duration = Duration::from_secs(600);
/// The maximum number of cached reports.
const REPORTS_MAX: usize = 1_000;

type Counted = Arc<Vec<CurrencyTotal>>;

#[derive(Default)]
pub(crate) struct Totals {
    kept: Mutex<HashMap<Range, (Instant, Counted)>>,
}

impl Totals {
    pub(crate) async fn of(&self, engine: &Engine, range: &Range) -> Result<Counted, EngineError> {
        if let Some(counted) = self.find(range) {
            return Ok(counted);
        }
        let counted = Arc::new(engine.report_totals(range).await?);
        let now = Instant::now();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= REPORTS_MAX {
            kept.retain(|_, (at, _)| now.saturating_duration_since(*at) < KEPT);
        }
        if kept.len() >= REPORTS_MAX {
            kept.clear();
        }
        kept.insert(range.clone(), (now, Arc::clone(&counted)));
        Ok(counted)
    }

    fn find(&self, range: &Range) -> Option<Counted> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(range).filter(|(at, _)| at.elapsed() < KEPT).map(|(_, counted)| Arc::clone(counted))
    }
}
