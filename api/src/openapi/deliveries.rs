//! The `webhooks` of the document: the requests to a partner's endpoint, one entry per type of event.

use dvp_domain::envelope::TEST_PING;
use dvp_domain::event::EventType;
use serde_json::{Map, Value, json};

pub(super) fn webhooks() -> Value {
    let mut all: Map<String, Value> = Map::new();
    for kind in EventType::ALL {
        let schema = json!({
            "allOf": [
                {"$ref": "#/components/schemas/Event"},
                {"properties": {"type": {"const": kind.as_str()}}},
            ],
        });
        all.insert(kind.as_str().to_owned(), delivery(kind.as_str(), &schema));
    }
    all.insert(TEST_PING.to_owned(), delivery(TEST_PING, &json!({"$ref": "#/components/schemas/PingEvent"})));
    Value::Object(all)
}

fn delivery(kind: &str, schema: &Value) -> Value {
    json!({"post": {
        "operationId": format!("webhook.{kind}"),
        "tags": [super::webhooks::TAG],
        "summary": format!("`{kind}` is sent to the endpoint"),
        "description": "Sent to the registered URL of who subscribes to the type. Check the signature over the body's \
            bytes before reading them, answer with a 2xx, and let go what has an `id` that was seen before.",
        "security": [],
        "parameters": [
            header("Svc-Signature", "`t=<Unix seconds>,v1=<hex>[,v1=<hex>]`: HMAC-SHA256 of `<t>.<body>` with the \
                endpoint's secret."),
            header("webhook-id", "The event's id (Standard Webhooks)."),
            header("webhook-timestamp", "Unix seconds (Standard Webhooks)."),
            header("webhook-signature", "The signature in the form of Standard Webhooks."),
        ],
        "requestBody": {
            "required": true,
            "content": {"application/json": {"schema": schema}},
        },
        "responses": {
            "2XX": {"description": "Delivered. The body is not looked at."},
            "410": {"description": "The endpoint is switched off and nothing more is sent to it."},
            "default": {"description": "Not delivered; sent again on the schedule of retries."},
        },
    }})
}

fn header(name: &str, description: &str) -> Value {
    json!({
        "name": name, "in": "header", "required": true, "description": description, "schema": {"type": "string"},
    })
}
