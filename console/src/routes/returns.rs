//! The return of committed funds of a failed payout, by two operators' signatures, which the contract checks.

use axum::extract::Path;
use dvp_core::operators::operations::{self, Action};
use dvp_store::orders::executions::Execution;
use serde::Deserialize;

use super::decisions::{Decided, carry_out};
use crate::blocks::{Field, Form as FormBlock};
use crate::error::PageError;
use crate::request::{Reply, Sent, Visit};
use crate::view;

/// The form of a return, of an order whose funds may be returned now.
pub(crate) fn form(execution: &Execution) -> Option<FormBlock> {
    if !operations::may_return(execution) {
        return None;
    }
    let reference = execution.terms.reference.as_str();
    let fields = vec![
        Field::hidden("version", execution.version.to_string()),
        Field::text("deadline", "Signed deadline (Unix seconds)"),
        Field::text("first", "An operator's signature of ReturnFunds"),
        Field::text("second", "Another operator's signature"),
        Field::text("reason", "Reason"),
        Field::text("evidence", "Evidence"),
    ];
    let action = format!("/orders/{}/return", view::segment(reference));
    Some(FormBlock::new(action, "Return the committed funds", fields).dangerous())
}

#[derive(Debug, Deserialize)]
pub(crate) struct ReturnForm {
    version: i64,
    deadline: String,
    first: String,
    second: String,
    reason: String,
    #[serde(default)]
    evidence: String,
}

impl ReturnForm {
    fn action(&self) -> Result<Action, PageError> {
        let deadline = self.deadline.trim().parse();
        let wrong =
            |_| PageError::Invalid("The signed deadline is a number of seconds since 1970.".to_owned());
        let signatures = [&self.first, &self.second].map(|text| text.trim().to_owned());
        Ok(Action::Return { deadline: deadline.map_err(wrong)?, signatures })
    }
}

pub(crate) async fn request(
    Visit { console, operator }: Visit,
    Path(reference): Path<String>,
    Sent(form): Sent<ReturnForm>,
) -> Reply {
    const ROUTE: &str = "POST /orders/{reference}/return";
    let action = form.action()?;
    let mut conn = console.acting().await?;
    let decided = Decided { action, reason: &form.reason, evidence: &form.evidence };
    let decided = decided.about(&mut conn, &reference, form.version).await?;
    carry_out(&mut conn, &operator, ROUTE, &reference, decided, "return").await
}
