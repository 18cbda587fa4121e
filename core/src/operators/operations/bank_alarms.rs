//! Alarms about a bank's payments and files: an operator clears one that is dealt with; operator and reason are
//! recorded. Clearing moves no funds; a contradiction stays a break until two operators have closed it, and a part of a
//! file that does not count stays an alarm until they have decided about it ([`crate::operators::bank_parts`]).

use dvp_store::orders::bank;
use dvp_store::orders::operations::{self as actions, NewAction};
use dvp_store::{Acquire as _, PgConnection, StoreError};
use serde_json::json;

/// Why nothing was cleared.
#[derive(Debug, thiserror::Error)]
pub enum ClearError {
    #[error("operator and reason are needed")]
    NoReason,
    #[error("there is no open alarm about {0}, or parts of it wait for two operators: dvp bank parts")]
    NoAlarm(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Clears the alarm about an execution's payment, or about a file by its digest.
pub async fn clear(
    conn: &mut PgConnection,
    subject: &str,
    operator: &str,
    reason: &str,
) -> Result<(), ClearError> {
    if operator.trim().is_empty() || reason.trim().is_empty() {
        return Err(ClearError::NoReason);
    }
    let mut tx = conn.begin().await.map_err(StoreError::from)?;
    if !bank::clear_alarm(&mut tx, subject).await? {
        return Err(ClearError::NoAlarm(subject.to_owned()));
    }
    let action = NewAction {
        reference: subject,
        action: "clear_bank_alarm",
        operator,
        reason,
        evidence: &json!({}),
        version: 0,
    };
    actions::insert_action(&mut tx, &action).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(())
}
