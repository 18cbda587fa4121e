//! Four eyes: one operator requests an action, and it is carried out when another one approves it. It is needed for
//! actions that move money, and for changes of limits, of operators and of who is paid.
//!
//! ```text
//! pending --approve, another operator--> approved   (carried out in the same transaction)
//!    |------deny, any operator---------> denied
//!    '------a day, or a newer version--> lapsed
//! ```
//!
//! Invariants: a request holds exactly the action that is carried out, and the version of its subject; an approval of
//! another version is refused. An action and its approval are committed together.

use dvp_store::operators::approvals::{self as store, Approval, Decision};
use dvp_store::{PgConnection, StoreError};

use crate::operators::bands::{self, BAND, BandError};
use crate::operators::bank_parts::{self, BANK_PART, PartError};
use crate::operators::breaks::{self, BREAK, BreakError};
use crate::operators::credentials::{self, CREDENTIAL, CredentialError};
use crate::operators::deposits::{self, DEPOSIT, DepositError};
use crate::operators::instructions::{self, INSTRUCTION, InstructionError};
use crate::operators::invitations::{self, InvitationError, OPERATOR};
use crate::operators::ledger_operations::{self, LEDGER, LedgerError};
use crate::operators::limits::{self, LIMIT, LimitError};
use crate::operators::makers::{self, MAKER, MakerError};
use crate::operators::operations::{self, EXECUTION, ResolveError};
use crate::operators::personal_data::{self, ErasureError, PERSONAL_DATA};
use crate::operators::received_recalls::{self, RECEIVED_RECALL, ReceivedRecallError};
use crate::operators::requests::{begin, end as end_transaction, is_same_operator};
use crate::operators::statements::{self, STATEMENT, UploadError};

/// Why a request was neither approved nor denied.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalError {
    #[error("there is no request {0}")]
    Unknown(String),
    #[error("the request is {0} already")]
    Ended(String),
    #[error("the request expired after a day without approval: request it again")]
    Expired,
    #[error("the maker cannot approve a request of its own: another operator does")]
    OwnRequest,
    #[error("operator and reason are needed")]
    NoReason,
    #[error("a request of kind {0} cannot be carried out by this program")]
    UnknownKind(String),
    #[error(transparent)]
    Execution(#[from] ResolveError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error(transparent)]
    Band(#[from] BandError),
    #[error(transparent)]
    Break(#[from] BreakError),
    #[error(transparent)]
    Maker(#[from] MakerError),
    #[error(transparent)]
    Deposit(#[from] DepositError),
    #[error(transparent)]
    Instruction(#[from] InstructionError),
    #[error(transparent)]
    Credential(#[from] CredentialError),
    #[error(transparent)]
    Invitation(#[from] InvitationError),
    #[error(transparent)]
    Upload(#[from] UploadError),
    #[error(transparent)]
    Recall(#[from] ReceivedRecallError),
    #[error(transparent)]
    Part(#[from] PartError),
    #[error(transparent)]
    Erasure(#[from] ErasureError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Carries out the action that another operator requested.
pub async fn approve(
    conn: &mut PgConnection,
    id: &str,
    checker: &str,
    note: &str,
) -> Result<Approval, ApprovalError> {
    if checker.trim().is_empty() {
        return Err(ApprovalError::NoReason);
    }
    let mut tx = begin(conn).await?;
    let approved = approve_in(&mut tx, id, checker, note).await;
    end_transaction(tx, approved).await
}

async fn approve_in(
    conn: &mut PgConnection,
    id: &str,
    checker: &str,
    note: &str,
) -> Result<Approval, ApprovalError> {
    store::lock(conn).await?;
    let request = load_pending(conn, id).await?;
    if request.is_expired {
        return Err(ApprovalError::Expired);
    }
    if is_same_operator(&request.maker, checker) {
        return Err(ApprovalError::OwnRequest);
    }
    carry_out(conn, &request, checker).await?;
    end(conn, &request, Decision::Approved { checker, note }).await
}

async fn carry_out(conn: &mut PgConnection, request: &Approval, checker: &str) -> Result<(), ApprovalError> {
    match request.kind.as_str() {
        EXECUTION => Ok(operations::carry_out_requested(conn, request, checker).await?),
        LEDGER => Ok(ledger_operations::carry_out_requested(conn, request, checker).await?),
        BAND => Ok(bands::carry_out_requested(conn, request).await?),
        DEPOSIT => Ok(deposits::carry_out_requested(conn, request, checker).await?),
        STATEMENT => Ok(statements::carry_out_requested(conn, request).await?),
        RECEIVED_RECALL => Ok(received_recalls::carry_out_requested(conn, request).await?),
        BANK_PART => Ok(bank_parts::carry_out_requested(conn, request).await?),
        BREAK => Ok(breaks::carry_out_requested(conn, request).await?),
        MAKER => Ok(makers::carry_out_requested(conn, request).await?),
        INSTRUCTION => Ok(instructions::carry_out_requested(conn, request).await?),
        CREDENTIAL => Ok(credentials::carry_out_requested(conn, request).await?),
        OPERATOR => Ok(invitations::carry_out_requested(conn, request, checker).await?),
        PERSONAL_DATA => Ok(personal_data::carry_out_requested(conn, request).await?),
        LIMIT => Ok(limits::carry_out_requested(conn, request).await?),
        other => Err(ApprovalError::UnknownKind(other.to_owned())),
    }
}

/// Ends a request without carrying it out. Its maker may do so, too.
pub async fn deny(
    conn: &mut PgConnection,
    id: &str,
    checker: &str,
    reason: &str,
) -> Result<Approval, ApprovalError> {
    if checker.trim().is_empty() || reason.trim().is_empty() {
        return Err(ApprovalError::NoReason);
    }
    let request = load_pending(conn, id).await?;
    end(conn, &request, Decision::Denied { checker, note: reason }).await
}

async fn load_pending(conn: &mut PgConnection, id: &str) -> Result<Approval, ApprovalError> {
    let request = store::find(conn, id).await?.ok_or_else(|| ApprovalError::Unknown(id.to_owned()))?;
    if request.state == "pending" { Ok(request) } else { Err(ApprovalError::Ended(request.state)) }
}

async fn end(
    conn: &mut PgConnection,
    request: &Approval,
    decision: Decision<'_>,
) -> Result<Approval, ApprovalError> {
    let is_ended = store::decide(conn, &request.id, decision).await?;
    let now =
        store::find(conn, &request.id).await?.ok_or_else(|| ApprovalError::Unknown(request.id.clone()))?;
    if is_ended { Ok(now) } else { Err(ApprovalError::Ended(now.state)) }
}
