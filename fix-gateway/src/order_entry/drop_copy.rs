//! Drop copies: reports of every order of the partner in its environment, from any interface.
//!
//! A copy has the ExecID of the original. For orders that came by REST, ClOrdID(11) is their clientReference, or else
//! their intentId.

use dvp_domain::{event::EventType, fees::FeeItem, snapshot::IntentSnapshot};
use dvp_store::fix::{
    reports::{self as fix_reports, CopiedEvent},
    rows::FixOutbound,
};
use serde::Deserialize as _;
use serde_json::Value;

use super::{
    OrderEntry, PAGE, PageReports,
    events::occurred_at,
    rows::{deducted, order_facts},
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
        let reports = page.events.iter().flat_map(|copied| self.copies(turn, copied));
        let has_more = page.position > self.feed_position;
        Ok(PageReports { outbound: reports.collect(), position: page.position, has_more })
    }

    fn copies(&self, turn: &mut Turn<'_>, (stored, order, fees): &CopiedEvent) -> Vec<FixOutbound> {
        let event = &stored.event;
        let order = order.as_ref();
        let facts = order.and_then(order_facts).unwrap_or_else(|| facts_of(&event.object, fees));
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
            at: occurred_at(stored, turn),
            is_status: false,
        };
        self.with_rest(turn, &facts, &content, ids, true)
    }
}

/// The words of an order that came otherwise, from its snapshot: it sells its input.
fn facts_of(object: &Value, fees: &Value) -> OrderFacts {
    let Some(IntentSnapshot { input, output, .. }) = report::snapshot(object) else {
        return OrderFacts::default();
    };
    let fees = Vec::<FeeItem>::deserialize(fees).unwrap_or_default();
    OrderFacts {
        symbol: format!("{}/{}", input.asset, output.currency),
        side: "2".to_owned(),
        order_qty: input.amount_minor.to_decimal_string(input.exponent),
        fees: deducted(&fees),
        ..OrderFacts::default()
    }
}
