//! Transfers of providers' inventory and partners' prefunded money to and from other cells. `dvp_domain::transfer` draws the two sides.
//!
//! Cells share nothing: what one tells the other is a signed document, which operators carry. Each posting of a side is
//! requested by one operator and approved by another ([`crate::approvals`]); posting and state are one transaction, and
//! a document is made of what is committed, so that it can be written again at any time.
//!
//! Invariants: a side is posted once, under the transfer's id; a document counts only with its author's signature, for
//! its addressee, and with the content that is kept under its id; a receipt and a refusal of one transfer never both
//! exist, because the state of its row is changed by whichever comes first.

mod documents;
pub mod keys;

use dvp_domain::cell::CellId;
use dvp_domain::ids::TransferId;
use dvp_domain::ledger::{Owner, Posting};
use dvp_domain::money::Minor;
use dvp_domain::transfer::message::Message;
use dvp_domain::transfer::{Contradiction, Event, Outcome, Transfer, TransferFault};
use dvp_store::approvals::{self as approval_store, Approval};
use dvp_store::ledger::{self, Deposited, NewPosting, balances};
use dvp_store::orders::operations::{self as actions, NewAction};
use dvp_store::transfers::{self as store, KeptTransfer, NewTransfer};
use dvp_store::{Acquire as _, PgConnection, StoreError, deployment, ids, partners};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use self::documents::{compare_with, list_for, write_document};
use self::keys::{CellKeys, DocumentError};
use crate::clock::now;
use crate::ledger_operations::{LedgerError, known, spend};
use crate::requests::{self, Maker, Wanted};

/// The kind of requests about transfers. Their subject is the transfer's id.
pub const TRANSFER: &str = "transfer";

/// A transfer that an operator of the sender wants.
#[derive(Debug, Clone)]
pub struct Draft {
    pub to: CellId,
    pub owner: Owner,
    pub asset: String,
    pub amount: Minor,
}

/// The providers and assets that the configuration lists: what is received needs neither in the ledger before.
#[derive(Debug, Clone, Default)]
pub struct Listed {
    pub providers: Vec<String>,
    pub assets: Vec<String>,
}

/// What a request carries out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Plan {
    action: Action,
    /// What is sent gets its time when it is posted.
    transfer: Transfer,
    /// The document that the action follows from: the receiver's refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refusal: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    Send,
    /// The sender's own document of a transfer that its database has lost.
    SendAgain,
    Receive,
    Refuse,
    TakeBack,
}

impl Action {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Send | Self::SendAgain => "send_transfer",
            Self::Receive => "receive_transfer",
            Self::Refuse => "refuse_transfer",
            Self::TakeBack => "take_back_transfer",
        }
    }

    /// What it does to a transfer that is there.
    const fn event(self) -> Option<Event> {
        match self {
            Self::Send | Self::SendAgain => None,
            Self::Receive => Some(Event::Receive),
            Self::Refuse => Some(Event::Refuse),
            Self::TakeBack => Some(Event::TakeBack),
        }
    }
}

impl Plan {
    /// What changes the request's version: a transfer's end, and another operation on the account that pays.
    fn touches(&self) -> Vec<String> {
        let Transfer { id, owner, asset, .. } = &self.transfer;
        let own = format!("{TRANSFER}:{id}");
        match self.action {
            Action::Send | Action::SendAgain => {
                vec![own, format!("{}:{}:available/{asset}", owner.kind(), owner.name())]
            }
            Action::Receive | Action::Refuse | Action::TakeBack => vec![own],
        }
    }
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum RequestedTransfer {
    Pending {
        approval: Approval,
        /// It was requested before.
        repeated: bool,
    },
    /// It was carried out before.
    Done(KeptTransfer),
}

/// Why a transfer was not requested, posted, or ended.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error("operator, reason and evidence are needed")]
    NoReason,
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error(transparent)]
    Impossible(#[from] TransferFault),
    #[error("there is no transfer {0}")]
    Unknown(TransferId),
    #[error("another transfer has the id {0}: the document differs from what is kept here")]
    Conflict(TransferId),
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
    #[error("the transfer is not decided here: receive it or refuse it first")]
    Undecided,
    #[error("another request about the transfer waits for approval: {0}")]
    OtherRequested(String),
    #[error("the transfer, or the account that pays it, was changed since: request it again")]
    Moved,
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("the document cannot be written: {0}")]
    Unwritable(#[from] serde_json::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for TransferError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl TransferError {
    /// Its code in outputs. A code is never renamed.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoReason => "transfer_reason_missing",
            Self::Document(error) => match error {
                DocumentError::TooLong { .. } | DocumentError::Malformed(_) => "transfer_document_malformed",
                DocumentError::UnknownCell(_) => "transfer_cell_unknown",
                DocumentError::WrongSignature(_) => "transfer_signature_wrong",
                DocumentError::OtherEnvironment { .. } => "transfer_other_environment",
                DocumentError::OtherAddressee(_) => "transfer_other_addressee",
                DocumentError::OtherKind { .. } => "transfer_other_document",
            },
            Self::Impossible(_) => "transfer_impossible",
            Self::Unknown(_) => "transfer_unknown",
            Self::Conflict(_) => "transfer_conflict",
            Self::Contradiction(_) => "transfer_ended",
            Self::Undecided => "transfer_undecided",
            Self::OtherRequested(_) => "transfer_other_requested",
            Self::Moved => "transfer_moved",
            Self::Ledger(_) => "transfer_refused_by_ledger",
            Self::Unwritable(_) | Self::Store(_) => "transfer_failed",
        }
    }
}

/// Requests that funds are sent to another cell, under a new id.
pub async fn request_send(
    conn: &mut PgConnection,
    keys: &CellKeys,
    draft: &Draft,
    maker: Maker<'_>,
) -> Result<RequestedTransfer, TransferError> {
    keys.check_peer(draft.to)?;
    let Draft { to, owner, asset, amount } = draft.clone();
    let id = TransferId::from_unique(ids::draw(Some(keys.cell)).simple());
    let transfer = Transfer { id, from: keys.cell, to, owner, asset, amount_minor: amount, sent_at: now() };
    let plan = Plan { action: Action::Send, transfer, refusal: None };
    request(conn, keys, &plan, None, maker).await
}

/// Requests that a transfer which the sender's database has lost is posted again, by the document that it has signed.
pub async fn request_send_again(
    conn: &mut PgConnection,
    keys: &CellKeys,
    document: &str,
    maker: Maker<'_>,
) -> Result<RequestedTransfer, TransferError> {
    let transfer = sent_to(keys, document, |transfer| transfer.from)?;
    let plan = Plan { action: Action::SendAgain, transfer, refusal: None };
    request(conn, keys, &plan, None, maker).await
}

/// Requests that a transfer is received, by the sender's document.
pub async fn request_receive(
    conn: &mut PgConnection,
    keys: &CellKeys,
    listed: &Listed,
    document: &str,
    maker: Maker<'_>,
) -> Result<RequestedTransfer, TransferError> {
    let transfer = sent_to(keys, document, |transfer| transfer.to)?;
    check_known(conn, listed, &transfer).await?;
    let plan = Plan { action: Action::Receive, transfer, refusal: None };
    request(conn, keys, &plan, Some(document), maker).await
}

/// Requests that a transfer is refused for ever, by the sender's document.
pub async fn request_refuse(
    conn: &mut PgConnection,
    keys: &CellKeys,
    document: &str,
    maker: Maker<'_>,
) -> Result<RequestedTransfer, TransferError> {
    let transfer = sent_to(keys, document, |transfer| transfer.to)?;
    let plan = Plan { action: Action::Refuse, transfer, refusal: None };
    request(conn, keys, &plan, Some(document), maker).await
}

/// Requests that a transfer is taken back, by the receiver's refusal.
pub async fn request_take_back(
    conn: &mut PgConnection,
    keys: &CellKeys,
    refusal: &str,
    maker: Maker<'_>,
) -> Result<RequestedTransfer, TransferError> {
    let transfer = match keys.open(refusal)? {
        Message::Refusal { transfer, .. } if transfer.from == keys.cell => transfer,
        Message::Refusal { transfer, .. } => return Err(DocumentError::OtherAddressee(transfer.from).into()),
        other => return Err(DocumentError::OtherKind { wanted: "refusal", found: other.kind() }.into()),
    };
    let plan = Plan { action: Action::TakeBack, transfer, refusal: Some(refusal.to_owned()) };
    request(conn, keys, &plan, None, maker).await
}

/// The transfer of a sender's document, of which this cell is the named side.
fn sent_to(
    keys: &CellKeys,
    document: &str,
    side: fn(&Transfer) -> CellId,
) -> Result<Transfer, DocumentError> {
    match keys.open(document)? {
        Message::Transfer { transfer, .. } if side(&transfer) == keys.cell => Ok(transfer),
        Message::Transfer { transfer, .. } => Err(DocumentError::OtherAddressee(side(&transfer))),
        other => Err(DocumentError::OtherKind { wanted: "transfer", found: other.kind() }),
    }
}

/// `document`: the sender's, which is kept with the transfer from the first request on.
async fn request(
    conn: &mut PgConnection,
    keys: &CellKeys,
    plan: &Plan,
    document: Option<&str>,
    maker: Maker<'_>,
) -> Result<RequestedTransfer, TransferError> {
    if [maker.operator, maker.reason, maker.evidence].iter().any(|text| text.trim().is_empty()) {
        return Err(TransferError::NoReason);
    }
    plan.transfer.check()?;
    let mut tx = conn.begin().await?;
    let requested = request_in(&mut tx, keys, plan, document, maker).await;
    if requested.is_ok() {
        tx.commit().await?;
    } else {
        tx.rollback().await?;
    }
    requested
}

async fn request_in(
    conn: &mut PgConnection,
    keys: &CellKeys,
    plan: &Plan,
    document: Option<&str>,
    maker: Maker<'_>,
) -> Result<RequestedTransfer, TransferError> {
    approval_store::lock(conn).await?;
    if let Some(done) = find_done(conn, keys.cell, plan).await? {
        return Ok(RequestedTransfer::Done(done));
    }
    let (details, touches) = (serde_json::to_value(plan)?, plan.touches());
    let version = approval_store::count_touching(conn, &touches).await?;
    let (id, action) = (&plan.transfer.id, plan.action.as_str());
    let standing = requests::find_standing(conn, TRANSFER, id.as_str(), version).await?;
    if let Some(pending) = standing.filter(|standing| standing.state == "pending") {
        return if pending.details == details {
            Ok(RequestedTransfer::Pending { approval: pending, repeated: true })
        } else {
            Err(TransferError::OtherRequested(pending.id))
        };
    }
    check(conn, plan).await?;
    if let Some(document) = document {
        store::insert_announced(conn, &plan.transfer, document).await?;
    }
    let subject = id.as_str();
    let wanted = Wanted { kind: TRANSFER, subject, action, details: &details, touches: &touches, version };
    let request = requests::request(conn, &wanted, maker).await?;
    let kept = json!({"evidence": maker.evidence, "approval": request, "transfer": details});
    let action = format!("propose_{action}");
    record(conn, id, (&action, version), (maker.operator, maker.reason), &kept).await?;
    let approval = approval_store::find(conn, &request).await?;
    let approval = approval.ok_or(StoreError::Stale { what: "the request" })?;
    Ok(RequestedTransfer::Pending { approval, repeated: false })
}

/// The transfer, if what is planned has happened to it. What is kept must be what the document says.
async fn find_done(
    conn: &mut PgConnection,
    here: CellId,
    plan: &Plan,
) -> Result<Option<KeptTransfer>, TransferError> {
    let Plan { action, transfer, .. } = plan;
    let Some(kept) = store::find(conn, &transfer.id).await? else {
        let is_needed = *action == Action::TakeBack;
        return if is_needed { Err(TransferError::Unknown(transfer.id.clone())) } else { Ok(None) };
    };
    let kept = same(kept, here, transfer)?;
    let is_done = match action.event() {
        None => true,
        Some(event) => kept.known.state.step(event)? == Outcome::Repeated,
    };
    Ok(is_done.then_some(kept))
}

/// A transfer that is kept, unless it is another one than the document's.
fn same(kept: KeptTransfer, here: CellId, transfer: &Transfer) -> Result<KeptTransfer, TransferError> {
    if kept.transfer(here) == *transfer {
        Ok(kept)
    } else {
        Err(TransferError::Conflict(transfer.id.clone()))
    }
}

/// Checks that the owner has what is sent, and can spend here what is received.
async fn check(conn: &mut PgConnection, plan: &Plan) -> Result<(), TransferError> {
    let Plan { action, transfer, .. } = plan;
    match action {
        Action::Send | Action::SendAgain => {
            // In the writer's locking order, and before the holds of firm quotes are read.
            balances::lock(conn, &transfer.sent().balances().collect()).await?;
            Ok(spend(conn, &transfer.owner, &transfer.asset, transfer.amount_minor).await?)
        }
        Action::Receive if !balances::hold_credited(conn, &transfer.owner).await? => {
            Err(LedgerError::PartnerMoved(transfer.owner.name()).into())
        }
        // What is taken back is credited to a partner that has left, too: it can be sent again, or paid out.
        Action::Receive | Action::Refuse | Action::TakeBack => Ok(()),
    }
}

/// The configuration lists the provider and the asset of what is received, or the ledger knows them. A partner is here.
async fn check_known(
    conn: &mut PgConnection,
    listed: &Listed,
    transfer: &Transfer,
) -> Result<(), TransferError> {
    let Transfer { owner, asset, .. } = transfer;
    if !listed.assets.contains(asset) && !balances::is_known(conn, None, Some(asset)).await? {
        return Err(LedgerError::UnknownAsset(asset.clone()).into());
    }
    match owner {
        Owner::Provider(id) if listed.providers.contains(id) => Ok(()),
        Owner::Provider(_) => Ok(known(conn, owner).await?),
        Owner::Partner { id, livemode } => {
            let is_of_environment = deployment::find_environment(conn)
                .await?
                .is_some_and(|environment| environment.is_live() == *livemode);
            if is_of_environment && partners::is_partner(conn, id).await? {
                Ok(())
            } else {
                Err(LedgerError::UnknownOwner(owner.to_string()).into())
            }
        }
    }
}

/// Carries out what another operator, `checker`, approves.
pub(crate) async fn carry_out_requested(
    conn: &mut PgConnection,
    request: &Approval,
    checker: &str,
) -> Result<(), TransferError> {
    let plan: Plan = serde_json::from_value(request.details.clone())
        .map_err(|error| StoreError::corrupt("approval", error))?;
    if approval_store::count_touching(conn, &plan.touches()).await? != request.version {
        return Err(TransferError::Moved);
    }
    check(conn, &plan).await?;
    let Plan { action, transfer, refusal } = &plan;
    match action {
        Action::Send | Action::SendAgain => {
            let Transfer { id, to, owner, asset, amount_minor, sent_at, .. } = transfer;
            let sent_at = (*action == Action::SendAgain).then(|| sent_at.to_utc());
            let new = NewTransfer { id, to: *to, owner, asset, amount: *amount_minor, sent_at };
            if store::insert_sent(conn, &new).await?.is_none() {
                return Err(TransferError::Moved);
            }
            post(conn, id, 1, transfer.sent()).await?;
        }
        Action::Receive => {
            end(conn, &transfer.id, Event::Receive, None).await?;
            post(conn, &transfer.id, 1, transfer.received()).await?;
        }
        Action::Refuse => end(conn, &transfer.id, Event::Refuse, None).await?,
        Action::TakeBack => {
            end(conn, &transfer.id, Event::TakeBack, refusal.as_deref()).await?;
            post(conn, &transfer.id, 2, transfer.taken_back()).await?;
        }
    }
    let kept = json!({"evidence": request.evidence, "approval": request.id, "proposedBy": request.maker,
                      "transfer": request.details});
    let by = (checker, request.reason.as_str());
    record(conn, &transfer.id, (action.as_str(), request.version), by, &kept).await
}

/// Ends a side; somebody else may have ended it otherwise.
async fn end(
    conn: &mut PgConnection,
    id: &TransferId,
    event: Event,
    answer: Option<&str>,
) -> Result<(), TransferError> {
    let kept = store::find(conn, id).await?.ok_or_else(|| TransferError::Unknown(id.clone()))?;
    let from = kept.known.state;
    let Outcome::Changed(to) = from.step(event)? else { return Err(TransferError::Moved) };
    if store::update_state(conn, id, (from, to), answer).await? { Ok(()) } else { Err(TransferError::Moved) }
}

/// The ledger's reference is the transfer's id: the reference that treasury gives to the bank.
async fn post(
    conn: &mut PgConnection,
    id: &TransferId,
    step: i64,
    posting: Posting,
) -> Result<(), TransferError> {
    let new = NewPosting { reference: id.to_string(), step, posting };
    let posted = ledger::insert_once(conn, &new).await.map_err(LedgerError::from)?;
    if posted == Deposited::Posted { Ok(()) } else { Err(TransferError::Conflict(id.clone())) }
}

async fn record(
    conn: &mut PgConnection,
    id: &TransferId,
    (action, version): (&str, i64),
    (operator, reason): (&str, &str),
    evidence: &Value,
) -> Result<(), TransferError> {
    let new = NewAction { reference: id.as_str(), action, operator, reason, evidence, version };
    Ok(actions::insert_action(conn, &new).await?)
}

/// Closes a transfer by the receiver's receipt. It posts nothing, so one operator does it. The same again changes nothing.
pub async fn confirm(
    conn: &mut PgConnection,
    keys: &CellKeys,
    receipt: &str,
    operator: &str,
) -> Result<KeptTransfer, TransferError> {
    if operator.trim().is_empty() {
        return Err(TransferError::NoReason);
    }
    let transfer = match keys.open(receipt)? {
        Message::Receipt { transfer, .. } if transfer.from == keys.cell => transfer,
        Message::Receipt { transfer, .. } => return Err(DocumentError::OtherAddressee(transfer.from).into()),
        other => return Err(DocumentError::OtherKind { wanted: "receipt", found: other.kind() }.into()),
    };
    let mut tx = conn.begin().await?;
    let confirmed = confirm_in(&mut tx, keys.cell, &transfer, receipt, operator).await;
    if confirmed.is_ok() {
        tx.commit().await?;
    } else {
        tx.rollback().await?;
    }
    confirmed
}

async fn confirm_in(
    conn: &mut PgConnection,
    here: CellId,
    transfer: &Transfer,
    receipt: &str,
    operator: &str,
) -> Result<KeptTransfer, TransferError> {
    let id = &transfer.id;
    approval_store::lock(conn).await?;
    let unknown = || TransferError::Unknown(id.clone());
    let kept = same(store::find(conn, id).await?.ok_or_else(unknown)?, here, transfer)?;
    if kept.known.state.step(Event::Receipt)? == Outcome::Repeated {
        return Ok(kept);
    }
    end(conn, id, Event::Receipt, Some(receipt)).await?;
    let kept = json!({"receipt": receipt});
    record(conn, id, ("confirm_transfer", 0), (operator, "receipt of the other cell"), &kept).await?;
    store::find(conn, id).await?.ok_or_else(unknown)
}
