//! How a process uses its rails.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use dvp_core::ledger::reconciliation;
use dvp_core::workflow::RailUse;
use dvp_domain::reconcile::Patience;
use dvp_rails::Rail;
use serde::Deserialize;

use super::Config;
use super::listeners::BankSection;
use super::value::{Span, within};

/// The most calls of a rail at a time.
const CONCURRENCY_MAX: u16 = 1024;

/// How many calls of a rail a process makes at a time, how often it asks about a leg in progress, and what is too long.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RailCallsSection {
    pub concurrency: Option<u16>,
    /// The longest interval between two queries about a leg in progress.
    pub poll_max: Option<Span>,
    /// A leg without a final answer for so long is a break; of a payout after the rail's own time.
    pub stuck_after: Option<Span>,
}

impl RailCallsSection {
    pub(crate) fn check(&self, name: &str) -> anyhow::Result<()> {
        if let Some(concurrency) = self.concurrency {
            ensure!(
                (1..=CONCURRENCY_MAX).contains(&concurrency),
                "{name}.concurrency: {concurrency} is not between 1 and {CONCURRENCY_MAX}"
            );
        }
        within(&format!("{name}.poll_max"), self.poll_max, "500ms", "1h")?;
        within(&format!("{name}.stuck_after"), self.stuck_after, "1m", "30d")
    }

    /// The rail, used as it is said here.
    pub(crate) fn of(&self, rail: Arc<dyn Rail>) -> RailUse {
        let usual = RailUse::of(rail);
        RailUse {
            concurrency: self.concurrency.unwrap_or(usual.concurrency),
            poll_max: self.poll_max.map_or(usual.poll_max, |span| span.0),
            ..usual
        }
    }
}

impl Config {
    /// What the comparison with the bank takes for too long.
    pub(crate) fn books_patience(&self) -> Duration {
        self.bank.as_ref().map_or(reconciliation::PATIENCE, BankSection::patience)
    }

    /// What the comparison of the books takes for too long.
    pub(crate) fn patience(&self) -> Patience {
        let usual = Patience::default();
        let millis = |span: &Option<Span>, usual: i64| {
            span.map_or(usual, |Span(span): Span| millis(span).unwrap_or(usual))
        };
        let mut patience = usual;
        if let Some(rails) = &self.rails {
            patience.convert_ms = millis(&rails.offramp_calls.stuck_after, usual.convert_ms);
            patience.pay_ms = millis(&rails.payout_calls.stuck_after, usual.pay_ms);
        }
        if let Some(bank) = &self.bank {
            patience.recall_answer_ms = millis(&bank.recall_answer_within, usual.recall_answer_ms);
            patience.recall_return_ms = millis(&bank.recall_return_within, usual.recall_return_ms);
        }
        patience
    }
}

fn millis(span: Duration) -> Option<i64> {
    i64::try_from(span.as_millis()).ok()
}
