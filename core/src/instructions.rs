//! Standing instructions: where a partner's outputs of an asset go when an order of the legacy API does not say it.
//!
//! A change decides who is paid. It is requested by one operator and made when another one approves it
//! ([`crate::approvals`]); a test deployment may make it at once.
//!
//! In a cell that the partner has left a change stops the orders that wait there for the account before, and changes
//! nothing in the partner's present cell. A request says which of the two it is, and is carried out as that or not at all.
//!
//! Invariant: the database appends each change to the audit log, with the account that it replaces.

use dvp_store::approvals::Approval;
use dvp_store::moves::{self, Presence};
use dvp_store::orders::intents::Tenant;
use dvp_store::orders::legacy::{self, InstructedBy};
use dvp_store::{Acquire as _, PgConnection, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::requests::{self, ChangeError, Maker, RequestedChange, SettingChange};

/// The kind of requests about standing instructions.
pub const INSTRUCTION: &str = "instruction";

/// The requested instruction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct InstructionChange {
    partner_id: String,
    livemode: bool,
    asset: String,
    account: String,
    /// The account at the request.
    replaces: Option<String>,
    /// The cell to which the partner has moved: here the change holds for waiting orders only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waiting_only: Option<String>,
}

/// Why a standing instruction was not changed.
#[derive(Debug, thiserror::Error)]
pub enum InstructionError {
    #[error("operator and reason are needed")]
    NoReason,
    #[error("this takes two operators: one requests it with evidence, another one approves it")]
    NeedsApproval,
    #[error("the partner is in cell {0}: set its instruction there")]
    Elsewhere(String),
    #[error("the partner's move between this cell and cell {0} is unfinished: run it first")]
    Moving(String),
    #[error(
        "the partner has moved since the request: deny it and request the change again, where it is needed"
    )]
    OtherCell,
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for InstructionError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Sets the recipient of a partner's test outputs of an asset at once. Returns the cell to which the partner has moved, if
/// the change holds for waiting orders only.
pub async fn set_at_once(
    conn: &mut PgConnection,
    tenant: &Tenant,
    (asset, account): (&str, &str),
    (operator, reason): (&str, &str),
) -> Result<Option<String>, InstructionError> {
    if tenant.livemode {
        return Err(InstructionError::NeedsApproval);
    }
    if operator.trim().is_empty() || reason.trim().is_empty() {
        return Err(InstructionError::NoReason);
    }
    let by = InstructedBy { operator, reason, approval: None };
    let mut tx = conn.begin().await?;
    let set = async {
        let replaces = legacy::find_instruction(&mut tx, tenant, asset).await?;
        let waiting_only = hold_scope(&mut tx, &tenant.partner_id, replaces.as_deref()).await?;
        legacy::upsert_instruction(&mut tx, tenant, asset, account, by).await?;
        Ok(waiting_only)
    };
    let set = set.await;
    // Immediately: a transaction that is only dropped keeps its locks until the connection is used again.
    if set.is_ok() {
        tx.commit().await?;
    } else {
        tx.rollback().await?;
    }
    set
}

/// The cell to which the partner has moved; `None`: it is here until the end of the transaction. An order that waits where
/// the partner has left was accepted under an instruction, so that only an existing one is replaced there.
async fn hold_scope(
    conn: &mut PgConnection,
    partner_id: &str,
    replaces: Option<&str>,
) -> Result<Option<String>, InstructionError> {
    match moves::hold_presence(conn, partner_id).await? {
        Presence::Here => Ok(None),
        Presence::Elsewhere(cell) if replaces.is_some() => Ok(Some(cell)),
        Presence::Elsewhere(cell) => Err(InstructionError::Elsewhere(cell)),
        Presence::Moving(cell) => Err(InstructionError::Moving(cell)),
    }
}

/// The other cells of the partner that a request is about; `None`: it is about no instruction.
pub async fn find_other_cells(
    conn: &mut PgConnection,
    request: &Approval,
) -> Result<Option<Vec<String>>, StoreError> {
    match request.details.get("partnerId").and_then(Value::as_str) {
        Some(partner_id) if request.kind == INSTRUCTION => {
            Ok(Some(moves::list_other_cells(conn, partner_id).await?))
        }
        Some(_) | None => Ok(None),
    }
}

/// Requests that a partner's outputs of an asset go to another recipient.
pub async fn request(
    conn: &mut PgConnection,
    tenant: &Tenant,
    (asset, account): (&str, &str),
    maker: Maker<'_>,
) -> Result<RequestedChange, InstructionError> {
    let replaces = legacy::find_instruction(conn, tenant, asset).await?;
    let change = InstructionChange {
        waiting_only: hold_scope(conn, &tenant.partner_id, replaces.as_deref()).await?,
        partner_id: tenant.partner_id.clone(),
        livemode: tenant.livemode,
        asset: asset.to_owned(),
        account: account.to_owned(),
        replaces,
    };
    let details = serde_json::to_value(&change).map_err(|error| StoreError::corrupt("approval", error))?;
    let environment = if tenant.livemode { "live" } else { "test" };
    let subject = format!("{} {environment} {asset}", tenant.partner_id);
    let wanted =
        SettingChange { kind: INSTRUCTION, subject: &subject, action: "set_instruction", details: &details };
    Ok(requests::request_change(conn, wanted, maker).await?)
}

/// Changes an instruction when another operator approves it.
pub(crate) async fn carry_out_requested(
    conn: &mut PgConnection,
    request: &Approval,
) -> Result<(), InstructionError> {
    requests::check_unmoved(conn, request).await?;
    let change: InstructionChange = serde_json::from_value(request.details.clone())
        .map_err(|error| StoreError::corrupt("approval", error))?;
    let InstructionChange { partner_id, livemode, asset, account, replaces, waiting_only } = change;
    if hold_scope(conn, &partner_id, replaces.as_deref()).await? != waiting_only {
        return Err(InstructionError::OtherCell);
    }
    let tenant = Tenant { partner_id, livemode };
    // One that was set at once, or came with its partner from another cell, has no approved request here.
    if legacy::find_instruction(conn, &tenant, &asset).await? != replaces {
        return Err(ChangeError::Moved.into());
    }
    let by = InstructedBy { operator: &request.maker, reason: &request.reason, approval: Some(&request.id) };
    Ok(legacy::upsert_instruction(conn, &tenant, &asset, &account, by).await?)
}
