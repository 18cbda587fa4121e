//! A price outside of the band that two operators have set is refused at every door.

use serde_json::{Value, json};

use crate::fix::FixClient;
use crate::partner::Partner;
use crate::sandbox::{Sandbox, approve, said};

const WHY: [&str; 6] = ["--operator", "jo", "--reason", "thin market", "--evidence", "risk memo 8"];

fn change<'a>(action: &'a str, words: &[&'a str]) -> Vec<&'a str> {
    [&["band", action][..], words, &WHY].concat()
}

fn decided(sandbox: &Sandbox, words: &[&str]) {
    approve(sandbox, &said(sandbox, words)["id"]);
}

/// The answers to a quote, a firm quote, an intent and a market order for USDC/USD.
async fn answers(sandbox: &Sandbox, partner: &Partner, id: &str) -> [Value; 4] {
    let order = partner.order(sandbox, 0, "000123450000").await;
    let request = json!({"requestId": uuid::Uuid::new_v4(), "actorId": "a", "source": "USDC", "target": "USD",
                       "amount": "100.00", "side": "sell"});
    let (_, quoted) = partner.post("/v1/quotes", &request).await;
    let (_, firm) = partner.firm_quote("100000000").await;
    let (_, decided) = partner.submit(&order).await;
    let permit = partner.order(sandbox, 1, "000123450000").await["permit"].clone();
    let mut fix = FixClient::log_on(sandbox).await;
    fix.sell(id, "bene_a:dest_10000000", &permit, &[(40, "1"), (44, "")]).await;
    let report = fix.report(|report| report.get(11) == id).await;
    [
        quoted,
        firm["error"]["code"].clone(),
        decided["reason"].clone(),
        json!([report.get(150), report.get(58)]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_price_outside_its_band_is_refused_at_every_interface() {
    let sandbox = Sandbox::start().await;
    let partner = Partner::of(&sandbox);
    decided(&sandbox, &change("set", &["--pair", "USDC/USD", "--bps", "50", "--middle", "1.1"]));
    decided(&sandbox, &change("set", &["--pair", "USD/EUR", "--bps", "50", "--middle", "1.1"]));
    let listed = said(&sandbox, &["band", "list"]);
    assert_eq!(
        (&listed["bands"][1]["pair"], &listed["bands"][1]["middle"]),
        (&json!("USDC/USD"), &json!("1.1")),
        "{listed}"
    );
    // A process reads operators' settings four times a second.
    let figure = r#"dvp_prices_refused{pair="USDC/USD",source="reference",fault="reference_outside"} 1"#;
    sandbox.wait_for_metric(figure).await;
    let [quoted, firm, decided_, report] = answers(&sandbox, &partner, "ORD-1").await;
    assert_eq!(quoted["candidates"], json!([]), "{quoted}");
    assert_eq!(firm, "INSUFFICIENT_LIQUIDITY");
    assert_eq!((decided_, report), (json!("no_liquidity"), json!(["8", "no_liquidity"])));
    let older = json!({"pair": {"source": "USD", "target": "EUR"}, "side": "sell", "amount": "250.00",
                       "strategy": "instant", "constraints": {"maxSlippageBps": 100, "maxFeeBps": 100}});
    let (status, created) = partner.submit(&older).await;
    assert_eq!(status, 201, "{created}");
    let path = format!("/v1/intents/{}", created["data"]["intentId"].as_str().unwrap());
    let ended = partner.wait_for(&path, |answer| answer["data"]["status"] == "rejected").await;
    assert_eq!(ended["data"]["filledAmount"], "0", "{ended}");

    decided(&sandbox, &change("remove", &["--pair", "USDC/USD"]));
    sandbox.wait_for_metric(&figure.replace("} 1", "} 0")).await;
    let [quoted, firm, decided_, report] = answers(&sandbox, &partner, "ORD-2").await;
    assert_ne!(quoted["candidates"], json!([]), "{quoted}");
    assert_eq!((firm, decided_, report[0].clone()), (Value::Null, Value::Null, json!("0")));
    assert_eq!(said(&sandbox, &["audit", "verify"])["ok"], true);
    sandbox.stop().await;
}
