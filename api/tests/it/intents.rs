//! Submissions.

use alloy::signers::local::PrivateKeySigner;
use dvp_testing::market::{ANCHOR, ESCROW, PERMIT, TOKEN};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{ApiHarness, Call, changed, firm, order, permit};

/// The body in the form with a target and a limit on each side.
pub(crate) fn ranged(input: Value, output: Value) -> Value {
    let body = changed(changed(order(), "/inputAmountMinor", None), "/minOutputAmountMinor", None);
    changed(changed(body, "/input", Some(input)), "/output", Some(output))
}

fn decaying(target: &str, limit: &str) -> Value {
    json!({"targetAmountMinor": target, "limitAmountMinor": limit})
}

fn fixed(units: &str) -> Value {
    decaying(units, units)
}

fn bound(units: &str) -> Value {
    json!({ "limitAmountMinor": units })
}

#[tokio::test]
async fn an_accepted_intent_has_the_contracts_response() {
    let harness = ApiHarness::new().await;
    let body = order();
    let accepted = harness.submit(&harness.acme, &body).await.ok(202);
    let id = body["intentId"].as_str().unwrap();
    assert_eq!(accepted["intentId"], id);
    assert_eq!(accepted["status"], "accepted");
    assert_eq!(accepted["planId"], format!("DVP-{}", id[..8].to_uppercase()));
    assert_eq!(accepted["solverId"], "north");
    assert!(accepted["reference"].as_str().unwrap().starts_with("exe_"));
    for absent in ["inputAmountMinor", "fees", "clientReference"] {
        assert!(accepted.get(absent).is_none(), "{absent}");
    }
    let path = &accepted["path"];
    assert_eq!(path["outputAmountMinor"], "9935");
    assert_eq!(path["surplusAmountMinor"], "35");
    for number in ["estimatedFillTime", "score", "expiresAt"] {
        assert!(path[number].is_number(), "{number}");
    }
    let step = &path["steps"][0];
    assert_eq!((&step["type"], &step["amountMinor"]), (&json!("fiat_gateway"), &json!("9935")));
    assert_eq!(step["beneficiaryAccount"], "000123456789");
}

#[tokio::test]
async fn both_forms_of_amounts_lead_to_the_same_decision() {
    let harness = ApiHarness::new().await;
    let exact_input = ranged(fixed("100000000"), bound("9900"));
    let accepted = harness.submit(&harness.acme, &exact_input).await.ok(202);
    assert_eq!(accepted["path"]["surplusAmountMinor"], "35");
    assert!(accepted.get("inputAmountMinor").is_none());
    let exact_output = ranged(bound("100000000"), fixed("9900"));
    let accepted = harness.submit(&harness.acme, &exact_output).await.ok(202);
    let input: u64 = accepted["inputAmountMinor"].as_str().unwrap().parse().unwrap();
    let surplus: u64 = accepted["path"]["surplusAmountMinor"].as_str().unwrap().parse().unwrap();
    assert_eq!(accepted["path"]["outputAmountMinor"], "9900");
    assert_eq!(input + surplus, 100_000_000);
}

#[tokio::test]
async fn a_range_is_filled_at_its_current_output_within_its_cap() {
    let harness = ApiHarness::new().await;
    let falling = decaying("9900", "9800");
    let accepted = harness.submit(&harness.acme, &ranged(bound("100000000"), falling.clone())).await.ok(202);
    let number = |value: &Value| value.as_str().unwrap().parse::<u64>().unwrap();
    let output = number(&accepted["path"]["outputAmountMinor"]);
    assert!((9_800..=9_900).contains(&output), "{output}");
    assert!(number(&accepted["path"]["surplusAmountMinor"]) < 100_000_000, "{accepted}");
    assert!(accepted.get("inputAmountMinor").is_none(), "of an exact output only: {accepted}");
    let rejected = harness.submit(&harness.acme, &ranged(bound("1000000"), falling)).await.ok(422);
    assert_eq!(rejected["reason"], "below_minimum_output");
}

#[tokio::test]
async fn a_range_above_the_market_rests_until_it_is_cancelled() {
    let harness = ApiHarness::new().await;
    // 100 USDC give 99.35: in 13 hundredths of the lifetime.
    let falling = decaying("10000", "9500");
    let body = ranged(bound("100000000"), falling);
    let accepted = harness.submit(&harness.acme, &body).await.ok(202);
    let (path, id) = (&accepted["path"], body["intentId"].as_str().unwrap());
    let output: u64 = path["outputAmountMinor"].as_str().unwrap().parse().unwrap();
    assert!((9_934..=9_935).contains(&output), "{path}");
    assert_eq!(path["expiresAt"], body["deadline"]);
    assert!(path["estimatedFillTime"].as_u64().unwrap() > 1, "{path}");
    let status = format!("/v1/intents/{id}/status");
    let shown = harness.get(&harness.acme, &status).await.ok(200);
    assert_eq!((&shown["status"], &shown["phase"]), (&json!("in_progress"), &json!("intent")));
    let events = harness.get(&harness.acme, "/v1/events").await.ok(200);
    let object = &events["data"][0]["data"]["object"];
    assert_eq!(object["status"], "intent.accepted", "{events}");
    assert_eq!(object["input"]["amountMinor"], "100000000");
    assert_eq!(object["output"]["amountMinor"], "9500");
    assert_eq!(object["fundsState"], json!({"location": "none_moved"}));
    let cancel = Call::delete(&harness.acme, &format!("/v1/intents/{id}"));
    for _ in 0..2 {
        let cancelled = harness.send(&cancel).await.ok(200);
        assert_eq!((&cancelled["intentId"], &cancelled["status"]), (&json!(id), &json!("failed")));
        assert_eq!(cancelled["failure"]["code"], "cancelled");
    }
    let other = Call::delete(&harness.globex, &format!("/v1/intents/{id}"));
    harness.send(&other).await.refused(404, "INTENT_NOT_FOUND");
    let above = ranged(bound("100000000"), decaying("10000", "9936"));
    let rejected = harness.submit(&harness.acme, &above).await.ok(422);
    assert_eq!(rejected["reason"], "below_minimum_output");
}

#[tokio::test]
async fn inconsistent_amounts_are_refused_with_the_field() {
    let harness = ApiHarness::new().await;
    let both_models = changed(order(), "/input", Some(fixed("100000000")));
    let cases = [
        (both_models, "input: "),
        (changed(order(), "/output", Some(bound("1"))), "output: "),
        (changed(order(), "/inputAmountMinor", None), "inputAmountMinor: "),
        (changed(order(), "/minOutputAmountMinor", None), "minOutputAmountMinor: "),
        (changed(ranged(json!(null), bound("1")), "/input", None), "input: "),
        (changed(ranged(bound("1"), json!(null)), "/output", None), "output: "),
        (ranged(bound("1"), bound("1")), "input.targetAmountMinor: "),
        (ranged(fixed("1"), fixed("1")), "output.targetAmountMinor: "),
        (ranged(bound("100"), decaying("2", "3")), "output.targetAmountMinor: "),
        (ranged(decaying("1", "2"), bound("1")), "input.targetAmountMinor: "),
        (ranged(fixed("0"), bound("1")), "input.limitAmountMinor: "),
        (ranged(fixed("1"), json!({"targetAmountMinor": "1"})), "output.limitAmountMinor: "),
        (ranged(json!("1"), bound("1")), "input: "),
    ];
    for (body, begins) in cases {
        let message = harness.submit(&harness.acme, &body).await.refused(400, "INVALID_PARAMETER");
        assert!(message.starts_with(begins), "expected {begins}, got {message}");
    }
}

#[tokio::test]
async fn each_field_of_an_intent_is_checked_and_named() {
    let harness = ApiHarness::new().await;
    let mut cases: Vec<(&str, Option<Value>)> = Vec::new();
    for field in ["intentId", "user", "inputAsset", "outputAsset", "deadline", "settlementType"] {
        cases.push((field, None));
        cases.push((field, Some(Value::Null)));
        cases.push((field, Some(json!(true))));
    }
    for id in ["intentId", "clientReference", "quoteId", "outputRecipient"] {
        cases.push((id, Some(json!(""))));
        cases.push((id, Some(json!("x".repeat(129)))));
        cases.push((id, Some(json!("line\nbreak"))));
        cases.push((id, Some(json!("a\u{200b}"))));
    }
    for amount in ["", "0", "-1", "1.5", "1e6", "0x10", " 1", "340282366920938463463374607431768211456"] {
        cases.push(("inputAmountMinor", Some(json!(amount))));
        cases.push(("minOutputAmountMinor", Some(json!(amount))));
        cases.push(("permit.amountMinor", Some(json!(amount))));
    }
    cases.push(("inputAmountMinor", Some(json!(100_000_000))));
    for deadline in [json!("1800000000000"), json!(1.5), json!(-1), json!(harness.now.millis()), json!(1e300)]
    {
        cases.push(("deadline", Some(deadline)));
    }
    cases.push(("deadline", Some(json!(harness.now.unix_secs() + 3600))));
    cases.push(("user", Some(json!("acme"))));
    for field in ["settlementType", "actorType", "side", "inputAsset.type", "beneficiary.payoutMethod"] {
        cases.push((field, Some(json!("other"))));
    }
    for field in ["beneficiary", "permit", "metadata", "beneficiary.address", "beneficiary.travelRuleData"] {
        cases.push((field, Some(json!("text"))));
    }
    for field in ["beneficiary.account", "beneficiary.name", "beneficiary.swiftCode", "beneficiary.bank"] {
        cases.push((field, Some(json!(7))));
        cases.push((field, Some(json!("a\u{0}"))));
    }
    for country in ["USA", "ZZ", "EU"] {
        cases.push(("beneficiary.country", Some(json!(country))));
    }
    for bic in ["nonsense!", "DEUTZZFF", "DEUTDEF"] {
        cases.push(("beneficiary.swiftCode", Some(json!(bic))));
    }
    for account in ["XX86ABCDEFGHIJK", "DE89370400440532013001", "DE8937040044053201300"] {
        cases.push(("beneficiary.account", Some(json!(account))));
    }
    for deadline in [31, 3_650] {
        cases.push(("deadline", Some(json!(harness.now.plus_millis(deadline * 24 * 3_600_000)))));
    }
    cases.push(("beneficiary.address", Some(json!([]))));
    for field in ["permit.token", "permit.spender", "permit.nonce", "permit.deadline", "permit.signature"] {
        cases.push((field, None));
    }
    cases.push(("permit.nonce", Some(json!(0))));
    cases.push(("permit.deadline", Some(json!("1800000000"))));
    cases.push(("metadata", Some(json!({"deep": [{"a\u{0}": 1}]}))));
    for (path, value) in cases {
        let body = changed(order(), &format!("/{}", path.replace('.', "/")), value.clone());
        let message = harness.submit(&harness.acme, &body).await.refused(400, "INVALID_PARAMETER");
        assert!(message.starts_with(&format!("{path}: ")), "{path} {value:?} gave {message}");
    }
    let metadata = json!({"senderKycHash": 1});
    let body = changed(order(), "/metadata", Some(metadata));
    let message = harness.submit(&harness.acme, &body).await.refused(400, "INVALID_PARAMETER");
    assert!(message.starts_with("metadata.senderKycHash: "), "{message}");
    assert_eq!(harness.count("select count(*) from idempotency").await, 0);
}

#[tokio::test]
async fn a_wallet_that_nobody_could_spend_from_is_refused_by_name() {
    let harness = ApiHarness::new().await;
    let wallet = PrivateKeySigner::random().address();
    let mistyped = |text: String| {
        let (at, letter) = text.char_indices().skip(2).find(|(_, letter)| letter.is_alphabetic()).unwrap();
        let flipped =
            if letter.is_lowercase() { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() };
        format!("{}{flipped}{}", &text[..at], &text[at + 1..])
    };
    let checksum = "has a wrong checksum, so a character is mistyped: copy the address again (EIP-55)";
    let lost = [
        (format!("0x{:040x}", 0), "is the zero address, which nobody owns"),
        (format!("0x{:040x}", 0x0100), "is reserved for contracts of the chain itself, and nobody owns it"),
        (TOKEN.to_owned(), "is the token contract of USDC, which would keep what it gets for ever"),
        (
            PERMIT.to_uppercase().replace("0X", "0x"),
            "is the permit contract of anvil, which would keep what it gets for ever",
        ),
        (ESCROW.to_owned(), "is the escrow of anvil, which would keep what it gets for ever"),
        (ANCHOR.to_owned(), "is the anchor of anvil, which would keep what it gets for ever"),
        (mistyped(wallet.to_string()), checksum),
    ];
    let token = json!({"type": "erc20", "symbol": "USDC", "address": TOKEN, "chain": "anvil"});
    let dollars = json!({"type": "fiat", "symbol": "USD"});
    let bought = changed(changed(order(), "/inputAsset", Some(dollars)), "/outputAsset", Some(token));
    let bought = changed(bought, "/permit", None);
    for (address, fault) in &lost {
        for (field, body) in
            [("user", order()), ("user", bought.clone()), ("outputRecipient", bought.clone())]
        {
            let body = changed(body, &format!("/{field}"), Some(json!(address)));
            let message = harness.submit(&harness.acme, &body).await.refused(400, "INVALID_PARAMETER");
            assert_eq!(message, format!("{field}: {fault}"), "{body}");
        }
    }
    for field in ["permit.token", "permit.spender", "inputAsset.address"] {
        let pointer = format!("/{}", field.replace('.', "/"));
        let body = changed(order(), &pointer, Some(json!(mistyped(wallet.to_string()))));
        let message = harness.submit(&harness.acme, &body).await.refused(400, "INVALID_PARAMETER");
        assert_eq!(message, format!("{field}: {checksum}"));
    }
    let body = changed(bought, "/outputRecipient", Some(json!(wallet.to_string())));
    // This one is taken; the market has nobody to sell to it.
    assert_eq!(harness.submit(&harness.acme, &body).await.ok(422)["reason"], "no_liquidity");
}

#[tokio::test]
async fn an_unknown_field_is_refused_with_the_nearest_name() {
    let harness = ApiHarness::new().await;
    let address = json!({"line1": "1 St", "city": "c", "state": "s", "postalcode": "p"});
    let limits = json!({"limitAmountMinor": "9900", "targetAmount": "9900"});
    for (body, message) in [
        (changed(order(), "/quoteid", Some(json!("6"))), "quoteid: unknown field, did you mean quoteId?"),
        (
            changed(order(), "/inputAsset/decimals", Some(json!(6))),
            "inputAsset.decimals: unknown field; there is type, symbol, address, chain, currency",
        ),
        (
            changed(order(), "/beneficiary/address", Some(address)),
            "beneficiary.address.postalcode: unknown field, did you mean postalCode?",
        ),
        (
            changed(order(), "/permit/nonse", Some(json!("6"))),
            "permit.nonse: unknown field, did you mean nonce?",
        ),
        (ranged(bound("100000000"), limits), "output.targetAmount: unknown field"),
        // Of the older form.
        (changed(order(), "/strategy", Some(json!("instant"))), "strategy: unknown field"),
    ] {
        let refused = harness.submit(&harness.acme, &body).await.refused(400, "INVALID_PARAMETER");
        assert!(refused.starts_with(message), "{refused}");
    }
    // The caller's own.
    let body = changed(order(), "/metadata", Some(json!({"senderKycHash": "k", "mine": [1, {"a": null}]})));
    let body = changed(body, "/beneficiary/travelRuleData", Some(json!({"vasp": {"id": 1}})));
    let body = changed(body, "/quoteId", Some(Value::Null));
    harness.submit(&harness.acme, &body).await.ok(202);
}

#[tokio::test]
async fn a_member_that_is_given_twice_is_refused_and_stored_under_no_key() {
    let harness = ApiHarness::new().await;
    let body = order();
    let text = body.to_string();
    let twice = |field: &str, more: &str| {
        let at = text.find(&format!("\"{field}\"")).unwrap();
        format!("{}{more},{}", &text[..at], &text[at..])
    };
    let key = Uuid::new_v4().to_string();
    let send = async |text: &str| {
        let call = Call::post(&harness.acme, "/v1/intents", &Value::Null).body(text);
        let call = call.with("X-Idempotency-Key", &key).signed(&harness.acme, harness.now.unix_secs());
        harness.send(&call).await
    };
    for (field, more, path) in [
        ("inputAmountMinor", r#""inputAmountMinor":"1""#, "inputAmountMinor"),
        ("symbol", r#""symbol":"EURC""#, "inputAsset.symbol"),
        ("account", r#""account":"000123450002""#, "beneficiary.account"),
        ("intentId", r#""metadata":{"a":[{"b":1,"b":2}]}"#, "metadata.a[0].b"),
    ] {
        let refused = send(&twice(field, more)).await.refused(400, "INVALID_PARAMETER");
        assert_eq!(refused, format!("{path}: is given twice"));
    }
    send(&text).await.ok(202);
    // The order of the checks: the key was used for another request.
    send(&twice("user", r#""user":"x""#)).await.refused(409, "IDEMPOTENCY_KEY_CONFLICT");
}

/// One minor unit more than the pair takes.
fn larger_than_the_largest() -> Value {
    let amount = "500000000001";
    let wallet = PrivateKeySigner::random();
    let body = changed(order(), "/inputAmountMinor", Some(json!(amount)));
    let body = changed(body, "/user", Some(json!(format!("{:#x}", wallet.address()))));
    changed(body, "/permit", Some(permit(&wallet, json!({"amountMinor": amount}))))
}

/// Section 7, the reasons that no other test of the REST API covers.
#[tokio::test]
async fn a_rejection_says_its_reason_and_what_would_be_right() {
    let harness = ApiHarness::new().await;
    let to = |pointer: &str, value: Value| changed(order(), pointer, Some(value));
    let third_party = to("/outputRecipient", json!("somebody else"));
    let by_wire = to("/beneficiary/payoutMethod", json!("wire"));
    let partly = json!({"line1": "1 Main St", "city": "Springfield", "state": "IL"});
    let by_none = changed(order(), "/beneficiary/payoutMethod", None);
    for (body, reason, param) in [
        (changed(order(), "/permit", None), "permit_required", Some("permit")),
        (to("/outputAsset/symbol", json!("JPY")), "no_liquidity", Some("outputAsset")),
        (larger_than_the_largest(), "no_liquidity", Some("inputAmountMinor")),
        (to("/inputAsset", json!({"type": "erc20", "symbol": "XYZ"})), "no_liquidity", Some("inputAsset")),
        (to("/minOutputAmountMinor", json!("9936")), "below_minimum_output", Some("minOutputAmountMinor")),
        (ranged(bound("1000000"), fixed("9900")), "above_maximum_input", Some("input.limitAmountMinor")),
        (to("/quoteId", json!("qte_none")), "quote_not_found", Some("quoteId")),
        (
            changed(order(), "/beneficiary", None),
            "beneficiary_account_required_for_fiat_output",
            Some("beneficiary.account"),
        ),
        (
            changed(third_party, "/beneficiary/name", None),
            "beneficiary_required_for_remittance",
            Some("beneficiary.name"),
        ),
        (by_wire.clone(), "beneficiary_address_required_for_rail", Some("beneficiary.address")),
        (
            changed(by_wire, "/beneficiary/address", Some(partly)),
            "beneficiary_address_required_for_rail",
            Some("beneficiary.address.postalCode"),
        ),
        (
            changed(by_none.clone(), "/beneficiary/swiftCode", Some(json!("CHASUS33"))),
            "beneficiary_address_required_for_rail",
            Some("beneficiary.address"),
        ),
        (by_none, "beneficiary_incomplete_for_jit_payout", Some("beneficiary.payoutMethod")),
        (
            to("/beneficiary/country", json!("")),
            "beneficiary_incomplete_for_jit_payout",
            Some("beneficiary.country"),
        ),
    ] {
        let body = changed(body, "/intentId", Some(json!(Uuid::new_v4())));
        let answer = harness.submit(&harness.acme, &body).await;
        let rejected = answer.ok(422);
        let mut expected = json!({"intentId": body["intentId"], "status": "rejected", "reason": reason});
        expected["detail"] = rejected["detail"].clone();
        if let Some(param) = param {
            expected["param"] = json!(param);
        }
        assert_eq!(rejected, expected);
        assert!(rejected["detail"].as_str().is_some_and(|text| text.len() > 10), "{rejected}");
        let path = format!("/v1/executions/{}", body["clientReference"].as_str().unwrap());
        harness.get(&harness.acme, &path).await.refused(404, "EXECUTION_NOT_FOUND");
    }
    assert_eq!(harness.count("select count(*) from event").await, 0);
    // A reference to a registered recipient requires no further fields.
    let known = json!({"account": "bene_1:dest_1", "payoutMethod": "wire"});
    harness.submit(&harness.acme, &to("/beneficiary", known)).await.ok(202);
}

#[tokio::test]
async fn each_malformed_permit_is_refused() {
    let harness = ApiHarness::new().await;
    let now = harness.now.unix_secs();
    let other_token = format!("0x{}", "bb".repeat(20));
    let cases = [
        (json!({"token": other_token}), "permit.token"),
        (json!({"amountMinor": "99999999"}), "permit.amountMinor"),
        (json!({"spender": other_token}), "permit.spender"),
        (json!({"deadline": now - 1}), "permit.deadline"),
    ];
    for (change, begins) in cases {
        let wallet = PrivateKeySigner::random();
        let mut body = order();
        body["user"] = json!(format!("{:#x}", wallet.address()));
        body["permit"] = permit(&wallet, change);
        let message = harness.submit(&harness.acme, &body).await.refused(400, "INVALID_PERMIT");
        assert!(message.starts_with(begins), "{message}");
    }
    let other_wallet = permit(&PrivateKeySigner::random(), json!({}));
    for (pointer, value) in [
        ("/permit", other_wallet),
        ("/permit/signature", json!("0x1234")),
        ("/permit/signature", json!(format!("0x{}", "zz".repeat(65)))),
        ("/permit/nonce", json!("5")),
    ] {
        let message = harness
            .submit(&harness.acme, &changed(order(), pointer, Some(value)))
            .await
            .refused(400, "INVALID_PERMIT");
        assert!(message.starts_with("permit.signature"), "{message}");
    }
    harness.node.set_next_nonce(1);
    let message = harness.submit(&harness.acme, &order()).await.refused(400, "INVALID_PERMIT");
    assert_eq!(message, "permit.nonce was used before: the wallet's next is 1");
}

#[tokio::test]
async fn a_permits_nonce_must_follow_the_wallets_pending_permits() {
    let harness = ApiHarness::new().await;
    let wallet = PrivateKeySigner::random();
    let with_nonce = |nonce: u32| {
        let mut body = order();
        body["user"] = json!(format!("{:#x}", wallet.address()));
        body["permit"] = permit(&wallet, json!({"nonce": nonce.to_string()}));
        body
    };
    let gap = "permit.nonce leaves a gap: the wallet's next is";
    let refused = harness.submit(&harness.acme, &with_nonce(1)).await.refused(400, "INVALID_PERMIT");
    assert_eq!(refused, format!("{gap} 0"));
    assert_eq!(harness.count("select count(*) from intent").await, 0);
    harness.submit(&harness.acme, &with_nonce(0)).await.ok(202);
    // The wallet has one sequence of nonces, shared by all partners' orders.
    let refused = harness.submit(&harness.globex, &with_nonce(2)).await.refused(400, "INVALID_PERMIT");
    assert_eq!(refused, format!("{gap} 1"));
    harness.submit(&harness.globex, &with_nonce(1)).await.ok(202);
    let held = harness.submit(&harness.acme, &with_nonce(0)).await.refused(400, "INVALID_PERMIT");
    assert_eq!(held, "permit.nonce is held by another live intent: the wallet's next is 2");
}

#[tokio::test]
async fn intent_ids_and_client_references_are_unique_per_tenant() {
    let harness = ApiHarness::new().await;
    let first = order();
    harness.submit(&harness.acme, &first).await.ok(202);
    let same_id = changed(order(), "/intentId", Some(first["intentId"].clone()));
    let answer = harness.submit(&harness.acme, &same_id).await;
    assert!(answer.refused(409, "ALREADY_EXISTS").starts_with("intentId: "));
    let same_reference = changed(order(), "/clientReference", Some(first["clientReference"].clone()));
    let answer = harness.submit(&harness.acme, &same_reference).await;
    assert!(answer.refused(409, "ALREADY_EXISTS").starts_with("clientReference: "));
    for keys in [&harness.globex, &harness.acme_live] {
        let mut theirs = order();
        theirs["intentId"] = first["intentId"].clone();
        theirs["clientReference"] = first["clientReference"].clone();
        harness.submit(keys, &theirs).await.ok(202);
    }
}

#[tokio::test]
async fn a_firm_quote_is_filled_once_as_locked_by_its_partner_only() {
    let harness = ApiHarness::new().await;
    let quote = harness.post(&harness.acme, "/v1/quotes/firm", &firm()).await.ok(201);
    let order = || changed(order(), "/quoteId", Some(quote["quoteId"].clone()));
    let other_partner = harness.submit(&harness.globex, &order()).await.ok(422);
    assert_eq!(other_partner["reason"], "quote_not_found");
    let other_amount = changed(order(), "/inputAmountMinor", Some(json!("90000000")));
    let answer = harness.submit(&harness.acme, &other_amount).await.ok(422);
    assert_eq!((&answer["reason"], &answer["param"]), (&json!("quote_mismatch"), &json!("inputAmountMinor")));
    let accepted = harness.submit(&harness.acme, &order()).await.ok(202);
    assert_eq!(accepted["fees"], quote["fees"]);
    assert_eq!(accepted["path"]["outputAmountMinor"], quote["output"]["amountMinor"]);
    assert_eq!(harness.submit(&harness.acme, &order()).await.ok(422)["reason"], "quote_already_used");
}
