//! What a partner's own key shows of its account.

use chrono::Utc;
use dvp_domain::limit::{LimitKey, LimitScope, Period};
use dvp_domain::money::Minor;
use dvp_store::operators::limits;
use dvp_store::partners::beneficiaries;
use dvp_testing::market::TOKEN;
use dvp_testing::wait::wait_for;
use serde_json::{Value, json};

use crate::harness::{ApiHarness, Call, Keys, changed, order};

/// 100.00 USD for euros.
fn paid_from_the_balance() -> Value {
    let body = changed(order(), "/permit", None);
    let body = changed(body, "/inputAsset", Some(json!({"type": "fiat", "symbol": "USD"})));
    let body = changed(body, "/outputAsset", Some(json!({"type": "fiat", "symbol": "EUR"})));
    let body = changed(body, "/inputAmountMinor", Some(json!("10000")));
    changed(body, "/minOutputAmountMinor", Some(json!("1")))
}

#[tokio::test]
async fn assets_name_what_they_are_exchanged_for() {
    let harness = ApiHarness::new().await;
    let assets = harness.get(&harness.acme, "/v1/assets").await.ok(200);
    let of = |symbol: &str| {
        let all = assets["data"].as_array().unwrap();
        all.iter().find(|asset| asset["symbol"] == symbol).unwrap().clone()
    };
    assert_eq!(
        of("USDC"),
        json!({
            "symbol": "USDC", "type": "erc20", "exponent": 6, "chain": "anvil", "address": TOKEN, "currency": null,
            "pairs": [{"outputAsset": "USD", "minAmountMinor": "1000000", "maxAmountMinor": "500000000000"}],
        })
    );
    let euro = of("EUR");
    assert_eq!(
        (&euro["currency"], &euro["chain"], &euro["pairs"]),
        (&json!("EUR"), &json!(null), &json!([]))
    );
}

#[tokio::test]
async fn a_wallet_has_its_next_nonce_and_what_the_partners_own_orders_hold() {
    let harness = ApiHarness::new().await;
    let body = order();
    let path = format!("/v1/wallets/{}", body["user"].as_str().unwrap());
    let before = harness.get(&harness.acme, &path).await.ok(200);
    let next = |wallet: &Value| wallet["nextNonce"].as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(before["nextNonce"], body["permit"]["nonce"]);
    assert_eq!(
        (&before["tokens"][0]["asset"], &before["tokens"][0]["heldMinor"]),
        (&json!("USDC"), &json!("0"))
    );
    harness.submit(&harness.acme, &body).await.ok(202);
    let after = harness.get(&harness.acme, &path).await.ok(200);
    assert_eq!(next(&after), next(&before) + 1);
    assert_eq!(after["tokens"][0]["heldMinor"], body["inputAmountMinor"]);
    // The nonce is taken for everybody; what takes it is its partner's business.
    let others = harness.get(&harness.globex, &path).await.ok(200);
    assert_eq!((next(&others), &others["tokens"][0]["heldMinor"]), (next(&after), &json!("0")));
    for address in ["0x12", "0x0000000000000000000000000000000000000000", TOKEN] {
        let refused = harness.get(&harness.acme, &format!("/v1/wallets/{address}")).await;
        refused.refused(400, "INVALID_PARAMETER");
        assert_eq!(refused.json()["error"]["param"], "address");
    }
    let elsewhere = harness.get(&harness.acme, &format!("{path}?chain=base")).await;
    assert_eq!(elsewhere.json()["error"]["param"], "chain", "{}", elsewhere.text);
}

#[tokio::test]
async fn a_statement_leads_from_the_opening_balance_to_the_closing_one_page_by_page() {
    let harness = ApiHarness::new().await;
    harness.prefund().await;
    for _ in 0..2 {
        harness.submit(&harness.acme, &paid_from_the_balance()).await.ok(202);
    }
    let today = Utc::now().date_naive();
    let range = format!("from={}&to={}", today.pred_opt().unwrap(), today.succ_opt().unwrap());
    let mut query = format!("/v1/statements?asset=USD&{range}&limit=2");
    let mut amounts = Vec::new();
    let mut balance = 0_i64;
    let number = |value: &Value| value.as_str().unwrap().parse::<i64>().unwrap();
    let first = harness.get(&harness.acme, &query).await.ok(200);
    assert_eq!((&first["openingMinor"], &first["hasMore"]), (&json!("0"), &json!(true)));
    for _ in 0..2 {
        let page = harness.get(&harness.acme, &query).await.ok(200);
        assert_eq!(page["closingMinor"], first["closingMinor"]);
        for entry in page["data"].as_array().unwrap() {
            amounts.push(number(&entry["amountMinor"]));
            balance += number(&entry["amountMinor"]);
            assert_eq!(number(&entry["balanceMinor"]), balance, "{page}");
        }
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        let of_another = harness.get(&harness.globex, &format!("{query}&cursor={cursor}")).await;
        of_another.refused(400, "INVALID_CURSOR");
        query = format!("/v1/statements?asset=USD&{range}&limit=2&cursor={cursor}");
    }
    assert_eq!((amounts, balance), (vec![50_000_000, -10_000, -10_000], number(&first["closingMinor"])));
    let empty = format!("/v1/statements?asset=USD&{range}");
    assert_eq!(harness.get(&harness.globex, &empty).await.ok(200)["data"], json!([]));
    for (query, param) in [("asset=XYZ", "asset"), ("asset=USD&part=all", "from"), ("", "asset")] {
        let refused = harness.get(&harness.acme, &format!("/v1/statements?{query}")).await;
        refused.refused(400, "INVALID_PARAMETER");
        assert_eq!(refused.json()["error"]["param"], param);
    }
}

#[tokio::test]
async fn balances_limits_and_recipients_are_the_partners_own() {
    let harness = ApiHarness::new().await;
    harness.prefund().await;
    let balances = harness.get(&harness.acme, "/v1/balances").await.ok(200);
    let usd = json!({"asset": "USD", "exponent": 2, "availableMinor": "50000000", "reservedMinor": "0"});
    assert_eq!(balances, json!({"data": [usd]}));
    for other in [&harness.globex, &harness.acme_live] {
        assert_eq!(harness.get(other, "/v1/balances").await.ok(200), json!({"data": []}));
    }

    let mut conn = harness.pool().acquire().await.unwrap();
    let limit = async |conn: &mut _, scope, target: &str, period| {
        let key = LimitKey { scope, target: target.to_owned(), asset: "USDC".to_owned() };
        limits::set(conn, &key, period, Some(Minor::new(500_000_000)), "test").await.unwrap();
    };
    limit(&mut conn, LimitScope::Partner, "ptn_acme", Period::Day).await;
    limit(&mut conn, LimitScope::Partner, "ptn_globex", Period::Day).await;
    limit(&mut conn, LimitScope::Everything, "", Period::Order).await;
    limit(&mut conn, LimitScope::Everything, "", Period::Day).await;
    let body = order();
    harness.submit(&harness.acme, &body).await.ok(202);
    let limits = harness.get(&harness.acme, "/v1/limits").await.ok(200);
    let shown = |scope: &str, target, period: &str, used| {
        json!({
            "scope": scope, "target": target, "asset": "USDC", "period": period, "limitMinor": "500000000",
            "usedMinor": used,
        })
    };
    let of_an_order = shown("everything", json!(null), "order", json!(null));
    let of_a_day = shown("partner", json!("ptn_acme"), "day", body["inputAmountMinor"].clone());
    assert_eq!(limits, json!({"data": [of_an_order, of_a_day]}));

    harness.register_recipient().await;
    let hash = harness.engine.context().vault.account_hash("000123456789");
    let recipient = json!({
        "account": "bene_new:dest_new", "status": "unverified", "currency": "USD", "payoutMethod": "ach",
        "country": "US", "nameMasked": "J*** D**", "accountLast4": "6789", "accountHash": hash,
        "bank": "USABA021000021",
    });
    let recipients = harness.get(&harness.acme, "/v1/beneficiaries").await.ok(200);
    assert_eq!(recipients, json!({"data": [recipient]}));
    assert_eq!(harness.get(&harness.globex, "/v1/beneficiaries").await.ok(200), json!({"data": []}));
}

#[tokio::test]
async fn requests_that_change_or_are_refused_are_listed_for_their_partner_alone() {
    let harness = ApiHarness::new().await;
    let mut bad = order();
    bad["deadline"] = json!(1);
    let refused = harness.submit(&harness.acme, &bad).await;
    refused.refused(400, "INVALID_PARAMETER");
    let intent = order();
    let accepted = harness.submit(&harness.acme, &intent).await;
    assert_eq!(accepted.status, 202);
    // So is a refusal that is stored under its key.
    let again = changed(order(), "/intentId", Some(intent["intentId"].clone()));
    harness.submit(&harness.acme, &again).await.refused(409, "ALREADY_EXISTS");
    // A read that is answered is not listed, one that is refused is.
    harness.get(&harness.acme, "/v1/balances").await.ok(200);
    harness.get(&harness.acme, "/v1/executions/none").await.refused(404, "EXECUTION_NOT_FOUND");
    harness.submit(&harness.globex, &order()).await.ok(202);
    let listed = "select count(*) from request_log";
    wait_for("the log", async || (harness.count(listed).await == 5).then_some(())).await;
    let page = harness.get(&harness.acme, "/v1/requests").await.ok(200);
    let rows = page["data"].as_array().unwrap();
    let shown: Vec<_> =
        rows.iter().map(|row| (&row["path"], &row["status"], &row["error"]["code"])).collect();
    assert_eq!(
        shown,
        [
            (&json!("/v1/executions/none"), &json!(404), &json!("EXECUTION_NOT_FOUND")),
            (&json!("/v1/intents"), &json!(409), &json!("ALREADY_EXISTS")),
            (&json!("/v1/intents"), &json!(202), &json!(null)),
            (&json!("/v1/intents"), &json!(400), &json!("INVALID_PARAMETER")),
        ]
    );
    assert_eq!(rows[2]["requestId"], accepted.header("x-request-id").unwrap());
    assert_eq!(rows[3]["error"]["message"], refused.json()["error"]["message"]);
    assert_eq!(harness.get(&harness.acme_live, "/v1/requests").await.ok(200)["data"], json!([]));
    // Page by page.
    let (mut paths, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = harness.get(&harness.acme, &format!("/v1/requests?limit=1{cursor}")).await.ok(200);
        paths.push(page["data"][0]["requestId"].clone());
        assert_eq!(page["hasMore"], !page["nextCursor"].is_null());
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(paths, rows.iter().map(|row| row["requestId"].clone()).collect::<Vec<_>>());
    harness.get(&harness.acme, "/v1/requests?cursor=req_1").await.refused(400, "INVALID_CURSOR");
}

#[tokio::test]
async fn a_service_that_is_no_sandbox_has_no_clock_to_advance() {
    let harness = ApiHarness::new().await;
    let path = "/v1/sandbox/clock";
    harness.get(&harness.acme, path).await.refused(404, "NOT_FOUND");
    let body = json!({"advanceTo": "2030-01-01T00:00:00Z"});
    harness.post(&harness.acme, path, &body).await.refused(404, "NOT_FOUND");
}

#[tokio::test]
async fn a_partner_registers_a_recipient_once_and_another_one_has_to_verify_it() {
    let harness = ApiHarness::new().await;
    let path = "/v1/beneficiaries";
    let register = async |keys: &Keys, body: &Value| {
        harness.send(&Call::post(keys, path, body).signed(keys, harness.pass(0))).await
    };
    let jane = json!({"currency": "USD", "beneficiary": {
        "account": "000123456789", "name": "Jane Doe", "country": "US", "payoutMethod": "ach", "bank": "USABA021000021",
    }});
    harness.post(&harness.acme, path, &jane).await.refused(401, "INVALID_SIGNATURE");
    let known = harness.get(&harness.acme, path).await.ok(200)["data"].as_array().unwrap().len();
    // Several at once are one.
    let (one, other) = tokio::join!(register(&harness.acme, &jane), register(&harness.acme, &jane));
    assert_eq!(one.status.as_u16() + other.status.as_u16(), 401, "one is new");
    assert_eq!(one.json(), other.json());
    let recipient = register(&harness.acme, &jane).await.ok(200);
    let account = recipient["account"].as_str().unwrap().to_owned();
    assert_eq!((&recipient["status"], &recipient["accountLast4"]), (&json!("unverified"), &json!("6789")));
    let listed = harness.get(&harness.acme, path).await.ok(200);
    assert_eq!(listed["data"].as_array().unwrap().last(), Some(&recipient));
    assert_eq!(listed["data"].as_array().unwrap().len(), known + 1);
    // The same details are another partner's own recipient; others of the same account are another one.
    assert_ne!(register(&harness.globex, &jane).await.ok(201)["account"], recipient["account"]);
    let renamed = changed(jane.clone(), "/beneficiary/name", Some(json!("John Doe")));
    register(&harness.acme, &renamed).await.ok(201);

    let to_it = changed(order(), "/beneficiary", Some(json!({"account": account})));
    let refused = harness.submit(&harness.acme, &to_it).await;
    refused.refused(400, "INVALID_PARAMETER");
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("beneficiary_not_verified"));
    let mut conn = harness.pool().acquire().await.unwrap();
    let (_, destination) = account.split_once(':').unwrap();
    let key = format!("KEY:{}", harness.acme.id);
    beneficiaries::verify_destination(&mut conn, destination, &key, "call").await.unwrap_err();
    assert!(beneficiaries::verify_destination(&mut conn, destination, "jo", "call of 3 May").await.unwrap());
    let to_it = changed(to_it, "/intentId", Some(json!(uuid::Uuid::new_v4())));
    harness.submit(&harness.acme, &to_it).await.ok(202);

    for (field, value, param) in [
        ("/currency", json!("usd"), "currency"),
        ("/currency", json!("EUR"), "beneficiary.payoutMethod"),
        ("/beneficiary", json!(null), "beneficiary"),
        ("/beneficiary/account", json!(account), "beneficiary.account"),
        ("/beneficiary/account", json!("DE00370400440532013000"), "beneficiary.account"),
        ("/beneficiary/name", json!(null), "beneficiary.name"),
        ("/beneficiary/country", json!("XX"), "beneficiary.country"),
        ("/beneficiary/payoutMethod", json!(null), "beneficiary.payoutMethod"),
        ("/beneficiary/payoutMethod", json!("wire"), "beneficiary.address"),
        ("/beneficiary/travelRuleData", json!({}), "beneficiary.travelRuleData"),
    ] {
        let refused = register(&harness.acme, &changed(jane.clone(), field, Some(value.clone()))).await;
        refused.refused(400, "INVALID_PARAMETER");
        assert_eq!(refused.json()["error"]["param"], param, "{field} {value}");
    }
}
