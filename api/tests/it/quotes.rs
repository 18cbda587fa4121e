//! Indicative and firm quotes.

use serde_json::{Value, json};

use crate::harness::{ApiHarness, Call, changed, firm, order, quote};

fn firm_of(amount: &str, amount_type: &str) -> Value {
    let body = changed(firm(), "/amountMinor", Some(json!(amount)));
    changed(body, "/amountType", Some(json!(amount_type)))
}

/// Posts the body with each of the fields as it may not be, which the answer names.
async fn check_fields(path: &str, body: fn() -> Value, cases: Vec<(&str, Option<Value>)>) {
    let harness = ApiHarness::new().await;
    for (field, value) in cases {
        let body = changed(body(), &format!("/{}", field.replace('.', "/")), value.clone());
        let message = harness.post(&harness.acme, path, &body).await.refused(400, "INVALID_PARAMETER");
        assert!(message.starts_with(&format!("{field}: ")), "{field} {value:?} gave {message}");
    }
}

#[tokio::test]
async fn an_indicative_quote_has_the_contracts_candidate() {
    let harness = ApiHarness::new().await;
    let body = changed(quote(), "/maxSlippageBps", Some(json!(50)));
    let quote = harness.post(&harness.acme, "/v1/quotes", &body).await.ok(200);
    assert_eq!(quote["requestId"], "r-1");
    assert_eq!(quote["timestamp"], harness.now.millis());
    let candidates = quote["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 1);
    let candidate = &candidates[0];
    // 100 USDC less 5 bps, at 0.999, less 0.50.
    assert_eq!(candidate["totalCost"], "99.35");
    assert_eq!(candidate["ttlSec"], 15);
    assert_eq!(candidate["provider"], "north");
    assert_eq!(candidate["hops"], json!([]));
    let leg = &candidate["legs"][0];
    assert_eq!(
        (&leg["from"], &leg["to"], &leg["venue"]),
        (&json!("USDC"), &json!("USD"), &json!("LP:north"))
    );
    assert_eq!(leg["capacity"], "1000000");
    let metadata = &candidate["metadata"];
    for number in ["latencyMs", "basePrice", "feesBps", "liquidityAvailable", "score"] {
        assert!(metadata[number].is_number(), "{number}: {metadata}");
    }
    assert_eq!(metadata["constraintViolations"], json!([]));
    let kept: (Value, Value) = harness.row("select request, response from quote_request").await;
    assert_eq!(kept.0["quoteType"], "B_institution");
    assert_eq!(kept.1, quote);
}

#[tokio::test]
async fn no_liquidity_is_an_empty_list() {
    let harness = ApiHarness::new().await;
    for (field, value) in [
        ("/source", "DOGE"),
        ("/target", "JPY"),
        ("/target", "USDC"),
        ("/amount", "2000000"),
        ("/amount", "340282366920938463463374607431768.211455"),
    ] {
        let body = changed(quote(), field, Some(json!(value)));
        let quote = harness.post(&harness.acme, "/v1/quotes", &body).await.ok(200);
        assert_eq!(quote["candidates"], json!([]), "{field} {value}");
    }
    let body = changed(quote(), "/source", Some(json!("DOGE")));
    let fine = changed(body, "/amount", Some(json!(format!("0.{}1", "0".repeat(30)))));
    harness.post(&harness.acme, "/v1/quotes", &fine).await.ok(200);
}

#[tokio::test]
async fn each_field_of_an_indicative_quote_is_checked_and_named() {
    let mut cases: Vec<(&str, Option<Value>)> =
        ["requestId", "actorId", "source", "target", "amount", "side"]
            .into_iter()
            .flat_map(|field| [(field, None), (field, Some(json!(1))), (field, Some(json!("")))])
            .collect();
    for amount in ["0", "0.000000", "-1", "+1", "1e3", "1.", ".5", "1,5", "1.0000001", " 1", &"9".repeat(40)]
    {
        cases.push(("amount", Some(json!(amount))));
    }
    for bps in [json!("50"), json!(-1), json!(10_000.5), json!(10_001)] {
        cases.push(("maxSlippageBps", Some(bps)));
    }
    cases.push(("requestId", Some(json!("x".repeat(129)))));
    cases.push(("requestId", Some(json!("a\u{0}b"))));
    cases.push(("side", Some(json!("SELL"))));
    for field in ["actorType", "quoteType", "settlementPref"] {
        cases.push((field, Some(json!("other"))));
        cases.push((field, Some(json!({}))));
    }
    check_fields("/v1/quotes", quote, cases).await;
}

#[tokio::test]
async fn a_firm_quote_locks_rate_and_fees() {
    let harness = ApiHarness::new().await;
    let call = Call::post(&harness.acme, "/v1/quotes/firm", &firm());
    let quote = harness.send(&call).await.ok(201);
    assert_eq!(quote["requestId"], "r-2");
    assert!(quote["quoteId"].as_str().unwrap().starts_with("qte_"));
    assert_eq!(quote["pair"], "USDC/USD");
    assert_eq!(quote["allInRate"].as_str().unwrap().trim_end_matches('0'), "0.999");
    assert_eq!(quote["input"], json!({"amountMinor": "100000000", "currency": "USDC", "exponent": 6}));
    assert_eq!(quote["output"], json!({"amountMinor": "9935", "currency": "USD", "exponent": 2}));
    let fees = quote["fees"].as_array().unwrap();
    let types: Vec<&str> = fees.iter().map(|fee| fee["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["protocol_fee", "payout_fee", "network_fee"]);
    let until = quote["validUntil"].as_str().unwrap();
    assert!(until.ends_with('Z') && until.len() == 24, "{until}");
    let target = Call::post(&harness.acme, "/v1/quotes/firm", &firm_of("9935", "target"));
    let target = harness.send(&target).await.ok(201);
    assert_eq!(target["output"]["amountMinor"], "9935");
    let input: u128 = target["input"]["amountMinor"].as_str().unwrap().parse().unwrap();
    assert!(input <= 100_000_000, "the smallest input that delivers the target: {input}");
}

#[tokio::test]
async fn a_firm_quote_without_liquidity_is_refused_and_replayed() {
    let harness = ApiHarness::new().await;
    let unknown = changed(firm_of("100", "target"), "/outputAsset/symbol", Some(json!("JPY")));
    for body in [firm_of("100000001", "target"), firm_of("1", "source"), unknown] {
        let call = Call::post(&harness.acme, "/v1/quotes/firm", &body);
        let first = harness.send(&call).await;
        first.refused(422, "INSUFFICIENT_LIQUIDITY");
        let again = harness.send(&call).await;
        assert_eq!((again.text, again.headers.contains_key("x-idempotency-replayed")), (first.text, true));
    }
    assert_eq!(harness.count("select count(*) from firm_quote").await, 0);
}

#[tokio::test]
async fn each_field_of_a_firm_quote_is_checked_and_named() {
    let mut cases: Vec<(&str, Option<Value>)> = vec![
        ("amountMinor", Some(json!("0"))),
        ("amountMinor", Some(json!("1.0"))),
        ("amountMinor", Some(json!(100))),
        ("amountMinor", Some(json!("340282366920938463463374607431768211456"))),
        ("amountType", Some(json!("input"))),
        ("side", Some(json!("hold"))),
        ("actorType", Some(json!("robot"))),
        ("inputAsset", Some(json!("USDC"))),
        ("inputAsset.type", Some(json!("ERC20"))),
        ("inputAsset.type", None),
        ("inputAsset.symbol", None),
        ("inputAsset.address", Some(json!("0xaa"))),
        ("inputAsset.decimals", Some(json!(6))),
        ("outputAsset.currency", Some(json!("US"))),
        ("outputAsset.chain", Some(json!(1))),
        ("quoteid", Some(json!(6))),
    ];
    for field in ["requestId", "actorId", "inputAsset", "outputAsset", "amountMinor", "amountType"] {
        cases.push((field, None));
    }
    check_fields("/v1/quotes/firm", firm, cases).await;
}

#[tokio::test]
async fn who_lets_too_many_reservations_go_is_told_when_to_come_back() {
    let harness = ApiHarness::new().await;
    let until = harness.now.plus_millis(90_500).to_utc();
    let cools = "insert into cool_down (scope, subject, since, until) values ('partner', 'ptn_acme', $1, $1)";
    sqlx::query(cools).bind(until).execute(harness.pool()).await.unwrap();
    // An hour of all that the provider has.
    let held = "insert into unused_hold (partner_id, provider_id, asset, lapsed_in, held) \
                values ('ptn_acme', 'north', 'USD', $1, 100000000::numeric * 3600)";
    sqlx::query(held).bind(harness.now.to_utc()).execute(harness.pool()).await.unwrap();
    let order = harness.intent(&harness.acme, &order());
    let firm_quote = Call::post(&harness.acme, "/v1/quotes/firm", &firm());
    for (call, wait, says) in [
        (&order, 60..=91, "orders of this partner are refused for now"),
        (&firm_quote, 3_500..=3_600, "firm quotes of this pair are refused for now"),
    ] {
        let answer = harness.send(call).await;
        let message = answer.refused(429, "RATE_LIMIT_EXCEEDED");
        assert!(message.starts_with(says) && message.contains("; try again after 20"), "{message}");
        let after: u32 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!(wait.contains(&after), "{after}");
    }
    // Nothing else is refused, and nothing was stored under the keys.
    harness.post(&harness.acme, "/v1/quotes", &quote()).await.ok(200);
    harness.post(&harness.globex, "/v1/quotes/firm", &firm()).await.ok(201);
    for table in ["delete from cool_down", "delete from unused_hold"] {
        harness.run(table).await;
    }
    let again = order.signed(&harness.acme, harness.now.unix_secs());
    harness.send(&again).await.ok(202);
    harness.send(&firm_quote).await.ok(201);
}
