//! The shapes of events, as they are listed and as they are sent.

use dvp_domain::envelope::TEST_PING;
use dvp_domain::event::EventType;
use serde_json::{Value, json};

use super::{Group, list, minor, nullable, object, one_of, reference, text, time, whole, with_optional};

pub(super) fn events() -> Group {
    let page = object(&[
        ("data", list(reference("Event"))),
        ("hasMore", json!({"type": "boolean"})),
        ("nextCursor", text()),
    ]);
    vec![
        (
            "Event",
            envelope(one_of(&types()), text(), json!({"type": "integer", "minimum": 1}), reference("Intent")),
        ),
        ("PingEvent", ping()),
        ("Intent", intent()),
        ("EventPage", page),
    ]
}

fn types() -> Vec<&'static str> {
    EventType::ALL.iter().map(|kind| kind.as_str()).collect()
}

fn envelope(kind: Value, intent_id: Value, sequence: Value, object_of: Value) -> Value {
    object(&[
        ("object", json!({"const": "event"})),
        ("id", text()),
        ("type", kind),
        ("occurredAt", time()),
        ("observedAt", time()),
        ("isTerminal", json!({"type": "boolean"})),
        ("livemode", json!({"type": "boolean"})),
        ("apiVersion", text()),
        ("intentId", intent_id),
        ("clientReference", nullable(text())),
        ("sequence", sequence),
        ("data", object(&[("object", object_of)])),
    ])
}

fn ping() -> Value {
    let nothing = json!({"type": "null"});
    let object_of = object(&[("ping", json!({"const": true}))]);
    let mut ping = envelope(json!({"const": TEST_PING}), nothing.clone(), json!({"const": 0}), object_of);
    ping["properties"]["clientReference"] = nothing;
    ping
}

/// The Intent after an event.
fn intent() -> Value {
    let input = object(&[
        ("asset", text()),
        ("amountMinor", minor()),
        ("exponent", whole()),
        ("chain", nullable(text())),
    ]);
    let output = object(&[("currency", text()), ("amountMinor", minor()), ("exponent", whole())]);
    let beneficiary = with_optional(
        object(&[
            ("nameMasked", nullable(text())),
            ("accountLast4", nullable(text())),
            ("accountHash", nullable(text())),
        ]),
        &[("bank", text())],
    );
    let lock = object(&[("txHash", text()), ("timelockExpiresAt", time())]);
    let offramp = object(&[
        ("status", one_of(&["initiated", "in_progress", "completed", "failed"])),
        ("fromAsset", text()),
        ("fromAmountMinor", minor()),
        ("toCurrency", text()),
        ("toAmountMinor", nullable(minor())),
        ("fxRate", nullable(text())),
        ("offrampId", nullable(text())),
    ]);
    let payout = object(&[
        ("status", one_of(&["initiated", "in_progress", "completed", "failed", "reversed"])),
        ("provider", text()),
        ("confirmedAt", nullable(time())),
        ("receipt", nullable(text())),
        ("providerReference", nullable(text())),
    ]);
    let funds = with_optional(
        object(&[("location", one_of(&["none_moved", "locked", "released"]))]),
        &[("lockTxHash", text()), ("timelockExpiresAt", time())],
    );
    object(&[
        ("id", text()),
        ("status", one_of(&types())),
        ("input", input),
        ("output", output),
        ("beneficiary", beneficiary),
        ("lock", nullable(lock)),
        ("offramp", nullable(offramp)),
        ("payout", nullable(payout)),
        ("failure", nullable(reference("Failure"))),
        ("fundsState", funds),
    ])
}
