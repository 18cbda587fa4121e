//! Requests of banks to give money back that their customers have paid to us, and our answers.

use chrono::{DateTime, Utc};
use dvp_domain::ids::ReceivedRecallId;
use dvp_domain::money::Minor;
use dvp_domain::recall::RefusalReason;
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection, Row as _};

use crate::{StoreError, read, statement};

const TABLE: &str = "bank_received_recall";

/// What a bank asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewReceivedRecall {
    /// Who asks: a BIC or a name.
    pub assigner: String,
    /// The assigner's own id of the request.
    pub request: String,
    pub case_id: Option<String>,
    pub case_creator: Option<String>,
    /// Of the message that ordered the payment.
    pub message_id: Option<String>,
    /// Of the payment; empty when it is not named.
    pub end_to_end_id: String,
    pub uetr: Option<String>,
    pub transaction_id: Option<String>,
    pub amount: Option<Minor>,
    pub currency: Option<String>,
    pub reason: Option<String>,
    pub information: Option<String>,
}

/// A request and what was answered.
#[derive(Debug, Clone)]
pub struct ReceivedRecall {
    pub id: ReceivedRecallId,
    pub asked: NewReceivedRecall,
    pub received_at: DateTime<Utc>,
    /// `None`: not answered. Without a reason the money is given back.
    pub answer: Option<Option<RefusalReason>>,
    pub answered_at: Option<DateTime<Utc>>,
    /// The answer's file, which may be with the bank.
    pub giving: Option<String>,
    pub sent_at: Option<DateTime<Utc>>,
}

impl FromRow<'_, PgRow> for ReceivedRecall {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let refusal = |code: Option<&str>| code.map(str::parse::<RefusalReason>).transpose();
        let refusal = read(row, (TABLE, "answer_reason"), refusal)?;
        let answer: Option<String> = row.try_get("answer")?;
        Ok(Self {
            id: read(row, (TABLE, "id"), str::parse)?,
            asked: NewReceivedRecall {
                assigner: row.try_get("assigner")?,
                request: row.try_get("request")?,
                case_id: row.try_get("case_id")?,
                case_creator: row.try_get("case_creator")?,
                message_id: row.try_get("message_id")?,
                end_to_end_id: row.try_get("end_to_end_id")?,
                uetr: row.try_get("uetr")?,
                transaction_id: row.try_get("transaction_id")?,
                amount: read(row, (TABLE, "amount"), |text: Option<&str>| {
                    text.map(Minor::parse).transpose()
                })?,
                currency: row.try_get("currency")?,
                reason: row.try_get("reason")?,
                information: row.try_get("information")?,
            },
            received_at: row.try_get("received_at")?,
            answer: answer.map(|_| refusal),
            answered_at: row.try_get("answered_at")?,
            giving: row.try_get("giving")?,
            sent_at: row.try_get("sent_at")?,
        })
    }
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select id, assigner, request, case_id, case_creator, message_id, end_to_end_id, uetr, transaction_id, \
                    amount::text as amount, currency, reason, information, received_at, answer, answer_reason, \
                    answered_at, case when giving_at is not null then staged_file end as giving, sent_at \
             from bank_received_recall ",
            $rest
        )
    };
}

/// Records a request. `false`: it came before.
pub async fn insert(
    conn: &mut PgConnection,
    id: &ReceivedRecallId,
    asked: &NewReceivedRecall,
    file: &[u8; 32],
) -> Result<bool, StoreError> {
    let sql = "insert into bank_received_recall (id, assigner, request, case_id, case_creator, message_id, \
                end_to_end_id, uetr, transaction_id, amount, currency, reason, information, file) \
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::text::numeric, $11, $12, $13, $14) \
         on conflict on constraint bank_received_recall_request_key do nothing";
    let parameters = (
        id.as_str(),
        &asked.assigner,
        &asked.request,
        &asked.case_id,
        &asked.case_creator,
        &asked.message_id,
        &asked.end_to_end_id,
        &asked.uetr,
        &asked.transaction_id,
        asked.amount.map(|amount| amount.to_string()),
        &asked.currency,
        &asked.reason,
        &asked.information,
        file.as_slice(),
    );
    Ok(statement::affected(conn, sql, parameters).await? > 0)
}

pub async fn find(conn: &mut PgConnection, id: &str) -> Result<Option<ReceivedRecall>, StoreError> {
    statement::find(conn, select!("where id = $1"), (id,)).await
}

/// Requests, newest first.
pub async fn list(
    conn: &mut PgConnection,
    is_open: bool,
    limit: i64,
) -> Result<Vec<ReceivedRecall>, StoreError> {
    let sql = select!("where (not $1 or answer is null) order by received_at desc, id desc limit $2");
    statement::list(conn, sql, (is_open, limit)).await
}

/// Answers a request: without a reason the money is given back. `false`: it was answered before.
pub async fn answer(
    conn: &mut PgConnection,
    id: &str,
    refusal: Option<RefusalReason>,
) -> Result<bool, StoreError> {
    let sql = "update bank_received_recall set answered_at = now(), answer_reason = $2, \
                answer = case when $2 is null then 'accepted' else 'rejected' end \
         where id = $1 and answer is null";
    Ok(statement::affected(conn, sql, (id, refusal.map(RefusalReason::as_str))).await? > 0)
}

/// Answers that are not known to be with the bank, the oldest first, after the time and the id of one.
pub async fn list_due(
    conn: &mut PgConnection,
    after: Option<&(DateTime<Utc>, String)>,
    limit: i64,
) -> Result<Vec<ReceivedRecall>, StoreError> {
    let sql = select!(
        "where answer is not null and sent_at is null \
           and (answered_at, id) > (coalesce($1, '-infinity'), $2) order by answered_at, id limit $3"
    );
    statement::list(conn, sql, (after.map(|(at, _)| *at), after.map_or("", |(_, id)| id.as_str()), limit))
        .await
}

/// Names the file of an answer, which may be with the bank from now on. `false`: another process has named one.
pub async fn begin_giving(
    conn: &mut PgConnection,
    id: &ReceivedRecallId,
    file: &str,
) -> Result<bool, StoreError> {
    let sql = "update bank_received_recall set staged_file = $2, giving_at = now() \
         where id = $1 and answer is not null and giving_at is null";
    Ok(statement::affected(conn, sql, (id.as_str(), file)).await? > 0)
}

/// Records that the file is in the bank's folder.
pub async fn mark_sent(conn: &mut PgConnection, id: &ReceivedRecallId) -> Result<(), StoreError> {
    let sql = "update bank_received_recall set sent_at = coalesce(sent_at, now()) where id = $1 and giving_at is not null";
    statement::execute(conn, sql, (id.as_str(),)).await
}
