//! Output to the peer: written as fast as the peer takes it, without blocking.

use std::time::{Duration, Instant};

/// The limits of unread output before a peer is disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowConsumer {
    /// Unwritten bytes. Reading and resending stop long before, so a burst does not reach this limit.
    pub bytes_max: usize,
    /// How long the peer may take no byte.
    pub stall_max: Duration,
}

impl Default for SlowConsumer {
    fn default() -> Self {
        Self { bytes_max: 16 * 1024 * 1024, stall_max: Duration::from_secs(10) }
    }
}

/// A buffer of encoded messages, which may be partly written.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    written: usize,
    /// The stream has buffered bytes that it has not sent (TLS).
    pub(crate) needs_flush: bool,
    /// Since when the peer has taken no byte.
    stalled_since: Option<Instant>,
}

impl Outgoing {
    /// The buffer that messages are encoded into.
    pub(crate) const fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The bytes to write next.
    pub(crate) fn rest(&self) -> &[u8] {
        self.bytes.get(self.written..).unwrap_or_default()
    }

    /// Bytes that are not written yet.
    pub(crate) const fn len(&self) -> usize {
        self.bytes.len().saturating_sub(self.written)
    }

    pub(crate) const fn is_done(&self) -> bool {
        self.len() == 0 && !self.needs_flush
    }

    /// The stream took this many bytes.
    pub(crate) fn took(&mut self, bytes: usize) {
        self.written += bytes;
        self.needs_flush = true;
        self.stalled_since = None;
        if self.written == self.bytes.len() {
            self.bytes.clear();
            self.written = 0;
        } else if self.written > self.bytes.len() / 2 {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
    }

    pub(crate) const fn flushed(&mut self) {
        self.needs_flush = false;
        self.stalled_since = None;
    }

    /// The stream takes no bytes at the moment.
    pub(crate) const fn stalled(&mut self, now: Instant) {
        if self.stalled_since.is_none() {
            self.stalled_since = Some(now);
        }
    }

    /// When the peer is disconnected, if it takes no byte until then.
    pub(crate) fn gives_up_at(&self, slow: SlowConsumer) -> Option<Instant> {
        self.stalled_since.map(|since| since + slow.stall_max)
    }

    /// Clears everything after a disconnect.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        (self.written, self.needs_flush, self.stalled_since) = (0, false, None);
    }

    /// Releases unused memory.
    pub(crate) fn shrink(&mut self) {
        if self.bytes.is_empty() {
            self.bytes.shrink_to(4 * 1024);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_writes_send_every_byte_once_in_order() {
        let mut out = Outgoing::default();
        let mut taken: Vec<u8> = Vec::new();
        for n in 0..100_u8 {
            out.buffer().extend([n; 7]);
            for step in [3, 1, 2] {
                let piece = out.rest()[..step.min(out.len())].to_vec();
                taken.extend(&piece);
                out.took(piece.len());
            }
        }
        taken.extend(out.rest());
        let expected: Vec<u8> = (0..100_u8).flat_map(|n| [n; 7]).collect();
        assert_eq!(taken, expected);
    }

    #[test]
    fn the_write_timeout_restarts_with_every_byte() {
        let (start, slow) = (Instant::now(), SlowConsumer::default());
        let mut out = Outgoing::default();
        out.buffer().extend([0; 10]);
        out.stalled(start);
        out.stalled(start + Duration::from_secs(5));
        assert_eq!(out.gives_up_at(slow), Some(start + slow.stall_max));
        out.took(1);
        assert_eq!(out.gives_up_at(slow), None);
        out.stalled(start + Duration::from_secs(6));
        assert_eq!(out.gives_up_at(slow), Some(start + Duration::from_secs(6) + slow.stall_max));
    }
}
