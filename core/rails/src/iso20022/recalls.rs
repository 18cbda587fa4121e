//! Sends recalls and answers to recalls that two operators have approved, once each, and applies the bank's answers and
//! requests.
//!
//! The file of a recall is staged, named by its row, and moved like that of a payment: only the named file is ever moved,
//! and it can be moved once. Until the row says that the file may be with the bank, the payment's end makes the recall
//! needless, and operators can withdraw it.

use dvp_domain::ids::{RecallId, ReceivedRecallId};
use dvp_domain::recall::{AfterAnswer, NEVER_REQUESTED, RefusalReason, apply};
use dvp_store::StoreError;
use dvp_store::database::ids;
use dvp_store::orders::bank::{self, BankPayment};
use dvp_store::orders::bank_messages::{self, NewBankMessage};
use dvp_store::orders::recalls::{self as store, Answered, AnsweredRecall, DueRecall, Giving, Recall};
use dvp_store::orders::received_recalls::{self as asked_back, NewReceivedRecall, ReceivedRecall};
use dvp_store::workers::{self, Step};
use metrics::counter;
use sha2::{Digest as _, Sha256};
use sqlx::PgConnection;
use tracing::{error, info};
use uuid::Uuid;

use super::camt029::{self, RecallReport};
use super::camt056::{self, RecallRequest};
use super::instruction::Debtor;
use super::schema::{Message, check};
use super::{BankError, BankFiles, ReceivedFile};

/// Recalls read at a time.
const SENT_MAX: i64 = 100;
/// The payment's currency has no account in the configuration any more.
const NO_ACCOUNT: &str = "its recall cannot be sent: no account is configured for its currency";

impl BankFiles {
    /// Sends the recalls that are due. One that cannot be sent delays no other. Returns how many were sent.
    pub async fn send_recalls(&self) -> Result<usize, BankError> {
        let mut sent = 0;
        let mut after = None;
        loop {
            let mut conn = self.pool.acquire().await?;
            let due = store::list_due(&mut conn, after.as_ref(), SENT_MAX).await?;
            drop(conn);
            let Some(last) = due.last() else { return Ok(sent) };
            after = Some((last.approved_at, last.id.to_string()));
            for recall in due {
                let (files, id, execution) = (self.clone(), recall.id.to_string(), recall.execution.clone());
                let sending =
                    async move { files.send_recall(&recall).await.inspect_err(|error| files.suspect(error)) };
                let is_sent = self.sending.attend(&id, &execution, sending).await.done();
                sent += usize::from(is_sent == Some(true));
            }
        }
    }

    /// Sends our answers to the bank's requests. One that cannot be sent delays no other.
    pub async fn send_recall_answers(&self) -> Result<(), BankError> {
        let mut after = None;
        loop {
            let mut conn = self.pool.acquire().await?;
            let due = asked_back::list_due(&mut conn, after.as_ref(), SENT_MAX).await?;
            drop(conn);
            let Some(last) = due.last() else { return Ok(()) };
            after = last.answered_at.map(|at| (at, last.id.to_string()));
            for recall in due {
                let (files, id) = (self.clone(), recall.id.to_string());
                let sending =
                    async move { files.send_answer(&recall).await.inspect_err(|error| files.suspect(error)) };
                self.sending.attend(&id, &id, sending).await;
            }
        }
    }

    async fn send_answer(&self, recall: &ReceivedRecall) -> Result<(), BankError> {
        let ReceivedRecall { id, asked, answer: Some(refusal), answered_at: Some(at), .. } = recall else {
            return Ok(());
        };
        workers::at(Step::RecallSend, id).await?;
        let file = match &recall.giving {
            Some(file) => file.clone(),
            None => {
                let of_currency = |debtor: &&Debtor| Some(&debtor.currency) == asked.currency.as_ref();
                let debtor = self.debtors.iter().find(of_currency).or(self.debtors.first());
                let debtor = debtor.ok_or_else(|| corrupt("an answer, and no account is configured"))?;
                let document = camt029::build(debtor, recall, *refusal, *at);
                let violations = check(Message::Camt029, &document);
                if !violations.is_empty() {
                    error!(?violations, %id, "answer to a recall violates the schema and is not sent");
                    return Err(corrupt("an answer that breaks the schema's rules"));
                }
                let file = format!("{id}.{}.xml", Uuid::new_v4().simple());
                self.folder.stage(&file, &document.render()).await?;
                let mut conn = self.pool.acquire().await?;
                if !asked_back::begin_giving(&mut conn, id, &file).await? {
                    return Ok(());
                }
                file
            }
        };
        self.folder.give(&file, &format!("{}.xml", camt056::answer_of(id)), "").await?;
        let mut conn = self.pool.acquire().await?;
        asked_back::mark_sent(&mut conn, id).await?;
        let refusal = refusal.map(RefusalReason::as_str);
        info!(%id, request = asked.request, refusal, "answer to a recall sent to the bank");
        Ok(())
    }

    async fn send_recall(&self, recall: &DueRecall) -> Result<bool, BankError> {
        let DueRecall { id, end_to_end_id, execution, reason, .. } = recall;
        workers::at(Step::RecallSend, id).await?;
        let Some(file) = self.staged_recall(recall).await? else { return Ok(false) };
        if !recall.is_giving {
            let mut tx = self.pool.begin().await?;
            let giving = store::begin_giving(&mut tx, id, end_to_end_id, &file).await?;
            tx.commit().await?;
            match giving {
                Giving::Begun => {}
                Giving::NotNeeded => {
                    info!(%id, execution, "recall is not needed: the payment ended before it was sent");
                    return Ok(false);
                }
                Giving::Changed => return Ok(false),
            }
        }
        self.folder.give(&file, &sent_name(id), "").await?;
        let mut conn = self.pool.acquire().await?;
        store::mark_sent(&mut conn, id).await?;
        info!(%id, execution, end_to_end_id, reason = reason.as_str(), "recall sent to the bank");
        counter!("dvp_recalls_sent_total").increment(1);
        Ok(true)
    }

    /// The file that the row names, which is written where it is missing. `None`: another process works on the recall,
    /// or it cannot be written.
    async fn staged_recall(&self, recall: &DueRecall) -> Result<Option<String>, BankError> {
        let DueRecall { id, staged_file: before, .. } = recall;
        if let Some(file) = before
            && (recall.is_giving || self.folder.is_staged(file).await?)
        {
            return Ok(Some(file.clone()));
        }
        let Some(content) = self.written(recall).await? else { return Ok(None) };
        let file = format!("{id}.{}.xml", Uuid::new_v4().simple());
        self.folder.stage(&file, &content).await?;
        let mut tx = self.pool.begin().await?;
        let is_named = store::name_file(&mut tx, id, before.as_deref(), &file).await?;
        if is_named {
            let (execution, message, name) = (&recall.execution, Message::Camt056.name(), sent_name(id));
            let sent = NewBankMessage { execution, said: "recall requested", message, file: &name };
            let digest = Sha256::digest(&content).into();
            bank_messages::insert_sent(&mut tx, sent, &digest, &content).await?;
        }
        tx.commit().await?;
        Ok(is_named.then_some(file))
    }

    /// The message. `None`: it cannot be written, which is an alarm about the payment.
    async fn written(&self, recall: &DueRecall) -> Result<Option<String>, BankError> {
        let Some(debtor) = self.debtors.iter().find(|debtor| debtor.currency == recall.currency) else {
            let mut conn = self.pool.acquire().await?;
            let payment = bank::find_payment(&mut conn, &recall.end_to_end_id).await?;
            if payment.is_some_and(|payment| payment.alarm.as_deref() != Some(NO_ACCOUNT)) {
                let (id, execution, alarm) = (&recall.id, &recall.execution, NO_ACCOUNT);
                error!(%id, execution, alarm, "payment needs an operator's attention");
                bank::raise_alarm(&mut conn, &recall.end_to_end_id, NO_ACCOUNT).await?;
            }
            return Ok(None);
        };
        let request = RecallRequest {
            id: &recall.id,
            approved_at: recall.approved_at,
            reason: recall.reason,
            information: recall.information.as_deref(),
            end_to_end_id: &recall.end_to_end_id,
            message_id: &recall.message_id,
            amount: recall.amount,
            currency: &recall.currency,
            exponent: recall.exponent,
        };
        let document = camt056::build(debtor, &request);
        let violations = check(Message::Camt056, &document);
        if !violations.is_empty() {
            error!(?violations, id = %recall.id, "recall violates the schema and is not sent");
            return Err(StoreError::corrupt("bank_recall", "a recall that breaks the schema's rules").into());
        }
        Ok(Some(document.render()))
    }
}

fn corrupt(what: &'static str) -> BankError {
    StoreError::corrupt("bank_received_recall", what).into()
}

fn sent_name(id: &RecallId) -> String {
    format!("{}.xml", camt056::case_of(id))
}

/// Records what the bank asks back, once, for operators to decide.
pub(super) async fn take_request(
    tx: &mut PgConnection,
    asked: &NewReceivedRecall,
    file: &ReceivedFile<'_>,
) -> Result<(), BankError> {
    let id = ReceivedRecallId::from_unique(ids::draw_here(tx).await?.simple());
    if asked_back::insert(tx, &id, asked, &file.digest).await? {
        let NewReceivedRecall { assigner, request, reason, .. } = asked;
        error!(%id, assigner, request, reason, "the bank asks for money that was paid to us: operators decide");
        counter!("dvp_recalls_received_total").increment(1);
    }
    Ok(())
}

/// Applies an answer of the bank. `false`: it is about nothing of ours.
pub(super) async fn take_answer(
    tx: &mut sqlx::PgTransaction<'_>,
    said: &RecallReport,
    file: &ReceivedFile<'_>,
) -> Result<bool, BankError> {
    let execution = match store::lock_answered(tx, &said.of).await? {
        Answered::Unknown => return Ok(false),
        Answered::Recall(recall) => {
            answered(tx, &recall, said).await?;
            recall.execution
        }
        Answered::Unrequested(payment) => {
            unrequested(tx, &payment, said, &file.digest).await?;
            payment.execution
        }
    };
    let heard = format!("recall {}", said.answer.as_str().replace('_', " "));
    file.record(tx, &execution, &heard).await?;
    Ok(true)
}

async fn answered(tx: &mut PgConnection, recall: &Recall, said: &RecallReport) -> Result<(), BankError> {
    let Recall { id, execution, end_to_end_id, .. } = recall;
    let AfterAnswer { status, alarm, is_contradiction } = apply(recall.status, &said.answer);
    let is_known = is_contradiction && recall.contradicting.as_deref() == Some(said.answer.as_str());
    if (status == recall.status && alarm.is_none()) || is_known {
        return Ok(());
    }
    let (from, to) = (recall.status.as_str(), status.as_str());
    info!(%id, execution, from, to, answer = ?said.answer, "the bank answered a recall");
    counter!("dvp_recall_answers_total", "answer" => said.answer.as_str()).increment(1);
    if let Some(alarm) = alarm {
        error!(%id, execution, end_to_end_id, alarm, "recall needs an operator's attention");
        bank::raise_alarm(tx, end_to_end_id, alarm).await?;
    }
    if is_contradiction {
        counter!("dvp_rail_contradictions_total", "by" => "bank").increment(1);
    }
    let answered = AnsweredRecall { id, status, answer: &said.answer, is_contradiction };
    store::update_answered(tx, &answered).await?;
    Ok(())
}

async fn unrequested(
    tx: &mut PgConnection,
    payment: &BankPayment,
    said: &RecallReport,
    file: &[u8; 32],
) -> Result<(), BankError> {
    let BankPayment { end_to_end_id, execution, .. } = payment;
    let id = RecallId::from_unique(ids::draw_here(tx).await?.simple());
    if !store::insert_unrequested(tx, &id, payment, &said.answer, file).await? {
        return Ok(());
    }
    let alarm = NEVER_REQUESTED;
    error!(%id, execution, end_to_end_id, answer = ?said.answer, alarm, "payment needs an operator's attention");
    counter!("dvp_recall_answers_total", "answer" => "unrequested").increment(1);
    counter!("dvp_rail_contradictions_total", "by" => "bank").increment(1);
    bank::raise_alarm(tx, end_to_end_id, alarm).await?;
    Ok(())
}

/// The payment has come back, or will never be made: its recalls have ended.
pub(super) async fn end(tx: &mut PgConnection, payment: &BankPayment) -> Result<(), BankError> {
    let ended = store::mark_recalled(tx, &payment.end_to_end_id).await?;
    if ended > 0 {
        let status = payment.status.as_str();
        info!(execution = payment.execution, status, "the recall of the payment has ended");
    }
    Ok(())
}
