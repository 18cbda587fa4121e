//! Tracks which messages the peer has received: a reset may drop those.
//!
//! FIX has no acknowledgements. A message counts as received when it was written to the socket and the peer sent
//! something on the same connection at least [`GRACE`] later, or logged out after it. A message written to a connection
//! that broke earlier is unsure: a reset keeps it, marked with PossResend(97). While messages of an earlier connection
//! are outstanding, a Logout alone proves nothing: a peer that sees the gap may log out instead of requesting a resend.
//!
//! The number becomes durable with the session's next commit, and with one of its own when the connection ends.

use std::time::{Duration, Instant};

use dvp_fix::SeqNum;

use crate::application::Reach;

/// A peer that sends something this long after a message was written has received the message, unless it requests it
/// again.
const GRACE: Duration = Duration::from_secs(2);

/// The received numbers of one session's peer.
#[derive(Debug, Default)]
pub(super) struct Reached {
    pub(super) reach: Reach,
    /// The number as of the last queued commit.
    queued: SeqNum,
    /// The highest number written on this connection.
    written: SeqNum,
    /// Received, once the peer sends something after this time.
    candidate: Option<(Instant, SeqNum)>,
    /// Application messages from before this connection have not been received.
    is_owing: bool,
}

impl Reached {
    /// The numbers were loaded or reset.
    pub(super) fn begin(reach: Reach) -> Self {
        Self { reach, queued: reach.seen, ..Self::default() }
    }

    /// A connection begins.
    pub(super) fn connected(&mut self) {
        (self.written, self.candidate) = (SeqNum::default(), None);
        self.is_owing = self.reach.stored > self.reach.seen;
    }

    /// A message is about to be written.
    pub(super) fn writing(&mut self, seq: SeqNum) {
        self.written = self.written.max(seq);
    }

    /// The logged-on peer has sent something. `all_is_written`: nothing waits to be written or resent.
    pub(super) fn received(&mut self, now: Instant, all_is_written: bool) {
        if let Some((_, seq)) = self.candidate.take_if(|(at, _)| now >= *at + GRACE) {
            self.see(seq);
            self.is_owing = false;
        }
        if self.candidate.is_none() && all_is_written && self.written > self.reach.seen {
            self.candidate = Some((now, self.written));
        }
    }

    /// The peer requests a resend from this number on.
    pub(super) fn resend_requested(&mut self, begin: SeqNum) {
        self.reach.seen = self.reach.seen.min(begin.previous());
        (self.is_owing, self.candidate) = (true, None);
    }

    /// The peer has logged out, or answered our Logout.
    pub(super) fn logged_out(&mut self, all_is_written: bool) {
        if all_is_written && !self.is_owing {
            self.see(self.written);
        }
    }

    fn see(&mut self, seq: SeqNum) {
        self.reach.seen = self.reach.seen.max(seq);
    }

    /// A commit with the number was queued.
    pub(super) const fn queued(&mut self) {
        self.queued = self.reach.seen;
    }

    /// Is the number ahead of the last queued commit?
    pub(super) fn is_ahead(&self) -> bool {
        self.queued != self.reach.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(seen: u64, stored: u64) -> Reached {
        let mut reached =
            Reached::begin(Reach { seen: SeqNum(seen), written: SeqNum(stored), stored: SeqNum(stored) });
        reached.connected();
        reached
    }

    #[test]
    fn written_messages_count_as_received_once_the_peer_sends_after_the_grace() {
        let (mut reached, start) = (reached(4, 4), Instant::now());
        reached.writing(SeqNum(5));
        reached.received(start, true);
        reached.writing(SeqNum(6));
        reached.received(start + GRACE / 2, true);
        assert_eq!(reached.reach.seen, SeqNum(4));
        reached.received(start + GRACE, true);
        assert_eq!(reached.reach.seen, SeqNum(5), "6 was written later");
        reached.received(start + GRACE * 2, true);
        assert_eq!(reached.reach.seen, SeqNum(6));
        assert!(reached.is_ahead());
        reached.queued();
        assert!(!reached.is_ahead());
    }

    #[test]
    fn buffered_messages_do_not_count_as_received() {
        let (mut reached, start) = (reached(4, 4), Instant::now());
        reached.writing(SeqNum(5));
        reached.received(start, false);
        reached.received(start + GRACE, false);
        reached.logged_out(false);
        assert_eq!(reached.reach.seen, SeqNum(4));
    }

    #[test]
    fn a_logout_proves_receipt_unless_older_messages_are_outstanding() {
        let mut clean = reached(4, 4);
        clean.writing(SeqNum(5));
        clean.logged_out(true);
        assert_eq!(clean.reach.seen, SeqNum(5));
        let mut owing = reached(2, 4);
        owing.writing(SeqNum(5));
        owing.logged_out(true);
        assert_eq!(owing.reach.seen, SeqNum(2));
    }

    #[test]
    fn a_resend_request_revokes_receipt_until_the_peer_sends_after_the_answer() {
        let (mut reached, start) = (reached(8, 8), Instant::now());
        reached.writing(SeqNum(9));
        reached.received(start, true);
        reached.resend_requested(SeqNum(3));
        assert_eq!(reached.reach.seen, SeqNum(2));
        reached.received(start + GRACE * 2, true);
        assert_eq!(reached.reach.seen, SeqNum(2));
        reached.received(start + GRACE * 3, true);
        assert_eq!(reached.reach.seen, SeqNum(9));
    }
}
