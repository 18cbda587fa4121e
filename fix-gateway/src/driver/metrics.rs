//! One session's metrics. Handles are created once, so that counting needs no lookup.

use std::time::Duration;

use dvp_fix::{SeqNum, session::Transmit};
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use super::CloseReason;
use crate::application::Unavailable;

pub(super) struct SessionMetrics {
    session: String,
    next_in: Gauge,
    next_out: Gauge,
    connected: Gauge,
    gap_open: Gauge,
    bytes_queued: Gauge,
    resent: Counter,
    commit_seconds: Histogram,
}

/// The state of a session after a turn.
pub(super) struct Picture {
    pub(super) next_in: SeqNum,
    pub(super) next_out: SeqNum,
    pub(super) is_connected: bool,
    pub(super) has_gap: bool,
    pub(super) bytes_queued: usize,
}

impl SessionMetrics {
    pub(super) fn new(session: &str) -> Self {
        let labels = [("session", session.to_owned())];
        // From the start, so that the first failure is an increase.
        for kind in ["data", "unavailable"] {
            counter!("dvp_fix_store_failures_total", "session" => session.to_owned(), "kind" => kind)
                .increment(0);
        }
        Self {
            session: session.to_owned(),
            next_in: gauge!("dvp_fix_next_in_seq", &labels),
            next_out: gauge!("dvp_fix_next_out_seq", &labels),
            connected: gauge!("dvp_fix_connected", &labels),
            gap_open: gauge!("dvp_fix_gap_open", &labels),
            bytes_queued: gauge!("dvp_fix_queued_bytes", &labels),
            resent: counter!("dvp_fix_resent_total", &labels),
            commit_seconds: histogram!("dvp_fix_commit_seconds", &labels),
        }
    }

    pub(super) fn show(&self, picture: &Picture) {
        // Values above four billion are clamped.
        let number = |value: u64| f64::from(u32::try_from(value).unwrap_or(u32::MAX));
        self.next_in.set(number(picture.next_in.0));
        self.next_out.set(number(picture.next_out.0));
        self.connected.set(f64::from(u8::from(picture.is_connected)));
        self.gap_open.set(f64::from(u8::from(picture.has_gap)));
        self.bytes_queued.set(number(u64::try_from(picture.bytes_queued).unwrap_or(u64::MAX)));
    }

    pub(super) fn committed(&self, after: Duration) {
        self.commit_seconds.record(after);
    }

    /// Counts a sent message: resends and rejects.
    pub(super) fn sent(&self, message: &Transmit) {
        if message.orig_sending_time.is_some() {
            self.resent.increment(1);
            return;
        }
        let (kind, tag) = match message.msg_type.as_bytes() {
            b"3" => ("reject", "373="),
            b"j" => ("business_reject", "380="),
            _ => return,
        };
        let reason = reason(message.body.as_bytes(), tag).to_owned();
        counter!("dvp_fix_rejects_total", "session" => self.session.clone(), "kind" => kind, "reason" => reason)
            .increment(1);
    }

    /// A commit failed, or the session could not be loaded.
    pub(super) fn failed(&self, error: &Unavailable) {
        let kind = if error.is_data() { "data" } else { "unavailable" };
        counter!("dvp_fix_store_failures_total", "session" => self.session.clone(), "kind" => kind)
            .increment(1);
    }

    /// The peer resets its sequence numbers too often.
    pub(super) fn reset_delayed(&self) {
        counter!("dvp_fix_resets_delayed_total", "session" => self.session.clone()).increment(1);
    }

    pub(super) fn disconnected(&self, reason: CloseReason) {
        counter!("dvp_fix_disconnects_total", "session" => self.session.clone(), "reason" => reason.as_str())
            .increment(1);
    }
}

/// The value of a field that only we write: a number, or `None`.
fn reason<'a>(body: &'a [u8], tag: &str) -> &'a str {
    let mut fields = body.split(|byte| *byte == 1);
    let value = fields.find_map(|field| field.strip_prefix(tag.as_bytes()));
    value.and_then(|value| std::str::from_utf8(value).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_derived_from_the_logout_text() {
        assert_eq!(reason(b"45=3\x01373=5\x01", "373="), "5");
        assert_eq!(reason(b"45=3\x01", "373="), "");
    }
}
