//! Taking the bank's files in, each by itself: one that cannot be taken in delays no other.
//!
//! ```text
//! inbox ── readable ───────────────────────────────> archive
//!   │ └─── unreadable, and still changing ─> read again when it has changed
//!   └───── unreadable, and unchanged for a while ──> quarantine, with an alarm
//! ```
//!
//! Whether a file still changes is seen by its size and time, between two looks: no clock of another machine counts.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use chrono::Utc;
use dvp_store::orders::bank::{self as store, BankFile};
use sha2::{Digest as _, Sha256};
use tracing::{error, info, warn};

use super::answers::{self, FileError};
use super::xml::BYTES_MAX;
use super::{BankError, BankFiles, take_word};

/// How long a file that cannot be read stays in the inbox without a change.
pub const SETTLES_AFTER: Duration = Duration::from_secs(60);
/// After an error with a file it is looked at again: at first, and later.
const AGAIN: Duration = Duration::from_millis(250);
const AGAIN_MAX: Duration = Duration::from_secs(60);

/// A file as it was last seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    bytes: u64,
    modified: Option<SystemTime>,
}

/// A file that was not taken in yet.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    seen: Seen,
    /// Since when it has been as it was seen.
    since: Instant,
    errors: u32,
    not_before: Instant,
}

/// The files that stay in the inbox for now.
#[derive(Debug, Clone, Default)]
pub(super) struct Inbox {
    waiting: Arc<Mutex<HashMap<String, Waiting>>>,
}

impl Inbox {
    fn find(&self, name: &str) -> Option<Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    fn put(&self, name: &str, waiting: Waiting) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), waiting);
    }

    fn retain(&self, names: &[String]) {
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|name, _| names.iter().any(|one| one == name));
    }

    fn forget(&self, name: &str) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

/// What became of a file at one look.
enum Look {
    TakenIn,
    /// It cannot be read, and may still be written.
    Incomplete(Seen),
}

impl BankFiles {
    /// Takes in every file there is. Returns how many it dealt with.
    pub async fn take_in(&self) -> Result<usize, BankError> {
        let names = self.folder.list_inbox().await?;
        self.inbox.retain(&names);
        let mut count = 0;
        for name in &names {
            let before = self.inbox.find(name);
            if before.is_some_and(|before| Instant::now() < before.not_before) {
                continue;
            }
            match self.look(name, before).await {
                Ok(Look::TakenIn) => {
                    self.inbox.forget(name);
                    count += 1;
                }
                Ok(Look::Incomplete(seen)) => self.wait_for_more(name, seen, before),
                Err(error) => self.put_off(name, &error, before),
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
        self.inbox.put(name, Waiting { seen, since, errors: 0, not_before: now });
    }

    fn put_off(&self, name: &str, error: &BankError, before: Option<Waiting>) {
        let now = Instant::now();
        let errors = before.map_or(0, |before| before.errors).saturating_add(1);
        let wait = AGAIN.saturating_mul(1 << errors.min(10)).min(AGAIN_MAX);
        warn!(name, %error, errors, wait_ms = wait.as_millis(), "importing a bank file failed, will retry");
        let seen = before.map_or(Seen { bytes: 0, modified: None }, |before| before.seen);
        let since = before.map_or(now, |before| before.since);
        self.inbox.put(name, Waiting { seen, since, errors, not_before: now + wait });
    }

    async fn look(&self, name: &str, before: Option<Waiting>) -> Result<Look, BankError> {
        // Another process has put it away meanwhile.
        let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let seen = match self.folder.measure(name).await {
            Err(error) if gone(&error) => return Ok(Look::TakenIn),
            measured => measured.map(|(bytes, modified)| Seen { bytes, modified })?,
        };
        let is_settled =
            before.is_some_and(|before| before.seen == seen && before.since.elapsed() >= self.settles_after);
        if let Some(before) = before
            && before.seen == seen
            && before.errors == 0
            && !is_settled
        {
            return Ok(Look::Incomplete(seen));
        }
        if seen.bytes > BYTES_MAX as u64 {
            if !is_settled {
                return Ok(Look::Incomplete(seen));
            }
            let digest = self.folder.digest(name).await?;
            self.refuse(name, digest, &format!("larger than {BYTES_MAX} bytes")).await?;
            return Ok(Look::TakenIn);
        }
        let content = match self.folder.read_inbox(name).await {
            Err(error) if gone(&error) => return Ok(Look::TakenIn),
            content => content?,
        };
        match answers::read(&content, Utc::now()) {
            Ok(answer) => self.import(name, &content, &answer).await?,
            Err(FileError::Unreadable(_)) if !is_settled => return Ok(Look::Incomplete(seen)),
            Err(refused) => self.refuse(name, Sha256::digest(&content).into(), &refused.to_string()).await?,
        }
        Ok(Look::TakenIn)
    }

    async fn import(
        &self,
        name: &str,
        content: &[u8],
        answer: &answers::ParsedFile,
    ) -> Result<(), BankError> {
        let mut tx = self.pool.begin().await?;
        let mut unknown = 0;
        for said in &answer.said {
            unknown += i64::from(!take_word(&mut tx, said).await?);
        }
        let file = BankFile {
            digest: Sha256::digest(content).into(),
            name,
            message: Some(answer.message.name()),
            message_id: Some(&answer.message_id),
            refusal: None,
            unknown,
        };
        let first = store::insert_file(&mut tx, &file).await?;
        tx.commit().await?;
        if unknown > 0 && first {
            error!(name, unknown, "bank file names unknown payments");
        }
        info!(name, first, words = answer.said.len(), "bank file imported");
        self.put_away(name, false).await
    }

    async fn refuse(&self, name: &str, digest: [u8; 32], refusal: &str) -> Result<(), BankError> {
        let file = BankFile {
            digest,
            name,
            message: None,
            message_id: None,
            refusal: Some(refusal.to_owned()),
            unknown: 0,
        };
        let mut conn = self.pool.acquire().await?;
        store::insert_file(&mut conn, &file).await?;
        drop(conn);
        error!(name, refusal, "bank file is invalid, moved to quarantine");
        self.put_away(name, true).await
    }

    async fn put_away(&self, name: &str, unreadable: bool) -> Result<(), BankError> {
        match self.folder.put_away(name, unreadable).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            put => Ok(put?),
        }
    }
}
