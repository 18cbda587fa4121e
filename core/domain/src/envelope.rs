//! The event envelope (spec section 2.8): the same text in the feed, in a look-up and in a webhook delivery, but for the
//! receipt of a payout, which is known later than its event.

use serde::Serialize;
use serde_json::Value;

use crate::event::EventType;
use crate::time::Timestamp;

/// The type of a test delivery, which belongs to no intent and is never in the feed.
pub const TEST_PING: &str = "test.ping";
/// The most bytes a delivered event may have (spec section 6.2, rule 1).
pub const BODY_BYTES_MAX: usize = 64 * 1024;

/// An event as a partner reads it. Borrows its fields.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope<'a> {
    object: &'static str,
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    occurred_at: String,
    observed_at: String,
    is_terminal: bool,
    livemode: bool,
    api_version: &'a str,
    intent_id: Option<&'a str>,
    client_reference: Option<&'a str>,
    sequence: i64,
    data: Data<'a>,
}

#[derive(Debug, Serialize)]
struct Data<'a> {
    object: &'a Value,
}

#[derive(Debug, Clone, Copy)]
pub struct EnvelopeFields<'a> {
    pub id: &'a str,
    pub kind: EventType,
    pub occurred_at: Timestamp,
    pub observed_at: Timestamp,
    pub livemode: bool,
    /// The schema version pinned to the reader.
    pub api_version: &'a str,
    pub intent_id: &'a str,
    pub client_reference: Option<&'a str>,
    pub sequence: i64,
    /// The Intent snapshot after the event.
    pub object: &'a Value,
}

impl<'a> Envelope<'a> {
    pub fn of(fields: EnvelopeFields<'a>) -> Self {
        Self {
            object: "event",
            id: fields.id,
            kind: fields.kind.as_str(),
            occurred_at: fields.occurred_at.iso8601(),
            observed_at: fields.observed_at.iso8601(),
            is_terminal: fields.kind.is_terminal(),
            livemode: fields.livemode,
            api_version: fields.api_version,
            intent_id: Some(fields.intent_id),
            client_reference: fields.client_reference,
            sequence: fields.sequence,
            data: Data { object: fields.object },
        }
    }

    /// A `test.ping`; `ping` is its object, `{"ping": true}`.
    pub fn ping(id: &'a str, at: Timestamp, livemode: bool, api_version: &'a str, ping: &'a Value) -> Self {
        Self {
            object: "event",
            id,
            kind: TEST_PING,
            occurred_at: at.iso8601(),
            observed_at: at.iso8601(),
            is_terminal: true,
            livemode,
            api_version,
            intent_id: None,
            client_reference: None,
            sequence: 0,
            data: Data { object: ping },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_ping_belongs_to_no_intent() {
        let ping = json!({"ping": true});
        let envelope = Envelope::ping("evt_1", Timestamp::from_millis(0), false, "2026-11-01", &ping);
        assert_eq!(
            serde_json::to_value(envelope).unwrap(),
            json!({
                "object": "event", "id": "evt_1", "type": "test.ping", "isTerminal": true, "livemode": false,
                "occurredAt": "1970-01-01T00:00:00.000Z", "observedAt": "1970-01-01T00:00:00.000Z",
                "apiVersion": "2026-11-01", "intentId": null, "clientReference": null, "sequence": 0,
                "data": {"object": {"ping": true}},
            })
        );
    }
}
