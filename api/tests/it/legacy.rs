//! The older surface: rates, pairs, and orders by strategy.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use dvp_core::legacy::turns;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::house::{Answer, Call, House, Keys, changed};

fn older() -> Value {
    json!({
        "pair": {"source": "USD", "target": "EUR"}, "side": "sell", "amount": "100.00", "strategy": "instant",
        "constraints": {"maxSlippageBps": 100, "maxFeeBps": 100}, "clientRef": "mine",
    })
}

async fn prefunded() -> House {
    let house = House::new().await;
    house.prefund().await;
    house
}

async fn create(house: &House, body: &Value) -> Value {
    let answer = house.submit(&house.acme, body).await.ok(201);
    assert_eq!(answer["success"], true);
    answer["data"].clone()
}

async fn show(house: &House, keys: &Keys, intent: &Value) -> Answer {
    let path = format!("/v1/intents/{}", intent["intentId"].as_str().unwrap());
    house.send(&Call::get(keys, &path)).await
}

async fn status(house: &House, intent: &Value) -> Value {
    show(house, &house.acme, intent).await.ok(200)["data"].clone()
}

async fn cancel(house: &House, intent: &Value) -> Answer {
    let path = format!("/v1/intents/{}", intent["intentId"].as_str().unwrap());
    house.send(&Call::new("DELETE", &path).with("X-API-Key", &house.acme.api_key)).await
}

#[tokio::test]
async fn an_instant_order_is_executed_from_the_partners_balance_to_its_standing_instruction() {
    let house = prefunded().await;
    let kept = create(&house, &older()).await;
    assert_eq!((&kept["status"], &kept["filledAmount"]), (&json!("pending"), &json!("0")));
    assert_eq!(kept["pair"], json!({"source": "USD", "target": "EUR"}));
    assert_eq!(
        kept["constraints"],
        json!({"maxSlippageBps": 100, "maxFeeBps": 100, "settlementPref": "auto", "ttlMs": 30000})
    );
    assert_eq!((&kept["clientRef"], &kept["amount"]), (&json!("mine"), &json!("100.00")));
    assert_eq!(turns(&house.engine()).await.unwrap(), 1);
    let executing = status(&house, &kept).await;
    assert_eq!(executing["status"], "executing", "{executing}");
    let reference = executing["reference"].as_str().unwrap();
    let path = format!("/v1/executions/{reference}?refType=executionId");
    assert_eq!(house.send(&Call::get(&house.acme, &path)).await.ok(200)["status"], "in_progress");
    let id = kept["intentId"].as_str().unwrap();
    house.send(&Call::get(&house.acme, &format!("/v1/intents/{id}/status"))).await.ok(200);
    let account: (String,) =
        sqlx::query_as("select terms #>> '{request,beneficiary,account}' from execution")
            .fetch_one(house.pool())
            .await
            .unwrap();
    assert_eq!(account.0, "bene_acme:dest_eur");
    cancel(&house, &kept).await.refused(400, "INTENT_ALREADY_EXECUTING");
    assert_eq!(turns(&house.engine()).await.unwrap(), 0);
}

#[tokio::test]
async fn an_instant_order_that_nobody_fills_is_rejected_and_says_why() {
    let house = prefunded().await;
    let huge = create(&house, &changed(older(), "/amount", Some(json!("9999999")))).await;
    let free = create(&house, &changed(older(), "/constraints/maxFeeBps", Some(json!(0)))).await;
    assert_eq!(turns(&house.engine()).await.unwrap(), 2);
    for (order, code) in [(huge, "INSUFFICIENT_LIQUIDITY"), (free, "CONSTRAINTS_NOT_MET")] {
        let rejected = status(&house, &order).await;
        assert_eq!((&rejected["status"], &rejected["rejection"]), (&json!("rejected"), &json!(code)));
        cancel(&house, &order).await.refused(400, "INTENT_ALREADY_EXECUTING");
    }
    assert_eq!(house.count("select count(*) from execution").await, 0);
}

#[tokio::test]
async fn a_scheduled_order_is_queued_for_its_epoch_and_an_optimized_one_looks_before_it_takes() {
    let house = prefunded().await;
    let scheduled = create(&house, &changed(older(), "/strategy", Some(json!("scheduled")))).await;
    let optimized = create(&house, &changed(older(), "/strategy", Some(json!("optimized")))).await;
    assert_eq!((&scheduled["status"], &optimized["status"]), (&json!("queued"), &json!("pending")));
    let far = "update legacy_intent set run_at = now() + interval '1 day' where strategy = 'scheduled'";
    sqlx::query(far).execute(house.pool()).await.unwrap();
    assert_eq!(turns(&house.engine()).await.unwrap(), 1);
    assert_eq!(status(&house, &optimized).await["status"], "solving");
    // The epoch has come for one, the second half of its life for the other.
    let later = "update legacy_intent set run_at = now(), created_at = now() - interval '2 h', \
                 expires_at = now() + interval '1 h' where strategy = 'optimized'";
    sqlx::query(later).execute(house.pool()).await.unwrap();
    sqlx::query("update legacy_intent set run_at = now(), expires_at = now() + interval '1 h' where strategy = 'scheduled'")
        .execute(house.pool())
        .await
        .unwrap();
    assert_eq!(turns(&house.engine()).await.unwrap(), 2);
    for order in [&scheduled, &optimized] {
        assert_eq!(status(&house, order).await["status"], "executing");
    }
}

#[tokio::test]
async fn an_order_is_cancelled_until_it_is_executed_and_expires_when_its_time_is_up() {
    let house = prefunded().await;
    let scheduled = changed(older(), "/strategy", Some(json!("scheduled")));
    let (one, two) = (create(&house, &scheduled).await, create(&house, &scheduled).await);
    let cancelled = cancel(&house, &one).await.ok(200);
    assert_eq!(cancelled["data"]["status"], "cancelled");
    assert_eq!(cancel(&house, &one).await.ok(200), cancelled, "asked again");
    sqlx::query("update legacy_intent set run_at = now(), expires_at = now()")
        .execute(house.pool())
        .await
        .unwrap();
    turns(&house.engine()).await.unwrap();
    assert_eq!(status(&house, &one).await["status"], "cancelled");
    assert_eq!(status(&house, &two).await["status"], "expired");
    cancel(&house, &two).await.refused(400, "INTENT_EXPIRED");
    let unknown = json!({"intentId": Uuid::new_v4().to_string()});
    cancel(&house, &unknown).await.refused(404, "INTENT_NOT_FOUND");
    assert_eq!(house.count("select count(*) from intent").await, 0);
}

#[tokio::test]
async fn a_crash_around_the_submission_executes_the_order_once() {
    let house = prefunded().await;
    let before = create(&house, &older()).await;
    let crashed =
        "update legacy_intent set stage = 'submitting', attempt = 1, lease_until = now(), reference = null";
    // Before it was submitted.
    sqlx::query(crashed).execute(house.pool()).await.unwrap();
    turns(&house.engine()).await.unwrap();
    assert_eq!(status(&house, &before).await["status"], "executing");
    // After, before its reference was noted.
    sqlx::query(crashed).execute(house.pool()).await.unwrap();
    turns(&house.engine()).await.unwrap();
    assert_eq!(status(&house, &before).await["status"], "executing");
    assert_eq!(house.count("select count(*) from execution").await, 1);
}

#[tokio::test]
async fn two_workers_at_once_execute_each_order_once() {
    let house = prefunded().await;
    for _ in 0..20 {
        create(&house, &older()).await;
    }
    let (one, two) = (house.engine(), house.engine());
    let (first, second) = tokio::join!(turns(&one), turns(&two));
    assert_eq!(first.unwrap() + second.unwrap(), 20);
    assert_eq!(house.count("select count(*) from execution").await, 20);
    assert_eq!(house.count("select count(distinct reference) from legacy_intent").await, 20);
}

#[tokio::test]
async fn each_fault_of_an_order_has_its_code() {
    let house = prefunded().await;
    for (pointer, value, code) in [
        ("/pair", None, "INVALID_PARAMETER"),
        ("/pair/target", Some(json!("JPY")), "INVALID_PAIR"),
        ("/pair", Some(json!({"source": "EUR", "target": "USD"})), "INVALID_PAIR"),
        ("/side", Some(json!("buy")), "INVALID_PARAMETER"),
        ("/strategy", None, "INVALID_PARAMETER"),
        ("/strategy", Some(json!("eventually")), "INVALID_STRATEGY"),
        ("/amount", Some(json!("-1")), "INVALID_PARAMETER"),
        ("/amount", Some(json!("1.001")), "INVALID_PARAMETER"),
        ("/amount", Some(json!(1)), "INVALID_PARAMETER"),
        ("/amount", Some(json!("0.00")), "AMOUNT_OUT_OF_RANGE"),
        ("/amount", Some(json!("0.99")), "AMOUNT_OUT_OF_RANGE"),
        ("/amount", Some(json!("9".repeat(40))), "AMOUNT_OUT_OF_RANGE"),
        ("/amount", Some(json!("10000000.01")), "AMOUNT_OUT_OF_RANGE"),
        ("/constraints/ttlMs", Some(json!(999)), "INVALID_PARAMETER"),
        ("/constraints/maxFeeBps", Some(json!(10_001)), "INVALID_PARAMETER"),
        ("/constraints/settlementPref", Some(json!("hybrid")), "INVALID_PARAMETER"),
        ("/pair/source", Some(json!("USDC")), "INVALID_PAIR"),
    ] {
        let body = changed(older(), pointer, value);
        house.submit(&house.acme, &body).await.refused(400, code);
    }
    let token = changed(older(), "/pair", Some(json!({"source": "USDC", "target": "USD"})));
    let message = house.submit(&house.acme, &token).await.refused(400, "CONSTRAINTS_NOT_MET");
    assert!(message.contains("permit"), "{message}");
    let message = house.submit(&house.globex, &older()).await.refused(400, "CONSTRAINTS_NOT_MET");
    assert!(message.contains("standing instruction"), "{message}");
    assert_eq!(house.count("select count(*) from legacy_intent").await, 0);
}

#[tokio::test]
async fn an_order_is_made_once_per_idempotency_key_and_needs_a_signature() {
    let house = prefunded().await;
    let call = house.intent(&house.acme, &older());
    let first = house.send(&call).await;
    let again = house.send(&call.clone().signed(&house.acme, house.now.unix_secs())).await;
    assert_eq!((first.ok(201), again.header("x-idempotency-replayed")), (again.ok(201), Some("true")));
    assert_eq!(house.count("select count(*) from legacy_intent").await, 1);
    house.send(&call.without("X-Signature")).await.refused(401, "INVALID_SIGNATURE");
}

#[tokio::test]
async fn orders_are_listed_newest_first_by_page_and_filter_and_only_to_their_owner() {
    let house = prefunded().await;
    let mut made = Vec::new();
    for strategy in ["instant", "scheduled", "optimized"] {
        made.push(create(&house, &changed(older(), "/strategy", Some(json!(strategy)))).await);
        house.pass(1);
    }
    let list =
        async |keys: &Keys, query: &str| house.send(&Call::get(keys, &format!("/v1/intents{query}"))).await;
    let ids = |page: &Value| -> Vec<Value> {
        page["data"].as_array().unwrap().iter().map(|one| one["intentId"].clone()).collect()
    };
    let id = |n: usize| made[n]["intentId"].clone();
    let all = list(&house.acme, "").await.ok(200);
    assert_eq!(ids(&all), [id(2), id(1), id(0)]);
    assert_eq!((&all["page"], &all["limit"], &all["total"]), (&json!(1), &json!(20), &json!(3)));
    let second = list(&house.acme, "?page=2&limit=2").await.ok(200);
    assert_eq!((ids(&second), &second["total"]), (vec![id(0)], &json!(3)));
    assert_eq!(ids(&list(&house.acme, "?status=queued").await.ok(200)), [id(1)]);
    assert_eq!(ids(&list(&house.acme, "?strategy=optimized").await.ok(200)), [id(2)]);
    let day = &house.now.iso8601()[..10];
    assert_eq!(list(&house.acme, &format!("?fromDate={day}&toDate={day}")).await.ok(200)["total"], 3);
    let at = made[1]["createdAt"].as_str().unwrap();
    assert_eq!(ids(&list(&house.acme, &format!("?fromDate={at}&toDate={at}")).await.ok(200)), [id(1)]);
    for wrong in ["?status=done", "?strategy=x", "?fromDate=yesterday", "?page=0", "?limit=101", "?page=a"] {
        list(&house.acme, wrong).await.refused(400, "INVALID_PARAMETER");
    }
    for keys in [&house.globex, &house.acme_live] {
        assert_eq!(list(keys, "").await.ok(200)["total"], 0);
        let foreign = show(&house, keys, &made[0]).await;
        foreign.refused(404, "INTENT_NOT_FOUND");
        let unknown = show(&house, keys, &json!({"intentId": Uuid::new_v4().to_string()})).await;
        assert_eq!(foreign.text, unknown.text);
        let path = format!("/v1/intents/{}", made[1]["intentId"].as_str().unwrap());
        let theirs = Call::new("DELETE", &path).with("X-API-Key", &keys.api_key);
        house.send(&theirs).await.refused(404, "INTENT_NOT_FOUND");
    }
    assert_eq!(status(&house, &made[1]).await["status"], "queued");
}

#[tokio::test]
async fn pairs_and_rates_are_those_of_the_market() {
    let house = House::new().await;
    let pairs = house.send(&Call::get(&house.acme, "/v1/pairs")).await.ok(200);
    assert_eq!((&pairs["success"], &pairs["data"][0]["pair"]), (&json!(true), &json!("USDC/USD")));
    assert_eq!(pairs["data"][1]["targetExponent"], 2);
    let rate = house.send(&Call::get(&house.acme, "/v1/rates/USD/EUR")).await.ok(200);
    let data = &rate["data"];
    assert_eq!(
        (&data["base"], &data["target"], &data["rate"]),
        (&json!("USD"), &json!("EUR"), &json!("0.92"))
    );
    assert_eq!((&data["spreadBps"], &data["appliedRate"]), (&json!(10), &json!("0.91908")));
    assert!(data["ttlMs"].as_u64().unwrap() > 0);
    for unknown in ["EUR/USD", "JPY/EUR", "%FF/EUR", "a/b"] {
        let path = format!("/v1/rates/{unknown}");
        house.send(&Call::get(&house.acme, &path)).await.refused(400, "INVALID_PAIR");
    }
}

#[tokio::test]
async fn a_captured_order_is_not_carried_out_again_by_another_process_or_after_a_restart() {
    let house = prefunded().await;
    let refused = changed(older(), "/pair/target", Some(json!("USD")));
    for (body, status) in [(older(), 201), (changed(refused, "/pair/source", Some(json!("USDC"))), 400)] {
        let call = house.intent(&house.acme, &body);
        assert_eq!(house.send(&call).await.status, status);
        // The idempotency key is no part of what is signed.
        let captured = call.clone().with("X-Idempotency-Key", &Uuid::new_v4().to_string());
        for _ in 0..2 {
            let answer = house.send_to(house.another_process(), &captured).await;
            let message = answer.refused(401, "INVALID_SIGNATURE");
            assert_eq!(message, "X-Nonce was used before");
        }
        // A retry carries a fresh nonce, and has its answer again wherever it arrives.
        let retry = call.signed(&house.acme, house.now.unix_secs());
        let again = house.send_to(house.another_process(), &retry).await;
        assert_eq!((again.status.as_u16(), again.header("x-idempotency-replayed")), (status, Some("true")));
    }
    assert_eq!(house.count("select count(*) from legacy_intent").await, 1);
}
