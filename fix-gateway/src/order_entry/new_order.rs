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
    rows::{Slot, is_repetition, order_facts},
};
use crate::{
    application::{Commit, Turn, Unavailable},
    orders::{
        facts::{OrderFacts, Rejection},
        fields,
        parse::{self, AtMarket},
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
        if is_repetition(message)
            && let Some(order) = self.find_order(&cl_ord_id).await?
            && let Some(known) = order_facts(&order)
            && known.is_repeated_by(message)
        {
            let (slot, numbers) = Slot::take(turn);
            return self.report_again(&order, &known, slot, numbers).await;
        }
        if self.parked.has(&cl_ord_id) {
            return self.refuse_duplicate(&cl_ord_id, &facts, turn).await;
        }
        let quoted = self.quoted(message).await?;
        let parsed = self
            .ages
            .check(message, is_repetition(message), turn.sending_time())
            .and_then(|()| self.read_order(message, quoted.as_ref(), context::now(), AtMarket::Now));
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
                info!(session = self.session.session_id, cl_ord_id, reason = rejection.text, "order refused");
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
            &parse::OrderContext { session, chains: &context.chains, market, quoted, received_at, at_market },
        )
    }

    /// The amount fixed by the quote, which is the only bound of an order.
    pub(super) async fn quoted(&self, message: MessageRef<'_>) -> Result<Option<FirmTerms>, Unavailable> {
        let Some(quote_id) = parse::bounding_quote(message) else { return Ok(None) };
        let mut conn = self.connection().await?;
        Ok(quotes_store::find_firm(&mut conn, &self.tenant, quote_id).await?)
    }
}
