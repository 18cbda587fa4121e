//! NewOrderSingle(D): read, or refused with the reason.

use dvp_core::context;
use dvp_core::trace;
use dvp_domain::{
    liquidity::{Market, Unlimited},
    quote::FirmTerms,
    time::Timestamp,
};
use dvp_fix::codec::MessageRef;
use dvp_store::orders::quotes as quotes_store;
use tracing::field::Empty;
use tracing::{Instrument as _, info, info_span};

use super::{
    OrderEntry,
    rows::{Slot, is_repetition},
    trading_day::Known,
};
use crate::{
    application::{Commit, Turn, Unavailable},
    orders::{
        facts::{OrderFacts, Rejection},
        fields,
        parse::{self, AtMarket},
        report::ReportContent,
        tags,
    },
};

impl OrderEntry {
    pub(super) async fn new_order(
        &mut self,
        message: MessageRef<'_>,
        turn: &mut Turn<'_>,
    ) -> Result<Commit, Unavailable> {
        let cl_ord_id = match fields::id(message, tags::CL_ORD_ID) {
            Ok(cl_ord_id) => cl_ord_id.to_owned(),
            Err(fault) => {
                return self.refuse_fields(message, Slot::take(turn), &fault).await;
            }
        };
        let facts = OrderFacts::of(message);
        let now = turn.sending_time().time;
        match self.known_as(&cl_ord_id, message, now).await? {
            Known::Order(known) => {
                let (slot, numbers) = Slot::take(turn);
                return self.report_again(&known.0, &known.1, slot, numbers).await;
            }
            Known::Refused(content) => return self.refuse_order(&cl_ord_id, &facts, &content, turn).await,
            Known::Nothing => {}
        }
        if self.parked.has(&cl_ord_id) {
            return self.refuse_order(&cl_ord_id, &facts, &ReportContent::duplicate(), turn).await;
        }
        let cl_ord_id = self.days.used_at(&cl_ord_id, now);
        let quoted = self.quoted(message).await?;
        let parsed = self.ages.check(message, is_repetition(message), now, self.version).and_then(|()| {
            let trading_day = cl_ord_id.trading_day;
            self.read_order(message, quoted.as_ref(), context::now(), AtMarket::Now, trading_day)
        });
        match parsed {
            Ok(order) => {
                let span = info_span!(
                    "fix_order",
                    session = self.session.session_id,
                    intent_id = %order.request.intent_id,
                    trace_id = Empty,
                    span_id = Empty,
                );
                let context = trace::of_request(None);
                trace::mark(&span, context, None);
                trace::within(context, self.place(message, order, facts, turn)).instrument(span).await
            }
            Err(rejection) => {
                info!(
                    session = self.session.session_id,
                    cl_ord_id = cl_ord_id.id,
                    reason = rejection.text,
                    "order refused"
                );
                let (slot, numbers) = Slot::take(turn);
                let render = self.outcome_renderer(slot, cl_ord_id.clone(), facts, Some(rejection), false);
                self.queue(self.part(numbers, render).using(&cl_ord_id)).await
            }
        }
    }

    /// Reads an order as if liquidity were unlimited.
    pub(super) fn read_order(
        &self,
        message: MessageRef<'_>,
        quoted: Option<&FirmTerms>,
        received_at: Timestamp,
        at_market: AtMarket,
        trading_day: i32,
    ) -> Result<parse::Order, Rejection> {
        let context = self.engine.context();
        let snapshot = context.liquidity.snapshot();
        let market = Market {
            registry: &context.registry,
            snapshot: &snapshot,
            holdings: &Unlimited,
            now: context::now(),
        };
        let session = &self.session;
        parse::order(
            message,
            &parse::OrderContext {
                session,
                chains: &context.chains,
                market,
                quoted,
                received_at,
                at_market,
                ignored: &self.ignored,
                trading_day,
            },
        )
    }

    /// The amount fixed by the quote, which is the only bound of an order.
    pub(super) async fn quoted(&self, message: MessageRef<'_>) -> Result<Option<FirmTerms>, Unavailable> {
        let Some(quote_id) = parse::bounding_quote(message) else { return Ok(None) };
        let mut conn = self.connection().await?;
        Ok(quotes_store::find_firm(&mut conn, &self.tenant, quote_id).await?)
    }
}
