//! The items of a loop: each is guarded, set aside when it fails, and tried again after a growing delay.
//!
//! What failed is in memory first and in the table as soon as the database takes it, so that a database that fails sets
//! items aside, too. Rows of other processes and of the time before a restart are read every now and then: their delays
//! hold here, too, and the success of an item deletes its row, whoever wrote it.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dvp_domain::settlement::leg::back_off_ms;
use dvp_domain::text::{ID_MAX, TEXT_MAX, clean};
use metrics::counter;
use parking_lot::Mutex;
use sqlx::PgPool;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{error, info, warn};

use super::guard::guarded;
use super::set_aside::{self, NewSetAside};
use super::{PATIENCE, WAIT_MAX_MS, WAIT_MS, Worker};
use crate::StoreError;

/// How often the table is read.
const READ_EVERY: Duration = Duration::from_secs(30);
/// The pause after the table could not be written or read, and how long one attempt may take.
const WRITE_AGAIN: Duration = Duration::from_secs(1);
const WRITE_LIMIT: Duration = Duration::from_secs(5);

/// What became of an item.
#[derive(Debug)]
pub enum Attended<T> {
    Done(T),
    /// It failed just now, and is set aside.
    Failed,
    /// It is set aside, and not due yet.
    SetAside,
    /// An earlier attempt has not ended.
    InProgress,
}

impl<T> Attended<T> {
    pub fn done(self) -> Option<T> {
        match self {
            Self::Done(done) => Some(done),
            Self::Failed | Self::SetAside | Self::InProgress => None,
        }
    }
}

/// The items of one loop. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Items(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    worker: Worker,
    pool: PgPool,
    limit: Duration,
    longest_wait: Duration,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    failing: HashMap<String, Failing>,
    in_progress: HashSet<String>,
    /// What the table does not show yet; `None`: the item has succeeded.
    unwritten: HashMap<String, Option<NewSetAside>>,
    read_at: Option<Instant>,
    write_from: Option<Instant>,
}

impl Known {
    fn is_waiting(&self, item: &str) -> bool {
        self.failing.get(item).is_some_and(|failing| Instant::now() < failing.due)
    }
}

#[derive(Debug, Clone, Copy)]
struct Failing {
    attempts: u32,
    due: Instant,
}

/// An item in progress, until this is dropped.
struct InProgress<'a>(&'a Shared, &'a str);

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        self.0.known.lock().in_progress.remove(self.1);
    }
}

impl Items {
    /// `limit`: the longest time for one item.
    pub fn new(pool: PgPool, worker: Worker, limit: Duration) -> Self {
        Self::waiting(pool, worker, limit, Duration::from_millis(WAIT_MAX_MS))
    }

    /// `longest_wait`: the longest delay of an item that fails.
    pub fn waiting(pool: PgPool, worker: Worker, limit: Duration, longest_wait: Duration) -> Self {
        Self(Arc::new(Shared { worker, pool, limit, longest_wait, known: Mutex::default() }))
    }

    /// Works on an item unless it is set aside. A failure, a panic and a time-out set it aside.
    pub async fn attend<T, E: Display>(
        &self,
        item: &str,
        about: &str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Attended<T> {
        let shared = self.0.as_ref();
        shared.read().await;
        let _in_progress = match shared.begin(item) {
            Ok(begun) => begun,
            Err(why) => return why.into(),
        };
        let attended = match guarded(shared.limit, work).await {
            Ok(done) => {
                shared.succeeded(item);
                Attended::Done(done)
            }
            Err(error) => {
                shared.failed(item, about, &error.to_string());
                Attended::Failed
            }
        };
        shared.write().await;
        attended
    }
}

impl Items {
    /// Reads what other processes, and this one before its start, have set aside.
    pub async fn refresh(&self) {
        self.0.read().await;
    }

    /// Notes the end of an item that was worked on elsewhere.
    pub async fn note(&self, item: &str, about: &str, ended: Result<(), String>) {
        let shared = self.0.as_ref();
        shared.read().await;
        match ended {
            Ok(()) => shared.succeeded(item),
            Err(why) => shared.failed(item, about, &why),
        }
        shared.write().await;
    }

    /// What is set aside, as far as this process knows.
    pub fn failing(&self) -> Vec<String> {
        self.0.known.lock().failing.keys().cloned().collect()
    }

    /// Whether none is set aside, as far as this process knows.
    pub fn are_well(&self) -> bool {
        self.0.known.lock().failing.is_empty()
    }

    /// Whether an item is set aside and not due yet.
    pub fn is_waiting(&self, item: &str) -> bool {
        self.0.known.lock().is_waiting(item)
    }

    /// Whether an item is set aside, as far as this process knows.
    pub fn is_set_aside(&self, item: &str) -> bool {
        self.0.known.lock().failing.contains_key(item)
    }
}

/// The items of one loop, of which none holds the loop up: one that takes longer than the others is left to itself.
#[derive(Debug)]
pub struct Apart {
    items: Items,
    patience: Duration,
    tasks: Mutex<JoinSet<()>>,
}

impl Apart {
    /// `limit`: the longest time for one item.
    pub fn new(pool: PgPool, worker: Worker, limit: Duration) -> Self {
        Self { items: Items::new(pool, worker, limit), patience: PATIENCE, tasks: Mutex::default() }
    }

    /// `patience`: how long the loop waits for an item.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// As [`Items::attend`]; an item that takes longer than the loop's patience goes on beside it.
    pub async fn attend<T: Send + 'static, E: Display + Send + 'static>(
        &self,
        item: &str,
        about: &str,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Attended<T> {
        let (items, item, about) = (self.items.clone(), item.to_owned(), about.to_owned());
        let (done, ended) = tokio::sync::oneshot::channel();
        let attending = async move {
            // The loop may not wait for it any more.
            let _ = done.send(items.attend(&item, &about, work).await);
        };
        {
            let mut tasks = self.tasks.lock();
            while tasks.try_join_next().is_some() {}
            tasks.spawn(attending);
        }
        timeout(self.patience, ended).await.ok().and_then(Result::ok).unwrap_or(Attended::InProgress)
    }
}

/// Why an item is not worked on.
enum Idle {
    SetAside,
    InProgress,
}

impl<T> From<Idle> for Attended<T> {
    fn from(why: Idle) -> Self {
        match why {
            Idle::SetAside => Self::SetAside,
            Idle::InProgress => Self::InProgress,
        }
    }
}

impl Shared {
    fn begin<'a>(&'a self, item: &'a str) -> Result<InProgress<'a>, Idle> {
        let mut known = self.known.lock();
        if known.is_waiting(item) {
            return Err(Idle::SetAside);
        }
        if !known.in_progress.insert(item.to_owned()) {
            return Err(Idle::InProgress);
        }
        Ok(InProgress(self, item))
    }

    fn succeeded(&self, item: &str) {
        let mut known = self.known.lock();
        if known.failing.remove(item).is_some() {
            known.unwritten.insert(item.to_owned(), None);
            drop(known);
            info!(worker = self.worker.as_str(), item, "item that was set aside is done");
        }
    }

    fn failed(&self, item: &str, about: &str, why: &str) {
        let mut known = self.known.lock();
        let attempts = known.failing.get(item).map_or(0, |failing| failing.attempts).saturating_add(1);
        let wait = set_aside_for(self.worker, item, about, why, attempts).min(self.longest_wait);
        known.failing.insert(item.to_owned(), Failing { attempts, due: Instant::now() + wait });
        let new = NewSetAside { about: clean(about, ID_MAX), error: clean(why, TEXT_MAX), attempts, wait };
        known.unwritten.insert(item.to_owned(), Some(new));
    }

    /// Writes what the table does not show yet.
    async fn write(&self) {
        let unwritten: Vec<(String, Option<NewSetAside>)> = {
            let mut known = self.known.lock();
            if known.unwritten.is_empty() || known.write_from.is_some_and(|from| Instant::now() < from) {
                return;
            }
            known.write_from = None;
            known.unwritten.iter().map(|(item, change)| (item.clone(), change.clone())).collect()
        };
        let written = timeout(WRITE_LIMIT, self.write_all(&unwritten)).await;
        if let Ok(Ok(())) = written {
            return;
        }
        let error = written.map_or_else(|_| "no answer".to_owned(), |done| format!("{:?}", done.err()));
        warn!(
            worker = self.worker.as_str(),
            error, "items that are set aside could not be written, will retry"
        );
        self.known.lock().write_from = Some(Instant::now() + WRITE_AGAIN);
    }

    async fn write_all(&self, unwritten: &[(String, Option<NewSetAside>)]) -> Result<(), StoreError> {
        let mut conn = self.pool.acquire().await?;
        for (item, change) in unwritten {
            match change {
                Some(new) => set_aside::upsert(&mut conn, self.worker, item, new).await?,
                None => set_aside::delete(&mut conn, self.worker, item).await?,
            }
            let mut known = self.known.lock();
            // Unless it has changed since.
            if known.unwritten.get(item).is_some_and(|now| now == change) {
                known.unwritten.remove(item);
            }
        }
        Ok(())
    }

    /// Reads the rows of other processes, now and then.
    async fn read(&self) {
        {
            let mut known = self.known.lock();
            if known.read_at.is_some_and(|at| at.elapsed() < READ_EVERY) {
                return;
            }
            known.read_at = Some(Instant::now());
        }
        let read = timeout(WRITE_LIMIT, async {
            let mut conn = self.pool.acquire().await?;
            set_aside::list_waits(&mut conn, self.worker).await
        });
        let rows = match read.await {
            Ok(Ok(rows)) => rows,
            Ok(Err(error)) => {
                warn!(worker = self.worker.as_str(), %error, "items that are set aside could not be read, will retry");
                return;
            }
            Err(_) => return,
        };
        let now = Instant::now();
        let Known { failing, unwritten, .. } = &mut *self.known.lock();
        failing.retain(|item, _| unwritten.contains_key(item) || rows.iter().any(|row| row.item == *item));
        for row in rows.into_iter().filter(|row| !unwritten.contains_key(&row.item)) {
            failing.entry(row.item).or_insert(Failing { attempts: row.attempts, due: now + row.wait });
        }
    }
}

/// The delay of an item whose loop has columns of its own for it. `attempts` failed, this one included.
pub fn set_aside_for(worker: Worker, item: &str, about: &str, why: &str, attempts: u32) -> Duration {
    let wait_ms = back_off_ms(attempts, WAIT_MS, WAIT_MAX_MS, RandomState::new().hash_one(item));
    let (worker, error) = (worker.as_str(), clean(why, TEXT_MAX));
    counter!("dvp_set_aside_failures_total", "loop" => worker).increment(1);
    // Later failures are its consequence.
    if attempts == 1 {
        error!(
            worker,
            item, about, error, wait_ms, "item failed and is set aside, retrying it alone at most 60 s apart"
        );
    } else {
        info!(
            worker,
            item, about, error, attempts, wait_ms, "item that is set aside failed again, will retry"
        );
    }
    Duration::from_millis(wait_ms)
}
