//! QuoteRequest(R): a firm quote is stored in the commit with its number and message.

use std::sync::Arc;

use dvp_core::writer::{FixPart, Outcome, Refusal, RenderFix};
use dvp_fix::codec::{MessageRef, MsgType};
use dvp_store::{fix::rows::FixRows, orders::quotes::NewFirmQuote};
use tracing::{info, warn};

use super::{OrderEntry, acknowledged, rows::Slot};
use crate::{
    application::{Commit, Numbers, Turn, Unavailable},
    orders::{
        fields,
        quote::{Asked, NoQuote, QuoteRequest, Requested, two_way},
        tags,
    },
};

/// What a request hears whose prices cannot be had now.
pub(super) const NOT_AVAILABLE: &str = "not available, try again";

impl OrderEntry {
    pub(super) async fn quote_request(
        &self,
        message: MessageRef<'_>,
        turn: &mut Turn<'_>,
    ) -> Result<Commit, Unavailable> {
        let (slot, numbers) = Slot::take(turn);
        if let Err(fault) = fields::id(message, tags::QUOTE_REQ_ID) {
            return self.refuse_fields(message, (slot, numbers), &fault).await;
        }
        let registry = &self.engine.context().registry;
        let parsed = match QuoteRequest::of(message, self.version, registry, &self.ignored) {
            Ok(Requested::Firm(parsed)) => parsed,
            Ok(Requested::TwoWay(both)) => return self.two_way_quote(message, slot, numbers, both).await,
            Err(refusal) => return self.refuse_quote(message, slot, numbers, refusal).await,
        };
        let terms = match self.engine.firm_quote(&parsed.request()).await {
            Ok(Some(terms)) => terms,
            Ok(None) => return self.refuse_quote(message, slot, numbers, NoQuote::NoLiquidity).await,
            Err(error) => {
                warn!(%error, "quote request rejected");
                return self.refuse_message(message, (slot, numbers), 4, NOT_AVAILABLE).await;
            }
        };
        let Some(body) = parsed.quoted(self.version, message, &terms, slot.at) else {
            let refusal = NoQuote::Unusable("no price for this quantity".to_owned());
            return self.refuse_quote(message, slot, numbers, refusal).await;
        };
        info!(session = self.session.session_id, quote = terms.quote_id.as_str(), "firm quote queued");
        let request_id = message.text(tags::QUOTE_REQ_ID).unwrap_or_default().to_owned();
        let rows = FixRows { outbound: vec![slot.holds(MsgType::QUOTE, body)], ..FixRows::default() };
        // Others may have taken or held the output since it was priced.
        let asked = Asked::of(self.version, message);
        let render: RenderFix = Arc::new(move |outcome| {
            let refusal = match outcome {
                Outcome::Refused(Refusal::NotHeld) => NoQuote::NoLiquidity,
                Outcome::Refused(Refusal::CoolingDown(cool_down)) => NoQuote::CoolingDown(*cool_down),
                _ => return rows.clone(),
            };
            let (msg_type, body) = asked.refused(&refusal);
            FixRows { outbound: vec![slot.holds(msg_type, body)], ..FixRows::default() }
        });
        let part = self.part(numbers, render);
        self.keep_quote(NewFirmQuote { tenant: self.tenant.clone(), request_id, terms }, part).await
    }

    /// Both sides at once, with no promise: nothing is stored but the message.
    async fn two_way_quote(
        &self,
        message: MessageRef<'_>,
        slot: Slot,
        numbers: Numbers,
        both: [QuoteRequest<'_>; 2],
    ) -> Result<Commit, Unavailable> {
        let terms = match self.engine.prices(&both.each_ref().map(QuoteRequest::request)).await {
            Ok(terms) => terms,
            Err(error) => {
                warn!(%error, "quote request rejected");
                return self.refuse_message(message, (slot, numbers), 4, NOT_AVAILABLE).await;
            }
        };
        let mut levels = both.iter().zip(&terms).map(|(side, terms)| side.level(terms.as_ref()?));
        let (bid, offer) = (levels.next().flatten(), levels.next().flatten());
        if bid.is_none() && offer.is_none() {
            return self.refuse_quote(message, slot, numbers, NoQuote::NoLiquidity).await;
        }
        let id = format!("indicative.{}", slot.unique());
        let outbound =
            vec![slot.holds(MsgType::QUOTE, two_way(message, [bid.as_ref(), offer.as_ref()], &id, slot.at))];
        self.write(numbers, FixRows { outbound, ..FixRows::default() }).await
    }

    async fn keep_quote(&self, quote: NewFirmQuote, part: FixPart) -> Result<Commit, Unavailable> {
        Ok(acknowledged(self.engine.begin_firm_quote(quote, part).await?))
    }

    async fn refuse_quote(
        &self,
        message: MessageRef<'_>,
        slot: Slot,
        numbers: Numbers,
        refusal: NoQuote,
    ) -> Result<Commit, Unavailable> {
        let (msg_type, body) = Asked::of(self.version, message).refused(&refusal);
        self.write(numbers, FixRows { outbound: vec![slot.holds(msg_type, body)], ..FixRows::default() })
            .await
    }
}
