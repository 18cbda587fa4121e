//! Parts of the bank's files that do not count: one operator reads such a part and says what it says of an order's
//! payment, or dismisses it, and another one approves it. It then counts as if the bank's file had said so.

use chrono::{DateTime, Utc};
use dvp_domain::money::Minor;
use dvp_domain::payment::{PaymentStatus, PaymentSubject};
use dvp_domain::text::{ID_MAX, clean};
use dvp_rails::iso20022::BankError;
use dvp_rails::iso20022::part::ids_in;
use dvp_rails::iso20022::received::take_part;
use dvp_rails::iso20022::text::fixed;
use dvp_rails::iso20022::word::{GivenBack, PaymentReport, Word, is_duplicate};
use dvp_store::operators::approvals::Approval;
use dvp_store::orders::bank::{self, BankPayment};
use dvp_store::orders::bank_parts::{self as store, FilePart, StoredFile};
use dvp_store::{PgConnection, StoreError};
use serde::{Deserialize, Serialize};

use crate::context::now;
use crate::operators::requests::{self, ChangeError, Maker, RequestedChange, SettingChange};

/// The kind of requests about parts of the bank's files.
pub const BANK_PART: &str = "bank_part";

/// What a part says of an order's payment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "says", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum PartWord {
    /// The money moved. The amount, in minor units, is there if the part has one.
    Paid { at: DateTime<Utc>, amount: Option<String> },
    /// It is not and will not be paid; `code` is the bank's reason.
    Refused { code: String },
    /// It came back. The amount is what came, less the bank's charge.
    Returned { at: DateTime<Utc>, amount: Option<String>, code: String },
}

/// A decision about a part, or about all open parts of a file, as the approver sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartDecision {
    /// The SHA-256 of the file, as hex.
    pub file: String,
    pub name: String,
    /// `None`: every open part.
    pub part: Option<i32>,
    /// Why they do not count.
    pub why: Vec<String>,
    /// `None`: dismissed.
    pub applied: Option<AppliedPart>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppliedPart {
    pub execution: String,
    pub end_to_end_id: String,
    /// What was ordered, in minor units.
    pub ordered: String,
    pub currency: String,
    #[serde(flatten)]
    pub word: PartWord,
}

/// Why nothing was decided about a part.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    #[error("there is no file of the bank {0}")]
    NoFile(String),
    #[error("no part {0} of the file waits for a decision")]
    NoPart(i32),
    #[error("no part of the file waits for a decision")]
    NoParts,
    #[error("the bank was given no payment of {0}")]
    NoPayment(String),
    #[error("the part does not name the payment of {0}: decide about the order (dvp execution resolve)")]
    NotNamed(String),
    #[error("{0} is no amount of the payment, {1} {2} in minor units")]
    Amount(String, Minor, String),
    #[error("{0} is later than now")]
    Later(DateTime<Utc>),
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Bank(#[from] BankError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

async fn find_file(conn: &mut PgConnection, file: &str) -> Result<([u8; 32], StoredFile), PartError> {
    let missing = || PartError::NoFile(file.to_owned());
    let digest = hex::decode(file).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    let digest = digest.ok_or_else(missing)?;
    Ok((digest, store::find_file(conn, &digest).await?.ok_or_else(missing)?))
}

/// The open parts that a decision is about.
async fn open_parts(
    conn: &mut PgConnection,
    digest: &[u8; 32],
    number: Option<i32>,
) -> Result<Vec<FilePart>, PartError> {
    let mut parts = store::list(conn, digest).await?;
    parts.retain(|part| part.decision.is_none() && number.is_none_or(|number| part.number == number));
    if parts.is_empty() { Err(number.map_or(PartError::NoParts, PartError::NoPart)) } else { Ok(parts) }
}

fn whys(parts: Vec<FilePart>) -> Vec<String> {
    parts.into_iter().map(|part| part.why).collect()
}

/// The orders whose payments a part names, and whether the file has said something of each. A part without a place is
/// somewhere in its file.
async fn named_in(
    conn: &mut PgConnection,
    (digest, file): (&[u8; 32], &StoredFile),
    part: &FilePart,
) -> Result<Vec<(String, bool)>, PartError> {
    let content = file.content.as_deref().unwrap_or_default();
    let (ids, uetrs) = ids_in(part.text_in(content).unwrap_or(content));
    Ok(store::list_named(conn, (&ids, &uetrs), digest).await?)
}

/// The payment of an order, which the bank has, and which a part names.
async fn find_payment(
    conn: &mut PgConnection,
    file: (&[u8; 32], &StoredFile),
    part: &FilePart,
    execution: &str,
) -> Result<BankPayment, PartError> {
    let missing = || PartError::NoPayment(execution.to_owned());
    let payment = bank::find_of_execution(conn, execution).await?.ok_or_else(missing)?;
    if payment.status == PaymentStatus::Staged && !payment.is_giving {
        return Err(missing());
    }
    let named = named_in(conn, file, part).await?;
    let is_named = named.iter().any(|(one, _)| *one == payment.execution);
    if is_named { Ok(payment) } else { Err(PartError::NotNamed(execution.to_owned())) }
}

/// Requests that a part, or every open part, of a file is dismissed.
pub async fn request_dismissal(
    conn: &mut PgConnection,
    file: &str,
    part: Option<i32>,
    maker: Maker<'_>,
) -> Result<RequestedChange, PartError> {
    let (digest, StoredFile { name, .. }) = find_file(conn, file).await?;
    let why = whys(open_parts(conn, &digest, part).await?);
    let decision = PartDecision { file: hex::encode(digest), name, part, why, applied: None };
    ask(conn, &decision, "dismiss", maker).await
}

/// Requests that a part counts as what the operator has read in it.
pub async fn request_application(
    conn: &mut PgConnection,
    (file, part): (&str, i32),
    execution: &str,
    word: PartWord,
    maker: Maker<'_>,
) -> Result<RequestedChange, PartError> {
    let (digest, stored) = find_file(conn, file).await?;
    let parts = open_parts(conn, &digest, Some(part)).await?;
    let read = parts.first().ok_or(PartError::NoPart(part))?;
    let payment = find_payment(conn, (&digest, &stored), read, execution).await?;
    let (at, given) = match &word {
        PartWord::Paid { at, amount } | PartWord::Returned { at, amount, .. } => (Some(*at), amount.clone()),
        PartWord::Refused { .. } => (None, None),
    };
    if let Some(at) = at.filter(|at| at.timestamp_millis() > now().millis()) {
        return Err(PartError::Later(at));
    }
    if let Some(given) = given {
        let amount = Minor::parse(&given).ok().filter(|amount| *amount > Minor::ZERO);
        let is_whole = matches!(word, PartWord::Paid { .. });
        if !amount.is_some_and(|amount| is_whole || amount <= payment.amount) {
            return Err(PartError::Amount(given, payment.amount, payment.currency));
        }
    }
    let applied = AppliedPart {
        execution: payment.execution,
        end_to_end_id: payment.end_to_end_id,
        ordered: payment.amount.to_string(),
        currency: payment.currency,
        word,
    };
    let (file, name, part, why) = (hex::encode(digest), stored.name, Some(part), whys(parts));
    let decision = PartDecision { file, name, part, why, applied: Some(applied) };
    ask(conn, &decision, "apply", maker).await
}

async fn ask(
    conn: &mut PgConnection,
    decision: &PartDecision,
    action: &str,
    maker: Maker<'_>,
) -> Result<RequestedChange, PartError> {
    let number = decision.part.map(|part| format!(".{part}")).unwrap_or_default();
    let subject = format!("{}{number}", decision.file);
    let change = SettingChange { kind: BANK_PART, subject: &subject, action };
    Ok(requests::request_change(conn, change, decision, maker).await?)
}

/// Decides as it was requested when another operator approves it.
pub(crate) async fn carry_out_requested(
    conn: &mut PgConnection,
    request: &Approval,
) -> Result<(), PartError> {
    let PartDecision { file, part, applied, .. } = requests::unmoved(conn, request).await?;
    let (digest, stored) = find_file(conn, &file).await?;
    let parts = open_parts(conn, &digest, part).await?;
    let (Some(AppliedPart { execution, end_to_end_id, word, .. }), Some(read)) = (applied, parts.first())
    else {
        store::decide(conn, &digest, part, None).await?;
        return Ok(());
    };
    let payment = find_payment(conn, (&digest, &stored), read, &execution).await?;
    let booked = |amount: Option<String>| {
        let amount = amount.as_deref().map(Minor::parse).transpose();
        let amount = amount.map_err(|error| StoreError::corrupt("approval", error))?;
        Ok::<_, StoreError>(amount.map(|amount| (fixed(amount, payment.exponent), payment.currency.clone())))
    };
    let word = match word {
        PartWord::Paid { at, amount } => Word::Paid { at, bank_reference: None, amount: booked(amount)? },
        PartWord::Refused { code } if is_duplicate(&code) => Word::TakenForDuplicate,
        PartWord::Refused { code } => Word::Refused { reason: clean(&code, ID_MAX), text: String::new() },
        PartWord::Returned { at, amount, code } => {
            let (reason, amount) = (clean(&code, ID_MAX), booked(amount)?);
            Word::Returned { reason, at, amount, by: GivenBack::Return }
        }
    };
    let said = PaymentReport { of: PaymentSubject::Payment(end_to_end_id), word };
    if !take_part(conn, (digest, &stored), &said).await? {
        return Err(PartError::NoPayment(execution));
    }
    // It stays open while it names another payment of which the file has said nothing.
    let named = named_in(conn, (&digest, &stored), read).await?;
    if named.iter().all(|(_, is_told)| *is_told) {
        store::decide(conn, &digest, part, Some(&execution)).await?;
    }
    Ok(())
}
