//! Reads of more than one row: batch look-ups, an intent's status, reports, the delivery log.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use dvp_domain::status::{self, ExecutionView};
use dvp_domain::time::Timestamp;
use dvp_store::orders::executions::{self, RefType};
use dvp_store::orders::intents::{self, Tenant};
use dvp_store::orders::reports::{self, CurrencyTotal, Range, ReportedExecution};
use dvp_store::reconcile;
use dvp_store::webhooks::deliveries::{self, LogFilter, Logged, LoggedAttempt};

use crate::engine::{Engine, EngineError};

/// All statements of one read see the same snapshot.
pub(crate) const SNAPSHOT: &str = "begin isolation level repeatable read read only";

/// An accepted intent without its events.
#[derive(Debug, Clone)]
pub struct IntentStatus {
    pub intent_id: String,
    pub view: ExecutionView,
    /// When the last event was recorded.
    pub updated_at: Timestamp,
}

impl Engine {
    /// The statuses of a tenant's executions, by the requested references. References of other tenants are reported as
    /// not found.
    pub async fn executions(
        &self,
        tenant: &Tenant,
        named: RefType,
        names: &[&str],
    ) -> Result<HashMap<String, ExecutionView>, EngineError> {
        let mut tx = self.reads().begin_with(SNAPSHOT).await?;
        let found = reports::list_named(&mut tx, tenant, named, names).await?;
        let references: Vec<&str> = found.iter().map(|one| one.terms.reference.as_str()).collect();
        let recorded = reports::list_recorded(&mut tx, &references).await?;
        tx.commit().await?;
        let view = |one: &reports::Named| {
            let events = recorded.get(one.terms.reference.as_str()).map_or(&[][..], Vec::as_slice);
            (one.name.clone(), status::view(&one.terms, &one.state, events))
        };
        Ok(found.iter().map(view).collect())
    }

    pub async fn intent_status(
        &self,
        tenant: &Tenant,
        intent_id: &str,
    ) -> Result<Option<IntentStatus>, EngineError> {
        let mut tx = self.reads().begin_with(SNAPSHOT).await?;
        let Some(Some(reference)) = intents::find_submission(&mut tx, tenant, intent_id).await? else {
            return Ok(None);
        };
        let named = RefType::ExecutionId;
        let Some(found) = executions::find_for_tenant(&mut tx, tenant, named, &reference).await? else {
            return Ok(None);
        };
        let mut recorded = reports::list_recorded(&mut tx, &[&reference]).await?;
        tx.commit().await?;
        let recorded = recorded.remove(&reference).unwrap_or_default();
        let updated_at = recorded.last().map_or(found.terms.accepted_at, |last| last.observed_at);
        let view = status::view(&found.terms, &found.state, &recorded);
        Ok(Some(IntentStatus { intent_id: found.terms.request.intent_id, view, updated_at }))
    }

    /// The feed position of a report: the latest, or the latest recorded before `cutoff`.
    pub async fn report_position(
        &self,
        tenant: &Tenant,
        cutoff: Option<DateTime<Utc>>,
    ) -> Result<i64, EngineError> {
        let mut conn = self.reads().acquire().await?;
        Ok(match cutoff {
            Some(cutoff) => reports::load_position_at(&mut conn, tenant, cutoff).await?,
            None => reports::load_position(&mut conn, tenant).await?,
        })
    }

    pub async fn report_page(
        &self,
        range: &Range,
        after: Option<&(DateTime<Utc>, String)>,
        limit: i64,
    ) -> Result<Vec<ReportedExecution>, EngineError> {
        let mut conn = self.reads().acquire().await?;
        Ok(reports::list_range(&mut conn, range, after, limit).await?)
    }

    /// An endpoint's deliveries, latest first, and their attempts.
    pub async fn delivery_log(
        &self,
        endpoint_id: &str,
        filter: &LogFilter,
    ) -> Result<(Vec<Logged>, Vec<LoggedAttempt>), EngineError> {
        let mut tx = self.reads().begin_with(SNAPSHOT).await?;
        let deliveries = deliveries::list_log(&mut tx, endpoint_id, filter).await?;
        let attempts = deliveries::list_attempts(&mut tx, endpoint_id, &deliveries).await?;
        tx.commit().await?;
        Ok((deliveries, attempts))
    }

    /// When the database was last reconciled with a chain; `None` before the first time.
    pub async fn reconciled_at(&self) -> Result<Option<Timestamp>, EngineError> {
        let mut conn = self.reads().acquire().await?;
        let runs = reconcile::list_runs(&mut conn, 1).await?;
        Ok(runs.first().map(|run| run.finished_at.into()))
    }

    pub async fn report_totals(&self, range: &Range) -> Result<Vec<CurrencyTotal>, EngineError> {
        let mut conn = self.reads().acquire().await?;
        Ok(reports::list_totals(&mut conn, range).await?)
    }
}
