//! Makers' resting orders.

use serde_json::{Value, json};

use super::{Group, list, minor, nullable, object, one_of, reference, text};

fn price() -> Value {
    json!({"type": "string", "pattern": "^[0-9]{1,20}([.][0-9]{1,18})?$"})
}

pub(super) fn resting_orders() -> Group {
    let id = || json!({"type": "string", "minLength": 1, "maxLength": 128});
    let request = object(&[
        ("clientOrderId", id()),
        ("inputAsset", id()),
        ("outputAsset", id()),
        ("rate", price()),
        ("amountMinor", json!({"type": "string", "pattern": "^0*[1-9][0-9]{0,37}$"})),
    ]);
    let order = object(&[
        ("orderId", json!({"type": "string", "pattern": "^[0-9]+$"})),
        ("clientOrderId", nullable(text())),
        ("inputAsset", text()),
        ("outputAsset", text()),
        ("rate", price()),
        ("amountMinor", minor()),
        ("remainingMinor", minor()),
        ("status", one_of(&["open", "filled", "cancelled"])),
        ("placedAt", text()),
        ("cancelledAt", nullable(text())),
    ]);
    let page = object(&[("data", list(reference("RestingOrder"))), ("hasMore", json!({"type": "boolean"}))]);
    vec![("RestingOrderRequest", request), ("RestingOrder", order), ("RestingOrderPage", page)]
}
