//! QuoteRequest(R): a firm quote is stored with the number and the message that tells it.

use std::sync::Arc;

use dvp_core::{
    engine::EngineError,
    fix::{FixPart, FixRows, RenderFix},
    store::quotes::NewFirmQuote,
};
use dvp_fix::codec::{MessageRef, MsgType};
use tracing::{info, warn};

use super::{BUSY_WAIT, Desk, acknowledged, rows::Slot};
use crate::{
    application::{Commit, Numbers, Turn, Unavailable},
    orders::{
        quote::{Asked, NoQuote, refused},
        tags,
    },
};

impl Desk {
    pub(super) async fn quote_request(
        &self,
        message: MessageRef<'_>,
        turn: &mut Turn<'_>,
    ) -> Result<Commit, Unavailable> {
        let (slot, numbers) = Slot::take(turn);
        let asked = match Asked::of(message, self.engine.context()) {
            Ok(asked) => asked,
            Err(refusal) => return self.refuse_quote(message, slot, numbers, refusal).await,
        };
        let terms = match self.engine.firm_quote(&asked.request()).await {
            Ok(Some(terms)) => terms,
            Ok(None) => return self.refuse_quote(message, slot, numbers, NoQuote::NoLiquidity).await,
            Err(error) => {
                warn!(%error, "no quote");
                return self.refuse_message(message, slot, numbers, 4, "not available, try again").await;
            }
        };
        let Some(body) = asked.quoted(self.version, message, &terms, slot.at) else {
            let refusal = NoQuote::Unusable("no price for this quantity");
            return self.refuse_quote(message, slot, numbers, refusal).await;
        };
        info!(session = self.session.session_id, quote = terms.quote_id.as_str(), "firm quote");
        let request_id = message.text(tags::QUOTE_REQ_ID).unwrap_or_default().to_owned();
        let rows = FixRows { outbound: vec![slot.holds(MsgType::QUOTE, body)], orders: Vec::new() };
        let render: RenderFix = Arc::new(move |_| rows.clone());
        let part = self.part(numbers, render);
        self.keep_quote(NewFirmQuote { tenant: self.tenant.clone(), request_id, terms }, part).await
    }

    async fn keep_quote(&self, quote: NewFirmQuote, part: FixPart) -> Result<Commit, Unavailable> {
        loop {
            match self.engine.begin_firm_quote(quote.clone(), part.clone()) {
                Ok(pending) => return Ok(acknowledged(pending, part.render)),
                Err(EngineError::Busy) => tokio::time::sleep(BUSY_WAIT).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn refuse_quote(
        &self,
        message: MessageRef<'_>,
        slot: Slot,
        numbers: Numbers,
        refusal: NoQuote,
    ) -> Result<Commit, Unavailable> {
        let (msg_type, body) = refused(self.version, message, refusal);
        self.write(numbers, FixRows { outbound: vec![slot.holds(msg_type, body)], orders: Vec::new() }).await
    }
}
