//! Drop copies: reports of every order of the partner in its environment, from any interface.
//!
//! A copy has the ExecID of the original. For orders that came by REST, ClOrdID(11) is their clientReference, or else
//! their intentId.

use dvp_domain::{asset::Registry, event::EventType, snapshot::IntentSnapshot};
use dvp_fix::codec::MsgType;
use dvp_store::{
    fix::{
        reports as fix_reports,
        rows::{FixOrder, FixOutbound},
    },
    orders::events::StoredEvent,
};
use serde_json::Value;

use super::{
    OrderEntry, PAGE, PageReports,
    events::occurred_at,
    rows::{Slot, order_facts},
};
use crate::{
    application::{Turn, Unavailable},
    orders::{
        facts::OrderFacts,
        report::{self, Ids, ReportContent},
    },
};

impl OrderEntry {
    pub(super) async fn copied_reports(&self, turn: &mut Turn<'_>) -> Result<PageReports, Unavailable> {
        let mut conn = self.connection().await?;
        let page = fix_reports::list_copied(&mut conn, &self.session, self.feed_position, PAGE).await?;
        drop(conn);
        let reports = page.events.iter().map(|(event, order)| self.copy(turn, event, order.as_ref()));
        let has_more = page.position > self.feed_position;
        Ok(PageReports { outbound: reports.collect(), position: page.position, has_more })
    }

    fn copy(&self, turn: &mut Turn<'_>, stored: &StoredEvent, order: Option<&FixOrder>) -> FixOutbound {
        let slot = Slot { seq: turn.reserve(), at: turn.sending_time() };
        let event = &stored.event;
        let facts = order
            .and_then(order_facts)
            .unwrap_or_else(|| facts_of(&event.object, &self.engine.context().registry));
        let content =
            ReportContent::of_event(event.kind, &event.object, &facts, (&event.reference, event.sequence));
        let named = order.map(|order| order.cl_ord_id.as_str());
        let named = named.or(event.client_reference.as_deref()).unwrap_or(&event.intent_id);
        // A requested cancellation was reported as the answer to its request.
        let request = facts.cancelled_by.as_deref().filter(|_| event.kind == EventType::IntentCancelled);
        let ids = Ids {
            cl_ord_id: request.unwrap_or(named),
            orig_cl_ord_id: request.map(|_| named),
            order_id: &event.reference,
            exec_id: request.map_or_else(
                || format!("{}.{}", event.reference, event.sequence),
                |request| format!("{}.c.{request}", event.reference),
            ),
            at: occurred_at(stored),
            is_status: false,
        };
        slot.holds(MsgType::EXECUTION_REPORT, report::execution_report(self.version, &facts, &content, &ids))
    }
}

/// An order's words, of an intent that was not given in them: from its snapshot.
fn facts_of(object: &Value, registry: &Registry) -> OrderFacts {
    let Some(IntentSnapshot { input, output, .. }) = report::snapshot(object) else {
        return OrderFacts::default();
    };
    let is_purchase =
        registry.pairs.iter().any(|pair| pair.base == output.currency && pair.quote == input.asset);
    let (symbol, side, quantity, exponent) = if is_purchase {
        (format!("{}/{}", output.currency, input.asset), "1", output.amount_minor, output.exponent)
    } else {
        (format!("{}/{}", input.asset, output.currency), "2", input.amount_minor, input.exponent)
    };
    OrderFacts {
        symbol,
        side: side.to_owned(),
        order_qty: quantity.to_decimal_string(exponent),
        ..OrderFacts::default()
    }
}
