//! Recalls: an operator requests that the bank gives a payment back, or closes a recall; another one approves it.

use axum::extract::Path;
use dvp_core::operators::operations::Action;
use dvp_domain::recall::RecallReason;
use dvp_store::PgConnection;
use dvp_store::orders::{bank, recalls as stored_recalls};
use serde::Deserialize;

use crate::blocks::{Field, Form as FormBlock};
use crate::error::PageError;
use crate::request::{Reply, Sent, Visit};
use crate::routes::decisions::{Decided, carry_out};
use crate::view;

fn address(reference: &str, what: &str) -> String {
    format!("/orders/{}/recall/{what}", view::segment(reference))
}

/// What a bank has of an order, which decides about recalls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AtBank {
    /// A payment was ordered.
    is_ordered: bool,
    /// A recall of it is open.
    is_recalled: bool,
}

impl AtBank {
    pub(crate) async fn find(conn: &mut PgConnection, reference: &str) -> Result<Self, PageError> {
        let is_ordered = bank::find_standing(conn, reference).await?.is_some();
        let is_recalled = is_ordered && stored_recalls::find_open(conn, reference).await?.is_some();
        Ok(Self { is_ordered, is_recalled })
    }
}

/// The form that requests a recall, or closes the open one.
pub(crate) fn form(reference: &str, at_bank: AtBank) -> Option<FormBlock> {
    let described = |reason: RecallReason| {
        (reason.as_str().to_owned(), format!("{}: {}", reason.as_str(), reason.describe()))
    };
    let options = RecallReason::ALL.map(described).into();
    let code = Field { options, ..Field::choice("code", "Reason for the bank", []) };
    let own = [Field::text("reason", "Reason"), Field::text("evidence", "Evidence")];
    if at_bank.is_recalled {
        return Some(FormBlock::new(address(reference, "close"), "Close the recall", own.into()));
    }
    let mut request = vec![code, Field::text("information", "Information for the bank").optional()];
    request.extend(own);
    at_bank.is_ordered.then(|| FormBlock::new(address(reference, "request"), "Request a recall", request))
}

#[derive(Debug, Deserialize)]
pub(crate) struct RecallForm {
    #[serde(default)]
    code: String,
    #[serde(default)]
    information: String,
    reason: String,
    evidence: String,
}

pub(crate) async fn request(
    Visit { console, operator }: Visit,
    Path(reference): Path<String>,
    Sent(form): Sent<RecallForm>,
) -> Reply {
    const ROUTE: &str = "POST /orders/{reference}/recall/request";
    let reason = RecallReason::try_from(form.code.clone());
    let reason = reason.map_err(|error| PageError::Invalid(format!("{error}.")))?;
    let information = Some(form.information.trim().to_owned()).filter(|text| !text.is_empty());
    let action = Action::Recall { reason, information };
    let decided = Decided { action, reason: &form.reason, evidence: &form.evidence };
    let mut conn = console.acting().await?;
    carry_out(&mut conn, &operator, ROUTE, &reference, Ok(decided), "recall").await
}

pub(crate) async fn close(
    Visit { console, operator }: Visit,
    Path(reference): Path<String>,
    Sent(form): Sent<RecallForm>,
) -> Reply {
    const ROUTE: &str = "POST /orders/{reference}/recall/close";
    let decided = Decided { action: Action::CloseRecall, reason: &form.reason, evidence: &form.evidence };
    let mut conn = console.acting().await?;
    carry_out(&mut conn, &operator, ROUTE, &reference, Ok(decided), "close_recall").await
}
