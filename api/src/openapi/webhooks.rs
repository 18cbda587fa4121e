//! The requests and responses of the webhook management routes.

use serde_json::{Value, json};

use super::Operation;
use super::operations::{cursor_param, limit_param, ok, text_param};
use crate::http::error::Code;

pub(super) const TAG: &str = "webhooks";

pub(super) fn idempotency_header() -> Value {
    json!({
        "name": "Idempotency-Key", "in": "header", "required": false,
        "description": "Any text, unique to the operation: repeated within 24 hours it gets the first answer.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
    })
}

pub(super) fn body_is_optional(operation: &str) -> bool {
    operation == "testWebhookEndpoint"
}

fn operation(id: &'static str, summary: &'static str, description: &'static str) -> Operation {
    Operation {
        id,
        tag: TAG,
        summary,
        description,
        params: vec![],
        body: None,
        answers: vec![],
        errors: &[Code::NotFound],
    }
}

pub(crate) fn show() -> Operation {
    Operation {
        answers: vec![ok(200, "The endpoint, without its secrets.", "WebhookEndpoint")],
        ..operation("getWebhookEndpoint", "The API key's endpoint", "")
    }
}

pub(crate) fn register() -> Operation {
    Operation {
        body: Some("WebhookRegistration"),
        answers: vec![ok(201, "Registered. The secret is shown here only.", "WebhookRegistered")],
        errors: &[Code::InvalidUrl, Code::InvalidType, Code::AlreadyExists, Code::PartnerMoving],
        ..operation("registerWebhookEndpoint", "Register an endpoint", "One for each API key.")
    }
}

pub(crate) fn update() -> Operation {
    Operation {
        body: Some("WebhookUpdate"),
        answers: vec![ok(200, "The endpoint after the change.", "WebhookEndpoint")],
        errors: &[Code::NotFound, Code::InvalidUrl, Code::InvalidType, Code::PartnerMoving],
        ..operation("updateWebhookEndpoint", "Change the endpoint", "Absent fields keep their values.")
    }
}

pub(crate) fn rotate() -> Operation {
    Operation {
        answers: vec![ok(200, "The next secret, shown here only.", "WebhookRotated")],
        errors: &[Code::NotFound, Code::PartnerMoving],
        ..operation(
            "rotateWebhookSecret",
            "Rotate the secret",
            "Until the grace window ends deliveries carry two signatures.",
        )
    }
}

pub(crate) fn test() -> Operation {
    Operation {
        body: Some("WebhookTest"),
        answers: vec![ok(202, "Queued.", "WebhookQueued")],
        errors: &[Code::NotFound, Code::InvalidType],
        ..operation(
            "testWebhookEndpoint",
            "Send a test event",
            "A `test.ping`; with a test key and a `type`, a made-up event of that type.",
        )
    }
}

pub(crate) fn replay() -> Operation {
    Operation {
        body: Some("WebhookReplay"),
        answers: vec![ok(202, "Queued.", "WebhookReplaying")],
        errors: &[Code::NotFound, Code::InvalidType, Code::AlreadyExists],
        ..operation(
            "replayEvents",
            "Send a time range again",
            "Events observed from `from` on and before `to`, of the subscribed types or of `types`. An endpoint has one \
             replay at a time: the same range gets the same answer, another one 409.",
        )
    }
}

pub(crate) fn deliveries() -> Operation {
    let state = json!({
        "name": "state", "in": "query",
        "schema": {"type": "string", "enum": ["pending", "delivered", "failed"]},
    });
    Operation {
        params: vec![
            cursor_param("since"),
            text_param("query", "eventId", false, "Only this event's."),
            state,
            limit_param(20),
        ],
        answers: vec![ok(200, "A page, latest first.", "DeliveryPage")],
        errors: &[Code::NotFound, Code::InvalidParameter, Code::InvalidCursor],
        ..operation("listDeliveries", "List deliveries and their attempts", "")
    }
}

pub(crate) fn remove() -> Operation {
    Operation {
        params: vec![text_param("path", "endpointId", true, "As it was registered.")],
        answers: vec![ok(200, "The endpoint, inactive.", "WebhookEndpoint")],
        errors: &[Code::NotFound, Code::PartnerMoving],
        ..operation(
            "deactivateWebhookEndpoint",
            "Switch the endpoint off",
            "Events keep being recorded; an update switches it on again.",
        )
    }
}

pub(crate) fn resend() -> Operation {
    Operation {
        params: vec![text_param("path", "eventId", true, "As in its envelope.")],
        answers: vec![ok(202, "Queued.", "WebhookQueued")],
        ..operation("resendEvent", "Send an event again", "To the active endpoint, with the same id.")
    }
}
