//! Limits a connection to its session's message rate.

use std::time::Instant;

use crate::limits::{Bucket, MessageLimits};

/// Message counts of one connection.
#[derive(Debug)]
pub(super) struct Limiter {
    limits: MessageLimits,
    soft: Bucket,
    hard: Bucket,
    admin: Bucket,
}

impl Limiter {
    pub(super) const fn new(limits: MessageLimits, now: Instant) -> Self {
        let full = Bucket::new(now);
        Self { limits, soft: full, hard: full, admin: full }
    }

    /// Counts a received message. `false`: the session must end.
    ///
    /// Session messages are counted separately, so that a peer at its limit can still answer and log out.
    pub(super) fn count(&mut self, msg_type: &[u8], now: Instant) -> bool {
        let (pace, bucket) = if is_session_message(msg_type) {
            (self.limits.admin, &mut self.admin)
        } else {
            (self.limits.hard, &mut self.hard)
        };
        pace.is_none_or(|pace| bucket.take(pace, now))
    }

    /// Counts an application message before it is processed. `false`: it is rejected.
    pub(super) fn may_act(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.limits.soft.is_none_or(|pace| self.soft.take(pace, now()))
    }
}

fn is_session_message(msg_type: &[u8]) -> bool {
    matches!(msg_type, b"0" | b"1" | b"2" | b"3" | b"4" | b"5" | b"A")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_messages_and_orders_have_separate_limits() {
        let now = Instant::now();
        let limits = MessageLimits::per_second(Some(1), Some(3), Some(2));
        let mut limiter = Limiter::new(limits, now);
        let mut counted =
            |msg_type: &[u8], count: usize| (0..count).filter(|_| limiter.count(msg_type, now)).count();
        assert_eq!(counted(b"D", 100), 6);
        assert_eq!(counted(b"0", 100), 4);
        assert_eq!((0..10).filter(|_| limiter.may_act(|| now)).count(), 2);
    }
}
