//! The older surface: rates, pairs, and orders by strategy.

use dvp_core::legacy::turns;
use dvp_testing::wait::wait_for;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{Answer, ApiHarness, Call, Keys, changed, older};

async fn prefunded() -> ApiHarness {
    let harness = ApiHarness::new().await;
    harness.prefund().await;
    harness
}

async fn create(harness: &ApiHarness, body: &Value) -> Value {
    let answer = harness.submit(&harness.acme, body).await.ok(201);
    assert_eq!(answer["success"], true);
    answer["data"].clone()
}

async fn show(harness: &ApiHarness, keys: &Keys, intent: &Value) -> Answer {
    let path = format!("/v1/intents/{}", intent["intentId"].as_str().unwrap());
    harness.get(keys, &path).await
}

async fn status(harness: &ApiHarness, intent: &Value) -> Value {
    show(harness, &harness.acme, intent).await.ok(200)["data"].clone()
}

async fn cancel(harness: &ApiHarness, intent: &Value) -> Answer {
    let path = format!("/v1/intents/{}", intent["intentId"].as_str().unwrap());
    harness.send(&Call::delete(&harness.acme, &path)).await
}

#[tokio::test]
async fn an_instant_order_is_settled_from_balance_to_standing_instruction() {
    let harness = prefunded().await;
    let kept = create(&harness, &older()).await;
    assert_eq!((&kept["status"], &kept["filledAmount"]), (&json!("pending"), &json!("0")));
    assert_eq!(kept["pair"], json!({"source": "USD", "target": "EUR"}));
    assert_eq!(
        kept["constraints"],
        json!({"maxSlippageBps": 100, "maxFeeBps": 100, "settlementPref": "auto", "ttlMs": 30000})
    );
    assert_eq!((&kept["clientRef"], &kept["amount"]), (&json!("mine"), &json!("100.00")));
    assert_eq!(turns(&harness.engine.clone()).await.unwrap(), 1);
    let executing = status(&harness, &kept).await;
    assert_eq!(executing["status"], "executing", "{executing}");
    let reference = executing["reference"].as_str().unwrap();
    let path = format!("/v1/executions/{reference}?refType=executionId");
    assert_eq!(harness.get(&harness.acme, &path).await.ok(200)["status"], "in_progress");
    let id = kept["intentId"].as_str().unwrap();
    harness.get(&harness.acme, &format!("/v1/intents/{id}/status")).await.ok(200);
    let account: (String,) =
        harness.row("select terms #>> '{request,beneficiary,account}' from execution").await;
    assert_eq!(account.0, "bene_acme:dest_eur");
    cancel(&harness, &kept).await.refused(400, "INTENT_ALREADY_EXECUTING");
    assert_eq!(turns(&harness.engine.clone()).await.unwrap(), 0);
}

#[tokio::test]
async fn an_unfilled_instant_order_is_rejected_with_a_reason() {
    let harness = prefunded().await;
    let huge = create(&harness, &changed(older(), "/amount", Some(json!("9999999")))).await;
    let free = create(&harness, &changed(older(), "/constraints/maxFeeBps", Some(json!(0)))).await;
    assert_eq!(turns(&harness.engine.clone()).await.unwrap(), 2);
    for (order, code) in [(huge, "INSUFFICIENT_LIQUIDITY"), (free, "CONSTRAINTS_NOT_MET")] {
        let rejected = status(&harness, &order).await;
        assert_eq!((&rejected["status"], &rejected["rejection"]), (&json!("rejected"), &json!(code)));
        cancel(&harness, &order).await.refused(400, "INTENT_ALREADY_EXECUTING");
    }
    assert_eq!(harness.count("select count(*) from execution").await, 0);
}

#[tokio::test]
async fn scheduled_orders_wait_and_optimized_orders_compare_prices() {
    let harness = prefunded().await;
    let scheduled = create(&harness, &changed(older(), "/strategy", Some(json!("scheduled")))).await;
    let optimized = create(&harness, &changed(older(), "/strategy", Some(json!("optimized")))).await;
    assert_eq!((&scheduled["status"], &optimized["status"]), (&json!("queued"), &json!("pending")));
    let far = "update legacy_intent set run_at = now() + interval '1 day' where strategy = 'scheduled'";
    harness.run(far).await;
    assert_eq!(turns(&harness.engine.clone()).await.unwrap(), 1);
    assert_eq!(status(&harness, &optimized).await["status"], "solving");
    // The epoch has come for one, the second half of its life for the other.
    let later = "update legacy_intent set run_at = now(), created_at = now() - interval '2 h', \
                 expires_at = now() + interval '1 h' where strategy = 'optimized'";
    harness.run(later).await;
    harness.run("update legacy_intent set run_at = now(), expires_at = now() + interval '1 h' where strategy = 'scheduled'").await;
    assert_eq!(turns(&harness.engine.clone()).await.unwrap(), 2);
    for order in [&scheduled, &optimized] {
        assert_eq!(status(&harness, order).await["status"], "executing");
    }
}

/// What was accepted for one account is never paid to it when the instruction names another one by then, also when that
/// is being committed.
#[tokio::test]
async fn a_replaced_standing_instruction_ends_the_orders_that_wait_for_it() {
    let harness = prefunded().await;
    let scheduled = changed(older(), "/strategy", Some(json!("scheduled")));
    let first = create(&harness, &scheduled).await;
    let replace = "update settlement_instruction set account = account || '2' where asset = 'EUR'";
    let due =
        "update legacy_intent set run_at = now(), expires_at = now() + interval '1 h' where stage = 'queued'";
    harness.run(replace).await;
    harness.run(due).await;
    assert_eq!(turns(&harness.engine.clone()).await.unwrap(), 1);

    let second = create(&harness, &scheduled).await;
    harness.run(due).await;
    let mut replacing = harness.pool().begin().await.unwrap();
    sqlx::query(replace).execute(&mut *replacing).await.unwrap();
    let engine = harness.engine.clone();
    let (evaluated, ()) = tokio::join!(turns(&engine), async {
        wait_for("the writer", || async {
            let waiting = "select count(*) from pg_locks where not granted";
            (harness.count(waiting).await > 0 || harness.count("select count(*) from execution").await > 0)
                .then_some(())
        })
        .await;
        replacing.commit().await.unwrap();
    });
    assert_eq!(evaluated.unwrap(), 1);
    for order in [&first, &second] {
        let ended = status(&harness, order).await;
        assert_eq!(
            (&ended["status"], &ended["rejection"]),
            (&json!("rejected"), &json!("CONSTRAINTS_NOT_MET"))
        );
    }
    assert_eq!(harness.count("select count(*) from execution").await, 0);
}

/// Copies of the only order, of a partner, due at a time.
async fn copy(harness: &ApiHarness, partner: &str, copies: i32, due: &str) {
    let copied = "insert into legacy_intent (partner_id, livemode, intent_id, request, source, target, strategy, account, \
                                             stage, created_at, expires_at, run_at) \
                  select $1, livemode, gen_random_uuid()::text, request, source, target, strategy, account, 'pending', \
                         created_at, now() + interval '1 h', now() + $3::interval \
                  from (select * from legacy_intent limit 1) l, generate_series(1, $2)";
    sqlx::query(copied).bind(partner).bind(copies).bind(due).execute(harness.pool()).await.unwrap();
}

#[tokio::test]
async fn a_partner_with_many_due_orders_does_not_delay_another() {
    let harness = prefunded().await;
    let unfillable = changed(older(), "/constraints/maxFeeBps", Some(json!(0)));
    create(&harness, &changed(unfillable, "/strategy", Some(json!("optimized")))).await;
    copy(&harness, "ptn_acme", 99, "-1 h").await;
    copy(&harness, "ptn_globex", 1, "-1 s").await;
    assert_eq!(turns(&harness.engine.clone()).await.unwrap(), 32);
    let waits = "select count(*) from legacy_intent where partner_id = 'ptn_globex' and stage = 'solving'";
    assert_eq!(harness.count(waits).await, 1);
    // Nothing is due twice, and nothing is left out.
    for claimed in [32, 32, 5, 0] {
        assert_eq!(turns(&harness.engine.clone()).await.unwrap(), claimed);
    }
}

#[tokio::test]
async fn a_partner_has_a_thousand_open_orders_at_most() {
    let harness = prefunded().await;
    let scheduled = changed(older(), "/strategy", Some(json!("scheduled")));
    let first = harness.intent(&harness.acme, &scheduled);
    let kept = harness.send(&first).await.ok(201);
    copy(&harness, "ptn_acme", 998, "1 h").await;
    // Another partner's orders do not count, nor do those that have ended.
    copy(&harness, "ptn_globex", 50, "1 h").await;
    copy(&harness, "ptn_acme", 1, "2 h").await;
    harness.run("update legacy_intent set stage = 'expired' where run_at > now() + interval '90 min'").await;
    create(&harness, &scheduled).await;
    let refused = harness.intent(&harness.acme, &scheduled);
    let answer = harness.send(&refused).await;
    answer.refused(429, "RATE_LIMIT_EXCEEDED");
    assert_eq!(answer.header("retry-after"), Some("30"));
    // An order that was kept before is still answered.
    let again = first.signed(&harness.acme, harness.now.unix_secs());
    assert_eq!(harness.send(&again).await.ok(201), kept);
    cancel(&harness, &kept["data"]).await.ok(200);
    // The refusal was not stored.
    let again = refused.signed(&harness.acme, harness.now.unix_secs());
    harness.send(&again).await.ok(201);
}

#[tokio::test]
async fn an_order_can_be_cancelled_until_execution_and_expires() {
    let harness = prefunded().await;
    let scheduled = changed(older(), "/strategy", Some(json!("scheduled")));
    let (one, two) = (create(&harness, &scheduled).await, create(&harness, &scheduled).await);
    let cancelled = cancel(&harness, &one).await.ok(200);
    assert_eq!(cancelled["data"]["status"], "cancelled");
    assert_eq!(cancel(&harness, &one).await.ok(200), cancelled, "repeated");
    harness.run("update legacy_intent set run_at = now(), expires_at = now() - interval '1 s'").await;
    turns(&harness.engine.clone()).await.unwrap();
    assert_eq!(status(&harness, &one).await["status"], "cancelled");
    assert_eq!(status(&harness, &two).await["status"], "expired");
    cancel(&harness, &two).await.refused(400, "INTENT_EXPIRED");
    let unknown = json!({"intentId": Uuid::new_v4().to_string()});
    cancel(&harness, &unknown).await.refused(404, "INTENT_NOT_FOUND");
    assert_eq!(harness.count("select count(*) from intent").await, 0);
}

#[tokio::test]
async fn a_crash_around_the_submission_executes_the_order_once() {
    let harness = prefunded().await;
    let before = create(&harness, &older()).await;
    let crashed =
        "update legacy_intent set stage = 'submitting', attempt = 1, claimed_until = now(), reference = null";
    // Before it was submitted.
    harness.run(crashed).await;
    turns(&harness.engine.clone()).await.unwrap();
    assert_eq!(status(&harness, &before).await["status"], "executing");
    // After, before its reference was noted.
    harness.run(crashed).await;
    turns(&harness.engine.clone()).await.unwrap();
    assert_eq!(status(&harness, &before).await["status"], "executing");
    assert_eq!(harness.count("select count(*) from execution").await, 1);
}

#[tokio::test]
async fn two_workers_at_once_execute_each_order_once() {
    let harness = prefunded().await;
    for _ in 0..20 {
        create(&harness, &older()).await;
    }
    let (one, two) = (harness.engine.clone(), harness.engine.clone());
    let (first, second) = tokio::join!(turns(&one), turns(&two));
    assert_eq!(first.unwrap() + second.unwrap(), 20);
    assert_eq!(harness.count("select count(*) from execution").await, 20);
    assert_eq!(harness.count("select count(distinct reference) from legacy_intent").await, 20);
}

#[tokio::test]
async fn each_invalid_order_has_its_code() {
    let harness = prefunded().await;
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
        harness.submit(&harness.acme, &body).await.refused(400, code);
    }
    let token = changed(older(), "/pair", Some(json!({"source": "USDC", "target": "USD"})));
    let message = harness.submit(&harness.acme, &token).await.refused(400, "CONSTRAINTS_NOT_MET");
    assert!(message.contains("permit"), "{message}");
    let message = harness.submit(&harness.globex, &older()).await.refused(400, "CONSTRAINTS_NOT_MET");
    assert!(message.contains("standing instruction"), "{message}");
    assert_eq!(harness.count("select count(*) from legacy_intent").await, 0);
}

#[tokio::test]
async fn orders_are_listed_newest_first_to_their_owner_only() {
    let harness = prefunded().await;
    let mut made = Vec::new();
    for strategy in ["instant", "scheduled", "optimized"] {
        made.push(create(&harness, &changed(older(), "/strategy", Some(json!(strategy)))).await);
        harness.pass(1);
    }
    let list = async |keys: &Keys, query: &str| harness.get(keys, &format!("/v1/intents{query}")).await;
    let ids = |page: &Value| -> Vec<Value> {
        page["data"].as_array().unwrap().iter().map(|one| one["intentId"].clone()).collect()
    };
    let id = |n: usize| made[n]["intentId"].clone();
    let all = list(&harness.acme, "").await.ok(200);
    assert_eq!(ids(&all), [id(2), id(1), id(0)]);
    assert_eq!((&all["page"], &all["limit"], &all["total"]), (&json!(1), &json!(20), &json!(3)));
    let second = list(&harness.acme, "?page=2&limit=2").await.ok(200);
    assert_eq!((ids(&second), &second["total"]), (vec![id(0)], &json!(3)));
    assert_eq!(ids(&list(&harness.acme, "?status=queued").await.ok(200)), [id(1)]);
    assert_eq!(ids(&list(&harness.acme, "?strategy=optimized").await.ok(200)), [id(2)]);
    // Midnight may be between them.
    let [first, last] = [0, 2].map(|n| made[n]["createdAt"].as_str().unwrap()[..10].to_owned());
    assert_eq!(list(&harness.acme, &format!("?fromDate={first}&toDate={last}")).await.ok(200)["total"], 3);
    let at = made[1]["createdAt"].as_str().unwrap();
    assert_eq!(ids(&list(&harness.acme, &format!("?fromDate={at}&toDate={at}")).await.ok(200)), [id(1)]);
    for wrong in ["?status=done", "?strategy=x", "?fromDate=yesterday", "?page=0", "?limit=101", "?page=a"] {
        list(&harness.acme, wrong).await.refused(400, "INVALID_PARAMETER");
    }
    for keys in [&harness.globex, &harness.acme_live] {
        assert_eq!(list(keys, "").await.ok(200)["total"], 0);
        let foreign = show(&harness, keys, &made[0]).await;
        foreign.refused(404, "INTENT_NOT_FOUND");
        let unknown = show(&harness, keys, &json!({"intentId": Uuid::new_v4().to_string()})).await;
        // All but the requests' own ids.
        let face = |answer: &Answer| answer.text.replace(answer.header("x-request-id").unwrap(), "");
        assert_eq!(face(&foreign), face(&unknown));
        let path = format!("/v1/intents/{}", made[1]["intentId"].as_str().unwrap());
        let theirs = Call::delete(keys, &path);
        harness.send(&theirs).await.refused(404, "INTENT_NOT_FOUND");
    }
    assert_eq!(status(&harness, &made[1]).await["status"], "queued");
}

#[tokio::test]
async fn pairs_and_rates_come_from_the_market() {
    let harness = ApiHarness::new().await;
    let pairs = harness.get(&harness.acme, "/v1/pairs").await.ok(200);
    assert_eq!((&pairs["success"], &pairs["data"][0]["pair"]), (&json!(true), &json!("USDC/USD")));
    assert_eq!(pairs["data"][1]["targetExponent"], 2);
    let rate = harness.get(&harness.acme, "/v1/rates/USD/EUR").await.ok(200);
    let data = &rate["data"];
    assert_eq!(
        (&data["base"], &data["target"], &data["rate"]),
        (&json!("USD"), &json!("EUR"), &json!("0.92"))
    );
    assert_eq!((&data["spreadBps"], &data["appliedRate"]), (&json!(10), &json!("0.91908")));
    assert!(data["ttlMs"].as_u64().unwrap() > 0);
    for unknown in ["EUR/USD", "JPY/EUR", "%FF/EUR", "a/b"] {
        let path = format!("/v1/rates/{unknown}");
        harness.get(&harness.acme, &path).await.refused(400, "INVALID_PAIR");
    }
}

#[tokio::test]
async fn a_captured_order_cannot_be_replayed_after_a_restart() {
    let harness = prefunded().await;
    let refused = changed(older(), "/pair/target", Some(json!("USD")));
    for (body, status) in [(older(), 201), (changed(refused, "/pair/source", Some(json!("USDC"))), 400)] {
        let call = harness.intent(&harness.acme, &body);
        assert_eq!(harness.send(&call).await.status, status);
        // The idempotency key is not part of the signed string.
        let captured = call.clone().with("X-Idempotency-Key", &Uuid::new_v4().to_string());
        for _ in 0..2 {
            let answer = harness.send_to(harness.another_process(), &captured).await;
            let message = answer.refused(401, "INVALID_SIGNATURE");
            assert_eq!(message, "X-Nonce was used before");
        }
        // A retry carries a fresh nonce, and has its answer again wherever it arrives.
        let retry = call.signed(&harness.acme, harness.now.unix_secs());
        let again = harness.send_to(harness.another_process(), &retry).await;
        assert_eq!((again.status.as_u16(), again.header("x-idempotency-replayed")), (status, Some("true")));
    }
    assert_eq!(harness.count("select count(*) from legacy_intent").await, 1);
}
