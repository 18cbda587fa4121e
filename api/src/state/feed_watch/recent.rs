//! The latest events of one tenant, without a gap, for all of its waiting readers. Pure.

use std::collections::VecDeque;
use std::sync::Arc;

use dvp_store::orders::events::{EventFilter, StoredEvent};

/// Events kept: a page of the longest length and some more.
const KEPT: usize = 128;

/// All events of a tenant after one position and up to another.
#[derive(Debug, Clone, Default)]
pub(super) struct Recent {
    span: Option<Span>,
    events: VecDeque<Arc<StoredEvent>>,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    after: i64,
    to: i64,
}

impl From<i64> for Recent {
    /// No event is known before or at the position.
    fn from(position: i64) -> Self {
        Self { span: Some(Span { after: position, to: position }), events: VecDeque::new() }
    }
}

impl Recent {
    /// The position up to which all events are known. `None`: none is.
    pub(super) fn to(&self) -> Option<i64> {
        self.span.map(|span| span.to)
    }

    /// Adds all events after [`Recent::to`] and up to `to`, or beyond it when more were read. Says whether any is new.
    pub(super) fn extend(&mut self, events: Vec<StoredEvent>, to: i64) -> bool {
        let Some(span) = &mut self.span else { return false };
        let is_new = !events.is_empty();
        let last = events.last().map_or(to, |last| last.position);
        span.to = span.to.max(to).max(last);
        self.events.extend(events.into_iter().map(Arc::new));
        while self.events.len() > KEPT
            && let Some(oldest) = self.events.pop_front()
        {
            span.after = oldest.position;
        }
        is_new
    }

    /// The events after `looked_to` that the filter selects, as many as it wants. `None`: some of them are not kept.
    pub(super) fn select(&self, looked_to: i64, filter: &EventFilter) -> Option<Vec<Arc<StoredEvent>>> {
        let span = self.span.filter(|span| span.after <= looked_to)?;
        debug_assert!(looked_to <= span.to, "a reader is never ahead of what it was given");
        let limit = usize::try_from(filter.limit).unwrap_or(0);
        let selected = self.events.iter().filter(|stored| {
            let event = &stored.event;
            stored.position > looked_to.max(filter.after)
                && filter.kind.is_none_or(|kind| kind == event.kind)
                && filter.intent_id.as_ref().is_none_or(|id| *id == event.intent_id)
        });
        Some(selected.take(limit).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use dvp_domain::event::EventType;
    use dvp_store::orders::events::NewEvent;
    use dvp_store::orders::intents::Tenant;
    use serde_json::Value;

    use super::*;

    fn event(position: i64, kind: EventType, intent_id: &str) -> StoredEvent {
        let event = NewEvent {
            event_id: format!("evt_{position}"),
            tenant: Tenant { partner_id: "acme".into(), livemode: false },
            reference: "0x00".into(),
            intent_id: intent_id.into(),
            client_reference: None,
            sequence: 1,
            kind,
            occurred_at: DateTime::UNIX_EPOCH,
            observed_at: DateTime::UNIX_EPOCH,
            object: Value::Null,
        };
        StoredEvent { position, event }
    }

    fn all(limit: i64) -> EventFilter {
        EventFilter { limit, ..EventFilter::default() }
    }

    fn check(recent: &Recent, looked_to: i64, filter: &EventFilter, positions: Option<&[i64]>) {
        let found = recent.select(looked_to, filter);
        let found: Option<Vec<i64>> = found.map(|found| found.iter().map(|one| one.position).collect());
        assert_eq!(found.as_deref(), positions, "from {looked_to} with {filter:?}");
    }

    #[test]
    fn a_reader_gets_the_events_after_its_last_read_only() {
        let mut recent = Recent::from(10);
        check(&recent, 10, &all(9), Some(&[]));
        let kind = EventType::IntentAccepted;
        assert!(recent.extend(vec![event(11, kind, "a"), event(14, kind, "b")], 13));
        assert_eq!(recent.to(), Some(14));
        assert!(!recent.extend(Vec::new(), 20));
        assert_eq!(recent.to(), Some(20));
        check(&recent, 10, &all(9), Some(&[11, 14]));
        check(&recent, 11, &all(9), Some(&[14]));
        check(&recent, 10, &all(1), Some(&[11]));
        check(&recent, 20, &all(9), Some(&[]));
        // A cursor beyond the last look, as of a page that was read elsewhere.
        check(&recent, 10, &EventFilter { after: 11, ..all(9) }, Some(&[14]));
    }

    #[test]
    fn filters_match_those_of_the_database() {
        let mut recent = Recent::from(0);
        let (accepted, completed) = (EventType::IntentAccepted, EventType::PayoutCompleted);
        recent.extend(vec![event(1, accepted, "a"), event(2, accepted, "b"), event(3, completed, "a")], 3);
        let kind = Some(accepted);
        let intent_id = Some("a".to_owned());
        check(&recent, 0, &EventFilter { kind, ..all(9) }, Some(&[1, 2]));
        check(&recent, 0, &EventFilter { intent_id: intent_id.clone(), ..all(9) }, Some(&[1, 3]));
        check(&recent, 0, &EventFilter { kind, intent_id, ..all(9) }, Some(&[1]));
    }

    #[test]
    fn a_reader_from_before_the_kept_events_must_query_the_database() {
        check(&Recent::default(), 0, &all(9), None);
        check(&Recent::from(10), 9, &all(9), None);
        let mut recent = Recent::from(0);
        let many = (1..=130).map(|position| event(position, EventType::IntentAccepted, "a"));
        recent.extend(many.collect(), 130);
        check(&recent, 1, &all(1), None);
        check(&recent, 2, &all(1), Some(&[3]));
    }
}
