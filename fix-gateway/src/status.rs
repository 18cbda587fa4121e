//! The state of this process's sessions, for operators: drivers note it in memory, and one task writes it.
//!
//! ```text
//! drivers ──after each turn──> Slot (a lock that nobody waits for) ──> Writer: one statement a second, sooner when a
//!                                                                     peer connects or leaves, or a gap opens or closes
//! ```
//!
//! **Invariant:** no session waits for the database here, and what cannot be written is written a second later.

use std::{
    net::SocketAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use chrono::{DateTime, Utc};
use dvp_fix::{SeqNum, UtcNanos};
use dvp_store::{
    PgPool, StoreError,
    fix::status::{self, SessionStatus},
    workers::{self, Items, Step, Worker, in_database},
};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// The time between two writes while messages pass, and the shortest time between two after changes.
const EVERY: Duration = Duration::from_secs(1);
const GAP: Duration = Duration::from_millis(200);
const WRITE_WITHIN: Duration = Duration::from_secs(5);
const SESSIONS: &str = "sessions";

/// What a driver notes after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) peer: Option<(SocketAddr, UtcNanos)>,
    pub(crate) last_in: Option<UtcNanos>,
    pub(crate) last_out: Option<UtcNanos>,
    pub(crate) next_in: SeqNum,
    pub(crate) next_out: SeqNum,
    pub(crate) gap: Option<(SeqNum, SeqNum)>,
}

impl Noted {
    /// Does the next write come at once?
    fn differs(&self, before: &Self) -> bool {
        self.peer != before.peer || self.gap.is_some() != before.gap.is_some()
    }

    fn of(self, session: &str) -> SessionStatus {
        let number = |seq: SeqNum| i64::try_from(seq.0).unwrap_or(i64::MAX);
        SessionStatus {
            session_id: session.to_owned(),
            connection: self.peer.map(|(peer, since)| (peer.to_string(), time(since))),
            last_in_at: self.last_in.map(time),
            last_out_at: self.last_out.map(time),
            next_in: number(self.next_in),
            next_out: number(self.next_out),
            gap: self.gap.map(|(from, until)| (number(from), number(until))),
        }
    }
}

fn time(at: UtcNanos) -> DateTime<Utc> {
    DateTime::from_timestamp_nanos(i64::try_from(at.0).unwrap_or(i64::MAX))
}

#[derive(Debug, Default)]
struct State {
    noted: Option<Noted>,
    is_unwritten: bool,
}

#[derive(Debug)]
pub(crate) struct Slot {
    session: String,
    state: Mutex<State>,
    changed: Arc<Notify>,
}

impl Slot {
    /// Notes the state after a turn.
    pub(crate) fn note(&self, noted: Noted) {
        let mut state = self.state.lock();
        if state.noted == Some(noted) {
            return;
        }
        let is_urgent = state.noted.is_none_or(|before| noted.differs(&before));
        *state = State { noted: Some(noted), is_unwritten: true };
        drop(state);
        if is_urgent {
            self.changed.notify_one();
        }
    }

    /// What was noted since the last call.
    fn take(&self) -> Option<SessionStatus> {
        let mut state = self.state.lock();
        let is_unwritten = std::mem::take(&mut state.is_unwritten);
        state.noted.filter(|_| is_unwritten).map(|noted| noted.of(&self.session))
    }

    /// It could not be written.
    fn give_back(&self) {
        self.state.lock().is_unwritten = true;
    }
}

/// The sessions of a process. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Board {
    slots: Arc<Mutex<Vec<Weak<Slot>>>>,
    changed: Arc<Notify>,
}

impl Board {
    /// The slot of a session, which ends with its driver.
    pub(crate) fn slot(&self, session: &str) -> Arc<Slot> {
        let (session, changed) = (session.to_owned(), Arc::clone(&self.changed));
        let slot = Arc::new(Slot { session, state: Mutex::default(), changed });
        self.slots.lock().push(Arc::downgrade(&slot));
        slot
    }

    fn slots(&self) -> Vec<Arc<Slot>> {
        let mut slots = self.slots.lock();
        slots.retain(|slot| slot.strong_count() > 0);
        slots.iter().filter_map(Weak::upgrade).collect()
    }

    /// Writes until `shutdown`.
    pub(crate) async fn write(self, pool: PgPool, process: Uuid, shutdown: CancellationToken) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let items = Items::waiting(pool.clone(), Worker::FixStatus, WRITE_WITHIN, EVERY);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = ticks.tick() => {}
                () = self.changed.notified() => {}
            }
            if !items.is_waiting(SESSIONS) {
                self.write_once(&pool, &items, process).await;
            }
            tokio::time::sleep(GAP).await;
        }
    }

    async fn write_once(&self, pool: &PgPool, items: &Items, process: Uuid) {
        let slots = self.slots();
        let (slots, sessions): (Vec<_>, Vec<_>) =
            slots.into_iter().filter_map(|slot| slot.take().map(|status| (slot, status))).unzip();
        let written = async {
            workers::at(Step::FixStatusWrite, in_database(pool, SESSIONS)).await?;
            if !sessions.is_empty() {
                status::write(&mut *pool.acquire().await?, process, &sessions).await?;
            }
            Ok::<_, StoreError>(())
        };
        if items.attend(SESSIONS, SESSIONS, written).await.done().is_none() {
            slots.iter().for_each(|slot| slot.give_back());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(next_in: u64) -> Noted {
        let next_out = SeqNum::FIRST;
        Noted { peer: None, last_in: None, last_out: None, next_in: SeqNum(next_in), next_out, gap: None }
    }

    #[tokio::test]
    async fn a_state_is_taken_once_and_only_a_connection_or_a_gap_is_urgent() {
        let board = Board::default();
        let slot = board.slot("acme");
        let is_urgent = || {
            let mut notified = std::pin::pin!(board.changed.notified());
            notified.as_mut().enable()
        };
        slot.note(noted(1));
        assert!(is_urgent(), "the first state");
        slot.note(noted(2));
        assert!(!is_urgent(), "a number");
        assert_eq!(slot.take().map(|status| status.next_in), Some(2));
        assert_eq!(slot.take(), None);
        slot.give_back();
        assert_eq!(slot.take().map(|status| status.next_in), Some(2));
        slot.note(Noted { gap: Some((SeqNum(2), SeqNum(4))), ..noted(2) });
        assert!(is_urgent(), "a gap");
        drop(slot);
        assert!(board.slots().is_empty());
    }
}
