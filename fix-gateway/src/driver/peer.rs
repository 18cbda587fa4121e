//! The peer of a session while it is connected: its connection, its admission, and its counters.

use std::{
    future::Future as _,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};

use dvp_fix::{UtcNanos, codec::MessageRef, session::Now};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tracing::warn;

use super::limiter::Limiter;
use crate::{
    connection::{Connection, Pass},
    limits::{Bucket, Pace},
};

/// A connected peer. It is dropped with its connection, so that nothing of it counts for the next one.
pub(super) struct Peer {
    pub(super) connection: Connection,
    pub(super) since: UtcNanos,
    /// How the peer was authenticated.
    pass: Pass,
    /// The stop of the process that forwards the connection, if one does.
    stopping: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// Is the next Logon the one that was authenticated?
    is_admitted: bool,
    /// The peer was logged out; only its Logout is still read.
    is_cut_off: bool,
    limiter: Limiter,
    /// Bytes that were read.
    pub(super) read: Bucket,
    /// Bytes of resends.
    pub(super) resent: Bucket,
}

/// The handling of a message that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admitted {
    Processed,
    /// The peer was logged out before.
    Ignored,
    /// The message rate is exceeded: the session must end.
    RateExceeded,
}

impl Peer {
    pub(super) fn new(
        connection: Connection,
        pass: Pass,
        stopping: Option<CancellationToken>,
        now: Now,
    ) -> Self {
        let Now { mono: now, utc: since, .. } = now;
        let limiter = Limiter::new(pass.admission.limits, now);
        let (read, resent) = (Bucket::new(now), Bucket::new(now));
        let stopping = stopping.map(|stopping| Box::pin(stopping.cancelled_owned()));
        Self {
            connection,
            since,
            pass,
            stopping,
            is_admitted: true,
            is_cut_off: false,
            limiter,
            read,
            resent,
        }
    }

    /// Ready once, when the process that forwards the connection stops.
    pub(super) fn poll_stopping(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(stopping) = &mut self.stopping else { return Poll::Pending };
        ready!(stopping.as_mut().poll(cx));
        self.stopping = None;
        Poll::Ready(())
    }

    /// Counts a message that was read.
    pub(super) fn count(&mut self, msg_type: &[u8], now: Instant) -> Admitted {
        if self.is_cut_off && msg_type != b"5" {
            Admitted::Ignored
        } else if self.limiter.count(msg_type, now) {
            Admitted::Processed
        } else {
            Admitted::RateExceeded
        }
    }

    /// Counts an application message before it is processed. `false`: it is rejected.
    pub(super) fn may_act(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.limiter.may_act(now)
    }

    /// From now on only the peer's Logout is read.
    pub(super) const fn cut_off(&mut self) {
        self.is_cut_off = true;
    }

    /// The connection's first Logon has been processed; another one is authenticated by itself.
    pub(super) const fn logged_on(&mut self) {
        self.is_admitted = false;
    }

    /// The first Logon of a connection was authenticated before the connection came here; one within a session (for a
    /// reset) is authenticated now.
    pub(super) async fn may_log_on(&mut self, session: &str, logon: MessageRef<'_>) -> bool {
        if std::mem::replace(&mut self.is_admitted, false) {
            return true;
        }
        match self.pass.admits(&logon.to_owned()).await {
            Ok(_) => true,
            Err(reason) => {
                warn!(session, %reason, "Logon within a session rejected");
                false
            }
        }
    }

    /// When the connection is read again, if it has to wait for its pace.
    pub(super) fn reads_at(&self, pace: Pace, now: Instant) -> Option<Instant> {
        let at = self.read.goes_on_at(pace);
        (at > now).then_some(at)
    }
}
