//! The events that the follower has read for one session, until the session takes them.

use std::collections::VecDeque;

use dvp_store::{fix::rows::FixOrder, orders::events::StoredEvent};
use parking_lot::Mutex;
use tokio::sync::watch;

/// More events that wait than this are read from the database.
const WAITING_MAX: usize = 1000;

#[derive(Debug, Default)]
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    grown: watch::Sender<()>,
}

/// Events in the order of the feed, since the session has last read the database.
#[derive(Debug)]
struct Waiting {
    events: VecDeque<(StoredEvent, FixOrder)>,
    /// Events may be missing: the session has to read the database.
    is_lost: bool,
}

impl Default for Waiting {
    /// What was before is in the database.
    fn default() -> Self {
        Self { events: VecDeque::new(), is_lost: true }
    }
}

/// What a session takes.
#[derive(Debug)]
pub(crate) enum Taken {
    /// The next events of its orders. `has_more`: others wait.
    Events { events: Vec<(StoredEvent, FixOrder)>, has_more: bool },
    /// The session has to read them from the database. Later ones are handed over.
    Unknown,
}

impl Inbox {
    pub(super) fn grown(&self) -> watch::Receiver<()> {
        self.grown.subscribe()
    }

    pub(super) fn notify(&self) {
        self.grown.send_replace(());
    }

    pub(super) fn put(&self, event: StoredEvent, order: FixOrder) {
        let mut waiting = self.waiting.lock();
        if waiting.events.len() >= WAITING_MAX {
            waiting.events.clear();
            waiting.is_lost = true;
        }
        if !waiting.is_lost {
            waiting.events.push_back((event, order));
        }
        drop(waiting);
        self.notify();
    }

    pub(super) fn lose(&self) {
        let mut waiting = self.waiting.lock();
        waiting.events.clear();
        waiting.is_lost = true;
        drop(waiting);
        self.notify();
    }

    pub(super) fn take(&self, after: i64, limit: usize) -> Taken {
        let mut waiting = self.waiting.lock();
        if waiting.is_lost {
            waiting.is_lost = false;
            return Taken::Unknown;
        }
        let mut events = Vec::new();
        while events.len() < limit
            && let Some(next) = waiting.events.pop_front()
        {
            // One that the session has read from the database may be handed over as well.
            if next.0.position > after {
                events.push(next);
            }
        }
        Taken::Events { events, has_more: !waiting.events.is_empty() }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use dvp_domain::event::EventType;
    use dvp_store::orders::{events::NewEvent, intents::Tenant};

    use super::*;

    pub(in crate::feed) fn stored(position: i64) -> StoredEvent {
        let at = chrono::DateTime::UNIX_EPOCH;
        let event = NewEvent {
            event_id: format!("evt_{position}"),
            tenant: Tenant { partner_id: "acme".to_owned(), livemode: false },
            reference: "exe_1".to_owned(),
            intent_id: "intent".to_owned(),
            client_reference: None,
            sequence: position,
            kind: EventType::PayoutInitiated,
            occurred_at: at,
            observed_at: at,
            object: serde_json::Value::Null,
        };
        StoredEvent { position, event }
    }

    pub(in crate::feed) fn order() -> FixOrder {
        FixOrder {
            cl_ord_id: "order".to_owned(),
            trading_day: 0,
            reference: Some("exe_1".to_owned()),
            intent_id: "intent".to_owned(),
            details: serde_json::Value::Null,
        }
    }

    fn put(inbox: &Inbox, positions: std::ops::RangeInclusive<i64>) {
        positions.for_each(|position| inbox.put(stored(position), order()));
    }

    fn taken(inbox: &Inbox, after: i64, limit: usize) -> Option<(Vec<i64>, bool)> {
        match inbox.take(after, limit) {
            Taken::Events { events, has_more } => {
                Some((events.iter().map(|(event, _)| event.position).collect(), has_more))
            }
            Taken::Unknown => None,
        }
    }

    #[test]
    fn what_the_database_was_read_for_is_not_taken_again() {
        let inbox = Inbox::default();
        put(&inbox, 1..=2);
        assert_eq!(taken(&inbox, 0, 9), None, "events before the session's first read are in the database");
        put(&inbox, 3..=6);
        assert_eq!(taken(&inbox, 4, 1), Some((vec![5], true)));
        assert_eq!(taken(&inbox, 5, 9), Some((vec![6], false)));
        assert_eq!(taken(&inbox, 6, 9), Some((vec![], false)));
    }

    #[test]
    fn too_many_events_are_left_to_the_database() {
        let inbox = Inbox::default();
        assert_eq!(taken(&inbox, 0, 9), None);
        put(&inbox, 1..=1001);
        assert_eq!(taken(&inbox, 0, 9), None);
        put(&inbox, 1002..=1002);
        assert_eq!(taken(&inbox, 1001, 9), Some((vec![1002], false)));
    }
}
