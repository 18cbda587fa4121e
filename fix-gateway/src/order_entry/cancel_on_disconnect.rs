//! Cancel on disconnect: a session's resting orders are cancelled when its peer has been disconnected for the
//! configured time. Orders that are locking or further are not affected.
//!
//! A process that takes over the session starts the time anew. Orders whose commit was in flight at the disconnect are
//! found by a later look: the looks continue as long as the peer is disconnected.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use dvp_core::engine::CancelOutcome;
use dvp_store::fix::{reports as fix_reports, rows::FixRows, settings::FixSessionSettings};
use tokio::time::Instant;
use tracing::{info, warn};

use super::OrderEntry;
use crate::application::{Application as _, Commit, Numbers, Turn, Unavailable};

/// The interval between two looks while there are orders to cancel; doubled each time there are none.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(60);
/// The maximum number of orders cancelled at one look.
const LOOK_MAX: i64 = 100;

pub(super) struct CancelOnDisconnect {
    /// `None`: orders stay.
    grace: Option<Duration>,
    /// When to look next; `None` while the peer is connected.
    due: Option<Instant>,
    /// The interval between the last look and the next.
    pause: Duration,
    /// Orders that the database does not let be cancelled, because of their data: they do not hold up the others.
    unwritable: HashSet<String>,
}

impl CancelOnDisconnect {
    pub(super) fn agreed(settings: &FixSessionSettings) -> Self {
        let seconds = settings.cancel_on_disconnect_secs.and_then(|seconds| u64::try_from(seconds).ok());
        Self {
            grace: seconds.map(Duration::from_secs),
            due: None,
            pause: LOOK_AGAIN,
            unwritable: HashSet::new(),
        }
    }

    /// The peer is disconnected, from now on unless it already was.
    pub(super) fn begin(&mut self) {
        if let Some(grace) = self.grace {
            self.due.get_or_insert_with(|| Instant::now() + grace);
        }
    }

    pub(super) const fn end(&mut self) {
        (self.due, self.pause) = (None, LOOK_AGAIN);
    }

    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }
}

impl OrderEntry {
    /// Cancels the resting orders, when it is time. The resulting events are reported like any others.
    ///
    /// Each is cancelled with the session's numbers, which only the session's owner can write: after another process has
    /// taken the session over, its peer may be connected there, and its orders are not cancelled here. Returns the commit
    /// of the turn's numbers.
    pub(super) async fn cancel_resting_orders(
        &mut self,
        turn: &mut Turn<'_>,
    ) -> Result<Option<Commit>, Unavailable> {
        if self.cancel_on_disconnect.due.is_none_or(|due| due > Instant::now()) {
            return Ok(None);
        }
        // Set before the look, so that it also holds when the look fails.
        self.cancel_on_disconnect.due = Some(Instant::now() + LOOK_AGAIN);
        let mut conn = self.connection().await?;
        let mut resting = fix_reports::list_cancellable(&mut conn, &self.session, None, LOOK_MAX).await?;
        drop(conn);
        resting.retain(|reference| !self.cancel_on_disconnect.unwritable.contains(reference));
        let pause = if resting.is_empty() { self.cancel_on_disconnect.pause * 2 } else { LOOK_AGAIN };
        self.cancel_on_disconnect.pause = pause.min(LOOK_AGAIN_MAX);
        self.cancel_on_disconnect.due = Some(Instant::now() + self.cancel_on_disconnect.pause);
        if resting.is_empty() {
            return Ok(None);
        }
        let numbers = turn.numbers();
        let commit = self.persist(numbers).await?;
        let numbers = Numbers { next_out_before: numbers.next_out, ..numbers };
        for reference in resting {
            let part = self.part(numbers, Arc::new(|_| FixRows::default()));
            match self.engine.cancel(&self.tenant, &reference, Some(part)).await {
                Ok(CancelOutcome::Cancelled) => {
                    info!(session = self.session.session_id, reference, "order cancelled on disconnect");
                }
                Ok(CancelOutcome::TooLate | CancelOutcome::Unknown) => {}
                Err(error) => {
                    warn!(reference, %error, "cancel on disconnect failed, will retry");
                    let error = Unavailable::from(error);
                    if error.is_data() {
                        self.cancel_on_disconnect.unwritable.insert(reference);
                    }
                    return Err(error);
                }
            }
        }
        Ok(Some(commit))
    }
}
