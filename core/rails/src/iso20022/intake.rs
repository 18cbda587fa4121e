//! Imports the bank's files, each separately: a file that cannot be imported delays no other.
//!
//! ```text
//! inbox ── readable ───────────────────────────────> archive
//!   │ ├─── readable but for some of its parts ───────> archive, with an alarm; the other parts count
//!   │ └─── unreadable, and still changing ─> read again when it has changed
//!   └───── unreadable, and unchanged for a while ──> quarantine, with an alarm
//! ```
//!
//! A file is complete when its size and time did not change between two readings: no other machine's clock counts. One
//! that was replaced under its name while it was imported stays in the inbox, and is imported next.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use dvp_domain::text::{ID_MAX, TEXT_MAX, clean};
use dvp_store::Fault;
use dvp_store::database::clock;
use dvp_store::orders::bank::{self as store, BankFile};
use dvp_store::orders::bank_messages;
use dvp_store::orders::bank_parts::{self, NewPart};
use dvp_store::orders::bank_uploads;
use dvp_store::reconcile::bank::{self as statements, NewEntry, NewStatement, StatementTaken};
use dvp_store::workers::{self, Attended, Step};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use sqlx::PgConnection;
use tracing::{error, info, warn};

use super::answers::{self, FileError};
use super::folder::drop_into;
use super::part::{self, Part, ids_in, told};
use super::received::take_word;
use super::schema::Message;
use super::statement::Statement;
use super::text::iban;
use super::xml::{BYTES_MAX, decode};
use super::{BankError, BankFiles, ReceivedFile, recalls};

/// How long an unreadable file stays in the inbox without a change.
pub const SETTLES_AFTER: Duration = Duration::from_secs(60);
/// Attempts at a file for which the others wait while the database is away.
const AWAY_MAX: u32 = 2;

/// Uploads that are put into the inbox at a time.
const UPLOADS_MAX: i64 = 20;

/// Parts of one file that are named in the log each.
const LOGGED_MAX: usize = 20;

/// A file's size and time at the last reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    bytes: u64,
    modified: Option<SystemTime>,
}

/// A file that was not imported yet.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    seen: Seen,
    /// Since when it has been unchanged.
    since: Instant,
    /// Imports at which the database was away.
    away: u32,
}

impl Waiting {
    /// It is read whole at the next attempt.
    fn after_failure(before: Option<Self>) -> Self {
        let unseen = Self { seen: Seen { bytes: 0, modified: None }, since: Instant::now(), away: 0 };
        let before = before.unwrap_or(unseen);
        Self { away: before.away.saturating_add(1), ..before }
    }
}

/// The files that stay in the inbox for now.
#[derive(Debug, Clone, Default)]
pub(super) struct Inbox {
    waiting: Arc<Mutex<HashMap<String, Waiting>>>,
}

impl Inbox {
    fn find(&self, name: &str) -> Option<Waiting> {
        self.waiting.lock().get(name).copied()
    }

    fn put(&self, name: &str, waiting: Waiting) {
        self.waiting.lock().insert(name.to_owned(), waiting);
    }

    fn retain(&self, names: &[String]) {
        self.waiting.lock().retain(|name, _| names.iter().any(|one| one == name));
    }

    fn forget(&self, name: &str) {
        self.waiting.lock().remove(name);
    }
}

/// The result of one attempt to import a file.
enum Look {
    TakenIn,
    /// It cannot be read, and may still be written.
    Incomplete(Seen),
    /// The database did not answer.
    Away(BankError),
}

impl BankFiles {
    /// Puts what operators have uploaded into the inbox: a file of it appears there once at least, and has one effect.
    pub(super) async fn take_uploads(&self) -> Result<(), BankError> {
        let mut conn = self.pool.acquire().await?;
        for (digest, content) in bank_uploads::list_approved(&mut conn, UPLOADS_MAX).await? {
            self.folder.verify().await?;
            let name = format!("by-hand-{digest}.xml");
            drop_into(&self.folder.inbox(), &name, content.as_bytes()).await?;
            bank_uploads::mark_taken(&mut conn, &digest).await?;
            info!(name, "statement that operators have uploaded is in the inbox");
        }
        Ok(())
    }

    /// Imports every file in the inbox, in the order in which they came. Returns the number of files processed. One that
    /// fails is set aside. While the database is away the order of the files is kept: a return must not be imported
    /// before the settlement that it takes back. A file at which it is away again and again is set aside, too.
    pub async fn take_in(&self) -> Result<usize, BankError> {
        self.take_uploads().await?;
        let names = self.folder.list_inbox().await?;
        self.inbox.retain(&names);
        let mut count = 0;
        for name in &names {
            let (files, before, file) = (self.clone(), self.inbox.find(name), name.clone());
            let looking = async move {
                match files.look(&file, before).await.inspect_err(|error| files.suspect(error)) {
                    Err(BankError::Store(error))
                        if error.fault() == Fault::Unavailable
                            && before.map_or(0, |before| before.away) < AWAY_MAX =>
                    {
                        Ok(Look::Away(error.into()))
                    }
                    looked => looked,
                }
            };
            match self.intake.attend(name, name, looking).await {
                Attended::Done(Look::TakenIn) => {
                    self.inbox.forget(name);
                    count += 1;
                }
                Attended::Done(Look::Incomplete(seen)) => self.wait_for_more(name, seen, before),
                Attended::Done(Look::Away(error)) => {
                    self.inbox.put(name, Waiting::after_failure(before));
                    return Err(error);
                }
                Attended::Failed => self.inbox.put(name, Waiting::after_failure(before)),
                Attended::SetAside | Attended::InProgress => {}
            }
        }
        Ok(count)
    }

    fn wait_for_more(&self, name: &str, seen: Seen, before: Option<Waiting>) {
        let now = Instant::now();
        let since = before.filter(|before| before.seen == seen).map_or(now, |before| before.since);
        if before.is_none() {
            info!(
                name,
                bytes = seen.bytes,
                "bank file is not complete yet, it is read again when it has changed"
            );
        }
        self.inbox.put(name, Waiting { seen, since, away: 0 });
    }

    async fn look(&self, name: &str, before: Option<Waiting>) -> Result<Look, BankError> {
        workers::at(Step::BankFileRead, name).await?;
        // Another process has archived it meanwhile.
        let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let seen = match self.folder.measure(name).await {
            Err(error) if gone(&error) => return Ok(Look::TakenIn),
            measured => measured.map(|(bytes, modified)| Seen { bytes, modified })?,
        };
        let is_settled =
            before.is_some_and(|before| before.seen == seen && before.since.elapsed() >= self.settles_after);
        if let Some(before) = before
            && before.seen == seen
            && before.away == 0
            && !is_settled
        {
            return Ok(Look::Incomplete(seen));
        }
        if seen.bytes > BYTES_MAX as u64 {
            if !is_settled {
                return Ok(Look::Incomplete(seen));
            }
            let digest = self.folder.digest(name).await?;
            self.refuse(name, digest, None, vec![Part::whole(format!("larger than {BYTES_MAX} bytes"))])
                .await?;
            return Ok(Look::TakenIn);
        }
        let content = match self.folder.read_inbox(name).await {
            Err(error) if gone(&error) => return Ok(Look::TakenIn),
            content => content?,
        };
        match answers::read(&content, clock::now().to_utc()) {
            Ok(answer) => self.import(name, &content, &answer).await?,
            Err(FileError::Unreadable(_)) if !is_settled => return Ok(Look::Incomplete(seen)),
            Err(refused) => {
                let digest = Sha256::digest(&content).into();
                let parts = match refused {
                    FileError::SetAside(parts) => parts,
                    refused => vec![Part::whole(refused.to_string())],
                };
                self.refuse(name, digest, Some(&content), parts).await?;
            }
        }
        Ok(Look::TakenIn)
    }

    async fn import(
        &self,
        name: &str,
        content: &[u8],
        answer: &answers::ParsedFile,
    ) -> Result<(), BankError> {
        workers::at(Step::BankFileWrite, name).await?;
        let digest: [u8; 32] = Sha256::digest(content).into();
        let mut tx = self.pool.begin().await?;
        let received = ReceivedFile { name, message: &answer.name, digest };
        let mut set_aside = answer.set_aside.clone();
        let (mut unknown, mut known) = (0, false);
        for said in &answer.said {
            let is_ours = take_word(&mut tx, said, &received, self.payees).await?;
            known |= is_ours;
            // What a statement has beside our payments is compared with the ledger, and what a report of the day has
            // comes in a statement.
            let is_other = matches!(answer.message, Message::Camt052 | Message::Camt053);
            unknown += i64::from(!is_ours && !is_other);
        }
        for said in &answer.recalls {
            let is_ours = recalls::take_answer(&mut tx, said, &received).await?;
            known |= is_ours;
            unknown += i64::from(!is_ours);
        }
        for asked in &answer.asked {
            recalls::take_request(&mut tx, asked, &received).await?;
        }
        let mut has_statement = false;
        let mut stood: HashMap<_, [u8; 32]> = HashMap::new();
        for statement in &answer.statements {
            let Statement { account, currency, id, page, .. } = statement;
            let content = statement.digest();
            let is_other = *stood.entry((account, currency, id, page)).or_insert(content) != content;
            if !self.is_ours(statement) {
                error!(name, account, currency, statement = id, "bank statement of an unknown account");
                unknown += 1;
            } else if is_other
                || take_statement(&mut tx, statement, digest).await? == StatementTaken::Conflict
            {
                let why = format!("statement {id} came before and said something else");
                set_aside.push(Part { why, span: Some(statement.span) });
                continue;
            }
            has_statement = true;
            for said in &statement.said {
                known |= take_word(&mut tx, said, &received, self.payees).await?;
            }
        }
        let refusal = (!set_aside.is_empty()).then(|| told(&set_aside));
        if refusal.is_some()
            && answer.said.is_empty()
            && answer.recalls.is_empty()
            && answer.asked.is_empty()
            && !has_statement
        {
            tx.rollback().await?;
            return self.refuse(name, digest, Some(content), set_aside).await;
        }
        if known || refusal.is_some() {
            insert_document(&mut tx, &digest, content).await?;
        }
        let file = BankFile {
            digest,
            name: &clean(name, ID_MAX),
            message: Some(&answer.name),
            message_id: Some(&answer.message_id),
            refusal,
            unknown,
        };
        let first = store::insert_file(&mut tx, &file).await?;
        let new_parts = insert_parts(&mut tx, &received, content, &set_aside).await?;
        tx.commit().await?;
        if unknown > 0 && first {
            error!(name, unknown, "bank file names unknown payments or accounts");
        }
        for part in set_aside.iter().filter(|_| new_parts > 0).take(LOGGED_MAX) {
            error!(name, part = part.why, "part of a bank file is set aside, the rest counts");
        }
        let (words, statements, recalls) = (answer.said.len(), answer.statements.len(), answer.recalls.len());
        info!(name, first, words, statements, recalls, "bank file imported");
        self.put_away(name, &digest, false).await
    }

    /// Whether a statement is of one of the accounts that we pay from.
    fn is_ours(&self, statement: &Statement) -> bool {
        let same =
            |ours: &str| ours == statement.account || iban(ours).as_deref() == Some(&statement.account);
        self.debtors.iter().any(|one| one.currency == statement.currency && same(&one.account))
    }

    async fn refuse(
        &self,
        name: &str,
        digest: [u8; 32],
        content: Option<&[u8]>,
        parts: Vec<Part>,
    ) -> Result<(), BankError> {
        let refusal = told(&parts);
        let file = BankFile {
            digest,
            name: &clean(name, ID_MAX),
            message: None,
            message_id: None,
            refusal: Some(refusal.clone()),
            unknown: 0,
        };
        let mut tx = self.pool.begin().await?;
        if let Some(content) = content {
            insert_document(&mut tx, &digest, content).await?;
        }
        store::insert_file(&mut tx, &file).await?;
        let received = ReceivedFile { name, message: "a file of the bank", digest };
        insert_parts(&mut tx, &received, content.unwrap_or_default(), &parts).await?;
        tx.commit().await?;
        error!(name, refusal, "bank file is invalid, moved to quarantine");
        self.put_away(name, &digest, true).await
    }

    async fn put_away(&self, name: &str, read: &[u8; 32], unreadable: bool) -> Result<(), BankError> {
        match self.folder.put_away(name, read, unreadable).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                warn!(name, "bank file was replaced while it was imported, the new one is imported next");
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Keeps a file's text, in which parts have their places.
async fn insert_document(tx: &mut PgConnection, digest: &[u8; 32], content: &[u8]) -> Result<(), BankError> {
    Ok(bank_messages::insert_document(tx, digest, &text_of(content)).await?)
}

/// A database holds no NUL; a space in its place leaves all places as they are.
fn text_of(content: &[u8]) -> String {
    decode(content).unwrap_or_else(|_| String::from_utf8_lossy(content)).replace('\0', " ")
}

/// Returns how many are new: a later version of this program may read the same file differently.
async fn insert_parts(
    tx: &mut PgConnection,
    file: &ReceivedFile<'_>,
    content: &[u8],
    parts: &[Part],
) -> Result<u64, BankError> {
    let place = |at: usize| i32::try_from(at).ok();
    let kept = part::kept(parts);
    let new = kept.iter().map(|part| NewPart {
        why: clean(&part.why, TEXT_MAX),
        span: part.span.and_then(|span| place(span.start).zip(place(span.end))),
    });
    let added = bank_parts::insert(tx, &file.digest, &new.collect::<Vec<_>>()).await?;
    if added == 0 {
        return Ok(0);
    }
    // The order's page shows the file, and erases it with the order's personal data.
    let content = text_of(content);
    let text = |part: &Part| part.span.and_then(|span| content.get(span.start..span.end));
    let (mut ids, mut uetrs) = (Vec::new(), Vec::new());
    for part in &kept {
        let named = ids_in(text(part).unwrap_or(&content));
        ids.extend(named.0);
        uetrs.extend(named.1);
    }
    for (execution, is_told) in bank_parts::list_named(tx, (&ids, &uetrs), &file.digest).await? {
        if !is_told {
            file.record(tx, &execution, bank_parts::NOT_UNDERSTOOD).await?;
        }
    }
    Ok(added)
}

async fn take_statement(
    tx: &mut sqlx::PgTransaction<'_>,
    statement: &Statement,
    file: [u8; 32],
) -> Result<StatementTaken, BankError> {
    let Statement {
        account,
        currency,
        id,
        page,
        begins_at,
        ends_at,
        opening,
        closing,
        entries,
        said: _,
        span: _,
    } = statement;
    let new = NewStatement {
        account,
        currency,
        statement: id,
        page: *page,
        begins_at: *begins_at,
        ends_at: *ends_at,
        opening: *opening,
        closing: *closing,
        content: statement.digest(),
        file,
        entries: entries
            .iter()
            .map(|entry| NewEntry {
                amount: entry.amount,
                booked_at: entry.booked_at,
                end_to_end_id: entry.end_to_end_id.as_deref(),
                references: &entry.references,
            })
            .collect(),
    };
    let taken = statements::insert_statement(tx, &new).await?;
    info!(account, currency, statement = id, page, entries = entries.len(), ?taken, "bank statement read");
    Ok(taken)
}
