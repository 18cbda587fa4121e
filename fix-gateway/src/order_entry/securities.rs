//! SecurityListRequest(x), which FIX 4.2 does not have: the symbols that can be traded.

use dvp_domain::asset::Registry;
use dvp_fix::codec::{Body, MessageRef, MsgType};
use dvp_store::fix::rows::FixRows;

use super::{OrderEntry, rows::Slot};
use crate::{
    application::{Commit, Turn, Unavailable},
    orders::{fields, tags},
};

impl OrderEntry {
    pub(super) async fn security_list(
        &self,
        message: MessageRef<'_>,
        turn: &mut Turn<'_>,
    ) -> Result<Commit, Unavailable> {
        let named =
            fields::check(message, &self.ignored).and_then(|()| fields::id(message, tags::SECURITY_REQ_ID));
        let request = match named {
            Ok(request) => request,
            Err(fault) => return self.refuse_fields(message, Slot::take(turn), &fault).await,
        };
        let kind = message.text(tags::SECURITY_LIST_REQUEST_TYPE);
        let symbol = message.text(tags::SYMBOL);
        let symbols = symbols(&self.engine.context().registry);
        let (slot, numbers) = Slot::take(turn);
        // Valid request, invalid or unsupported request, no instruments found.
        let (result, symbols) = match (kind, symbol) {
            (Some("4"), None) => ("0", symbols),
            (Some("0"), Some(symbol)) if symbols.iter().any(|known| known == symbol) => {
                ("0", vec![symbol.to_owned()])
            }
            (Some("0"), Some(_)) => ("2", Vec::new()),
            _ => ("1", Vec::new()),
        };
        let body = Body::new()
            .field(tags::SECURITY_REQ_ID, request)
            .field(tags::SECURITY_RESPONSE_ID, format!("{request}.{}", slot.unique()))
            .number(tags::TOT_NO_RELATED_SYM, u64::try_from(symbols.len()).unwrap_or(u64::MAX))
            .field(tags::SECURITY_REQUEST_RESULT, result);
        let entry = |body: Body, symbol: &String| body.field(tags::SYMBOL, symbol);
        let body = if symbols.is_empty() {
            body
        } else {
            let count = u64::try_from(symbols.len()).unwrap_or(u64::MAX);
            symbols.iter().fold(body.number(tags::NO_RELATED_SYM, count), entry)
        };
        let outbound = vec![slot.holds(MsgType::SECURITY_LIST, body)];
        self.write(numbers, FixRows { outbound, ..FixRows::default() }).await
    }
}

/// Each pair that has a price, as `base/quote`.
fn symbols(registry: &Registry) -> Vec<String> {
    let mut all: Vec<String> =
        registry.pairs.iter().map(|pair| format!("{}/{}", pair.base, pair.quote)).collect();
    all.sort();
    all.dedup();
    all
}
