//! The shapes of webhook management.

use dvp_domain::event::EventType;
use serde_json::{Value, json};

use super::{Group, list, nullable, object, one_of, reference, text, time, whole, with_nullable};

fn types() -> Value {
    let kinds: Vec<&str> =
        EventType::ALL.iter().map(|kind| kind.as_str()).chain(std::iter::once("test.ping")).collect();
    let mut types = list(one_of(&kinds));
    types["minItems"] = json!(1);
    types
}

fn url() -> Value {
    json!({"type": "string", "format": "uri", "maxLength": 2048})
}

fn boolean() -> Value {
    json!({"type": "boolean"})
}

pub(super) fn webhooks() -> Group {
    let endpoint = object(&[
        ("endpointId", text()),
        ("url", text()),
        ("subscribedTypes", types()),
        ("isActive", boolean()),
        ("rotatedAt", nullable(time())),
        ("apiVersion", text()),
    ]);
    let update =
        with_nullable(object(&[]), &[("url", url()), ("subscribedTypes", types()), ("isActive", boolean())]);
    let attempt = object(&[
        ("number", whole()),
        ("at", time()),
        ("status", nullable(whole())),
        ("latencyMs", whole()),
        ("error", nullable(text())),
        ("body", nullable(text())),
    ]);
    let delivery = object(&[
        ("deliveryId", text()),
        ("eventId", text()),
        ("type", text()),
        ("origin", one_of(&["feed", "resend", "replay", "test"])),
        ("state", one_of(&["pending", "delivered", "failed"])),
        ("createdAt", time()),
        ("endedAt", nullable(time())),
        ("nextAttemptAt", nullable(time())),
        ("attempts", list(reference("DeliveryAttempt"))),
    ]);
    vec![
        ("WebhookEndpoint", endpoint),
        ("WebhookRegistration", object(&[("url", url()), ("subscribedTypes", types())])),
        ("WebhookRegistered", object(&[("endpointId", text()), ("secret", text())])),
        ("WebhookUpdate", update),
        ("WebhookRotated", object(&[("nextSecret", text()), ("graceExpiresAt", time())])),
        ("WebhookTest", with_nullable(object(&[]), &[("type", text())])),
        ("WebhookQueued", object(&[("eventId", text())])),
        ("WebhookReplay", with_nullable(object(&[("from", time()), ("to", time())]), &[("types", types())])),
        ("WebhookReplaying", object(&[("replayId", text())])),
        ("DeliveryAttempt", attempt),
        ("Delivery", delivery),
        (
            "DeliveryPage",
            object(&[
                ("data", list(reference("Delivery"))),
                ("hasMore", boolean()),
                ("nextCursor", nullable(text())),
            ]),
        ),
    ]
}
