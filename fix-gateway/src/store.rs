//! Numbers and messages of one session in memory, for the lifetime of the process: for applications that commit nothing
//! else.

use std::collections::VecDeque;

use dvp_fix::{
    SeqNum, Stamp,
    codec::{Body, MsgType},
    session::{ResendSlice, Stored},
};

use crate::application::{Commit, Numbers};

/// The store of one session. Beyond its size the oldest messages are dropped, and a resend skips them with a gap fill.
#[derive(Debug)]
pub struct MemoryStore {
    next_in: SeqNum,
    next_out: SeqNum,
    /// By ascending number.
    messages: VecDeque<Stored>,
    bytes: usize,
    bytes_max: usize,
}

impl MemoryStore {
    /// An empty store for about this many bytes of messages.
    pub const fn new(bytes_max: usize) -> Self {
        let (next_in, next_out) = (SeqNum::FIRST, SeqNum::FIRST);
        Self { next_in, next_out, messages: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// Next inbound and next outbound number.
    pub const fn numbers(&self) -> (SeqNum, SeqNum) {
        (self.next_in, self.next_out)
    }

    /// Sets the numbers; with a reset, all stored messages are dropped.
    pub fn count(&mut self, numbers: Numbers) {
        if numbers.reset {
            self.messages.clear();
            self.bytes = 0;
        }
        (self.next_in, self.next_out) = (numbers.next_in, numbers.next_out);
    }

    /// Sets the numbers at the end of a turn, which has ended with them.
    pub fn commit(&mut self, numbers: Numbers, messages: Vec<Stored>) -> Commit {
        self.count(numbers);
        Box::pin(std::future::ready(Ok(messages)))
    }

    /// Stores a message, and returns it. Its number is above all stored ones.
    pub fn keep(&mut self, seq: SeqNum, msg_type: MsgType, sending_time: Stamp, body: Body) -> Stored {
        let message = Stored { seq, msg_type, body, sending_time, resend: true };
        self.bytes += size(&message);
        self.messages.push_back(message.clone());
        while self.bytes > self.bytes_max
            && let Some(oldest) = self.messages.pop_front()
        {
            self.bytes -= size(&oldest);
        }
        message
    }

    /// The first stored messages of a range, ascending.
    pub fn stored(&self, ResendSlice { from, to, limit }: ResendSlice) -> Vec<Stored> {
        let first = self.messages.partition_point(|message| message.seq < from);
        let range = self.messages.range(first..).take_while(|message| message.seq <= to);
        range.take(limit).cloned().collect()
    }
}

fn size(message: &Stored) -> usize {
    size_of::<Stored>() + message.body.as_bytes().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::application::Reach;

    fn seqs(store: &MemoryStore, from: u64, to: u64, limit: usize) -> Vec<u64> {
        let stored = store.stored(ResendSlice { from: SeqNum(from), to: SeqNum(to), limit });
        stored.into_iter().map(|message| message.seq.0).collect()
    }

    #[test]
    fn the_latest_messages_come_back_by_range_and_a_reset_forgets_them() {
        let body = Body::new().field(58, "x".repeat(1_000));
        let mut store = MemoryStore::new(5_900);
        for seq in [1, 2, 3, 5, 8, 9] {
            store.keep(SeqNum(seq), MsgType::EXECUTION_REPORT, dvp_fix::UtcNanos(seq).into(), body.clone());
        }
        assert_eq!(seqs(&store, 1, 100, 100), [2, 3, 5, 8, 9], "there is no room for the first");
        assert_eq!(seqs(&store, 3, 7, 100), [3, 5]);
        assert_eq!(seqs(&store, 3, 9, 3), [3, 5, 8]);
        assert_eq!(seqs(&store, 10, 100, 100), [0; 0]);
        let (next_in, next_out_before, next_out) = (SeqNum(4), SeqNum(10), SeqNum::FIRST);
        let reach = Reach::default();
        store.count(Numbers { next_in, next_out_before, next_out, reset: true, reach });
        assert_eq!((store.numbers(), seqs(&store, 1, 9, 100).len()), ((next_in, next_out), 0));
    }
}
