//! Writes the archive: one task of a process, off every session's path.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use chrono::NaiveDate;
use dvp_fix::codec::{Encoding, Message, MessageRef, Parser};
use dvp_store::{
    Fault, PgPool, StoreError,
    database::changes::{Announcer, Subject},
    fix::archive::{self, NewMessage},
    workers::{Worker, supervise_until},
};
use metrics::{Counter, counter};
use tokio::sync::mpsc;
use tracing::{error, warn};

use super::{Chunk, Tally, redaction::archived};

/// How long messages are gathered before they are written.
const GATHER: Duration = Duration::from_millis(200);
/// Chunks taken from the queue at once, and messages of one statement.
const CHUNKS: usize = 256;
const ROWS: usize = 2000;
/// The delay between attempts to write, and how many there are when the process ends.
const RETRY: Duration = Duration::from_secs(1);
const LAST_ATTEMPTS: u32 = 3;
/// The shortest time between two log lines about messages that were left out.
const LOG_EVERY: Duration = Duration::from_secs(10);

pub(crate) struct Writer {
    queued: mpsc::Receiver<Chunk>,
    tally: Arc<Tally>,
    pool: PgPool,
    /// Days whose partition exists.
    days: HashSet<NaiveDate>,
    parser: Parser,
    written: Counter,
    left_out: Counter,
    /// Messages left out since the last log line, and when that was.
    unlogged: u64,
    logged: Option<Instant>,
}

impl Writer {
    pub(super) fn new(queued: mpsc::Receiver<Chunk>, tally: Arc<Tally>, pool: PgPool) -> Self {
        let result = |result: &'static str| counter!("dvp_fix_archive_messages_total", "result" => result);
        Self {
            queued,
            tally,
            pool,
            days: HashSet::new(),
            parser: Parser::new(),
            written: result("written"),
            left_out: result("left_out"),
            unlogged: 0,
            logged: None,
        }
    }

    /// Writes until every recorder has ended and the queue is empty, whatever happens to single messages.
    pub(crate) async fn run_supervised(self) {
        let writer = tokio::sync::Mutex::new(self);
        let is_stopped =
            || writer.try_lock().is_ok_and(|writer| writer.queued.is_closed() && writer.queued.is_empty());
        supervise_until(Worker::FixArchive, is_stopped, || async { writer.lock().await.run().await }).await;
    }

    async fn run(&mut self) {
        let mut chunks = Vec::new();
        let mut announcer = Announcer::new(self.pool.clone(), Subject::Fix);
        loop {
            let received = tokio::select! {
                received = self.queued.recv_many(&mut chunks, CHUNKS) => received,
                () = announcer.due() => {
                    announcer.tell().await;
                    continue;
                }
            };
            if received == 0 {
                return;
            }
            if chunks.len() < CHUNKS && !self.queued.is_closed() {
                // The queue wakes nobody meanwhile, so that a message costs its session no switch of tasks.
                tokio::time::sleep(GATHER).await;
                while chunks.len() < CHUNKS
                    && let Ok(chunk) = self.queued.try_recv()
                {
                    chunks.push(chunk);
                }
            }
            let mut rows = Vec::new();
            for chunk in chunks.drain(..) {
                self.tally.bytes.fetch_sub(chunk.bytes.len(), Ordering::Relaxed);
                self.index(&chunk, &mut rows);
                tokio::task::consume_budget().await;
            }
            // Of a part that is refused the halves are written: one message takes no other along.
            let mut parts: Vec<&[NewMessage]> = rows.chunks(ROWS).rev().collect();
            while let Some(part) = parts.pop() {
                if !self.write(part).await {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
            }
            announcer.changed();
            let left_out = self.tally.left_out.swap(0, Ordering::Relaxed);
            self.note_left_out(left_out);
        }
    }

    fn index(&mut self, chunk: &Chunk, rows: &mut Vec<NewMessage>) {
        let mut begin = 0;
        for place in &chunk.messages {
            let frame = chunk.bytes.get(begin..place.end).unwrap_or_default();
            begin = place.end;
            // Every frame was parsed or encoded by this process.
            let encoding = if place.is_outbound { chunk.encoding } else { Encoding::Utf8 };
            let Ok(message) = self.parser.parse(frame) else { continue };
            let mut row = |message: MessageRef<'_>| {
                rows.push(archived(&chunk.session, place.is_outbound, place.at, message))
            };
            if encoding.is_plain(frame) {
                row(message);
            } else if let Ok(utf8) = Message::parse(&encoding.decoded(message)) {
                row(utf8.view());
            }
        }
    }

    /// Writes the rows, however long the database is unavailable. A row that it refuses is left out. `false`: it refuses
    /// some of several.
    async fn write(&mut self, rows: &[NewMessage]) -> bool {
        let count = u64::try_from(rows.len()).unwrap_or(u64::MAX);
        let mut attempts: u32 = 0;
        loop {
            let error = match self.insert(rows).await {
                Ok(()) => {
                    self.written.increment(count);
                    return true;
                }
                Err(error) => error,
            };
            if error.fault() == Fault::Data && rows.len() > 1 {
                return false;
            }
            attempts = attempts.saturating_add(1);
            let is_over = self.queued.is_closed() && attempts >= LAST_ATTEMPTS;
            if error.fault() == Fault::Data || is_over {
                error!(%error, messages = count, "FIX messages are missing from the archive: they cannot be written");
                self.left_out.increment(count);
                return true;
            }
            // A partition may be missing after all.
            self.days.clear();
            if attempts == 1 {
                warn!(%error, "writing the archive of FIX messages failed, retrying every {} s", RETRY.as_secs());
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn insert(&mut self, rows: &[NewMessage]) -> Result<(), StoreError> {
        let mut conn = self.pool.acquire().await?;
        for day in rows.iter().map(|row| row.at.date_naive()) {
            if !self.days.contains(&day) {
                archive::create_day(&mut conn, day).await?;
                self.days.insert(day);
            }
        }
        archive::insert_messages(&mut conn, rows).await
    }

    /// Counts and logs messages that the queue did not take.
    fn note_left_out(&mut self, count: u64) {
        self.left_out.increment(count);
        self.unlogged = self.unlogged.saturating_add(count);
        if self.unlogged > 0 && self.logged.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
            warn!(
                messages = self.unlogged,
                "FIX messages are missing from the archive: sessions sent and received more than it can write"
            );
            self.unlogged = 0;
            self.logged = Some(Instant::now());
        }
    }
}
