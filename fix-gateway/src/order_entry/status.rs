//! OrderStatusRequest(H) and OrderMassStatusRequest(AF): reports that change nothing.

use std::time::Instant;

use dvp_core::engine::ReceiptLookup;
use dvp_domain::receipt;
use dvp_fix::codec::{MessageRef, MsgType};
use dvp_store::{
    fix::{
        reports::{self as fix_reports, OpenOrder},
        rows::{ClOrdId, FixOrder, FixOutbound, FixRows},
    },
    orders::executions::RefType,
};

use super::{
    OrderEntry,
    rows::{Slot, order_facts},
};
use crate::{
    application::{Commit, Turn, Unavailable},
    limits::Pace,
    orders::{
        facts::{NO_SYMBOL, OrderFacts, intent_id},
        fields,
        report::{self, Ids, MassAnswer, ReceiptFacts, ReportContent, StatusRequest},
        tags,
    },
};

/// The maximum number of reports for one OrderMassStatusRequest: they are one commit.
const MASS_MAX: usize = 2000;

impl OrderEntry {
    pub(super) async fn status(
        &self,
        message: MessageRef<'_>,
        turn: &mut Turn<'_>,
    ) -> Result<Commit, Unavailable> {
        let (slot, numbers) = Slot::take(turn);
        let cl_ord_id =
            match fields::check(message, &self.ignored).and_then(|()| fields::id(message, tags::CL_ORD_ID)) {
                Ok(cl_ord_id) => cl_ord_id,
                Err(fault) => return self.refuse_fields(message, (slot, numbers), &fault).await,
            };
        let request = StatusRequest {
            ord_status_req_id: message.text(tags::ORD_STATUS_REQ_ID),
            ..StatusRequest::default()
        };
        let order = self.newest(cl_ord_id, Some(message)).await?.map(|(order, _)| order);
        let order = order.filter(|order| is_of_order_id(message, order));
        let body = if let Some(order) = order
            && let Some(facts) = order_facts(&order)
        {
            let (content, sequence) = self.latest(&order, &facts).await?;
            let request = StatusRequest { receipt: self.receipt(&order, &content).await?, ..request };
            let ids = status_ids(&order, sequence, slot);
            report::status_report(self.version, &facts, &content, &ids, &request)
        } else {
            let ids = Ids {
                cl_ord_id,
                orig_cl_ord_id: None,
                order_id: "NONE",
                exec_id: self.exec_id_of_none(cl_ord_id, slot),
                at: slot.at,
                is_status: true,
            };
            let facts = OrderFacts::of(message);
            let unknown = ReportContent::rejected(5, "unknown order");
            report::status_report(self.version, &facts, &unknown, &ids, &request)
        };
        self.write(numbers, reports(vec![slot.holds(MsgType::EXECUTION_REPORT, body)])).await
    }

    /// The receipt of a filled order, once it is issued.
    async fn receipt(
        &self,
        order: &FixOrder,
        content: &ReportContent,
    ) -> Result<Option<ReceiptFacts>, Unavailable> {
        let is_filled = matches!(content, ReportContent::Filled(_) | ReportContent::RestCanceled(_));
        let Some(reference) = order.reference.as_ref().filter(|_| is_filled) else { return Ok(None) };
        let found = self.engine.issued_receipt(&self.tenant, RefType::ExecutionId, reference).await?;
        let ReceiptLookup::Found(issued) = found else { return Ok(None) };
        let anchor_tx_hash = issued.finality.map(|finality| finality.tx_hash);
        Ok(Some(ReceiptFacts { hash: receipt::anchored_hash(&issued.body), anchor_tx_hash }))
    }

    /// The open orders of the session: all of them (7), or those of one symbol (1).
    pub(super) async fn mass_status(
        &mut self,
        message: MessageRef<'_>,
        turn: &mut Turn<'_>,
    ) -> Result<Commit, Unavailable> {
        if let Err(fault) =
            fields::check(message, &self.ignored).and_then(|()| fields::id(message, tags::MASS_STATUS_REQ_ID))
        {
            return self.refuse_fields(message, Slot::take(turn), &fault).await;
        }
        let refusal = match message.text(tags::MASS_STATUS_REQ_TYPE) {
            Some("7") => None,
            Some("1") if message.get(tags::SYMBOL).is_some() => None,
            Some("1") => Some((5, "Symbol(55) required")),
            _ => Some((0, "MassStatusReqType(585) must be 1 or 7")),
        };
        if let Some((reason, text)) = refusal {
            return self.refuse_message(message, Slot::take(turn), reason, text).await;
        }
        let now = Instant::now();
        if self.mass_reports.goes_on_at(Pace::MASS_STATUS) > now {
            let text = "too many mass status requests, ask again in a few seconds";
            return self.refuse_message(message, Slot::take(turn), 4, text).await;
        }
        let is_of_symbol = message.text(tags::MASS_STATUS_REQ_TYPE) == Some("1");
        let symbol = message.text(tags::SYMBOL).filter(|_| is_of_symbol);
        let limit = i64::try_from(MASS_MAX + 1).unwrap_or(i64::MAX);
        let mut conn = self.connection().await?;
        let open = fix_reports::list_open(&mut conn, &self.session, symbol, limit).await?;
        drop(conn);
        let parked = self.parked_orders(symbol);
        if open.len() + parked.len() > MASS_MAX {
            let text = "too many open orders, ask one by one";
            return self.refuse_message(message, Slot::take(turn), 0, text).await;
        }
        let request_id = message.text(tags::MASS_STATUS_REQ_ID).unwrap_or_default();
        let open: Vec<OpenOrderStatus> = open
            .into_iter()
            .map(OpenOrderStatus::of_open)
            .chain(parked.into_iter().map(OpenOrderStatus::of_parked))
            .collect();
        let outbound = if open.is_empty() {
            vec![self.no_open_orders(request_id, symbol, Slot::next(turn))]
        } else {
            self.open_orders(request_id, &open, turn)
        };
        let bytes = outbound.iter().map(|report| report.body.len()).sum();
        self.mass_reports.spend(Pace::MASS_STATUS, bytes, now);
        self.write(turn.numbers(), reports(outbound)).await
    }

    fn open_orders(
        &self,
        request_id: &str,
        open: &[OpenOrderStatus],
        turn: &mut Turn<'_>,
    ) -> Vec<FixOutbound> {
        let one = |(at, OpenOrderStatus { order, facts, content, sequence }): (usize, &OpenOrderStatus)| {
            let slot = Slot::next(turn);
            let mass = MassAnswer { request_id, total: open.len(), is_last: at + 1 == open.len() };
            let request = StatusRequest { mass: Some(mass), ..StatusRequest::default() };
            let ids = status_ids(order, *sequence, slot);
            let body = report::status_report(self.version, facts, content, &ids, &request);
            slot.holds(MsgType::EXECUTION_REPORT, body)
        };
        open.iter().enumerate().map(one).collect()
    }

    /// The ExecID(17) of a report about no order.
    pub(super) fn exec_id_of_none(&self, cl_ord_id: &str, slot: Slot) -> String {
        let named = ClOrdId { id: cl_ord_id.to_owned(), trading_day: 0 };
        format!("{}.{}", intent_id(&self.session.session_id, &named), slot.unique())
    }

    /// A report about no order, with the required fields of every report.
    fn no_open_orders(&self, request_id: &str, symbol: Option<&str>, slot: Slot) -> FixOutbound {
        let facts = OrderFacts {
            symbol: symbol.unwrap_or(NO_SYMBOL).to_owned(),
            // Undisclosed.
            side: "7".to_owned(),
            order_qty: "0".to_owned(),
            ..OrderFacts::default()
        };
        let ids = Ids {
            cl_ord_id: "NONE",
            orig_cl_ord_id: None,
            order_id: "NONE",
            exec_id: self.exec_id_of_none("", slot),
            at: slot.at,
            is_status: true,
        };
        let mass = MassAnswer { request_id, total: 0, is_last: true };
        let request = StatusRequest { mass: Some(mass), ..StatusRequest::default() };
        let none = ReportContent::rejected(5, "no open orders");
        let body = report::status_report(self.version, &facts, &none, &ids, &request);
        slot.holds(MsgType::EXECUTION_REPORT, body)
    }
}

/// OrderID(37), if present, is the order's.
fn is_of_order_id(message: MessageRef<'_>, order: &FixOrder) -> bool {
    let reference = order.reference.as_deref().unwrap_or("NONE");
    message.get(tags::ORDER_ID).is_none_or(|order_id| order_id == reference.as_bytes())
}

/// An open order, and the content of its last report.
struct OpenOrderStatus {
    order: FixOrder,
    facts: OrderFacts,
    content: ReportContent,
    sequence: i64,
}

impl OpenOrderStatus {
    fn of_open(OpenOrder { order, latest }: OpenOrder) -> Self {
        let facts = order_facts(&order).unwrap_or_default();
        let reference = order.reference.as_deref().unwrap_or("NONE");
        let about = (reference, latest.sequence);
        let content = ReportContent::of_event(latest.kind, &latest.object, &facts, about);
        Self { order, facts, content, sequence: latest.sequence }
    }

    fn of_parked(order: FixOrder) -> Self {
        let facts = order_facts(&order).unwrap_or_default();
        Self { order, facts, content: ReportContent::Pending, sequence: 0 }
    }
}

/// A status report has an ExecID of its own.
fn status_ids(order: &FixOrder, sequence: i64, slot: Slot) -> Ids<'_> {
    let about = order.reference.as_deref().unwrap_or(&order.intent_id);
    Ids {
        cl_ord_id: &order.cl_ord_id,
        orig_cl_ord_id: None,
        order_id: order.reference.as_deref().unwrap_or("NONE"),
        exec_id: format!("{about}.{sequence}.{}", slot.unique()),
        at: slot.at,
        is_status: true,
    }
}

fn reports(outbound: Vec<FixOutbound>) -> FixRows {
    FixRows { outbound, ..FixRows::default() }
}
