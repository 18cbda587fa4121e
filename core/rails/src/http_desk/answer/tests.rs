use dvp_domain::terms::AssetAmount;
use serde_json::{Value, json};

use super::*;
use crate::LegKind;

fn request() -> RailRequest {
    RailRequest {
        trace: None,
        leg: LegKind::Offramp,
        reference: "ab12".into(),
        account: "000123450000".into(),
        beneficiary: None,
        amount: Minor::new(9_950),
        currency: "USD".into(),
        exponent: 2,
        sold: Some(AssetAmount {
            asset: "USDC".into(),
            amount: Minor::new(100_000_000),
            exponent: 6,
            chain: None,
        }),
        provider_reference: None,
        execution: "exe_1".into(),
        payer_reference: None,
        partner: String::new(),
        not_after: now(),
    }
}

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp_millis(1_700_000_000_000).unwrap()
}

fn filled() -> Value {
    json!({
        "reference": "ab12", "status": "filled", "deskReference": "D-7",
        "sell": { "asset": "USDC", "amountMinor": "100000000" },
        "buy": { "asset": "USD", "amountMinor": "9950" },
        "filledAt": "2023-11-14T22:13:19.500Z",
    })
}

fn read_json(status: u16, body: &Value) -> CallResult {
    read(&request(), status, body.to_string().as_bytes(), now())
}

#[test]
fn a_whole_fill_is_done() {
    let CallResult::Known(RailAnswer::Done(done)) = read_json(200, &filled()) else { panic!("not done") };
    assert_eq!(done.provider_reference, "D-7");
    assert_eq!(done.occurred_at.iso8601(), "2023-11-14T22:13:19.500Z");
}

/// Each of these could be the desk's error, a proxy's page or the answer to another order.
#[test]
fn an_answer_that_is_not_the_order_proves_nothing() {
    let changes: [(&str, Value); 9] = [
        ("/reference", json!("ab13")),
        ("/sell/amountMinor", json!("99999999")),
        ("/buy/amountMinor", json!("9949")),
        ("/buy/amountMinor", json!("9951")),
        ("/buy/asset", json!("EUR")),
        ("/deskReference", json!("")),
        ("/deskReference", json!("D\n7")),
        ("/filledAt", json!("2023-11-14T22:19:00Z")),
        ("/status", json!("done")),
    ];
    for (at, value) in changes {
        let mut body = filled();
        *body.pointer_mut(at).unwrap() = value.clone();
        assert!(matches!(read_json(200, &body), CallResult::Nothing(_)), "{at} = {value}");
    }
    for member in ["deskReference", "sell", "buy", "filledAt"] {
        let mut body = filled();
        body.as_object_mut().unwrap().remove(member);
        assert!(matches!(read_json(200, &body), CallResult::Nothing(_)), "without {member}");
    }
    for status in [204, 301, 400, 404, 409, 500, 502, 503, 504] {
        assert!(matches!(read_json(status, &filled()), CallResult::Nothing(_)), "status {status}");
        assert!(
            matches!(read(&request(), status, b"<html>", now()), CallResult::Nothing(_)),
            "status {status}"
        );
    }
}

#[test]
fn never_seen_requires_the_desks_answer_for_this_reference() {
    let unknown = |reference: &str| json!({ "error": "unknown_reference", "reference": reference });
    assert_eq!(read_json(404, &unknown("ab12")), CallResult::NeverSeen);
    assert!(matches!(read_json(404, &unknown("ab13")), CallResult::Nothing(_)));
    assert!(matches!(read_json(404, &json!({ "error": "unknown_reference" })), CallResult::Nothing(_)));
    assert!(matches!(read_json(404, &json!({ "error": "no_route" })), CallResult::Nothing(_)));
    assert!(matches!(read_json(200, &unknown("ab12")), CallResult::Nothing(_)));
}

#[test]
fn a_refused_request_did_nothing() {
    for status in [401, 403, 429] {
        assert!(matches!(read_json(status, &json!({ "error": "rate_limited" })), CallResult::Refused(_)));
        assert!(matches!(read(&request(), status, b"<html>", now()), CallResult::Nothing(_)));
    }
}

#[test]
fn an_answer_with_a_changed_desk_reference_is_ignored() {
    let mut repeated = request();
    repeated.provider_reference = Some("D-6".into());
    assert!(matches!(read(&repeated, 200, filled().to_string().as_bytes(), now()), CallResult::Nothing(_)));
    repeated.provider_reference = Some("D-7".into());
    assert!(matches!(read(&repeated, 200, filled().to_string().as_bytes(), now()), CallResult::Known(_)));
}

#[test]
fn a_rejection_keeps_a_storable_code_and_message() {
    for (reason, code, message) in [
        (json!({ "code": "price_gone", "message": "moved" }), "price_gone", "moved"),
        (json!({ "code": "Price gone" }), "conversion_failed", "the desk rejected the order"),
        (json!({ "code": "", "message": "a\u{0}b" }), "conversion_failed", "the desk rejected the order"),
    ] {
        let body = json!({ "reference": "ab12", "status": "rejected", "reason": reason });
        let expected = RailAnswer::Failed { code: code.into(), message: message.into(), retryable: false };
        assert_eq!(read_json(422, &body), CallResult::Known(expected));
    }
}
