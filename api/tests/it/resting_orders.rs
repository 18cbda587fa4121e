//! Makers place, list and cancel resting orders over REST.

use dvp_core::operators::approvals::approve;
use dvp_core::operators::makers::{self, MakerChange};
use dvp_core::operators::requests::Maker;
use dvp_domain::address::OwnContracts;
use serde_json::{Value, json};

use crate::harness::{ApiHarness, Call, Keys, changed};

const PATH: &str = "/v1/resting-orders";

fn placement(id: &str) -> Value {
    json!({"clientOrderId": id, "inputAsset": "USDC", "outputAsset": "USD", "rate": "0.9991", "amountMinor": "5000"})
}

async fn make_maker(harness: &ApiHarness, is_ended: bool) {
    let change = MakerChange {
        partner_id: "ptn_acme".into(),
        provider_id: "quorum".into(),
        wallet: "0x9999999999999999999999999999999999999999".into(),
        is_ended,
    };
    let by = Maker { operator: "jo", reason: "agreement", evidence: "contract 4" };
    let mut conn = harness.pool().acquire().await.unwrap();
    let requested = makers::request(&mut conn, &change, by, &OwnContracts::default()).await.unwrap();
    approve(&mut conn, &requested.approval.id, "mika", "seen").await.unwrap();
}

fn signed(harness: &ApiHarness, keys: &Keys, body: &Value) -> Call {
    Call::post(keys, PATH, body).signed(keys, harness.pass(0))
}

#[tokio::test]
async fn a_maker_places_lists_and_cancels_its_orders() {
    let harness = ApiHarness::new().await;
    let acme = &harness.acme;
    harness.send(&signed(&harness, acme, &placement("R-1"))).await.refused(404, "NOT_FOUND");
    harness.get(acme, PATH).await.refused(404, "NOT_FOUND");
    make_maker(&harness, false).await;
    harness.post(acme, PATH, &placement("R-1")).await.refused(401, "INVALID_SIGNATURE");
    let placed = harness.send(&signed(&harness, acme, &placement("R-1"))).await.ok(201);
    assert_eq!((&placed["status"], &placed["remainingMinor"]), (&json!("open"), &json!("5000")));
    let again = harness.send(&signed(&harness, acme, &placement("R-1"))).await.ok(200);
    assert_eq!(again, placed);
    let other = changed(placement("R-1"), "/amountMinor", Some(json!("5001")));
    harness.send(&signed(&harness, acme, &other)).await.refused(409, "ALREADY_EXISTS");
    for (field, value, code) in [
        ("/rate", json!("0"), "INVALID_PARAMETER"),
        ("/rate", json!("1e3"), "INVALID_PARAMETER"),
        ("/rate", json!(1), "INVALID_PARAMETER"),
        ("/rate", json!("0.1234567890123456789"), "INVALID_PARAMETER"),
        ("/amountMinor", json!("0"), "INVALID_PARAMETER"),
        ("/clientOrderId", json!(""), "INVALID_PARAMETER"),
        ("/outputAsset", json!("DOGE"), "INVALID_PAIR"),
    ] {
        let body = changed(placement("R-2"), field, Some(value));
        harness.send(&signed(&harness, acme, &body)).await.refused(400, code);
    }
    for n in 2..5 {
        harness.send(&signed(&harness, acme, &placement(&format!("R-{n}")))).await.ok(201);
    }
    let page = harness.get(acme, "/v1/resting-orders?limit=3").await.ok(200);
    let ids = |page: &Value| -> Vec<String> {
        let orders = page["data"].as_array().unwrap().iter();
        orders.map(|order| order["clientOrderId"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        (ids(&page), &page["hasMore"]),
        (vec!["R-4".into(), "R-3".into(), "R-2".into()], &json!(true))
    );
    let before = page["data"][2]["orderId"].as_str().unwrap();
    let rest = harness.get(acme, &format!("{PATH}?before={before}")).await.ok(200);
    assert_eq!((ids(&rest), &rest["hasMore"]), (vec!["R-1".into()], &json!(false)));
    let cancel = format!("{PATH}/{}", placed["orderId"].as_str().unwrap());
    for _ in 0..2 {
        let call = Call::delete(acme, &cancel);
        let cancelled = harness.send(&call).await.ok(200);
        assert_eq!((&cancelled["status"], &cancelled["remainingMinor"]), (&json!("cancelled"), &json!("0")));
    }
    let open = harness.get(acme, "/v1/resting-orders?status=open").await.ok(200);
    assert_eq!(ids(&open), ["R-4", "R-3", "R-2"]);
    harness.get(acme, "/v1/resting-orders?before=2").await.refused(400, "INVALID_PARAMETER");
    harness.get(acme, "/v1/resting-orders?status=filled").await.refused(400, "INVALID_PARAMETER");
    // Another partner's order, and none at all.
    for (keys, path) in
        [(&harness.globex, cancel.as_str()), (acme, "/v1/resting-orders/99"), (acme, "/v1/resting-orders/x")]
    {
        let call = Call::delete(keys, path);
        harness.send(&call).await.refused(404, "NOT_FOUND");
    }
    make_maker(&harness, true).await;
    harness.get(acme, PATH).await.refused(404, "NOT_FOUND");
}
