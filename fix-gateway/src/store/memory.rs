//! Numbers and messages of one session in memory, for as long as the process lives.
//!
//! What was sent lies end to end in large pieces: keeping one more message costs no allocation of its own.

use dvp_fix::{
    SeqNum, UtcNanos,
    codec::{Body, MsgType},
    session::Stored,
};

use crate::application::Numbers;

/// Bytes taken from the system at once.
const PIECE: usize = 256 * 1024;

/// The store of one session.
#[derive(Debug)]
pub struct MemoryStore {
    next_in: SeqNum,
    next_out: SeqNum,
    /// By ascending number.
    kept: Vec<Kept>,
    pieces: Vec<Vec<u8>>,
}

/// A message that was sent, and where its body is.
#[derive(Debug, Clone, Copy)]
struct Kept {
    seq: SeqNum,
    msg_type: MsgType,
    sending_time: UtcNanos,
    piece: usize,
    from: usize,
    to: usize,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self { next_in: SeqNum::FIRST, next_out: SeqNum::FIRST, kept: Vec::new(), pieces: Vec::new() }
    }
}

impl MemoryStore {
    /// Next inbound and next outbound number.
    pub const fn numbers(&self) -> (SeqNum, SeqNum) {
        (self.next_in, self.next_out)
    }

    /// Takes over numbers; with a reset, everything kept is forgotten.
    pub fn count(&mut self, numbers: Numbers) {
        if numbers.reset {
            self.kept.clear();
            self.pieces.clear();
        }
        (self.next_in, self.next_out) = (numbers.next_in, numbers.next_out);
    }

    /// Keeps a message. Its number is above all that are kept already.
    pub fn keep(&mut self, seq: SeqNum, msg_type: MsgType, sending_time: UtcNanos, body: &Body) {
        let bytes = body.as_bytes();
        let has_room = |piece: &Vec<u8>| piece.capacity() - piece.len() >= bytes.len();
        if !self.pieces.last().is_some_and(has_room) {
            self.pieces.push(Vec::with_capacity(PIECE.max(bytes.len())));
        }
        let place = self.pieces.len() - 1;
        let Some(piece) = self.pieces.last_mut() else { return };
        let from = piece.len();
        piece.extend_from_slice(bytes);
        self.kept.push(Kept { seq, msg_type, sending_time, piece: place, from, to: piece.len() });
    }

    /// Kept messages of a range, ascending.
    pub fn stored(&self, from: SeqNum, to: SeqNum) -> Vec<Stored> {
        let first = self.kept.partition_point(|kept| kept.seq < from);
        let range = self.kept.iter().skip(first).take_while(|kept| kept.seq <= to);
        range.map(|kept| self.read(kept)).collect()
    }

    fn read(&self, kept: &Kept) -> Stored {
        let bytes = self.pieces.get(kept.piece).and_then(|piece| piece.get(kept.from..kept.to));
        Stored {
            seq: kept.seq,
            msg_type: kept.msg_type,
            body: Body::from_bytes(bytes.unwrap_or_default().to_vec()),
            sending_time: kept.sending_time,
            resend: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(store: &MemoryStore, from: u64, to: u64) -> Vec<(u64, String)> {
        let stored = store.stored(SeqNum(from), SeqNum(to));
        stored
            .into_iter()
            .map(|message| (message.seq.0, String::from_utf8(message.body.into_bytes()).unwrap()))
            .collect()
    }

    #[test]
    fn messages_come_back_by_range_also_from_other_pieces_and_a_reset_forgets_them() {
        let mut store = MemoryStore::default();
        let long = "x".repeat(PIECE / 2);
        for seq in [2, 3, 5, 8] {
            let body = Body::new().field(58, format!("{seq}{long}"));
            store.keep(SeqNum(seq), MsgType::EXECUTION_REPORT, UtcNanos(seq), &body);
        }
        let expected = |seq: u64| (seq, format!("58={seq}{long}\u{1}"));
        assert_eq!(text(&store, 3, 7), [expected(3), expected(5)]);
        assert_eq!(text(&store, 6, 100), [expected(8)]);
        assert_eq!(text(&store, 9, 100), []);
        let (first, next) = (SeqNum::FIRST, SeqNum(9));
        store.count(Numbers { next_in: next, next_out_before: first, next_out: next, reset: false });
        assert_eq!((store.numbers(), text(&store, 1, 9).len()), ((next, next), 4));
        store.count(Numbers { next_in: first, next_out_before: next, next_out: first, reset: true });
        assert_eq!((store.numbers(), text(&store, 1, 9).len()), ((first, first), 0));
    }
}
