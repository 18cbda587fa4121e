//! OrderMassCancelRequest(q), which FIX 4.2 does not have: cancels all of the session's orders that can be cancelled, or
//! those of one symbol. Each is reported as cancelled like any other; OrderMassCancelReport(r) says how many.

use std::sync::Arc;

use dvp_core::engine::CancelOutcome;
use dvp_fix::codec::{Body, MessageRef, MsgType};
use dvp_store::fix::{
    reports as fix_reports,
    rows::{ClOrdId, FixOrder, FixRows, Parking},
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::{
    OrderEntry,
    rows::{Slot, cancel_order, details, is_repetition, order_facts, to_json},
};
use crate::{
    application::{Commit, Turn, Unavailable},
    orders::{
        facts::{Details, OrderFacts, fields_of, route},
        fields,
        report::{self, Ids, ReportContent},
        tags,
    },
};

/// The most orders of one request.
const MASS_MAX: usize = 500;
/// Orders that are cancelled at the same time.
const AT_ONCE: usize = 16;
/// What the request's ClOrdID(11) is kept for, in place of an order's.
const ALL: &str = "*";

/// MassCancelRejectReason(532). "Other" is 99, and the field of FIX 4.4 one character.
#[derive(Clone, Copy)]
enum Refusal {
    NotSupported = 0,
    UnknownSecurity = 1,
}

impl OrderEntry {
    pub(super) async fn mass_cancel(
        &mut self,
        message: MessageRef<'_>,
        turn: &mut Turn<'_>,
    ) -> Result<Commit, Unavailable> {
        let named = fields::check(message, &self.ignored).and_then(|()| fields::id(message, tags::CL_ORD_ID));
        let cl_ord_id = match named {
            Ok(cl_ord_id) => cl_ord_id,
            Err(fault) => return self.refuse_fields(message, Slot::take(turn), &fault).await,
        };
        let kind = message.text(tags::MASS_CANCEL_REQUEST_TYPE);
        let symbol = message.text(tags::SYMBOL);
        let refused = match (kind, symbol) {
            (Some("7"), None) => None,
            (Some("1"), Some(symbol)) if self.is_pair(symbol) => None,
            (Some("1"), Some(_)) => Some((Refusal::UnknownSecurity, "unknown symbol")),
            (Some("1"), None) => Some((Refusal::UnknownSecurity, "Symbol(55) required")),
            (Some("7"), Some(_)) => {
                Some((Refusal::NotSupported, "Symbol(55) is for MassCancelRequestType(530) 1"))
            }
            _ => Some((Refusal::NotSupported, "MassCancelRequestType(530) must be 1 or 7")),
        };
        let now = turn.sending_time().time;
        let used = self.used(cl_ord_id, message, now).await?;
        let key = self.days.used_at(cl_ord_id, now);
        let is_again = used.as_ref().is_some_and(|used| is_repetition(message) && is_mass_cancel(used));
        let duplicate = (used.is_some() && !is_again).then_some((Refusal::NotSupported, "duplicate ClOrdID"));
        // The orders that it was meant for are not those of today.
        let is_old = used.is_none() && self.may_be_earlier(cl_ord_id, message, key.trading_day, now).await?
            || is_again && self.days.is_of_earlier(message, now);
        let too_late = is_old.then_some((Refusal::NotSupported, "may be of an earlier trading day"));
        let is_first = used.is_none() && !is_old;
        if let Some((reason, text)) = duplicate.or(too_late).or(refused) {
            return self.refuse_mass_cancel(message, turn, is_first.then_some(&key), reason, text).await;
        }
        let mut conn = self.connection().await?;
        let limit = i64::try_from(MASS_MAX + 1).unwrap_or(i64::MAX);
        let open = fix_reports::list_cancellable(&mut conn, &self.session, symbol, limit).await?;
        drop(conn);
        let parked = self.parked_orders(symbol);
        if open.len() + parked.len() > MASS_MAX {
            let text = "too many orders, cancel by symbol or one by one";
            let key = is_first.then_some(&key);
            return self.refuse_mass_cancel(message, turn, key, Refusal::NotSupported, text).await;
        }
        let (engine, tenant) = (&self.engine, &self.tenant);
        let cancels = open.into_iter().map(|reference| {
            let (engine, tenant) = (engine.clone(), tenant.clone());
            async move { engine.cancel(&tenant, &reference, None).await }
        });
        let outcomes: Vec<CancelOutcome> =
            stream::iter(cancels).buffer_unordered(AT_ONCE).try_collect().await?;
        let cancelled = outcomes.iter().filter(|outcome| **outcome == CancelOutcome::Cancelled).count();
        let total = cancelled + parked.len();
        let mut rows = FixRows::default();
        for order in &parked {
            self.forget_parked(&order.cl_ord_id);
            let Some(facts) = order_facts(order) else { continue };
            let slot = Slot::next(turn);
            let (report, ended) = self.parked_is_cancelled(order, facts, cl_ord_id, slot);
            rows.outbound.push(slot.holds(MsgType::EXECUTION_REPORT, report));
            rows.orders.push(ended);
            rows.parking.push(Parking::Decide { cl_ord_id: order.cl_ord_id.clone() });
        }
        let (slot, numbers) = Slot::take(turn);
        let body = self
            .answer(message, slot, kind.unwrap_or_default())
            .number(tags::TOTAL_AFFECTED_ORDERS, count(total));
        rows.outbound.push(slot.holds(MsgType::ORDER_MASS_CANCEL_REPORT, body));
        if is_first {
            rows.orders.push(cancel_order(&key, ALL, None));
        }
        let part = self.part(numbers, Arc::new(move |_| rows.clone()));
        self.queue(if is_first { part.using(&key) } else { part }).await
    }

    async fn refuse_mass_cancel(
        &self,
        message: MessageRef<'_>,
        turn: &mut Turn<'_>,
        key: Option<&ClOrdId>,
        reason: Refusal,
        text: &str,
    ) -> Result<Commit, Unavailable> {
        let (slot, numbers) = Slot::take(turn);
        let body = self.answer(message, slot, "0").number(tags::MASS_CANCEL_REJECT_REASON, reason as u64);
        let rows = FixRows {
            outbound: vec![slot.holds(MsgType::ORDER_MASS_CANCEL_REPORT, body.field(tags::TEXT, text))],
            orders: key.map(|key| cancel_order(key, ALL, None)).into_iter().collect(),
            ..FixRows::default()
        };
        let part = self.part(numbers, Arc::new(move |_| rows.clone()));
        self.queue(match key {
            Some(key) => part.using(key),
            None => part,
        })
        .await
    }

    /// The fields of every OrderMassCancelReport; `response`: MassCancelResponse(531).
    fn answer(&self, message: MessageRef<'_>, slot: Slot, response: &str) -> Body {
        let id = format!("mass.{}", slot.unique());
        let is_fixt = self.session.begin_string == "FIXT.1.1";
        fields_of(&route(message))
            .maybe(tags::CL_ORD_ID, message.text(tags::CL_ORD_ID))
            .field(tags::ORDER_ID, &id)
            .maybe(tags::MASS_ACTION_REPORT_ID, Some(&id).filter(|_| is_fixt))
            .maybe(tags::SYMBOL, fields::repeatable(message, tags::SYMBOL))
            .field(tags::TRANSACT_TIME, slot.at.text())
            .maybe(tags::MASS_CANCEL_REQUEST_TYPE, message.text(tags::MASS_CANCEL_REQUEST_TYPE))
            .field(tags::MASS_CANCEL_RESPONSE, response)
    }

    /// The report of a parked order that a request has cancelled, and the order as it ends.
    fn parked_is_cancelled(
        &self,
        order: &FixOrder,
        facts: OrderFacts,
        request: &str,
        slot: Slot,
    ) -> (Body, FixOrder) {
        let facts = OrderFacts { cancelled_by: Some(request.to_owned()), ..facts };
        let ids = Ids {
            cl_ord_id: &order.cl_ord_id,
            orig_cl_ord_id: None,
            order_id: "NONE",
            exec_id: format!("{}.c.{request}", order.intent_id),
            at: slot.at,
            is_status: false,
        };
        let body = report::execution_report(self.version, &facts, &ReportContent::Canceled(None), &ids);
        (body, FixOrder { details: to_json(&Details::Order(Box::new(facts))), ..order.clone() })
    }

    pub(super) fn is_pair(&self, symbol: &str) -> bool {
        let registry = &self.engine.context().registry;
        symbol
            .split_once('/')
            .is_some_and(|(base, quote)| registry.find(base).is_some() && registry.find(quote).is_some())
    }
}

fn is_mass_cancel(order: &FixOrder) -> bool {
    matches!(details(order), Some(Details::Cancel { orig_cl_ord_id, .. }) if orig_cl_ord_id == ALL)
}

fn count(orders: usize) -> u64 {
    u64::try_from(orders).unwrap_or(u64::MAX)
}
