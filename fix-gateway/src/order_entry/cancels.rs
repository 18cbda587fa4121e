//! OrderCancelRequest(F), and OrderCancelReplaceRequest(G), which is always rejected.

use std::sync::Arc;

use dvp_core::engine::CancelOutcome;
use dvp_fix::codec::{MessageRef, MsgType};
use dvp_store::fix::rows::{ClOrdId, FixOrder, FixRows};
use tracing::{Instrument as _, info_span};

use super::{
    OrderEntry,
    rows::{Slot, cancel_order, details, is_repetition, order_facts, to_json, transmissible},
};
use crate::{
    application::{Commit, Numbers, Turn, Unavailable},
    orders::{
        facts::{CancelRefusal, Details, OrderFacts, route},
        fields::{self, IgnoreList},
        report::{self, CancelRejected, Ids, ReportContent},
        tags,
    },
};

/// The identifiers in a request about an earlier order.
#[derive(Clone, Copy)]
pub(super) struct Named<'a> {
    pub(super) cl_ord_id: &'a str,
    pub(super) orig_cl_ord_id: &'a str,
    trading_day: i32,
    message: MessageRef<'a>,
}

impl<'a> Named<'a> {
    /// A request whose identifiers an OrderCancelReject could not repeat gets a BusinessMessageReject.
    fn of(message: MessageRef<'a>, trading_day: i32) -> Result<Self, fields::FieldFault> {
        let cl_ord_id = fields::id(message, tags::CL_ORD_ID)?;
        let orig_cl_ord_id = fields::id(message, tags::ORIG_CL_ORD_ID)?;
        Ok(Self { cl_ord_id, orig_cl_ord_id, trading_day, message })
    }

    /// The request's ClOrdID, as it is used.
    pub(super) fn used(self) -> ClOrdId {
        ClOrdId { id: self.cl_ord_id.to_owned(), trading_day: self.trading_day }
    }
}

impl OrderEntry {
    pub(super) async fn cancel(
        &mut self,
        message: MessageRef<'_>,
        turn: &mut Turn<'_>,
    ) -> Result<Commit, Unavailable> {
        let (slot, numbers) = Slot::take(turn);
        let now = slot.at.time;
        let named = match Named::of(message, self.days.day(now)) {
            Ok(named) => named,
            Err(fault) => return self.refuse_fields(message, (slot, numbers), &fault).await,
        };
        let order = self.newest(named.orig_cl_ord_id, Some(message)).await?;
        let (order, day) = order.map_or((None, 0), |(order, day)| (Some(order), day));
        let known = order.as_ref().and_then(|order| Some((order, order_facts(order)?)));
        if let Some(used) = self.used(named.cl_ord_id, message, now).await? {
            return match known {
                Some((order, facts))
                    if is_repetition(message) && facts.cancelled_by.as_deref() == Some(named.cl_ord_id) =>
                {
                    self.report_again(order, &facts, slot, numbers).await
                }
                known => {
                    let order = known.map(|(order, _)| order);
                    let refused = is_repetition(message).then(|| refused_before(&used, named)).flatten();
                    let refusal = refused.unwrap_or(CancelRefusal::DuplicateClOrdId);
                    let rows = self.refuse_cancel(named, slot, order, refusal).await?;
                    self.write(numbers, FixRows { orders: Vec::new(), ..rows }).await
                }
            };
        }
        if order.is_some() && self.may_be_earlier(named.cl_ord_id, message, day, now).await? {
            let refusal = CancelRefusal::Field("may be of an earlier trading day than the order".to_owned());
            let rows = self.refuse_cancel(named, slot, order.as_ref(), refusal).await?;
            return self.write(numbers, FixRows { orders: Vec::new(), ..rows }).await;
        }
        let is_parked = self.parked.has(named.orig_cl_ord_id);
        let known = known.filter(|(order, facts)| {
            // Cancelled before settlement began, or too late.
            is_parked || facts.cancelled_by.is_some() || order.reference.is_some()
        });
        let refusal = match &known {
            None => Some(CancelRefusal::UnknownOrder),
            Some((order, facts)) => misfit(message, &self.ignored, order, facts),
        };
        match (known, refusal) {
            (Some((order, facts)), None) if is_parked => {
                self.cancel_parked(named, order, facts, slot, numbers).await
            }
            (Some((order, _)), None) if order.reference.is_none() => {
                let rows = self.refuse_cancel(named, slot, Some(order), CancelRefusal::TooLate).await?;
                self.refused_cancel(named, numbers, rows).await
            }
            (Some((order, facts)), None) => {
                let span =
                    info_span!("fix_cancel", session = self.session.session_id, intent_id = %order.intent_id);
                self.cancel_known(named, order, facts, slot, numbers).instrument(span).await
            }
            (known, refusal) => {
                let refusal = refusal.unwrap_or(CancelRefusal::UnknownOrder);
                let order = known.map(|(order, _)| order);
                let rows = self.refuse_cancel(named, slot, order, refusal).await?;
                self.refused_cancel(named, numbers, rows).await
            }
        }
    }

    async fn cancel_known(
        &self,
        named: Named<'_>,
        order: &FixOrder,
        facts: OrderFacts,
        slot: Slot,
        numbers: Numbers,
    ) -> Result<Commit, Unavailable> {
        let reference = order.reference.clone().unwrap_or_default();
        let cl_ord_id = named.cl_ord_id;
        let facts = OrderFacts { cancelled_by: Some(cl_ord_id.to_owned()), ..facts };
        let ids = Ids {
            cl_ord_id,
            orig_cl_ord_id: Some(&order.cl_ord_id),
            order_id: &reference,
            exec_id: format!("{reference}.c.{cl_ord_id}"),
            at: slot.at,
            is_status: false,
        };
        let body = report::execution_report(self.version, &facts, &ReportContent::Canceled(None), &ids);
        let rows = FixRows {
            outbound: vec![slot.holds(MsgType::EXECUTION_REPORT, body)],
            orders: vec![cancel_order(&named.used(), &order.cl_ord_id, None)],
            updates: vec![FixOrder { details: to_json(&Details::Order(Box::new(facts))), ..order.clone() }],
            ..FixRows::default()
        };
        let outbound = rows.outbound.clone();
        let part = self.part(numbers, Arc::new(move |_| rows.clone())).using(&named.used());
        match self.engine.cancel(&self.tenant, &reference, Some(part)).await {
            Ok(CancelOutcome::Cancelled) => Ok(Box::pin(std::future::ready(transmissible(outbound)))),
            Ok(CancelOutcome::TooLate) => {
                let rows = self.refuse_cancel(named, slot, Some(order), CancelRefusal::TooLate).await?;
                self.refused_cancel(named, numbers, rows).await
            }
            Ok(CancelOutcome::Unknown) => {
                let rows = self.refuse_cancel(named, slot, None, CancelRefusal::UnknownOrder).await?;
                self.refused_cancel(named, numbers, rows).await
            }
            // The store decides whether the commit was written: the session's numbers are loaded again.
            Err(error) => Err(error.into()),
        }
    }

    /// An order cannot be replaced: the client cancels it and sends another one. The request's ClOrdID is used.
    pub(super) async fn replace(
        &self,
        message: MessageRef<'_>,
        turn: &mut Turn<'_>,
    ) -> Result<Commit, Unavailable> {
        let (slot, numbers) = Slot::take(turn);
        let now = slot.at.time;
        let named = match Named::of(message, self.days.day(now)) {
            Ok(named) => named,
            Err(fault) => return self.refuse_fields(message, (slot, numbers), &fault).await,
        };
        let is_used = self.used(named.cl_ord_id, message, now).await?.is_some();
        let order = self.find_order(named.orig_cl_ord_id).await?;
        let rows = self.refuse_cancel(named, slot, order.as_ref(), CancelRefusal::NoReplacement).await?;
        if is_used {
            self.write(numbers, FixRows { orders: Vec::new(), ..rows }).await
        } else {
            self.refused_cancel(named, numbers, rows).await
        }
    }

    /// Writes a rejection that uses the request's ClOrdID.
    async fn refused_cancel(
        &self,
        named: Named<'_>,
        numbers: Numbers,
        rows: FixRows,
    ) -> Result<Commit, Unavailable> {
        let part = self.part(numbers, Arc::new(move |_| rows.clone()));
        self.queue(part.using(&named.used())).await
    }

    async fn refuse_cancel(
        &self,
        named: Named<'_>,
        slot: Slot,
        order: Option<&FixOrder>,
        refusal: CancelRefusal,
    ) -> Result<FixRows, Unavailable> {
        let latest = match order.and_then(|order| Some((order, order_facts(order)?))) {
            Some((order, facts)) => Some(self.latest(order, &facts).await?.0),
            None => None,
        };
        let rejected = CancelRejected {
            cl_ord_id: named.cl_ord_id,
            orig_cl_ord_id: named.orig_cl_ord_id,
            order_id: order.and_then(|order| order.reference.as_deref()).unwrap_or("NONE"),
            ord_status: latest.as_ref().map_or("8", report::ord_status),
            refusal: refusal.clone(),
            at: slot.at,
            route: route(named.message),
        };
        let body = report::cancel_reject(self.version, &rejected);
        let orders = vec![cancel_order(&named.used(), named.orig_cl_ord_id, Some(refusal))];
        Ok(FixRows {
            outbound: vec![slot.holds(MsgType::ORDER_CANCEL_REJECT, body)],
            orders,
            ..FixRows::default()
        })
    }
}

/// The answer to the same request before. `None`: the ClOrdID was used for something else.
fn refused_before(used: &FixOrder, named: Named<'_>) -> Option<CancelRefusal> {
    match details(used)? {
        // An OrderCancelReplaceRequest(G).
        Details::Cancel { refusal: Some(CancelRefusal::NoReplacement), .. } => None,
        Details::Cancel { orig_cl_ord_id, refusal } if orig_cl_ord_id == named.orig_cl_ord_id => refusal,
        Details::Cancel { .. } | Details::Order(_) => None,
    }
}

/// A field of the request that does not match this order: the request was meant for another order.
fn misfit(
    message: MessageRef<'_>,
    ignored: &IgnoreList,
    order: &FixOrder,
    facts: &OrderFacts,
) -> Option<CancelRefusal> {
    if let Err(fault) = fields::check(message, ignored) {
        return Some(CancelRefusal::Field(fault.to_string()));
    }
    let differs = |tag, value: Option<&str>| {
        message.get(tag).is_some_and(|said| Some(said) != value.map(str::as_bytes))
    };
    if differs(tags::ORDER_ID, order.reference.as_deref()) {
        return Some(CancelRefusal::UnknownOrder);
    }
    let of_another = |field: &str| Some(CancelRefusal::Field(format!("{field} is not that of the order")));
    if differs(tags::SYMBOL, Some(&facts.symbol)) {
        return of_another("Symbol(55)");
    }
    if differs(tags::SIDE, Some(&facts.side)) {
        return of_another("Side(54)");
    }
    None
}
