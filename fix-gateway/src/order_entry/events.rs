//! The feed's events to reports about the session's own orders.

use dvp_domain::event::EventType;
use dvp_fix::{Stamp, UtcNanos, codec::MsgType};
use dvp_store::{
    fix::{
        self as store, Reportable,
        rows::{FixOrder, FixOutbound},
    },
    orders::events::StoredEvent,
};
use tracing::info;

use super::{
    OrderEntry, PAGE, PageReports, REPORTED_AT_ONCE, Version,
    rows::{Slot, order_facts},
};
use crate::{
    application::{Turn, Unavailable},
    feed::Taken,
    orders::{
        facts::OrderFacts,
        report::{self, Ids, ReportContent},
        tags,
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
        let reports = page.events.iter().flat_map(|(event, order)| self.event_reports(turn, event, order));
        Ok(PageReports { outbound: reports.collect(), position: page.position, has_more: page.has_more })
    }

    /// The event's report, and the one that follows it at once.
    fn event_reports(&self, turn: &mut Turn<'_>, stored: &StoredEvent, order: &FixOrder) -> Vec<FixOutbound> {
        let Some((facts, content)) = Self::reportable(stored, order) else { return Vec::new() };
        let ids = Ids {
            cl_ord_id: &order.cl_ord_id,
            orig_cl_ord_id: None,
            order_id: &stored.event.reference,
            exec_id: format!("{}.{}", stored.event.reference, stored.event.sequence),
            at: occurred_at(stored, turn),
            is_status: false,
        };
        info!(intent_id = %order.intent_id, event = stored.event.kind.as_str(), "report");
        self.with_rest(turn, &facts, &content, ids, false)
    }

    /// A report, and of a fill of less than the order's quantity the end of the rest.
    pub(super) fn with_rest(
        &self,
        turn: &mut Turn<'_>,
        facts: &OrderFacts,
        content: &ReportContent,
        ids: Ids<'_>,
        is_copy: bool,
    ) -> Vec<FixOutbound> {
        let mut report = |content: &ReportContent, ids: &Ids<'_>| {
            let slot = Slot { seq: turn.reserve(), at: turn.sending_time() };
            let body = report::execution_report(self.version, facts, content, ids);
            // FIX 4.2 has no CopyMsgIndicator.
            let is_marked = is_copy && self.version == Version::Fix44;
            let mark = is_marked.then_some("Y");
            slot.holds(MsgType::EXECUTION_REPORT, body.maybe(tags::COPY_MSG_INDICATOR, mark))
        };
        let first = report(content, &ids);
        let rest = content.rest(facts).map(|rest| {
            let ids = Ids { exec_id: format!("{}.r", ids.exec_id), ..ids };
            report(&rest, &ids)
        });
        std::iter::once(first).chain(rest).collect()
    }
}

/// TransactTime(60) of an event's report.
pub(super) fn occurred_at(stored: &StoredEvent, turn: &Turn<'_>) -> Stamp {
    let micros = u64::try_from(stored.event.occurred_at.timestamp_micros()).unwrap_or(0);
    Stamp { time: UtcNanos(micros.saturating_mul(1000)), ..turn.sending_time() }
}
