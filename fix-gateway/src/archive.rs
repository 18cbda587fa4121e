//! The message archive: what was read from and written to the connections of sessions, redacted, for operators.
//!
//! ```text
//! drivers ──chunks of a turn──> queue (bounded) ──> Writer: parse, redact, insert in batches
//! ```
//!
//! **Invariant:** a session never waits for the archive. It copies the bytes of a turn into the queue; when that is
//! full, or the database stays unavailable, messages are left out, counted and logged. Nothing is read from the archive
//! to serve a peer: resends have a store of their own.
//!
//! Kept by `fix-gateway/tests/it/archive.rs::a_session_goes_on_while_the_archive_cannot_be_written`.

mod redaction;
mod writer;

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use dvp_fix::{UtcNanos, codec::Encoding};
use dvp_store::PgPool;
use tokio::sync::mpsc;

pub(crate) use self::writer::Writer;

/// Bytes of messages in the queue.
const QUEUED_MAX: usize = 32 * 1024 * 1024;
/// Chunks in the queue.
const CHUNKS_MAX: usize = 32 * 1024;
/// A turn's chunk is handed over once it has as many bytes.
const CHUNK_MAX: usize = 64 * 1024;

/// Where sessions hand their messages over.
#[derive(Clone)]
pub(crate) struct Archive {
    chunks: mpsc::Sender<Chunk>,
    tally: Arc<Tally>,
}

/// What is in the queue, and what was left out since the writer last looked.
#[derive(Debug, Default)]
struct Tally {
    bytes: AtomicUsize,
    left_out: AtomicU64,
}

/// Messages of one session, one after the other.
#[derive(Debug)]
struct Chunk {
    session: Arc<str>,
    /// Of the text in messages that were written; what was read is UTF-8.
    encoding: Encoding,
    bytes: Vec<u8>,
    messages: Vec<Place>,
}

/// A message in its chunk, from the end of the one before.
#[derive(Debug, Clone, Copy)]
struct Place {
    is_outbound: bool,
    at: UtcNanos,
    end: usize,
}

impl Archive {
    /// An archive in the database of `pool`. Its writer ends when all recorders have ended.
    pub(crate) fn over(pool: PgPool) -> (Self, Writer) {
        let (chunks, queued) = mpsc::channel(CHUNKS_MAX);
        let tally = Arc::<Tally>::default();
        (Self { chunks, tally: Arc::clone(&tally) }, Writer::new(queued, tally, pool))
    }

    pub(crate) fn recorder(&self, session: &str, encoding: Encoding) -> Recorder {
        let (archive, session) = (self.clone(), session.into());
        Recorder { archive, session, encoding, bytes: Vec::new(), messages: Vec::new() }
    }
}

/// Collects the messages of a session's turn.
pub(crate) struct Recorder {
    archive: Archive,
    session: Arc<str>,
    encoding: Encoding,
    bytes: Vec<u8>,
    messages: Vec<Place>,
}

impl Recorder {
    /// A frame that was read.
    pub(crate) fn read(&mut self, at: UtcNanos, frame: &[u8]) {
        self.add(at, frame, false);
    }

    /// A frame that will be written.
    pub(crate) fn written(&mut self, at: UtcNanos, frame: &[u8]) {
        self.add(at, frame, true);
    }

    fn add(&mut self, at: UtcNanos, frame: &[u8], is_outbound: bool) {
        self.bytes.extend_from_slice(frame);
        self.messages.push(Place { is_outbound, at, end: self.bytes.len() });
        if self.bytes.len() >= CHUNK_MAX {
            self.hand_over();
        }
    }

    /// Queues what was collected, or leaves it out.
    pub(crate) fn hand_over(&mut self) {
        if self.messages.is_empty() {
            return;
        }
        let (bytes, messages) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.messages));
        let Archive { chunks, tally } = &self.archive;
        let (size, count) = (bytes.len(), u64::try_from(messages.len()).unwrap_or(u64::MAX));
        let is_full = tally.bytes.fetch_add(size, Ordering::Relaxed) > QUEUED_MAX;
        let chunk = Chunk { session: Arc::clone(&self.session), encoding: self.encoding, bytes, messages };
        if is_full || chunks.try_send(chunk).is_err() {
            tally.bytes.fetch_sub(size, Ordering::Relaxed);
            tally.left_out.fetch_add(count, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive() -> (Archive, mpsc::Receiver<Chunk>) {
        let (chunks, queued) = mpsc::channel(CHUNKS_MAX);
        (Archive { chunks, tally: Arc::default() }, queued)
    }

    #[tokio::test]
    async fn a_turn_is_one_chunk_with_its_messages_in_order() {
        let (archive, mut queued) = archive();
        let mut recorder = archive.recorder("acme", Encoding::Utf8);
        recorder.hand_over();
        recorder.read(UtcNanos(1), b"one");
        recorder.written(UtcNanos(2), b"two");
        recorder.hand_over();
        drop((recorder, archive));
        let chunk = queued.recv().await.unwrap();
        assert_eq!((&*chunk.session, &chunk.bytes[..]), ("acme", &b"onetwo"[..]));
        let places: Vec<_> =
            chunk.messages.iter().map(|place| (place.is_outbound, place.at.0, place.end)).collect();
        assert_eq!(places, [(false, 1, 3), (true, 2, 6)]);
        assert!(queued.recv().await.is_none());
    }

    #[test]
    fn a_full_queue_leaves_messages_out_and_counts_them() {
        let (archive, mut queued) = archive();
        let mut recorder = archive.recorder("acme", Encoding::Utf8);
        let frame = vec![0; CHUNK_MAX];
        let fitting = QUEUED_MAX / CHUNK_MAX + 1;
        for _ in 0..fitting + 3 {
            recorder.read(UtcNanos(1), &frame);
        }
        assert_eq!(archive.tally.left_out.load(Ordering::Relaxed), 3);
        assert_eq!(archive.tally.bytes.load(Ordering::Relaxed), fitting * CHUNK_MAX);
        let mut found = 0;
        while queued.try_recv().is_ok() {
            found += 1;
        }
        assert_eq!(found, fitting);
    }
}
