//! The feed's events to reports about the session's own orders.

use dvp_domain::event::EventType;
use dvp_fix::{UtcNanos, codec::MsgType};
use dvp_store::{
    fix::{
        self as store, Reportable,
        rows::{FixOrder, FixOutbound},
    },
    orders::events::StoredEvent,
};
use tracing::info;

use super::{
    OrderEntry, PAGE, PageReports, REPORTED_AT_ONCE,
    rows::{Slot, order_facts},
};
use crate::{
    application::{Turn, Unavailable},
    feed::Taken,
    orders::{
        facts::OrderFacts,
        report::{self, Ids, ReportContent},
    },
};

impl OrderEntry {
    /// An event's report; `None` when it was reported already.
    fn reportable(stored: &StoredEvent, order: &FixOrder) -> Option<(OrderFacts, ReportContent)> {
        let facts = order_facts(order)?;
        let is_reported = match stored.event.kind {
            EventType::IntentAccepted => true,
            EventType::IntentCancelled => facts.cancelled_by.is_some(),
            EventType::OfframpInitiated
            | EventType::OfframpInProgress
            | EventType::OfframpCompleted
            | EventType::OfframpFailed
            | EventType::PayoutInitiated
            | EventType::PayoutInProgress
            | EventType::PayoutCompleted
            | EventType::PayoutFailed
            | EventType::PayoutReversed
            | EventType::IntentExpired
            | EventType::IntentFailed => false,
        };
        let at = (stored.event.reference.as_str(), stored.event.sequence);
        let content = ReportContent::of_event(stored.event.kind, &stored.event.object, &facts, at);
        (!is_reported).then_some((facts, content))
    }

    /// Reports of the next events of the session's orders, as they were handed over or from a page of the feed.
    pub(super) async fn own_reports(&self, turn: &mut Turn<'_>) -> Result<PageReports, Unavailable> {
        let page = match self.feed.take(self.feed_position, REPORTED_AT_ONCE) {
            Taken::Events { events, has_more } => {
                let last = events.last().map(|(event, _)| event.position);
                Reportable { events, position: last.unwrap_or(self.feed_position), has_more }
            }
            Taken::Unknown => {
                let mut conn = self.connection().await?;
                let page = store::list_reportable(&mut conn, &self.session, self.feed_position, PAGE).await?;
                if page.has_more {
                    self.feed.lose();
                }
                page
            }
        };
        let reports = page.events.iter().filter_map(|(event, order)| self.event_report(turn, event, order));
        Ok(PageReports { outbound: reports.collect(), position: page.position, has_more: page.has_more })
    }

    fn event_report(
        &self,
        turn: &mut Turn<'_>,
        stored: &StoredEvent,
        order: &FixOrder,
    ) -> Option<FixOutbound> {
        let (facts, content) = Self::reportable(stored, order)?;
        let slot = Slot { seq: turn.reserve(), at: turn.sending_time() };
        let ids = Ids {
            cl_ord_id: &order.cl_ord_id,
            orig_cl_ord_id: None,
            order_id: &stored.event.reference,
            exec_id: format!("{}.{}", stored.event.reference, stored.event.sequence),
            at: occurred_at(stored),
            is_status: false,
        };
        info!(intent_id = %order.intent_id, event = stored.event.kind.as_str(), seq = %slot.seq, "report");
        Some(
            slot.holds(
                MsgType::EXECUTION_REPORT,
                report::execution_report(self.version, &facts, &content, &ids),
            ),
        )
    }
}

/// TransactTime(60) of an event's report.
pub(super) fn occurred_at(stored: &StoredEvent) -> UtcNanos {
    let millis = u64::try_from(stored.event.occurred_at.timestamp_millis()).unwrap_or(0);
    UtcNanos(millis.saturating_mul(1_000_000))
}
