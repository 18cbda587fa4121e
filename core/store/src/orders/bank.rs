//! Payments ordered by bank files, and the bank's answers.

use chrono::{DateTime, Utc};
use dvp_domain::money::Minor;
use dvp_domain::payment::{PayeeCheck, PaymentStanding, PaymentStatus, PaymentSubject};
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection, Row as _};

use crate::{StoreError, known, read, statement};

#[derive(Debug, Clone)]
pub struct NewBankPayment {
    pub end_to_end_id: String,
    pub reference: String,
    pub execution: String,
    pub message_id: String,
    pub block_id: String,
    pub amount: Minor,
    pub currency: String,
    pub exponent: u8,
    pub staged_file: String,
    /// By the database's clock: the order is not written after it.
    pub not_after: DateTime<Utc>,
}

#[derive(Debug, Clone)]
pub struct BankPayment {
    pub end_to_end_id: String,
    pub execution: String,
    pub amount: Minor,
    pub currency: String,
    pub exponent: u8,
    pub status: PaymentStatus,
    pub staged_file: String,
    pub bank_reference: Option<String>,
    pub paid_at: Option<DateTime<Utc>>,
    /// When it was booked after it had been refused, and before its order was recorded as paid.
    pub booked_late_at: Option<DateTime<Utc>>,
    pub returned_at: Option<DateTime<Utc>>,
    /// When the bank took a return back.
    pub taken_back_at: Option<DateTime<Utc>>,
    /// Its debt was recorded as paid while it was not booked.
    pub is_debt_paid: bool,
    pub reason: Option<String>,
    pub reason_text: Option<String>,
    pub payee_check: Option<PayeeCheck>,
    pub alarm: Option<String>,
    pub is_alarm_cleared: bool,
    /// The staged file was, or is being, moved to the bank's folder.
    pub is_giving: bool,
}

impl FromRow<'_, PgRow> for BankPayment {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let status = |text: &str| PaymentStatus::parse(text).ok_or("is unknown");
        let payee =
            |text: Option<&str>| text.map(|text| PayeeCheck::parse(text).ok_or("is unknown")).transpose();
        Ok(Self {
            end_to_end_id: row.try_get("end_to_end_id")?,
            execution: row.try_get("execution")?,
            amount: read(row, ("bank_payment", "amount"), Minor::parse)?,
            currency: row.try_get("currency")?,
            exponent: read(row, ("bank_payment", "exponent"), |value: i32| u8::try_from(value))?,
            status: read(row, ("bank_payment", "status"), status)?,
            staged_file: row.try_get("staged_file")?,
            bank_reference: row.try_get("bank_reference")?,
            paid_at: row.try_get("paid_at")?,
            booked_late_at: row.try_get("booked_late_at")?,
            returned_at: row.try_get("returned_at")?,
            taken_back_at: row.try_get("taken_back_at")?,
            is_debt_paid: row.try_get("is_debt_paid")?,
            reason: row.try_get("reason")?,
            reason_text: row.try_get("reason_text")?,
            payee_check: read(row, ("bank_payment", "payee_check"), payee)?,
            alarm: row.try_get("alarm")?,
            is_alarm_cleared: row.try_get("is_alarm_cleared")?,
            is_giving: row.try_get("is_giving")?,
        })
    }
}

/// Inserts a payment order. `false`: it was ordered before, or it is too late, and nothing changed. A concurrent order
/// of the same payment may conflict by its reference as well as by its id.
pub async fn insert_payment(conn: &mut PgConnection, new: &NewBankPayment) -> Result<bool, StoreError> {
    let sql = "insert into bank_payment (end_to_end_id, reference, execution, message_id, block_id, amount, \
                                   currency, exponent, status, staged_file) \
         select $1, $2, $3, $4, $5, $6::text::numeric, $7, $8, 'staged', $9 where clock_timestamp() <= $10 \
         on conflict do nothing";
    let parameters = (
        &new.end_to_end_id,
        &new.reference,
        &new.execution,
        &new.message_id,
        &new.block_id,
        new.amount.to_string(),
        &new.currency,
        i32::from(new.exponent),
        &new.staged_file,
        new.not_after,
    );
    Ok(statement::affected(conn, sql, parameters).await? > 0)
}

const PAYMENT: &str = "select end_to_end_id, execution, amount::text as amount, currency, exponent, status, staged_file, \
            bank_reference, paid_at, booked_late_at, returned_at, taken_back_at, debt_paid_at is not null as is_debt_paid, \
            reason, reason_text, payee_check, alarm, alarm_cleared_at is not null as is_alarm_cleared, \
            giving_at is not null as is_giving \
     from bank_payment where ";

async fn select_payment(
    conn: &mut PgConnection,
    condition: &str,
    id: &str,
) -> Result<Option<BankPayment>, StoreError> {
    // The texts are constants of this module.
    let sql = sqlx::AssertSqlSafe(format!("{PAYMENT}{condition}"));
    statement::find(conn, sql, (id,)).await
}

pub async fn find_payment(
    conn: &mut PgConnection,
    end_to_end_id: &str,
) -> Result<Option<BankPayment>, StoreError> {
    select_payment(conn, "end_to_end_id = $1", end_to_end_id).await
}

/// The payment of an execution, if one was ordered.
pub async fn find_of_execution(
    conn: &mut PgConnection,
    execution: &str,
) -> Result<Option<BankPayment>, StoreError> {
    select_payment(conn, "execution = $1", execution).await
}

/// Where it stands.
pub async fn find_standing(
    conn: &mut PgConnection,
    execution: &str,
) -> Result<Option<PaymentStanding>, StoreError> {
    // A file that is being moved may be at the bank.
    let sql = "select case when status = 'staged' and giving_at is not null then 'sent' \
                     when status = 'returned' and coalesce(taken_back_at >= returned_at, false) then 'paid' \
                     else status end, contradicting, closed_at is not null, \
                returned_at is not null and not coalesce(taken_back_at >= returned_at, false), \
                debt_paid_at is not null, \
                exists (select from bank_recall r where r.end_to_end_id = b.end_to_end_id \
                          and r.status in ('accepted', 'recalled') and (r.contradicting is null or r.closed_at is not null)) \
         from bank_payment b where execution = $1";
    let found: Option<(String, Option<String>, bool, bool, bool, bool)> =
        statement::find(conn, sql, (execution,)).await?;
    let Some((status, contradicting, is_closed, came_back, is_debt_paid, is_recalled)) = found else {
        return Ok(None);
    };
    let parse = |text: &str| known("bank_payment", text, PaymentStatus::parse);
    let contradicting = contradicting.as_deref().map(parse).transpose()?;
    let status = parse(&status)?;
    Ok(Some(PaymentStanding { status, contradicting, is_closed, came_back, is_debt_paid, is_recalled }))
}

/// Whether a reference is one of an execution's payment itself, ours or the bank's.
pub async fn is_reference(
    conn: &mut PgConnection,
    execution: &str,
    reference: &str,
) -> Result<bool, StoreError> {
    let sql = "select exists (select from bank_payment where execution = $1 \
           and $2 in (lower(execution), lower(reference), lower(end_to_end_id), lower(message_id), lower(block_id), \
                      lower(bank_reference)))";
    statement::load_value(conn, sql, (execution, reference.trim().to_lowercase())).await
}

/// Records that the debt of an execution's payment is recorded as paid, by another payment (`another`) or by this one.
pub async fn mark_debt_paid(
    conn: &mut PgConnection,
    execution: &str,
    another: bool,
) -> Result<(), StoreError> {
    let sql = "update bank_payment set debt_paid_at = case when $2 then now() end where execution = $1";
    statement::execute(conn, sql, (execution, another)).await
}

/// Records that the bank contradicts how the execution ended.
pub async fn mark_contradicted(
    conn: &mut PgConnection,
    end_to_end_id: &str,
    word: PaymentStatus,
) -> Result<(), StoreError> {
    let sql = "update bank_payment set contradicting = $2, closed_at = null where end_to_end_id = $1";
    statement::execute(conn, sql, (end_to_end_id, word.as_str())).await
}

/// The amount that the bank was given for an execution, if any.
pub async fn find_ordered(conn: &mut PgConnection, execution: &str) -> Result<Option<Minor>, StoreError> {
    let ordered: Option<(String,)> =
        sqlx::query_as("select amount::text from bank_payment where execution = $1")
            .bind(execution)
            .fetch_optional(conn)
            .await?;
    ordered
        .map(|(amount,)| Minor::parse(&amount).map_err(|error| StoreError::corrupt("bank_payment", error)))
        .transpose()
}

/// Closes a contradiction that operators have resolved. `false`: none is open.
pub async fn close_contradiction(conn: &mut PgConnection, execution: &str) -> Result<bool, StoreError> {
    let sql = "update bank_payment set closed_at = now() \
         where execution = $1 and contradicting is not null and closed_at is null";
    Ok(statement::affected(conn, sql, (execution,)).await? > 0)
}

/// [`PaymentStanding::is_booked_after_refusal`] of a payment.
pub async fn is_booked_after_refusal(conn: &mut PgConnection, execution: &str) -> Result<bool, StoreError> {
    Ok(find_standing(conn, execution).await?.is_some_and(PaymentStanding::is_booked_after_refusal))
}

pub async fn is_contradicted(conn: &mut PgConnection, execution: &str) -> Result<bool, StoreError> {
    let sql = "select exists (select from bank_payment \
                        where execution = $1 and contradicting is not null and closed_at is null)";
    statement::load_value(conn, sql, (execution,)).await
}

/// The payments whose bank contradicts how their orders ended, until operators have put that right: recorded a payment
/// that was made, or closed the contradiction.
pub async fn count_contradicted(conn: &mut PgConnection) -> Result<i64, StoreError> {
    let sql = "select count(*) from bank_payment b join execution e on e.reference = b.execution \
         where b.contradicting is not null and b.closed_at is null \
           and not (b.contradicting = 'paid' and b.debt_paid_at is null \
                    and (e.state_name in ('releasing', 'completed') \
                         or e.state_name = 'reversed' and (b.taken_back_at is null \
                              or coalesce(e.state #>> '{reversal,resolved,remedy}' = 'stands', false))))";
    statement::load_value(conn, sql, ()).await
}

/// Records what the bank has found of a payment's payee, and with `releases` that the payment is released. `false`: it was
/// known.
pub async fn record_payee(
    conn: &mut PgConnection,
    end_to_end_id: &str,
    payee: PayeeCheck,
    name: Option<&str>,
    releases: bool,
) -> Result<bool, StoreError> {
    let sql = "update bank_payment set payee_check = $2, payee_name = $3, \
                release_at = coalesce(release_at, case when $4 then now() end), updated_at = now() \
         where end_to_end_id = $1 and (payee_check, payee_name) is distinct from ($2, $3)";
    Ok(statement::affected(conn, sql, (end_to_end_id, payee.as_str(), name, releases)).await? > 0)
}

/// Whether a payment waits because its payee does not match.
pub async fn is_held(conn: &mut PgConnection, execution: &str) -> Result<bool, StoreError> {
    let sql = "select exists (select from bank_payment where execution = $1 and payee_check = 'no_match' \
                        and release_at is null and status in ('sent', 'pending'))";
    statement::load_value(conn, sql, (execution,)).await
}

/// Releases a payment whose payee does not match, and clears its alarm.
pub async fn release(conn: &mut PgConnection, execution: &str) -> Result<(), StoreError> {
    let sql = "update bank_payment set release_at = now(), alarm_cleared_at = coalesce(alarm_cleared_at, now()), \
                updated_at = now() where execution = $1 and release_at is null";
    statement::execute(conn, sql, (execution,)).await
}

/// A payment that is released, and whose bank is not known to have been told.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct HeldRelease {
    pub end_to_end_id: String,
    pub execution: String,
}

/// The oldest releases that are not known to be with the bank.
pub async fn list_releases(conn: &mut PgConnection, limit: i64) -> Result<Vec<HeldRelease>, StoreError> {
    let sql = "select end_to_end_id, execution from bank_payment \
         where release_at is not null and released_at is null order by release_at, end_to_end_id limit $1";
    statement::list(conn, sql, (limit,)).await
}

/// Records that a release is in the bank's folder.
pub async fn mark_released(conn: &mut PgConnection, end_to_end_id: &str) -> Result<(), StoreError> {
    let sql = "update bank_payment set released_at = now() where end_to_end_id = $1 and released_at is null";
    statement::execute(conn, sql, (end_to_end_id,)).await
}

/// Records that from now on the staged file may be at the bank. `false`: it is later than `not_after` by the database's
/// clock, and nothing changed.
pub async fn mark_giving(
    conn: &mut PgConnection,
    end_to_end_id: &str,
    not_after: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let sql = "update bank_payment set giving_at = coalesce(giving_at, now()) \
         where end_to_end_id = $1 and (giving_at is not null or status = 'staged' and clock_timestamp() <= $2)";
    Ok(statement::affected(conn, sql, (end_to_end_id, not_after)).await? > 0)
}

pub async fn raise_alarm(
    conn: &mut PgConnection,
    end_to_end_id: &str,
    alarm: &str,
) -> Result<(), StoreError> {
    let sql = "update bank_payment set alarm = $2, alarm_cleared_at = null, updated_at = now() \
         where end_to_end_id = $1";
    statement::execute(conn, sql, (end_to_end_id, alarm)).await
}

/// The open alarms: payments with an alarm, refused files and files that name unknown payments, and received recalls
/// without an answer.
pub async fn count_alarms(conn: &mut PgConnection) -> Result<(i64, i64, i64), StoreError> {
    let sql = "select (select count(*) from bank_payment where alarm is not null and alarm_cleared_at is null), \
                (select count(*) from bank_file \
                 where (refusal is not null or unknown > 0) and cleared_at is null), \
                (select count(*) from bank_received_recall where answer is null)";
    statement::load(conn, sql, ()).await
}

/// An alarm about a bank's payment, file or request, for an operator.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct BankAlarm {
    /// An execution, a file's content as hex, or a received recall.
    pub subject: String,
    /// `payment`, `file` or `recall`.
    pub about: String,
    /// The file's name, or the payment's end-to-end id.
    pub name: String,
    pub alarm: String,
    pub raised_at: DateTime<Utc>,
}

/// Open alarms, the oldest first.
pub async fn list_alarms(conn: &mut PgConnection, limit: i64) -> Result<Vec<BankAlarm>, StoreError> {
    let sql = "select execution as subject, 'payment' as about, end_to_end_id as name, alarm, updated_at as raised_at \
         from bank_payment where alarm is not null and alarm_cleared_at is null \
         union all \
         select encode(digest, 'hex'), 'file', name, \
                concat_ws('; ', refusal, case when unknown > 0 then unknown || ' unknown payments' end), taken_at \
         from bank_file where (refusal is not null or unknown > 0) and cleared_at is null \
         union all \
         select id, 'recall', end_to_end_id, concat_ws(' ', 'asked back by', assigner, reason), received_at \
         from bank_received_recall where answer is null \
         order by raised_at, subject limit $1";
    statement::list(conn, sql, (limit,)).await
}

/// Files of the bank with an open alarm, the oldest first.
pub async fn list_file_alarms(conn: &mut PgConnection, limit: i64) -> Result<Vec<BankAlarm>, StoreError> {
    let sql = "select encode(digest, 'hex') as subject, 'file' as about, name, \
                concat_ws('; ', refusal, case when unknown > 0 then unknown || ' unknown payments' end) as alarm, \
                taken_at as raised_at \
         from bank_file where (refusal is not null or unknown > 0) and cleared_at is null \
         order by taken_at, subject limit $1";
    statement::list(conn, sql, (limit,)).await
}

/// Clears an alarm. `false`: none is open, or parts of the file wait for two operators.
pub async fn clear_alarm(conn: &mut PgConnection, subject: &str) -> Result<bool, StoreError> {
    let sql = "with payment as (update bank_payment set alarm_cleared_at = now() \
                          where execution = $1 and alarm is not null and alarm_cleared_at is null returning 1), \
              file as (update bank_file set cleared_at = now() \
                       where encode(digest, 'hex') = $1 and (refusal is not null or unknown > 0) \
                         and not exists (select from bank_file_part p where p.file = digest and p.decided_at is null) \
                         and cleared_at is null returning 1) \
         select exists (select from payment) or exists (select from file)";
    statement::load_value(conn, sql, (subject,)).await
}

/// Records that the file is in the bank's folder.
pub async fn mark_sent(conn: &mut PgConnection, end_to_end_id: &str) -> Result<(), StoreError> {
    let sql = "update bank_payment set status = 'sent', updated_at = now() where end_to_end_id = $1 \
         and status = 'staged'";
    statement::execute(conn, sql, (end_to_end_id,)).await
}

/// The payment that an answer names, locked until the transaction ends. The service's messages and blocks have one
/// payment each.
pub async fn lock_payment(
    conn: &mut PgConnection,
    of: &PaymentSubject,
) -> Result<Option<BankPayment>, StoreError> {
    let (condition, id) = match of {
        PaymentSubject::Payment(id) => ("end_to_end_id = $1 for update", id),
        PaymentSubject::Block(id) => ("block_id = $1 for update", id),
        PaymentSubject::Message(id) => ("message_id = $1 for update", id),
        PaymentSubject::Uetr(id) => ("uetr = $1 for update", id),
    };
    select_payment(conn, condition, id).await
}

/// Updates a payment's status, and makes its effect due.
pub async fn update_payment(conn: &mut PgConnection, payment: &BankPayment) -> Result<(), StoreError> {
    let sql = "update bank_payment set status = $2, bank_reference = $3, paid_at = $4, reason = $5, reason_text = \
                $6, \
                alarm = $7, alarm_cleared_at = case when $8 then alarm_cleared_at end, booked_late_at = $9, \
                returned_at = $10, taken_back_at = $11, updated_at = now() where end_to_end_id = $1";
    let parameters = (
        &payment.end_to_end_id,
        payment.status.as_str(),
        &payment.bank_reference,
        payment.paid_at,
        &payment.reason,
        &payment.reason_text,
        &payment.alarm,
        payment.is_alarm_cleared,
        payment.booked_late_at,
        payment.returned_at,
        payment.taken_back_at,
    );
    statement::execute(conn, sql, parameters).await?;
    // A worker that has claimed it may have asked before this answer was here.
    let sql = "update effect set run_at = least(run_at, now()), woken = claimed_until is not null \
         where reference = $1 and kind = 'payout'";
    statement::execute(conn, sql, (&payment.execution,)).await
}

/// A file of the bank, by its content.
#[derive(Debug, Clone)]
pub struct BankFile<'a> {
    pub digest: [u8; 32],
    pub name: &'a str,
    pub message: Option<&'a str>,
    pub message_id: Option<&'a str>,
    pub refusal: Option<String>,
    pub unknown: i64,
}

/// Records a file. `false`: the same content was imported before.
pub async fn insert_file(conn: &mut PgConnection, file: &BankFile<'_>) -> Result<bool, StoreError> {
    let sql = "insert into bank_file (digest, name, message, message_id, refusal, unknown) \
         values ($1, $2, $3, $4, $5, $6) on conflict on constraint bank_file_pkey do nothing";
    let parameters =
        (file.digest.as_slice(), file.name, file.message, file.message_id, &file.refusal, file.unknown);
    Ok(statement::affected(conn, sql, parameters).await? > 0)
}
