//! A bank with an ISO 20022 file interface: payment orders go out as pain.001, its answers come in as pain.002, camt.052
//! and camt.054, its statements as camt.053, all through a shared folder. Recalls go out and come in as camt.056, the
//! answers to them as camt.029.
//!
//! ```text
//! submit ─> staging/ ─row committed─> outbox/ ─> the bank ─> inbox/ ─> reports ─> the payment's row ─> status
//!                                                              └─> archive/, or quarantine/ with an alarm
//! ```
//!
//! Invariants: a payment has one end-to-end id and one file, which can be moved to the bank once only, however many
//! processes try and wherever they stop, nor by a database that was restored to a moment before; only a call begins to
//! move it, and not after the call's last moment, so a payment that a query has not seen is not made until it is called
//! again; the content of a bank's file is committed before the file is archived, so a file is imported at least once and
//! has one effect.
//!
//! Reading order: [`text`] and [`xml`] the syntax of files, [`schema`] their permitted content, [`instruction`] and
//! [`pain001`] and [`camt056`] the written files, [`word`], `entry`, [`answers`], [`camt029`] and [`statement`] the read
//! files, [`part`] what of them is not understood, [`camt053`] statements as a bank writes them, [`by_hand`] those of
//! banks without ISO files, [`intake`] the import of files, [`status`] and [`received`] their effect, `recalls` recalls
//! and their answers in both directions, [`payee`] the verification of payees, [`folder`] the storage of files. All but
//! intake, received, recalls, payee, folder and this one are pure.
//!
//! Kept by `core/tests/it/bank_files.rs::a_payment_is_moved_to_the_bank_once_by_any_number_of_processes` and
//! `core/tests/it/recalls.rs::the_bank_gets_one_file_of_a_recall_wherever_a_process_stops`.

pub mod answers;
pub mod by_hand;
pub mod camt029;
pub mod camt053;
pub mod camt056;
mod entry;
pub mod folder;
mod given;
pub mod instruction;
pub mod intake;
pub mod outage;
pub mod pain001;
pub mod part;
pub mod payee;
mod recalls;
pub mod received;
pub mod schema;
pub mod statement;
pub mod status;
pub mod text;
pub mod word;
pub mod xml;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use dvp_domain::failure_code::FailureCode;
use dvp_domain::payment::{PayeeCheck, PaymentStatus};
use dvp_domain::settlement::{LegDone, RailAnswer};
use dvp_domain::text::{ID_MAX, clean};
use dvp_domain::windows::PayoutTime;
use dvp_store::StoreError;
use dvp_store::database::clock;
use dvp_store::orders::bank::{self as store, BankPayment, NewBankPayment};
use dvp_store::orders::bank_folder;
use dvp_store::orders::bank_messages::{self, NewBankMessage};
use dvp_store::partners::registry;
use dvp_store::workers::{Apart, Worker, pause, supervise};
use metrics::gauge;
use sha2::{Digest as _, Sha256};
use sqlx::{PgConnection, PgPool};
use tokio::sync::watch;
use tracing::{error, warn};
use uuid::Uuid;

use self::folder::Folder;
pub use self::given::GIVEN_BEFORE;
use self::instruction::{Debtor, Instruction, PAYER_ADDRESS, end_to_end_id, needs_payer_address};
use self::intake::{Inbox, SETTLES_AFTER};
use self::outage::Outage;
use self::payee::Payees;
use self::schema::{Message, check};
use self::status::failure_code;
use super::{LegKind, Rail, RailError, RailFuture, RailRequest, RailStatus};

/// The provider's name on paths and receipts.
pub const PROVIDER: &str = "iso20022-bank";
pub const PAYOUT_TIME: PayoutTime = PayoutTime::BusinessDays;
/// A payment's staged file is missing and was never moved to the bank.
pub const FILE_MISSING: &str = "the payment's file is missing and was never given to the bank";
/// The interval of reading the bank's folder, unless it is configured.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The longest time between two queries of a payment that the bank has, without an answer, unless it is configured.
const POLL_MAX: Duration = Duration::from_secs(15 * 60);
/// The longest time for one file, and how long the others wait for it: they keep their order.
const FILE_MAX: Duration = Duration::from_secs(60);
const FILE_PATIENCE: Duration = Duration::from_secs(10);
const ALARMS: &str = "open alarms";
/// The interval of counting open alarms.
const COUNT_EVERY: Duration = Duration::from_secs(15);

enum Found {
    /// Its file waits in `staging`, and no process has begun to move it to the bank.
    Waiting(BankPayment),
    /// The bank has its file, or may have it.
    Followed(BankPayment),
    /// Its file is missing, and no process has begun to move it to the bank.
    Missing,
}

/// Files could not be read or written, or the database did not answer.
#[derive(Debug, thiserror::Error)]
pub enum BankError {
    #[error("the bank's folder: {0}")]
    Folder(#[from] std::io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for BankError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// The payout rail over the folder.
#[derive(Debug, Clone)]
pub struct BankFiles {
    pool: PgPool,
    folder: Folder,
    debtors: Arc<[Debtor]>,
    payees: Payees,
    inbox: Inbox,
    /// Files that are imported, and recalls that are sent, each apart.
    intake: Arc<Apart>,
    sending: Arc<Apart>,
    look_every: Duration,
    /// Names this process's outage.
    process: Uuid,
    /// Something in the folder could not be read or written since it was last found usable.
    is_suspect: Arc<AtomicBool>,
    /// How long an unreadable file may stay unchanged before it is refused.
    settles_after: Duration,
}

impl BankFiles {
    /// `root`: the folder shared with the bank, which is used while it carries the id that was stamped. `debtors`: the
    /// accounts to pay from, one per currency.
    pub async fn open(pool: PgPool, root: &Path, debtors: Vec<Debtor>) -> Result<Self, BankError> {
        let id = bank_folder::find_id(&mut *pool.acquire().await?).await?;
        let apart = |worker| Apart::new(pool.clone(), worker, FILE_MAX).with_patience(FILE_PATIENCE);
        let (intake, sending) = (Arc::new(apart(Worker::BankFiles)), Arc::new(apart(Worker::BankRecalls)));
        Ok(Self {
            pool,
            folder: Folder::at(root, id),
            debtors: debtors.into(),
            payees: Payees::default(),
            inbox: Inbox::default(),
            intake,
            sending,
            look_every: LOOK_EVERY,
            process: Uuid::new_v4(),
            is_suspect: Arc::default(),
            settles_after: SETTLES_AFTER,
        })
    }

    /// Refuses an unreadable file once it has not changed for this long.
    #[must_use]
    pub fn settling_after(self, settles_after: Duration) -> Self {
        Self { settles_after, ..self }
    }

    /// Sets what is said about the verification of payees, and what a mismatch does.
    #[must_use]
    pub fn verifying(self, payees: Payees) -> Self {
        Self { payees, ..self }
    }

    /// Sets the interval of reading the bank's folder.
    #[must_use]
    pub fn looking_every(self, look_every: Duration) -> Self {
        Self { look_every, ..self }
    }

    pub const fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Imports the bank's files until `stop` turns true.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        supervise(Worker::BankFiles, stop.clone(), || self.follow_inbox(stop.clone())).await;
    }

    async fn follow_inbox(&self, mut stop: watch::Receiver<bool>) {
        let mut counted: Option<Instant> = None;
        let mut outage = Outage::default();
        loop {
            if counted.is_none_or(|at| at.elapsed() >= COUNT_EVERY) {
                counted = Some(Instant::now());
                let files = self.clone();
                let counting = async move { files.count_alarms().await };
                self.intake.attend(ALARMS, ALARMS, counting).await;
            }
            match self.watch_folder(&mut outage).await {
                Ok(true) => {
                    if let Err(error) = self.take_in().await {
                        warn!(%error, "importing bank files failed, will retry");
                        self.suspect(&error);
                    }
                    if let Err(error) = self.send_recalls().await {
                        warn!(%error, "sending recalls to the bank failed, will retry");
                        self.suspect(&error);
                    }
                    if let Err(error) = self.send_recall_answers().await {
                        warn!(%error, "answering recalls of the bank failed, will retry");
                        self.suspect(&error);
                    }
                    if let Err(error) = self.send_releases().await {
                        warn!(%error, "releasing payments to the bank failed, will retry");
                        self.suspect(&error);
                    }
                }
                Ok(false) => {}
                Err(error) => warn!(%error, "the state of the bank's folder cannot be recorded, will retry"),
            }
            if !pause(self.look_every, &mut stop).await {
                break;
            }
        }
        // A process that ends is no outage.
        if outage.is_out
            && let Err(error) = self.end_outage().await
        {
            warn!(%error, "the end of the bank folder's outage was not recorded; it ends within a minute");
        }
    }

    async fn count_alarms(&self) -> Result<(), BankError> {
        let mut conn = self.pool.acquire().await?;
        let (payments, files, recalls) = store::count_alarms(&mut conn).await?;
        let number = |count: i64| f64::from(i32::try_from(count).unwrap_or(i32::MAX));
        gauge!("dvp_bank_alarms", "about" => "payment").set(number(payments));
        gauge!("dvp_bank_alarms", "about" => "file").set(number(files));
        gauge!("dvp_bank_alarms", "about" => "recall").set(number(recalls));
        Ok(())
    }

    async fn answer_submit(&self, request: &RailRequest) -> Result<RailAnswer, RailError> {
        let instruction = match Instruction::of(request) {
            Ok(instruction) => instruction,
            Err(refusal) => {
                let (code, message) = (refusal.code.to_owned(), refusal.message.to_owned());
                return Ok(RailAnswer::Failed { code, message, retryable: false });
            }
        };
        let Some(debtor) = self.debtors.iter().find(|debtor| debtor.currency == instruction.currency) else {
            let message = format!("there is no account to pay {} from", instruction.currency);
            return Ok(RailAnswer::Failed {
                code: "currency_not_served_by_rail".into(),
                message,
                retryable: false,
            });
        };
        if !debtor.has_full_address() && request.beneficiary.as_ref().is_some_and(needs_payer_address) {
            let (code, message) = (PAYER_ADDRESS.code.to_owned(), PAYER_ADDRESS.message.to_owned());
            return Ok(RailAnswer::Failed { code, message, retryable: false });
        }
        let id = instruction.end_to_end_id.clone();
        let down = |error| self.down(&error);
        if self.find(&id).await.map_err(down)?.is_none()
            && !self.remember(request, &instruction).await.map_err(down)?
        {
            self.stage(request, &instruction, debtor).await.map_err(down)?;
        }
        // From here on the row exists: this call or a concurrent one may move the file to the bank.
        let unsure = |error: BankError| {
            self.suspect(&error);
            warn!(%error, end_to_end_id = id, "payment order is staged and may not have reached the bank yet");
            RailError::Unconfirmed
        };
        match self.give(&id, request.not_after).await.map_err(unsure)? {
            Some(payment) => Ok(answer(&payment)),
            None => Err(RailError::Unconfirmed),
        }
    }

    async fn find(&self, id: &str) -> Result<Option<BankPayment>, BankError> {
        let mut conn = self.pool.acquire().await?;
        Ok(store::find_payment(&mut conn, id).await?)
    }

    /// Writes the file and then its row: a file without a row is never moved to the bank.
    async fn stage(
        &self,
        request: &RailRequest,
        instruction: &Instruction,
        debtor: &Debtor,
    ) -> Result<(), BankError> {
        let id = &instruction.end_to_end_id;
        let message_id = pain001::message_id(id);
        let mut conn = self.pool.acquire().await?;
        let names = registry::list_names(&mut conn, &[&request.partner]).await?;
        drop(conn);
        let partner = names.get(&request.partner).map_or("", String::as_str);
        let ordered = [instruction.clone().made_for(partner)];
        let document = pain001::build(&message_id, debtor, &ordered, clock::now().to_utc());
        let violations = check(Message::Pain001, &document);
        if !violations.is_empty() {
            error!(?violations, end_to_end_id = id, "payment order violates the schema and is not sent");
            return Err(StoreError::corrupt("bank_payment", "an order that breaks the schema's rules").into());
        }
        let staged_file =
            format!("{}.{}", Uuid::new_v4().simple(), self.payees.sent_name(id, instruction.scheme));
        let content = document.render();
        self.folder.stage(&staged_file, &content).await?;
        let mut tx = self.pool.begin().await?;
        let new = NewBankPayment { staged_file, ..new_payment(request, instruction) };
        if store::insert_payment(&mut tx, &new).await? {
            let file = file_name(id);
            let (execution, message) = (&request.execution, Message::Pain001.name());
            let sent = NewBankMessage { execution, said: "payment ordered", message, file: &file };
            let digest = Sha256::digest(&content).into();
            bank_messages::insert_sent(&mut tx, sent, &digest, &content).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// Moves the file named by the row to the bank unless that was done, and returns the payment. `None`: there is no
    /// row or no file, or the move was not begun by `not_after`.
    async fn give(&self, id: &str, not_after: DateTime<Utc>) -> Result<Option<BankPayment>, BankError> {
        match self.follow(id).await? {
            None | Some(Found::Missing) => Ok(None),
            Some(Found::Followed(payment)) => Ok(Some(payment)),
            Some(Found::Waiting(payment)) => {
                let mut conn = self.pool.acquire().await?;
                if !store::mark_giving(&mut conn, id, not_after).await? {
                    return Ok(None);
                }
                drop(conn);
                self.move_file(payment).await.map(Some)
            }
        }
    }

    /// The payment's row. A move that was begun is finished, because the bank may have the file already; none is begun.
    async fn follow(&self, id: &str) -> Result<Option<Found>, BankError> {
        let Some(payment) = self.find(id).await? else { return Ok(None) };
        let followed = if payment.status != PaymentStatus::Staged {
            payment
        } else if payment.is_giving {
            self.move_file(payment).await?
        } else if self.folder.find_given(&file_name(id)).await?.is_some() {
            self.report_given(payment).await?
        } else if self.folder.is_staged(&payment.staged_file).await? {
            return Ok(Some(Found::Waiting(payment)));
        } else {
            return self.report_missing(payment).await.map(Some);
        };
        Ok(Some(Found::Followed(followed)))
    }

    async fn move_file(&self, mut payment: BankPayment) -> Result<BankPayment, BankError> {
        let id = &payment.end_to_end_id;
        self.folder.give_order(&payment.staged_file, &file_name(id), &given::note(&payment)).await?;
        let mut conn = self.pool.acquire().await?;
        store::mark_sent(&mut conn, id).await?;
        payment.status = PaymentStatus::Sent;
        Ok(payment)
    }

    /// The staged file is missing, and no process had begun to move it: the bank never got it. Unless another process
    /// moved it just now. No other file is written in its place: this one may be there again later.
    async fn report_missing(&self, payment: BankPayment) -> Result<Found, BankError> {
        let id = &payment.end_to_end_id;
        let mut conn = self.pool.acquire().await?;
        let Some(now) = store::find_payment(&mut conn, id).await? else { return Ok(Found::Missing) };
        if now.is_giving || now.status != PaymentStatus::Staged {
            return Ok(Found::Followed(now));
        }
        if now.alarm.as_deref() != Some(FILE_MISSING) {
            error!(
                end_to_end_id = id,
                execution = now.execution,
                file = now.staged_file,
                alarm = FILE_MISSING,
                "payment needs an operator's attention"
            );
            store::raise_alarm(&mut conn, id, FILE_MISSING).await?;
        }
        Ok(Found::Missing)
    }

    async fn answer_status(&self, request: &RailRequest) -> Result<RailStatus, RailError> {
        let id = end_to_end_id(&request.reference);
        let down = |error| self.down(&error);
        let mut found = self.follow(&id).await.map_err(down)?;
        if found.is_none()
            && self
                .folder
                .find_given(&file_name(&id))
                .await
                .map_err(|error| self.down(&error.into()))?
                .is_some()
        {
            // The bank has it: that it cannot be written down any more does not prove the opposite.
            let instruction = Instruction::of(request).map_err(|_| RailError::Unconfirmed)?;
            self.remember(request, &instruction).await.map_err(down)?;
            found = self.follow(&id).await.map_err(down)?;
        }
        Ok(match found {
            Some(Found::Followed(payment)) => RailStatus::Known(answer(&payment)),
            // It is neither confirmed nor denied: it is called again once its file is there again.
            Some(Found::Missing) => return Err(RailError::Unconfirmed),
            // Timing, pauses and operators decide whether it is called.
            Some(Found::Waiting(_)) | None => RailStatus::NeverSeen,
        })
    }
}

fn file_name(end_to_end_id: &str) -> String {
    format!("{end_to_end_id}.xml")
}

/// A payment's row, without its file.
fn new_payment(request: &RailRequest, instruction: &Instruction) -> NewBankPayment {
    let id = &instruction.end_to_end_id;
    NewBankPayment {
        end_to_end_id: id.clone(),
        reference: request.reference.clone(),
        execution: request.execution.clone(),
        message_id: pain001::message_id(id),
        block_id: pain001::payment_id(id),
        amount: instruction.amount,
        currency: instruction.currency.clone(),
        exponent: instruction.exponent,
        staged_file: String::new(),
        not_after: request.not_after,
    }
}

/// A file of the bank that is being imported.
#[derive(Debug, Clone, Copy)]
struct ReceivedFile<'a> {
    pub name: &'a str,
    /// With its version.
    pub message: &'a str,
    pub digest: [u8; 32],
}

impl ReceivedFile<'_> {
    /// Records what it says about an order's payment.
    async fn record(&self, tx: &mut PgConnection, execution: &str, said: &str) -> Result<(), BankError> {
        let file = clean(self.name, ID_MAX);
        let received = NewBankMessage { execution, said, message: self.message, file: &file };
        Ok(bank_messages::insert_received(tx, received, &self.digest).await?)
    }
}

/// The rail's answer about a payment to its settlement. A returned payment counts as paid; the return is reported
/// separately ([`report_return`]).
fn answer(payment: &BankPayment) -> RailAnswer {
    match payment.status {
        PaymentStatus::Staged | PaymentStatus::Sent | PaymentStatus::Pending => {
            RailAnswer::InProgress { provider_reference: payment.end_to_end_id.clone() }
        }
        PaymentStatus::Paid | PaymentStatus::Returned => RailAnswer::Done(LegDone {
            provider_reference: payment
                .bank_reference
                .clone()
                .unwrap_or_else(|| payment.end_to_end_id.clone()),
            occurred_at: payment.paid_at.map_or_else(clock::now, Into::into),
        }),
        PaymentStatus::Refused => {
            let reason = payment.reason.as_deref().unwrap_or("NARR");
            let (code, retryable) = match (failure_code(reason), payment.payee_check) {
                // Whatever the bank calls it.
                ((FailureCode::PaymentRejectedByBank, _), Some(PayeeCheck::NoMatch)) => {
                    (FailureCode::PayeeNotMatched, false)
                }
                (known, _) => known,
            };
            let text = payment.reason_text.as_deref().unwrap_or_default();
            let message = format!("the bank refused the payment ({reason}) {text}").trim_end().to_owned();
            RailAnswer::Failed { code: code.as_str().to_owned(), message, retryable }
        }
    }
}

impl Rail for BankFiles {
    fn submit<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailAnswer> {
        Box::pin(async move {
            match request.leg {
                LegKind::Payout => self.answer_submit(request).await,
                LegKind::Offramp => Err(RailError::Down("this bank converts nothing".into())),
            }
        })
    }

    fn status<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailStatus> {
        Box::pin(self.answer_status(request))
    }

    /// An answer of the bank makes the payment's work due immediately.
    fn poll_max(&self) -> Duration {
        POLL_MAX
    }
}

#[cfg(test)]
mod tests;
