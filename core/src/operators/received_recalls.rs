//! Answers to banks that ask for money back that was paid to us: one operator requests one, and another one approves it.
//! An answer moves no money: the bank debits the account, and the debit is posted as every other one is.

use dvp_domain::recall::RefusalReason;
use dvp_store::operators::approvals::Approval;
use dvp_store::orders::received_recalls as store;
use dvp_store::{PgConnection, StoreError};
use serde::{Deserialize, Serialize};

use crate::operators::requests::{self, ChangeError, Maker, RequestedChange, SettingChange};

/// The kind of requests to answer a recall.
pub const RECEIVED_RECALL: &str = "received_recall";

/// What is answered, and to what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecallAnswer {
    /// `None`: the money is given back.
    pub refusal: Option<RefusalReason>,
    pub assigner: String,
    /// The payment's end-to-end id.
    pub payment: String,
    /// In minor units.
    pub amount: Option<String>,
    pub currency: Option<String>,
    pub reason: Option<String>,
}

/// Why a recall was not answered.
#[derive(Debug, thiserror::Error)]
pub enum ReceivedRecallError {
    #[error("there is no received recall {0}")]
    Unknown(String),
    #[error("it was answered before")]
    Answered,
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Requests an answer.
pub async fn request(
    conn: &mut PgConnection,
    id: &str,
    refusal: Option<RefusalReason>,
    maker: Maker<'_>,
) -> Result<RequestedChange, ReceivedRecallError> {
    let found = store::find(conn, id).await?.ok_or_else(|| ReceivedRecallError::Unknown(id.to_owned()))?;
    if found.answer.is_some() {
        return Err(ReceivedRecallError::Answered);
    }
    let asked = found.asked;
    let answer = RecallAnswer {
        refusal,
        assigner: asked.assigner,
        payment: asked.end_to_end_id,
        amount: asked.amount.map(|amount| amount.to_string()),
        currency: asked.currency,
        reason: asked.reason,
    };
    let action = if refusal.is_some() { "refuse" } else { "accept" };
    let change = SettingChange { kind: RECEIVED_RECALL, subject: id, action };
    Ok(requests::request_change(conn, change, &answer, maker).await?)
}

/// Gives the answer to the worker that sends it when another operator approves it.
pub(crate) async fn carry_out_requested(
    conn: &mut PgConnection,
    request: &Approval,
) -> Result<(), ReceivedRecallError> {
    let answer: RecallAnswer = requests::unmoved(conn, request).await?;
    let is_first = store::answer(conn, &request.subject, answer.refusal).await?;
    if is_first { Ok(()) } else { Err(ReceivedRecallError::Answered) }
}
