//! Payments ordered by bank files, and the bank's answers.

use chrono::{DateTime, Utc};
use dvp_domain::money::Minor;
use dvp_domain::payment::{PaymentStanding, PaymentStatus, PaymentSubject};
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection, Row as _};

use crate::{StoreError, read};

/// A payment order.
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

/// A payment and its status.
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
    pub alarm: Option<String>,
    /// An operator has cleared the alarm.
    pub is_alarm_cleared: bool,
    /// The staged file was, or is being, moved to the bank's folder.
    pub is_giving: bool,
}

impl FromRow<'_, PgRow> for BankPayment {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let status = |text: &str| PaymentStatus::parse(text).ok_or("is unknown");
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
            alarm: row.try_get("alarm")?,
            is_alarm_cleared: row.try_get("is_alarm_cleared")?,
            is_giving: row.try_get("is_giving")?,
        })
    }
}

/// Inserts a payment order. `false`: it was ordered before, or it is too late, and nothing changed. A concurrent order
/// of the same payment may conflict by its reference as well as by its id.
pub async fn insert_payment(conn: &mut PgConnection, new: &NewBankPayment) -> Result<bool, StoreError> {
    let inserted = sqlx::query(
        "insert into bank_payment (end_to_end_id, reference, execution, message_id, block_id, amount, currency, \
                                   exponent, status, staged_file) \
         select $1, $2, $3, $4, $5, $6::text::numeric, $7, $8, 'staged', $9 where clock_timestamp() <= $10 \
         on conflict do nothing",
    )
    .bind(&new.end_to_end_id)
    .bind(&new.reference)
    .bind(&new.execution)
    .bind(&new.message_id)
    .bind(&new.block_id)
    .bind(new.amount.to_string())
    .bind(&new.currency)
    .bind(i32::from(new.exponent))
    .bind(&new.staged_file)
    .bind(new.not_after)
    .execute(conn)
    .await?;
    Ok(inserted.rows_affected() > 0)
}

const PAYMENT: &str = "select end_to_end_id, execution, amount::text as amount, currency, exponent, status, staged_file, \
            bank_reference, paid_at, booked_late_at, returned_at, taken_back_at, debt_paid_at is not null as is_debt_paid, \
            reason, reason_text, alarm, alarm_cleared_at is not null as is_alarm_cleared, \
            giving_at is not null as is_giving \
     from bank_payment where ";

async fn select_payment(
    conn: &mut PgConnection,
    condition: &str,
    id: &str,
) -> Result<Option<BankPayment>, StoreError> {
    // The texts are constants of this module.
    let statement = sqlx::AssertSqlSafe(format!("{PAYMENT}{condition}"));
    Ok(sqlx::query_as(statement).bind(id).fetch_optional(conn).await?)
}

pub async fn find_payment(
    conn: &mut PgConnection,
    end_to_end_id: &str,
) -> Result<Option<BankPayment>, StoreError> {
    select_payment(conn, "end_to_end_id = $1", end_to_end_id).await
}

/// The payment of an execution, if one was ordered.
pub async fn find_standing(
    conn: &mut PgConnection,
    execution: &str,
) -> Result<Option<PaymentStanding>, StoreError> {
    // A file that is being moved may be at the bank.
    let found: Option<(String, Option<String>, bool, bool, bool, bool)> = sqlx::query_as(
        "select case when status = 'staged' and giving_at is not null then 'sent' \
                     when status = 'returned' and coalesce(taken_back_at >= returned_at, false) then 'paid' \
                     else status end, contradicting, closed_at is not null, \
                returned_at is not null and not coalesce(taken_back_at >= returned_at, false), \
                debt_paid_at is not null, \
                exists (select from bank_recall r where r.end_to_end_id = b.end_to_end_id \
                          and r.status in ('accepted', 'recalled') and (r.contradicting is null or r.closed_at is not null)) \
         from bank_payment b where execution = $1",
    )
    .bind(execution)
    .fetch_optional(conn)
    .await?;
    let Some((status, contradicting, is_closed, came_back, is_debt_paid, is_recalled)) = found else {
        return Ok(None);
    };
    let parse =
        |text: &str| PaymentStatus::parse(text).ok_or_else(|| StoreError::corrupt("bank_payment", "status"));
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
    let is = sqlx::query_scalar(
        "select exists (select from bank_payment where execution = $1 \
           and $2 in (lower(execution), lower(reference), lower(end_to_end_id), lower(message_id), lower(block_id), \
                      lower(bank_reference)))",
    );
    Ok(is.bind(execution).bind(reference.trim().to_lowercase()).fetch_one(conn).await?)
}

/// Records that the debt of an execution's payment is recorded as paid, by another payment (`another`) or by this one.
pub async fn mark_debt_paid(
    conn: &mut PgConnection,
    execution: &str,
    another: bool,
) -> Result<(), StoreError> {
    sqlx::query("update bank_payment set debt_paid_at = case when $2 then now() end where execution = $1")
        .bind(execution)
        .bind(another)
        .execute(conn)
        .await?;
    Ok(())
}

/// Records that the bank contradicts how the execution ended.
pub async fn mark_contradicted(
    conn: &mut PgConnection,
    end_to_end_id: &str,
    word: PaymentStatus,
) -> Result<(), StoreError> {
    sqlx::query("update bank_payment set contradicting = $2, closed_at = null where end_to_end_id = $1")
        .bind(end_to_end_id)
        .bind(word.as_str())
        .execute(conn)
        .await?;
    Ok(())
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
    let done = sqlx::query(
        "update bank_payment set closed_at = now() \
         where execution = $1 and contradicting is not null and closed_at is null",
    )
    .bind(execution)
    .execute(conn)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// [`PaymentStanding::is_booked_after_refusal`] of a payment.
pub async fn is_booked_after_refusal(conn: &mut PgConnection, execution: &str) -> Result<bool, StoreError> {
    Ok(find_standing(conn, execution).await?.is_some_and(PaymentStanding::is_booked_after_refusal))
}

/// Whether a contradiction is open.
pub async fn is_contradicted(conn: &mut PgConnection, execution: &str) -> Result<bool, StoreError> {
    let open = sqlx::query_scalar(
        "select exists (select from bank_payment \
                        where execution = $1 and contradicting is not null and closed_at is null)",
    );
    Ok(open.bind(execution).fetch_one(conn).await?)
}

/// The payments whose bank contradicts how their orders ended, until operators have put that right: recorded a payment
/// that was made, or closed the contradiction.
pub async fn count_contradicted(conn: &mut PgConnection) -> Result<i64, StoreError> {
    let count = sqlx::query_scalar(
        "select count(*) from bank_payment b join execution e on e.reference = b.execution \
         where b.contradicting is not null and b.closed_at is null \
           and not (b.contradicting = 'paid' and b.debt_paid_at is null \
                    and (e.state_name in ('releasing', 'completed') \
                         or e.state_name = 'reversed' and (b.taken_back_at is null \
                              or coalesce(e.state #>> '{reversal,resolved,remedy}' = 'stands', false))))",
    );
    Ok(count.fetch_one(conn).await?)
}

/// Records that from now on the staged file may be at the bank. `false`: it is later than `not_after` by the database's
/// clock, and nothing changed.
pub async fn mark_giving(
    conn: &mut PgConnection,
    end_to_end_id: &str,
    not_after: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let marked = sqlx::query(
        "update bank_payment set giving_at = coalesce(giving_at, now()) \
         where end_to_end_id = $1 and (giving_at is not null or clock_timestamp() <= $2)",
    )
    .bind(end_to_end_id)
    .bind(not_after)
    .execute(conn)
    .await?;
    Ok(marked.rows_affected() > 0)
}

/// Raises an alarm about a payment.
pub async fn raise_alarm(
    conn: &mut PgConnection,
    end_to_end_id: &str,
    alarm: &str,
) -> Result<(), StoreError> {
    sqlx::query(
        "update bank_payment set alarm = $2, alarm_cleared_at = null, updated_at = now() where end_to_end_id = $1",
    )
    .bind(end_to_end_id)
    .bind(alarm)
    .execute(conn)
    .await?;
    Ok(())
}

/// The open alarms: payments with an alarm, refused files, and files that name unknown payments.
pub async fn count_alarms(conn: &mut PgConnection) -> Result<(i64, i64), StoreError> {
    let counts = sqlx::query_as(
        "select (select count(*) from bank_payment where alarm is not null and alarm_cleared_at is null), \
                (select count(*) from bank_file \
                 where (refusal is not null or unknown > 0) and cleared_at is null)",
    );
    Ok(counts.fetch_one(conn).await?)
}

/// An alarm about a bank's payment or file, for an operator.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct BankAlarm {
    /// An execution, or a file's content as hex.
    pub subject: String,
    pub is_file: bool,
    /// The file's name, or the payment's end-to-end id.
    pub name: String,
    pub alarm: String,
    pub raised_at: DateTime<Utc>,
}

/// Open alarms, the oldest first.
pub async fn list_alarms(conn: &mut PgConnection, limit: i64) -> Result<Vec<BankAlarm>, StoreError> {
    let rows = sqlx::query_as(
        "select execution as subject, false as is_file, end_to_end_id as name, alarm, updated_at as raised_at \
         from bank_payment where alarm is not null and alarm_cleared_at is null \
         union all \
         select encode(digest, 'hex'), true, name, coalesce(refusal, unknown || ' unknown payments'), taken_at \
         from bank_file where (refusal is not null or unknown > 0) and cleared_at is null \
         order by raised_at, subject limit $1",
    );
    Ok(rows.bind(limit).fetch_all(conn).await?)
}

/// Clears an alarm. `false`: none is open.
pub async fn clear_alarm(conn: &mut PgConnection, subject: &str) -> Result<bool, StoreError> {
    let cleared = sqlx::query_scalar(
        "with payment as (update bank_payment set alarm_cleared_at = now() \
                          where execution = $1 and alarm is not null and alarm_cleared_at is null returning 1), \
              file as (update bank_file set cleared_at = now() \
                       where encode(digest, 'hex') = $1 and (refusal is not null or unknown > 0) \
                         and cleared_at is null returning 1) \
         select exists (select from payment) or exists (select from file)",
    );
    Ok(cleared.bind(subject).fetch_one(conn).await?)
}

/// Records that the file is in the bank's folder.
pub async fn mark_sent(conn: &mut PgConnection, end_to_end_id: &str) -> Result<(), StoreError> {
    sqlx::query(
        "update bank_payment set status = 'sent', updated_at = now() where end_to_end_id = $1 and status = 'staged'",
    )
    .bind(end_to_end_id)
    .execute(conn)
    .await?;
    Ok(())
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
    };
    select_payment(conn, condition, id).await
}

/// Updates a payment's status, and makes its effect due.
pub async fn update_payment(conn: &mut PgConnection, payment: &BankPayment) -> Result<(), StoreError> {
    sqlx::query(
        "update bank_payment set status = $2, bank_reference = $3, paid_at = $4, reason = $5, reason_text = $6, \
                alarm = $7, alarm_cleared_at = case when $8 then alarm_cleared_at end, booked_late_at = $9, \
                returned_at = $10, taken_back_at = $11, updated_at = now() where end_to_end_id = $1",
    )
    .bind(&payment.end_to_end_id)
    .bind(payment.status.as_str())
    .bind(&payment.bank_reference)
    .bind(payment.paid_at)
    .bind(&payment.reason)
    .bind(&payment.reason_text)
    .bind(&payment.alarm)
    .bind(payment.is_alarm_cleared)
    .bind(payment.booked_late_at)
    .bind(payment.returned_at)
    .bind(payment.taken_back_at)
    .execute(&mut *conn)
    .await?;
    // A worker that has claimed it may have asked before this answer was here.
    sqlx::query(
        "update effect set run_at = least(run_at, now()), woken = lease_until is not null \
         where reference = $1 and kind = 'payout'",
    )
    .bind(&payment.execution)
    .execute(conn)
    .await?;
    Ok(())
}

/// A file of the bank, by its content.
#[derive(Debug, Clone)]
pub struct BankFile<'a> {
    pub digest: [u8; 32],
    pub name: &'a str,
    pub message: Option<&'static str>,
    pub message_id: Option<&'a str>,
    pub refusal: Option<String>,
    pub unknown: i64,
}

/// Records a file. `false`: the same content was imported before.
pub async fn insert_file(conn: &mut PgConnection, file: &BankFile<'_>) -> Result<bool, StoreError> {
    let inserted = sqlx::query(
        "insert into bank_file (digest, name, message, message_id, refusal, unknown) \
         values ($1, $2, $3, $4, $5, $6) on conflict on constraint bank_file_pkey do nothing",
    )
    .bind(file.digest.as_slice())
    .bind(file.name)
    .bind(file.message)
    .bind(file.message_id)
    .bind(&file.refusal)
    .bind(file.unknown)
    .execute(conn)
    .await?;
    Ok(inserted.rows_affected() > 0)
}
