//! Reads of a tenant: status, receipt, events.

use std::time::Instant;

use bytes::Bytes;
use dvp_domain::receipt;
use dvp_domain::settlement::{Finality, State};
use dvp_domain::status::{self, ExecutionView};
use dvp_store::orders::events::{EventFilter, StoredEvent};
use dvp_store::orders::executions::{self, RefType};
use dvp_store::orders::intents::Tenant;
use dvp_store::orders::{events, receipts};
use serde_json::Value;
use uuid::Uuid;

use super::Engine;
use super::error::EngineError;
use crate::writer::statuses::Status;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiptLookup<T> {
    Found(T),
    NotFound,
    NotIssued,
    /// The stored body is no JSON object.
    Unreadable,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedReceipt {
    pub body: Value,
    /// Known once the anchor was indexed.
    pub finality: Option<Finality>,
}

impl Engine {
    pub async fn execution(
        &self,
        tenant: &Tenant,
        named: RefType,
        reference: &str,
    ) -> Result<Option<ExecutionView>, EngineError> {
        let mut conn = self.reads().acquire().await?;
        let found = executions::find_with_events(&mut conn, tenant, named, reference).await?;
        Ok(found.map(|(found, recorded)| status::view(&found.terms, &found.state, &recorded)))
    }

    /// The same as JSON, cached in memory (the module `statuses` defines how old it can be).
    pub async fn execution_text(
        &self,
        tenant: &Tenant,
        named: RefType,
        reference: &str,
    ) -> Result<Option<Bytes>, EngineError> {
        let statuses = self.writer.statuses();
        let began = match statuses.find(self.reads(), tenant, named, reference).await {
            Ok(kept) => return Ok(Some(kept)),
            Err(began) => began,
        };
        let at = Instant::now();
        let Some(view) = self.execution(tenant, named, reference).await? else { return Ok(None) };
        let body = serde_json::to_vec(&view).map_err(|error| EngineError::Corrupt(error.to_string()))?;
        let body = Bytes::from(body);
        let status = Status {
            tenant: tenant.clone(),
            reference: view.reference.into(),
            client_reference: view.client_reference.map(Into::into),
            body: body.clone(),
            at,
        };
        statuses.keep(began, status);
        Ok(Some(body))
    }

    /// The receipt of a tenant's execution as partners receive it, with its finality once the anchor was indexed.
    pub async fn receipt(
        &self,
        tenant: &Tenant,
        named: RefType,
        reference: &str,
    ) -> Result<ReceiptLookup<Value>, EngineError> {
        Ok(match self.issued_receipt(tenant, named, reference).await? {
            ReceiptLookup::Found(issued) => {
                ReceiptLookup::Found(receipt::with_finality(&issued.body, issued.finality.as_ref()))
            }
            ReceiptLookup::NotFound => ReceiptLookup::NotFound,
            ReceiptLookup::NotIssued => ReceiptLookup::NotIssued,
            ReceiptLookup::Unreadable => ReceiptLookup::Unreadable,
        })
    }

    /// The receipt of a tenant's execution as it was issued, and its anchor.
    pub async fn issued_receipt(
        &self,
        tenant: &Tenant,
        named: RefType,
        reference: &str,
    ) -> Result<ReceiptLookup<IssuedReceipt>, EngineError> {
        let mut conn = self.reads().acquire().await?;
        let Some(found) = executions::find_for_tenant(&mut conn, tenant, named, reference).await? else {
            return Ok(ReceiptLookup::NotFound);
        };
        let State::Completed { finality, .. } = found.state else {
            return Ok(ReceiptLookup::NotIssued);
        };
        let Some(text) = receipts::find_body(&mut conn, found.terms.reference.as_str()).await? else {
            return Ok(ReceiptLookup::NotIssued);
        };
        match serde_json::from_str::<Value>(&text) {
            Ok(body) if body.is_object() => Ok(ReceiptLookup::Found(IssuedReceipt { body, finality })),
            Ok(_) | Err(_) => Ok(ReceiptLookup::Unreadable),
        }
    }

    /// A page of a tenant's feed.
    pub async fn events(
        &self,
        tenant: &Tenant,
        filter: &EventFilter,
    ) -> Result<Vec<StoredEvent>, EngineError> {
        let mut conn = self.reads().acquire().await?;
        Ok(events::list_for_tenant(&mut conn, tenant, filter).await?)
    }

    /// The feed's epoch: a cursor of another epoch is refused.
    pub async fn feed_epoch(&self) -> Result<Uuid, EngineError> {
        let mut conn = self.reads().acquire().await?;
        Ok(events::load_epoch(&mut conn).await?)
    }
}
