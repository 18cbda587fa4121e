//! The stored fields of an order, which every report repeats.

use chrono::DateTime;
use dvp_domain::text::{ID_MAX, check_line};
use dvp_domain::{canonical::sha256, fees::FeeItem, money::Minor, time::Timestamp};
use dvp_fix::{
    codec::{Body, MessageRef},
    tag::{self, Tag},
};
use dvp_store::fix::rows::ClOrdId;
use serde::{Deserialize, Serialize};

use super::{fields, tags};

/// The `details` of a stored order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Details {
    Order(Box<OrderFacts>),
    /// An OrderCancelRequest: its ClOrdID is used, too.
    Cancel {
        orig_cl_ord_id: String,
        /// Why it was refused. `None`: it was not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refusal: Option<CancelRefusal>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CancelRefusal {
    TooLate,
    UnknownOrder,
    DuplicateClOrdId,
    /// The fault of a field of the request.
    Field(String),
    /// The request was an OrderCancelReplaceRequest(G).
    NoReplacement,
}

/// Symbol(55) of a report without a symbol that could be repeated.
pub(crate) const NO_SYMBOL: &str = "[N/A]";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OrderFacts {
    pub(crate) symbol: String,
    /// Side(54), `1` or `2`.
    pub(crate) side: String,
    /// OrderQty(38), as received.
    pub(crate) order_qty: String,
    pub(crate) ord_type: String,
    pub(crate) price: Option<String>,
    pub(crate) account: Option<String>,
    /// The fields that every report repeats as they came: [`REPEATED`], and the group of parties.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) repeated: Vec<(Tag, String)>,
    /// The header fields of every report that lead back along the way that the order came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) route: Vec<(Tag, String)>,
    /// SHA-256 of the body, hex: distinguishes a repetition from another order under the same ClOrdID.
    pub(crate) fingerprint: String,
    /// SecondaryOrderID(198), once accepted.
    pub(crate) plan_id: Option<String>,
    /// The deducted fees, once accepted.
    #[serde(default)]
    pub(crate) fees: Vec<FeeItem>,
    /// What the user has to deposit of a chain's coin, once accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deposit: Option<DepositFacts>,
    pub(crate) rejection: Option<Rejection>,
    /// The OrderCancelRequest whose answer has reported the cancellation already.
    pub(crate) cancelled_by: Option<String>,
}

/// A deposit of a chain's coin that an order waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DepositFacts {
    pub(crate) contract: String,
    pub(crate) id: String,
    /// Minor units.
    pub(crate) amount: Minor,
    pub(crate) by: Timestamp,
}

/// OrdRejReason(103) and Text(58).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rejection {
    pub(crate) ord_rej_reason: u8,
    pub(crate) text: String,
}

impl OrderFacts {
    /// Of a NewOrderSingle(D), or of a message that repeats an order's fields.
    pub(crate) fn of(message: MessageRef<'_>) -> Self {
        let text = |tag| fields::repeatable(message, tag).map(str::to_owned);
        Self {
            symbol: text(tags::SYMBOL).unwrap_or_else(|| NO_SYMBOL.to_owned()),
            side: text(tags::SIDE).unwrap_or_default(),
            order_qty: text(tags::ORDER_QTY).unwrap_or_else(|| "0".to_owned()),
            ord_type: text(tags::ORD_TYPE).unwrap_or_default(),
            price: text(tags::PRICE),
            account: text(tags::ACCOUNT),
            repeated: repeated(message),
            route: route(message),
            fingerprint: fingerprint(message),
            ..Self::default()
        }
    }

    /// Does the message have the order's content?
    pub(crate) fn is_repeated_by(&self, message: MessageRef<'_>) -> bool {
        self.fingerprint == fingerprint(message)
    }
}

/// TimeInForce, SettlType, SettlDate and ClientID.
pub(crate) const REPEATED: [Tag; 4] =
    [tags::TIME_IN_FORCE, tags::SETTL_TYPE, tags::SETTL_DATE, tags::CLIENT_ID];

fn repeated(message: MessageRef<'_>) -> Vec<(Tag, String)> {
    let parties = fields::group(message, tags::NO_PARTY_IDS);
    let all = message.fields().iter().filter(|field| REPEATED.contains(&field.tag)).chain(parties);
    let texts =
        all.map(|field| Some((field.tag, std::str::from_utf8(message.value(field)).ok()?.to_owned())));
    texts.collect::<Option<_>>().unwrap_or_default()
}

/// Back along the way that a message came: SenderSubID(50) as TargetSubID(57), and the fields of third parties.
pub(crate) fn route(message: MessageRef<'_>) -> Vec<(Tag, String)> {
    const BACK: [(Tag, Tag); 5] = [
        (tag::SENDER_SUB_ID, tag::TARGET_SUB_ID),
        (tag::ON_BEHALF_OF_COMP_ID, tag::DELIVER_TO_COMP_ID),
        (tag::ON_BEHALF_OF_SUB_ID, tag::DELIVER_TO_SUB_ID),
        (tag::DELIVER_TO_COMP_ID, tag::ON_BEHALF_OF_COMP_ID),
        (tag::DELIVER_TO_SUB_ID, tag::ON_BEHALF_OF_SUB_ID),
    ];
    let value = |tag| message.text(tag).filter(|text| !text.is_empty() && check_line(text, ID_MAX).is_ok());
    BACK.iter().filter_map(|(from, to)| Some((*to, value(*from)?.to_owned()))).collect()
}

/// Fields in front of a body.
pub(crate) fn fields_of(pairs: &[(Tag, String)]) -> Body {
    pairs.iter().fold(Body::new(), |body, (tag, value)| body.field(*tag, value))
}

/// The body without TransactTime(60). It differs in a repetition, as do the fields of header and trailer.
fn fingerprint(message: MessageRef<'_>) -> String {
    let envelope = fields::envelope(message);
    let is_body = |tag| envelope.is_none_or(|envelope| fields::is_body(envelope, tag));
    let is_content = |tag: Tag| tag != tags::TRANSACT_TIME && is_body(tag);
    let content: String = message
        .fields()
        .iter()
        .filter(|field| is_content(field.tag))
        .map(|field| format!("{}={}\u{1}", field.tag, String::from_utf8_lossy(message.value(field))))
        .collect();
    sha256(&content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The intentId of an order: unique for a session and ClOrdID, and always the same for them.
pub(crate) fn intent_id(session_id: &str, ClOrdId { id, trading_day }: &ClOrdId) -> String {
    let mut named = format!("fix-order\u{1}{session_id}\u{1}{id}");
    if *trading_day != 0 {
        named.push_str(&format!("\u{1}{trading_day}"));
    }
    let digest = sha256(&named);
    let mut bytes = [0_u8; 16];
    bytes.copy_from_slice(&digest[..16]);
    // RFC 9562 version 8: a custom scheme.
    uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string()
}

/// The clientReference of an order, which a partner uses once: the ClOrdID, and the trading day where it is used again.
pub(crate) fn client_reference(ClOrdId { id, trading_day }: &ClOrdId) -> String {
    let day = DateTime::from_timestamp(i64::from(*trading_day) * 86_400, 0).filter(|_| *trading_day != 0);
    day.map_or_else(|| id.clone(), |day| format!("{id}/{}", day.format("%Y%m%d")))
}

#[cfg(test)]
mod tests {
    use dvp_fix::codec::Message;

    use super::*;

    fn message(fields: &str) -> Message {
        let rest = fields.replace('|', "\u{1}");
        let frame = format!("8=FIX.4.4\u{1}9={}\u{1}{rest}", rest.len());
        let sum = frame.bytes().fold(0_u8, u8::wrapping_add);
        Message::parse(format!("{frame}10={sum:03}\u{1}").as_bytes()).unwrap()
    }

    fn hash(content: &str) -> String {
        hex::encode(sha256(&content.replace('|', "\u{1}")))
    }

    #[test]
    fn an_order_of_a_trading_day_has_identifiers_of_its_own() {
        let of = |trading_day| ClOrdId { id: "a".to_owned(), trading_day };
        let ids: Vec<String> = [0, 20_000, 20_001].map(|day| intent_id("s", &of(day))).into();
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
        assert_eq!([0, 20_787].map(|day| client_reference(&of(day))), ["a", "a/20261130"]);
    }

    #[test]
    fn header_trailer_and_transact_time_are_no_content() {
        let first =
            message("35=D|49=A|56=B|34=2|52=20260101-00:00:00|11=a|55=USDC/USD|60=20260101-00:00:00|");
        let order = OrderFacts::of(first.view());
        assert_eq!(order.fingerprint, hash("11=a|55=USDC/USD|"));
        let again = "35=D|49=A|56=B|34=9|50=desk|52=20260101-00:00:09|97=Y|369=8|\
                     627=1|628=HUB|630=7|11=a|55=USDC/USD|60=20260101-00:00:09|93=1|89=x|";
        assert!(order.is_repeated_by(message(again).view()));
        assert!(!order.is_repeated_by(message(&again.replace("11=a", "11=b")).view()));
    }
}
