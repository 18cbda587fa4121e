//! Standing instructions: where a partner's outputs of an asset go when an order of the legacy API does not say it.
//!
//! A change decides who is paid. It is requested by one operator and made when another one approves it
//! ([`crate::operators::approvals`]); a test deployment may make it at once.
//!
//! Invariant: the database appends each change to the audit log, with the account that it replaces.

use dvp_domain::address::{AddressFault, OwnContracts};
use dvp_store::operators::approvals::Approval;
use dvp_store::orders::intents::Tenant;
use dvp_store::orders::legacy::{self, InstructedBy};
use dvp_store::{PgConnection, StoreError};
use serde::{Deserialize, Serialize};

use crate::operators::requests::{self, ChangeError, Maker, RequestedChange, SettingChange};

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
}

/// Why a standing instruction was not changed.
#[derive(Debug, thiserror::Error)]
pub enum InstructionError {
    #[error("operator and reason are needed")]
    NoReason,
    #[error("the account {account} {fault}")]
    Account { account: String, fault: AddressFault },
    #[error("this takes two operators: one requests it with evidence, another one approves it")]
    NeedsApproval,
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Sets the recipient of a partner's test outputs of an asset at once.
pub async fn set_at_once(
    conn: &mut PgConnection,
    tenant: &Tenant,
    (asset, account): (&str, &str),
    (operator, reason): (&str, &str),
    contracts: &OwnContracts,
) -> Result<(), InstructionError> {
    check_account(account, contracts)?;
    if tenant.livemode {
        return Err(InstructionError::NeedsApproval);
    }
    if operator.trim().is_empty() || reason.trim().is_empty() {
        return Err(InstructionError::NoReason);
    }
    let by = InstructedBy { operator, reason, approval: None };
    Ok(legacy::upsert_instruction(conn, tenant, asset, account, by).await?)
}

/// A wallet must be able to receive; anything else is a reference to a registered recipient.
fn check_account(account: &str, contracts: &OwnContracts) -> Result<(), InstructionError> {
    match contracts.check_wallet(account) {
        Ok(_) | Err(AddressFault::Form) => Ok(()),
        Err(fault) => Err(InstructionError::Account { account: account.to_owned(), fault }),
    }
}

/// Requests that a partner's outputs of an asset go to another recipient.
pub async fn request(
    conn: &mut PgConnection,
    tenant: &Tenant,
    (asset, account): (&str, &str),
    maker: Maker<'_>,
    contracts: &OwnContracts,
) -> Result<RequestedChange, InstructionError> {
    check_account(account, contracts)?;
    let replaces = legacy::find_instruction(conn, tenant, asset).await?;
    let change = InstructionChange {
        partner_id: tenant.partner_id.clone(),
        livemode: tenant.livemode,
        asset: asset.to_owned(),
        account: account.to_owned(),
        replaces,
    };
    let environment = if tenant.livemode { "live" } else { "test" };
    let subject = format!("{} {environment} {asset}", tenant.partner_id);
    let wanted = SettingChange { kind: INSTRUCTION, subject: &subject, action: "set_instruction" };
    Ok(requests::request_change(conn, wanted, &change, maker).await?)
}

/// Changes an instruction when another operator approves it.
pub(crate) async fn carry_out_requested(
    conn: &mut PgConnection,
    request: &Approval,
) -> Result<(), InstructionError> {
    let InstructionChange { partner_id, livemode, asset, account, replaces } =
        requests::unmoved(conn, request).await?;
    let tenant = Tenant { partner_id, livemode };
    // One that was set at once has no approved request.
    if legacy::find_instruction(conn, &tenant, &asset).await? != replaces {
        return Err(ChangeError::Moved.into());
    }
    let by = InstructedBy { operator: &request.maker, reason: &request.reason, approval: Some(&request.id) };
    Ok(legacy::upsert_instruction(conn, &tenant, &asset, &account, by).await?)
}
