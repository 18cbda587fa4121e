//! Recalls of payments: requests to the bank to give one back, and its answers.

use chrono::{DateTime, Utc};
use dvp_domain::ids::RecallId;
use dvp_domain::money::Minor;
use dvp_domain::payment::{PaymentStatus, PaymentSubject};
use dvp_domain::recall::{RecallAnswer, RecallReason, RecallStatus, RecallSubject};
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection, PgTransaction, Row as _};

use super::bank::{self, BankPayment};
use crate::{StoreError, read, statement};

/// A recall that two operators want.
#[derive(Debug, Clone)]
pub struct NewRecall<'a> {
    pub id: &'a RecallId,
    pub execution: &'a str,
    pub reason: RecallReason,
    pub information: Option<&'a str>,
}

/// Inserts a recall of an execution's payment. `false`: the bank does not have the payment, or no longer, or another
/// recall of it is open.
pub async fn insert(conn: &mut PgConnection, new: &NewRecall<'_>) -> Result<bool, StoreError> {
    let sql = "insert into bank_recall (id, end_to_end_id, execution, reason, information, status) \
         select $1, end_to_end_id, execution, $3, $4, 'approved' from bank_payment \
         where execution = $2 and (status in ('sent', 'pending', 'paid') \
                                   or status in ('refused', 'returned') and contradicting = 'paid' \
                                      and (returned_at is null and status = 'refused' or taken_back_at >= returned_at)) \
         for update \
         on conflict do nothing";
    let parameters = (new.id.as_str(), new.execution, new.reason.as_str(), new.information);
    Ok(statement::affected(conn, sql, parameters).await? > 0)
}

/// The recall of an execution's payment whose end is not known, or that has a contradiction.
pub async fn find_open(conn: &mut PgConnection, execution: &str) -> Result<Option<Recall>, StoreError> {
    let sql = "select * from bank_recall where execution = $1 and closed_at is null \
           and (contradicting is not null or status in ('approved', 'sent', 'pending', 'accepted', 'unrequested')) \
         order by approved_at, id limit 1";
    statement::find(conn, sql, (execution,)).await
}

/// Closes the open recalls of an execution's payment. One that was not sent is withdrawn. `false`: none is open.
pub async fn close(conn: &mut PgConnection, execution: &str) -> Result<bool, StoreError> {
    let sql = "update bank_recall set closed_at = now(), updated_at = now(), \
                status = case when status = 'approved' and giving_at is null then 'withdrawn' else status end \
         where execution = $1 and closed_at is null \
           and (contradicting is not null or status in ('approved', 'sent', 'pending', 'accepted', 'unrequested'))";
    Ok(statement::affected(conn, sql, (execution,)).await? > 0)
}

/// A recall that is to be sent, with its payment.
#[derive(Debug, Clone)]
pub struct DueRecall {
    pub id: RecallId,
    pub end_to_end_id: String,
    pub execution: String,
    pub reason: RecallReason,
    pub information: Option<String>,
    pub approved_at: DateTime<Utc>,
    pub staged_file: Option<String>,
    /// The staged file was, or is being, moved to the bank's folder.
    pub is_giving: bool,
    /// Of the message that ordered the payment.
    pub message_id: String,
    pub amount: Minor,
    pub currency: String,
    pub exponent: u8,
}

const TABLE: &str = "bank_recall";

impl FromRow<'_, PgRow> for DueRecall {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            id: read(row, (TABLE, "id"), str::parse)?,
            end_to_end_id: row.try_get("end_to_end_id")?,
            execution: row.try_get("execution")?,
            reason: read(row, (TABLE, "reason"), str::parse)?,
            information: row.try_get("information")?,
            approved_at: row.try_get("approved_at")?,
            staged_file: row.try_get("staged_file")?,
            is_giving: row.try_get("is_giving")?,
            message_id: row.try_get("message_id")?,
            amount: read(row, (TABLE, "amount"), Minor::parse)?,
            currency: row.try_get("currency")?,
            exponent: read(row, (TABLE, "exponent"), |value: i32| u8::try_from(value))?,
        })
    }
}

/// Recalls that are not known to be with the bank, the oldest first, after the approval and the id of one.
pub async fn list_due(
    conn: &mut PgConnection,
    after: Option<&(DateTime<Utc>, String)>,
    limit: i64,
) -> Result<Vec<DueRecall>, StoreError> {
    let sql = "select r.id, r.end_to_end_id, r.execution, r.reason, r.information, r.approved_at, r.staged_file, \
                r.giving_at is not null as is_giving, p.message_id, p.amount::text as amount, p.currency, p.exponent \
         from bank_recall r join bank_payment p using (end_to_end_id) \
         where r.status = 'approved' and (r.closed_at is null or r.giving_at is not null) \
           and (r.approved_at, r.id) > (coalesce($1, '-infinity'), $2) \
         order by r.approved_at, r.id limit $3";
    statement::list(conn, sql, (after.map(|(at, _)| *at), after.map_or("", |(_, id)| id.as_str()), limit))
        .await
}

/// Names the file of a recall in place of `before`. `false`: another process has named one, the file may be with the
/// bank, or the recall was closed.
pub async fn name_file(
    conn: &mut PgConnection,
    id: &RecallId,
    before: Option<&str>,
    file: &str,
) -> Result<bool, StoreError> {
    let sql = "update bank_recall set staged_file = $3 \
         where id = $1 and status = 'approved' and closed_at is null and giving_at is null \
           and staged_file is not distinct from $2";
    Ok(statement::affected(conn, sql, (id.as_str(), before, file)).await? > 0)
}

/// Whether a recall's file is moved to the bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Giving {
    /// From now on the file may be with the bank.
    Begun,
    /// The payment has ended unpaid or came back: the recall has ended.
    NotNeeded,
    /// The recall was closed, or has another file.
    Changed,
}

/// Records that from now on the named file may be with the bank, unless the payment has ended unpaid.
pub async fn begin_giving(
    tx: &mut PgTransaction<'_>,
    id: &RecallId,
    end_to_end_id: &str,
    file: &str,
) -> Result<Giving, StoreError> {
    let payment = bank::lock_payment(tx, &PaymentSubject::Payment(end_to_end_id.to_owned())).await?;
    let is_needed = match payment {
        None => false,
        Some(payment) => match payment.status {
            PaymentStatus::Returned => false,
            PaymentStatus::Refused => bank::is_booked_after_refusal(tx, &payment.execution).await?,
            PaymentStatus::Staged | PaymentStatus::Sent | PaymentStatus::Pending | PaymentStatus::Paid => {
                true
            }
        },
    };
    let sql = "update bank_recall set giving_at = case when $3 then now() end, updated_at = now(), \
                status = case when $3 then status else 'not_needed' end \
         where id = $1 and staged_file = $2 and status = 'approved' and closed_at is null and giving_at is null";
    let changed = statement::affected(tx, sql, (id.as_str(), file, is_needed)).await?;
    Ok(match (changed > 0, is_needed) {
        (true, true) => Giving::Begun,
        (true, false) => Giving::NotNeeded,
        (false, _) => Giving::Changed,
    })
}

/// Records that the file is in the bank's folder. An answer may have come before.
pub async fn mark_sent(conn: &mut PgConnection, id: &RecallId) -> Result<(), StoreError> {
    let sql = "update bank_recall set sent_at = coalesce(sent_at, now()), updated_at = now(), \
                status = case when status = 'approved' then 'sent' else status end \
         where id = $1 and giving_at is not null";
    statement::execute(conn, sql, (id.as_str(),)).await
}

/// A recall and what is known of it.
#[derive(Debug, Clone)]
pub struct Recall {
    pub id: RecallId,
    pub end_to_end_id: String,
    pub execution: String,
    /// `None`: it was never requested.
    pub reason: Option<RecallReason>,
    pub information: Option<String>,
    pub status: RecallStatus,
    pub approved_at: DateTime<Utc>,
    pub sent_at: Option<DateTime<Utc>>,
    pub answered_at: Option<DateTime<Utc>>,
    /// Why the bank rejected it.
    pub answer_reason: Option<String>,
    pub answer_text: Option<String>,
    /// The first answer that contradicts what is known.
    pub contradicting: Option<String>,
    pub closed_at: Option<DateTime<Utc>>,
}

impl FromRow<'_, PgRow> for Recall {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let status = |text: &str| RecallStatus::parse(text).ok_or("is unknown");
        Ok(Self {
            id: read(row, (TABLE, "id"), str::parse)?,
            end_to_end_id: row.try_get("end_to_end_id")?,
            execution: row.try_get("execution")?,
            reason: read(row, (TABLE, "reason"), |code: Option<&str>| code.map(str::parse).transpose())?,
            information: row.try_get("information")?,
            status: read(row, (TABLE, "status"), status)?,
            approved_at: row.try_get("approved_at")?,
            sent_at: row.try_get("sent_at")?,
            answered_at: row.try_get("answered_at")?,
            answer_reason: row.try_get("answer_reason")?,
            answer_text: row.try_get("answer_text")?,
            contradicting: row.try_get("contradicting")?,
            closed_at: row.try_get("closed_at")?,
        })
    }
}

/// What an answer of the bank is about.
#[derive(Debug, Clone)]
pub enum Answered {
    /// Nothing of ours.
    Unknown,
    Recall(Box<Recall>),
    /// A payment of ours, and no recall of it was ever sent.
    Unrequested(Box<BankPayment>),
}

/// Finds what an answer is about, and locks the payment and the recall until the transaction ends. An answer that names
/// a case and another payment is about nothing of ours. One that names a payment only is about its last recall.
pub async fn lock_answered(tx: &mut PgTransaction<'_>, of: &RecallSubject) -> Result<Answered, StoreError> {
    let case: Option<(String, bool)> = match &of.case {
        Some(id) => {
            let sql = "select end_to_end_id, giving_at is not null from bank_recall where id = $1";
            statement::find(tx, sql, (id,)).await?
        }
        None => None,
    };
    let named = match (&of.payment, &case) {
        (Some(payment), _) => payment.clone(),
        (None, Some((end_to_end_id, _))) => PaymentSubject::Payment(end_to_end_id.clone()),
        (None, None) => return Ok(Answered::Unknown),
    };
    let Some(payment) = bank::lock_payment(tx, &named).await? else { return Ok(Answered::Unknown) };
    let is_of_case = |(end_to_end_id, _): &(String, bool)| *end_to_end_id == payment.end_to_end_id;
    if of.case.is_some() && case.as_ref().is_some_and(|case| !is_of_case(case)) {
        return Ok(Answered::Unknown);
    }
    let known = of.case.as_deref().filter(|_| case.is_some());
    let sql = "select * from bank_recall \
         where end_to_end_id = $1 and giving_at is not null and ($2::text is null or id = $2) \
         order by approved_at desc, id desc limit 1 for update";
    let recall: Option<Recall> = statement::find(tx, sql, (&payment.end_to_end_id, known)).await?;
    Ok(match recall {
        // A case of the bank's own about a payment that we recall under another one.
        Some(recall) => Answered::Recall(Box::new(recall)),
        None => Answered::Unrequested(Box::new(payment)),
    })
}

#[derive(Debug, Clone)]
pub struct AnsweredRecall<'a> {
    pub id: &'a RecallId,
    pub status: RecallStatus,
    /// It decides the recall, or is the first of its kind.
    pub answer: &'a RecallAnswer,
    pub is_contradiction: bool,
}

/// Records an answer. A contradiction is open until operators close it; the same one again does not open it again.
pub async fn update_answered(
    conn: &mut PgConnection,
    answered: &AnsweredRecall<'_>,
) -> Result<(), StoreError> {
    let (reason, text) = match answered.answer {
        RecallAnswer::Rejected { reason, text } if answered.status == RecallStatus::Rejected => {
            (Some(reason), Some(text))
        }
        RecallAnswer::Rejected { .. }
        | RecallAnswer::Pending { .. }
        | RecallAnswer::Accepted
        | RecallAnswer::PartlyAccepted => (None, None),
    };
    let sql = "update bank_recall set status = $2, updated_at = now(), \
                answered_at = case when status = $2 then coalesce(answered_at, now()) else now() end, \
                answer_reason = coalesce(answer_reason, $3), answer_text = coalesce(answer_text, $4), \
                closed_at = case when $5 and contradicting is distinct from $6 then null else closed_at end, \
                contradicting = case when $5 then $6 else contradicting end \
         where id = $1";
    let parameters = (
        answered.id.as_str(),
        answered.status.as_str(),
        reason,
        text,
        answered.is_contradiction,
        answered.answer.as_str(),
    );
    statement::execute(conn, sql, parameters).await
}

/// Records an answer to a request that was never made, once for each file. `false`: it was recorded before.
pub async fn insert_unrequested(
    conn: &mut PgConnection,
    id: &RecallId,
    payment: &BankPayment,
    answer: &RecallAnswer,
    file: &[u8; 32],
) -> Result<bool, StoreError> {
    let sql = "insert into bank_recall (id, end_to_end_id, execution, status, answered_at, contradicting, file) \
         values ($1, $2, $3, 'unrequested', now(), $4, $5) on conflict do nothing";
    let parameters =
        (id.as_str(), &payment.end_to_end_id, &payment.execution, answer.as_str(), file.as_slice());
    Ok(statement::affected(conn, sql, parameters).await? > 0)
}

/// The payment came back, or will never be made: recalls of it that the bank has not rejected have ended.
pub async fn mark_recalled(conn: &mut PgConnection, end_to_end_id: &str) -> Result<u64, StoreError> {
    let sql = "update bank_recall set updated_at = now(), \
                status = case when giving_at is null then 'not_needed' else 'recalled' end \
         where end_to_end_id = $1 and status in ('approved', 'sent', 'pending', 'accepted')";
    statement::affected(conn, sql, (end_to_end_id,)).await
}

pub async fn find(conn: &mut PgConnection, id: &str) -> Result<Option<Recall>, StoreError> {
    statement::find(conn, "select * from bank_recall where id = $1", (id,)).await
}

/// The filter of a list, newest first.
#[derive(Debug, Clone, Default)]
pub struct RecallFilter<'a> {
    /// Only those whose end is not known, or that have a contradiction.
    pub is_open: bool,
    pub execution: Option<&'a str>,
    /// Before this one.
    pub before: Option<(DateTime<Utc>, &'a str)>,
    pub limit: i64,
}

pub async fn list(conn: &mut PgConnection, filter: &RecallFilter<'_>) -> Result<Vec<Recall>, StoreError> {
    let sql = "select * from bank_recall \
         where (not $1 or (closed_at is null and (contradicting is not null \
                           or status in ('approved', 'sent', 'pending', 'accepted', 'unrequested')))) \
           and ($2::text is null or execution = $2) \
           and ($3::timestamptz is null or (approved_at, id) < ($3, $4)) \
         order by approved_at desc, id desc limit $5";
    let parameters = (
        filter.is_open,
        filter.execution,
        filter.before.map(|before| before.0),
        filter.before.map(|before| before.1),
        filter.limit,
    );
    statement::list(conn, sql, parameters).await
}
