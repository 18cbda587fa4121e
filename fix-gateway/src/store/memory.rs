//! Numbers and messages of one session in memory, for the lifetime of the process.
//!
//! Sent messages are stored contiguously in large pieces, so that storing one more message makes no allocation. All
//! sessions share one allowance: when it is used up, a session that needs another piece drops its own oldest one, and a
//! resend skips the dropped messages with a gap fill.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use dvp_fix::{
    SeqNum, UtcNanos,
    codec::{Body, MsgType},
    session::{ResendSlice, Stored},
};

use crate::application::Numbers;

/// The size of a piece; a longer message is not stored.
const PIECE: usize = 64 * 1024;

/// The maximum number of 64 KiB pieces of all stores of a process, in use or not.
#[derive(Debug, Clone)]
pub struct Allowance {
    left: Arc<AtomicUsize>,
}

impl Allowance {
    /// Room for about this many bytes of messages.
    pub fn of_bytes(bytes: usize) -> Self {
        Self { left: Arc::new(AtomicUsize::new(bytes / PIECE)) }
    }

    fn take(&self) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    fn give_back(&self, pieces: usize) {
        self.left.fetch_add(pieces, Ordering::Relaxed);
    }
}

/// The store of one session.
#[derive(Debug)]
pub struct MemoryStore {
    next_in: SeqNum,
    next_out: SeqNum,
    /// By ascending number.
    pieces: VecDeque<Piece>,
    /// Pieces taken from the allowance.
    taken: usize,
    allowance: Allowance,
}

/// Contiguous messages, and their positions.
#[derive(Debug, Default)]
struct Piece {
    bytes: Vec<u8>,
    kept: Vec<StoredMessage>,
}

/// A sent message.
#[derive(Debug, Clone, Copy)]
struct StoredMessage {
    seq: SeqNum,
    msg_type: MsgType,
    sending_time: UtcNanos,
    /// The end of its body in the piece; it begins at the end of the previous one.
    end: u32,
}

impl MemoryStore {
    /// An empty store that shares an allowance with others.
    pub fn new(allowance: Allowance) -> Self {
        let (next_in, next_out) = (SeqNum::FIRST, SeqNum::FIRST);
        Self { next_in, next_out, pieces: VecDeque::new(), taken: 0, allowance }
    }

    /// Next inbound and next outbound number.
    pub const fn numbers(&self) -> (SeqNum, SeqNum) {
        (self.next_in, self.next_out)
    }

    /// Sets the numbers; with a reset, all stored messages are dropped.
    pub fn count(&mut self, numbers: Numbers) {
        if numbers.reset {
            self.pieces.clear();
            self.allowance.give_back(std::mem::take(&mut self.taken));
        }
        (self.next_in, self.next_out) = (numbers.next_in, numbers.next_out);
    }

    /// Stores a message. Its number is above all stored ones. A message longer than a piece is not stored.
    pub fn keep(&mut self, seq: SeqNum, msg_type: MsgType, sending_time: UtcNanos, body: &Body) {
        let bytes = body.as_bytes();
        if bytes.len() > PIECE {
            return;
        }
        let has_room = |piece: &Piece| PIECE - piece.bytes.len() >= bytes.len();
        if !self.pieces.back().is_some_and(has_room) {
            let piece = self.empty_piece();
            self.pieces.push_back(piece);
        }
        let Some(piece) = self.pieces.back_mut() else { return };
        piece.bytes.extend_from_slice(bytes);
        // A piece is far shorter than this.
        let end = u32::try_from(piece.bytes.len()).unwrap_or(u32::MAX);
        piece.kept.push(StoredMessage { seq, msg_type, sending_time, end });
    }

    /// A new piece, or the oldest one reused. The first piece is always granted.
    fn empty_piece(&mut self) -> Piece {
        if self.allowance.take() {
            self.taken += 1;
            return Piece { bytes: Vec::with_capacity(PIECE), kept: Vec::new() };
        }
        let mut oldest = self.pieces.pop_front().unwrap_or_default();
        oldest.bytes.clear();
        oldest.kept.clear();
        oldest
    }

    /// The first stored messages of a range, ascending.
    pub fn stored(&self, ResendSlice { from, to, limit }: ResendSlice) -> Vec<Stored> {
        let is_before = |piece: &Piece| piece.kept.last().is_some_and(|kept| kept.seq < from);
        let first = self.pieces.partition_point(is_before);
        let pieces = self.pieces.iter().skip(first);
        pieces
            .take_while(|piece| piece.kept.first().is_some_and(|kept| kept.seq <= to))
            .flat_map(|piece| piece.stored(from, to))
            .take(limit)
            .collect()
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.allowance.give_back(self.taken);
    }
}

impl Piece {
    fn stored(&self, from: SeqNum, to: SeqNum) -> impl Iterator<Item = Stored> {
        let first = self.kept.partition_point(|kept| kept.seq < from);
        let range = (first..self.kept.len()).map_while(move |at| self.kept.get(at).map(|kept| (at, kept)));
        range.take_while(move |(_, kept)| kept.seq <= to).map(|(at, kept)| {
            let begin = at.checked_sub(1).and_then(|before| self.kept.get(before)).map_or(0, |kept| kept.end);
            let place = |at: u32| usize::try_from(at).unwrap_or(usize::MAX);
            let bytes = self.bytes.get(place(begin)..place(kept.end)).unwrap_or_default();
            Stored {
                seq: kept.seq,
                msg_type: kept.msg_type,
                body: Body::from_bytes(bytes.to_vec()),
                sending_time: kept.sending_time,
                resend: true,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::application::Reach;

    /// As long as half a piece.
    fn body(seq: u64) -> Body {
        Body::new().field(58, format!("{seq:04}{}", "x".repeat(PIECE / 2 - 10)))
    }

    fn filled(allowance: &Allowance, seqs: impl IntoIterator<Item = u64>) -> MemoryStore {
        let mut store = MemoryStore::new(allowance.clone());
        for seq in seqs {
            store.keep(SeqNum(seq), MsgType::EXECUTION_REPORT, UtcNanos(seq), &body(seq));
        }
        store
    }

    fn seqs(store: &MemoryStore, from: u64, to: u64) -> Vec<u64> {
        first_seqs(store, from, to, 100)
    }

    fn first_seqs(store: &MemoryStore, from: u64, to: u64, limit: usize) -> Vec<u64> {
        let stored = store.stored(ResendSlice { from: SeqNum(from), to: SeqNum(to), limit });
        assert!(stored.iter().all(|message| message.body == body(message.seq.0)));
        stored.into_iter().map(|message| message.seq.0).collect()
    }

    #[test]
    fn messages_come_back_by_range_and_a_reset_forgets_them() {
        let mut store = filled(&Allowance::of_bytes(8 * PIECE), [2, 3, 5, 8, 9]);
        assert_eq!(seqs(&store, 1, 100), [2, 3, 5, 8, 9]);
        assert_eq!(seqs(&store, 3, 7), [3, 5]);
        assert_eq!(seqs(&store, 6, 8), [8]);
        assert_eq!(first_seqs(&store, 3, 9, 3), [3, 5, 8]);
        assert_eq!(seqs(&store, 10, 100), [0; 0]);
        let (first, next) = (SeqNum::FIRST, SeqNum(10));
        store.count(Numbers {
            next_in: next,
            next_out_before: first,
            next_out: next,
            reset: false,
            reach: Reach::default(),
        });
        assert_eq!((store.numbers(), seqs(&store, 1, 9).len()), ((next, next), 5));
        store.count(Numbers {
            next_in: first,
            next_out_before: next,
            next_out: first,
            reset: true,
            reach: Reach::default(),
        });
        assert_eq!((store.numbers(), seqs(&store, 1, 9).len()), ((first, first), 0));
    }

    #[test]
    fn a_session_over_the_limit_drops_its_own_oldest_messages() {
        let allowance = Allowance::of_bytes(3 * PIECE);
        let early = filled(&allowance, 1..=4);
        let late = filled(&allowance, 1..=6);
        assert_eq!(seqs(&early, 1, 100), [1, 2, 3, 4]);
        assert_eq!(seqs(&late, 1, 100), [5, 6]);
        drop(early);
        assert_eq!(seqs(&filled(&allowance, 1..=4), 1, 100), [1, 2, 3, 4], "what is free again can be used");
    }
}
