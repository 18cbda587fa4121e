//! What each kind of identifier, and words, find.

use axum::http::StatusCode;
use dvp_domain::operator::OperatorRole;
use dvp_testing::orders::order;

use crate::scene::{Answer, Scene};

async fn search(scene: &Scene, cookie: &str, text: &str) -> Answer {
    let query: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
    scene.get(&format!("/search?q={query}"), cookie).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_identifier_leads_to_what_it_names() {
    let scene = Scene::new().await;
    let reference = scene.harness.accept(order("000123456789")).await.reference;
    let reference = reference.as_str();
    let cookie = scene.sign_in("Jo Smith", &[OperatorRole::Viewer]).await;
    let sql = format!(
        "insert into bank_payment (end_to_end_id, reference, execution, message_id, block_id, amount, currency, exponent, \
                                   status, staged_file, bank_reference) \
         values ('E2E1', 'leg1', '{reference}', 'MSG1', 'B1', 100, 'USD', 2, 'paid', 'E2E1.abc.xml', 'BANK1'); \
         insert into bank_recall (id, end_to_end_id, execution, reason, status, staged_file) \
         values ('REC1', 'E2E1', '{reference}', 'DUPL', 'approved', 'REC1.abc.xml'); \
         insert into bank_file (digest, name, message) values (decode(repeat('02', 32), 'hex'), 'camt-7.xml', 'camt.054'); \
         insert into chain_cursor (chain_id, head_number, head_hash, final_number, facts_number) \
         values (1, 7, decode(repeat('0a', 32), 'hex'), 7, 7); \
         insert into chain_block (chain_id, hash, number, parent, block_time, verified_by) \
         values (1, decode(repeat('0a', 32), 'hex'), 7, decode(repeat('0b', 32), 'hex'), now(), 'test'); \
         insert into relayer_account (chain_id, signer, next_nonce) values (1, decode(repeat('0c', 20), 'hex'), 3); \
         insert into reconciliation_point (chain_id, block_number, block_hash, full_at) \
         values (1, 7, decode(repeat('0a', 32), 'hex'), now()); \
         insert into reconciliation_count (chain_id, contract, last_seq, kept) \
         values (1, decode(repeat('0d', 20), 'hex'), 1, 1); \
         insert into chain_token (chain_id, asset, address) values (1, 'USDC', '0x{}'); \
         insert into api_key (id, partner_id, env, key_hash, hash_key, key_prefix, sealed_secret, scopes) \
         select 'key_1', id, 'test', decode(repeat('0f', 32), 'hex'), '1', 'dvp_test_Ab12', 's', '{{}}' from partner; \
         insert into intent (partner_id, livemode, intent_id, request, reason) \
         select id, false, 'intent-refused', '{{}}', 'no_liquidity' from partner",
        "0e".repeat(20)
    );
    scene.run(&sql).await;
    let event: (String,) = sqlx::query_as("select event_id from event where reference = $1 limit 1")
        .bind(reference)
        .fetch_one(scene.harness.pool())
        .await
        .unwrap();
    let order = format!("/orders/{reference}");
    for (identifier, page) in [
        (reference, order.as_str()),
        (&event.0, &order),
        ("E2E1", &order),
        ("leg1", &order),
        ("MSG1", &order),
        ("BANK1", &order),
        ("E2E1.abc.xml", &order),
        ("REC1", &order),
        ("REC1.abc.xml", &order),
        ("jo smith", "/operators/Jo%20Smith"),
        ("key_1", "/partners/acme"),
        ("dvp_test_Ab12", "/partners/acme"),
        ("acme", "/partners/acme"),
    ] {
        let answer = search(&scene, &cookie, identifier).await;
        assert_eq!((answer.status, answer.header("location")), (StatusCode::SEE_OTHER, page), "{identifier}");
    }
    let file = format!("href=\"/bank-files/{}\"", "02".repeat(32));
    for (identifier, shown, link) in [
        ("camt-7.xml", "camt.054 of the bank, accepted", file.as_str()),
        ("intent-refused", "rejected: no_liquidity", "href=\"/partners/acme\""),
        (&format!("0x{}", "0a".repeat(32)), "block of chain 1", "href=\"/chains\""),
        (&format!("0x{}", "0C".repeat(20)), "relayer account of chain 1", "href=\"/chains\""),
        (&format!("0x{}", "0d".repeat(20)), "contract on chain 1", "href=\"/chains\""),
        (&"0e".repeat(20), "token USDC on chain 1", "href=\"/chains\""),
    ] {
        let answer = search(&scene, &cookie, identifier).await;
        assert_eq!(answer.status, StatusCode::OK, "{identifier}: {}", answer.header("location"));
        assert!(answer.body.contains(shown) && answer.body.contains(link), "{identifier}: {}", answer.body);
    }
    for other in ["E2E2", "REC1.xml", "E2E1.abd.xml", "dvp_test", "smith"] {
        let answer = search(&scene, &cookie, other).await;
        assert!(answer.body.contains("Nothing has the identifier"), "{other}: {}", answer.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn words_of_closed_alarms_and_of_last_results_find_their_orders() {
    let scene = Scene::new().await;
    let reference = scene.harness.accept(order("000123456789")).await.reference;
    let reference = reference.as_str();
    let cookie = scene.sign_in("jo", &[OperatorRole::Viewer]).await;
    let sql = format!(
        "insert into bank_payment (end_to_end_id, reference, execution, message_id, block_id, amount, currency, exponent, \
                                   status, staged_file, alarm, alarm_cleared_at) \
         values ('E2E1', 'leg1', '{reference}', 'MSG1', 'B1', 100, 'USD', 2, 'paid', 'E2E1.abc.xml', \
                 'the amount differs', now()); \
         update effect set last_result = 'the provider answered gibberish' where reference = '{reference}'"
    );
    scene.run(&sql).await;
    for words in ["amount differs", "gibberish"] {
        let answer = search(&scene, &cookie, words).await;
        assert_eq!(answer.header("location"), format!("/orders/{reference}"), "{words}: {}", answer.body);
    }
}

/// Of many failures with the same words the newest are found first; a failure with rare words is found at any age.
#[tokio::test(flavor = "multi_thread")]
async fn words_of_failures_find_the_newest_and_a_rare_one_of_long_ago() {
    let scene = Scene::new().await;
    let reference = scene.harness.accept(order("000123456789")).await.reference;
    let cookie = scene.sign_in("jo", &[OperatorRole::Viewer]).await;
    // The first, and oldest, has another reason than 299 others.
    let sql = format!(
        "insert into execution (reference, partner_id, livemode, intent_id, entity, terms, state_name, state, version, \
                                last_sequence, accepted_at, terminal_at) \
         select 'exe_copy' || lpad(n::text, 3, '0'), partner_id, livemode, intent_id || n, decode(lpad(n::text, 64, '0'), 'hex'), terms, \
                'failed', jsonb_build_object('state', 'failed', 'failure', jsonb_build_object('stage', 'intent', 'code', 'refused', \
                    'message', case n when 1 then 'the moon was blue' else 'the bank is shut' end, 'retryable', false)), \
                version, last_sequence, accepted_at - interval '1 hour' + n * interval '1 second', now() \
         from execution, generate_series(1, 300) n where reference = '{reference}'"
    );
    scene.run(&sql).await;
    let newest = search(&scene, &cookie, "bank shut").await;
    let first = newest.body.find("exe_copy300").unwrap();
    assert!(first < newest.body.find("exe_copy281").unwrap(), "{}", newest.body);
    assert!(!newest.body.contains("exe_copy280"), "{}", newest.body);
    let rare = search(&scene, &cookie, "moon").await;
    assert_eq!(rare.header("location"), "/orders/exe_copy001", "{}", rare.body);
}
