//! Applies what the bank's files say about payments to their rows and their settlements.

use chrono::{DateTime, Utc};
use dvp_domain::money::Minor;
use dvp_domain::payment::PaymentStatus;
use dvp_domain::text::{ID_MAX, TEXT_MAX, clean};
use dvp_store::StoreError;
use dvp_store::chain::commands;
use dvp_store::orders::bank::{self as store, BankPayment};
use dvp_store::orders::bank_parts::StoredFile;
use dvp_store::orders::effects::{self, EffectKind, ManualResolution};
use dvp_store::orders::executions;
use dvp_store::workers::{Step, foreign};
use metrics::counter;
use sqlx::PgConnection;
use tracing::{error, info};

use super::payee::Payees;
use super::status::{
    Known, Ordered, PAID_AFTER_DEBT, PAID_AFTER_REFUSED, REFUSED_AFTER_PAID, RETURNED_AFTER_DEBT,
    RETURNED_AFTER_PAID, RETURNED_AFTER_REFUSED, RETURNED_AGAIN, TAKEN_BACK, apply, failure_code,
};
use super::word::{PaymentReport, Word};
use super::{BankError, ReceivedFile, recalls, text};

/// Applies what two operators have read in a part of a file that does not count by itself. `false`: the payment is
/// unknown.
pub async fn take_part(
    conn: &mut PgConnection,
    (digest, file): ([u8; 32], &StoredFile),
    said: &PaymentReport,
) -> Result<bool, BankError> {
    let message = file.message.as_deref().unwrap_or("a file of the bank");
    let received = ReceivedFile { name: &file.name, message, digest };
    take_word(conn, said, &received, Payees::default()).await
}

/// Applies a report about a payment, which a file of the bank has. `false`: the payment is unknown.
pub(super) async fn take_word(
    tx: &mut PgConnection,
    said: &PaymentReport,
    file: &ReceivedFile<'_>,
    payees: Payees,
) -> Result<bool, BankError> {
    let Some(mut payment) = store::lock_payment(tx, &said.of).await? else { return Ok(false) };
    file.record(tx, &payment.execution, said.word.as_str()).await?;
    let is_final = matches!(
        said.word,
        Word::Paid { .. } | Word::Refused { .. } | Word::Returned { .. } | Word::TakenBack { .. }
    );
    if is_final {
        // Before the settlement is read: a decision that is being written comes before this word, or is made again.
        effects::retract_decision(tx, &payment.execution).await?;
    }
    if !is_news(&payment, &said.word) {
        if let (Word::Returned { at, .. }, None) = (&said.word, payment.returned_at) {
            // The bank's taking back was heard before.
            payment.returned_at = Some(*at);
            store::update_payment(tx, &payment).await?;
        }
        return Ok(true);
    }
    let ordered = Ordered { amount: payment.amount, currency: &payment.currency, exponent: payment.exponent };
    let known = Known {
        status: payment.status,
        booked_late: payment.booked_late_at.is_some(),
        came_back: payment.returned_at.is_some(),
        taken_back: payment
            .taken_back_at
            .is_some_and(|taken| payment.returned_at.is_none_or(|at| at <= taken)),
        debt_paid: payment.is_debt_paid,
    };
    let is_taken_for_paid = matches!(said.word, Word::Paid { .. } | Word::Returned { .. })
        && taken_for_paid(tx, &payment.execution).await? == Some(true);
    let mut after = apply(known, is_taken_for_paid, &said.word, ordered);
    if let Word::Checked { payee, name } = &said.word {
        payment.payee_check = Some(*payee);
        after.alarm = payees.take(tx, &payment, *payee, name.as_deref()).await?;
    }
    let id = payment.end_to_end_id.clone();
    if let Some(alarm) = after.alarm {
        error!(end_to_end_id = id, execution = payment.execution, word = ?said.word, alarm, "payment needs an operator's attention");
        payment.alarm = Some(alarm.to_owned());
        payment.is_alarm_cleared = false;
    }
    let has_changed = after.now.status != known.status;
    if has_changed {
        info!(
            end_to_end_id = id,
            from = known.status.as_str(),
            to = after.now.status.as_str(),
            "payment status changed"
        );
        payment.status = after.now.status;
        match &said.word {
            Word::Paid { at, bank_reference, .. } => {
                (payment.paid_at, payment.bank_reference) = (Some(*at), bank_reference.clone());
            }
            Word::Refused { reason, text } => {
                let text = clean(&foreign(Step::BankFileText, &id, text), TEXT_MAX);
                (payment.reason, payment.reason_text) = (Some(clean(reason, ID_MAX)), Some(text));
            }
            Word::Returned { reason, .. } => payment.reason = Some(clean(reason, ID_MAX)),
            Word::Pending { .. }
            | Word::Checked { .. }
            | Word::TakenForDuplicate
            | Word::TakenBack { .. } => {}
        }
    } else if after.now == known && after.alarm.is_none() {
        return Ok(true);
    }
    match &said.word {
        Word::Paid { at, bank_reference, .. } if after.now.booked_late && !known.booked_late => {
            (payment.booked_late_at, payment.bank_reference) = (Some(*at), bank_reference.clone());
        }
        Word::Returned { at, .. } if after.now.came_back && (!known.came_back || known.taken_back) => {
            payment.returned_at = Some(*at);
        }
        Word::TakenBack { at, .. } if after.now.taken_back && !known.taken_back => {
            payment.taken_back_at = Some(*at);
        }
        Word::Paid { .. }
        | Word::Returned { .. }
        | Word::Pending { .. }
        | Word::Checked { .. }
        | Word::Refused { .. }
        | Word::TakenBack { .. }
        | Word::TakenForDuplicate => {}
    }
    if let Some((word, contradiction)) = contradiction(tx, &payment, after.alarm).await? {
        error!(
            end_to_end_id = id,
            execution = payment.execution,
            contradiction,
            "the bank contradicts how the payout ended; it is a break until operators have closed it"
        );
        counter!("dvp_rail_contradictions_total", "by" => "bank").increment(1);
        payment.alarm = Some(contradiction.to_owned());
        payment.is_alarm_cleared = false;
        store::mark_contradicted(tx, &id, word).await?;
        if word == PaymentStatus::Paid {
            commands::withdraw_returns(tx, &payment.execution).await?;
        }
    }
    store::update_payment(tx, &payment).await?;
    let has_ended = match payment.status {
        PaymentStatus::Returned => !after.now.taken_back,
        PaymentStatus::Refused => !store::is_booked_after_refusal(tx, &payment.execution).await?,
        PaymentStatus::Staged | PaymentStatus::Sent | PaymentStatus::Pending | PaymentStatus::Paid => false,
    };
    if has_ended {
        recalls::end(tx, &payment).await?;
    }
    if let (Some(RETURNED_AFTER_PAID | RETURNED_AGAIN), Word::Returned { reason, at, amount, .. }) =
        (after.alarm, &said.word)
    {
        let came = amount.as_ref().and_then(|(amount, _)| text::minor(amount, payment.exponent));
        report_return(tx, &payment, reason, *at, came).await?;
    }
    Ok(true)
}

/// Whether a return, or its taking back, is no repetition: it is later than the other of the two that is known.
fn is_news(payment: &BankPayment, word: &Word) -> bool {
    match word {
        Word::Returned { at, .. } => payment.taken_back_at.is_none_or(|taken| *at > taken),
        Word::TakenBack { at, .. } => {
            let is_after_return = payment.returned_at.is_none_or(|returned| *at >= returned);
            is_after_return && payment.taken_back_at.is_none_or(|taken| *at > taken)
        }
        Word::Pending { .. }
        | Word::Checked { .. }
        | Word::Paid { .. }
        | Word::Refused { .. }
        | Word::TakenForDuplicate => true,
    }
}

/// Tells the settlement of the return: it is applied once the order is completed, and dropped when the order ends unpaid.
async fn report_return(
    tx: &mut PgConnection,
    payment: &BankPayment,
    reason: &str,
    at: DateTime<Utc>,
    came: Option<Minor>,
) -> Result<(), BankError> {
    let (code, _) = failure_code(reason);
    let verdict = ManualResolution::PaymentReturned {
        provider_reference: payment.bank_reference.clone().unwrap_or_else(|| payment.end_to_end_id.clone()),
        occurred_at: at,
        came: came.filter(|came| *came < payment.amount),
        code: code.as_str().to_owned(),
        message: format!("the bank returned the payment ({reason})"),
    };
    let verdict = serde_json::to_value(verdict).map_err(|error| StoreError::corrupt("effect", error))?;
    effects::insert_verdict(tx, &payment.execution, EffectKind::Reversal, &verdict).await?;
    Ok(())
}

/// Whether a bank's report contradicts an earlier one, or the payout's final answer, which an operator may have given.
async fn contradiction(
    tx: &mut PgConnection,
    payment: &BankPayment,
    alarm: Option<&'static str>,
) -> Result<Option<(PaymentStatus, &'static str)>, BankError> {
    match alarm {
        Some(PAID_AFTER_REFUSED) => return Ok(Some((PaymentStatus::Paid, PAID_AFTER_REFUSED))),
        Some(REFUSED_AFTER_PAID) => return Ok(Some((PaymentStatus::Refused, REFUSED_AFTER_PAID))),
        Some(RETURNED_AFTER_REFUSED) => return Ok(Some((PaymentStatus::Refused, RETURNED_AFTER_REFUSED))),
        Some(PAID_AFTER_DEBT) => return Ok(Some((PaymentStatus::Paid, PAID_AFTER_DEBT))),
        Some(RETURNED_AFTER_DEBT) => return Ok(Some((PaymentStatus::Refused, RETURNED_AFTER_DEBT))),
        Some(TAKEN_BACK) => return Ok(Some((PaymentStatus::Paid, TAKEN_BACK))),
        Some(RETURNED_AFTER_PAID | RETURNED_AGAIN) => return Ok(None),
        Some(_) | None => {}
    }
    let reported = taken_for_paid(tx, &payment.execution).await?;
    let status = payment.status;
    if status == PaymentStatus::Refused && payment.is_debt_paid {
        // It was paid another way.
        return Ok(None);
    }
    Ok(reported.and_then(|taken_for_paid| status.contradiction(taken_for_paid)).map(|why| (status, why)))
}

/// Whether the settlement's final answer about the payout is that it was paid.
async fn taken_for_paid(tx: &mut PgConnection, reference: &str) -> Result<Option<bool>, BankError> {
    let execution = executions::find_by_reference(tx, reference).await?;
    Ok(execution.and_then(|execution| execution.state.taken_for_paid()))
}
