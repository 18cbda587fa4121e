//! Limits on unauthenticated callers, and that others are unaffected.
use std::time::Duration;

use dvp_api::Limits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use dvp_testing::wait::wait_for;

use crate::harness::ApiHarness;
use crate::transport::{bounded, receive, say};

fn limits() -> Limits {
    Limits { unknown_keys_per_source: 5, ..Limits::default() }
}

fn request(key: &str, more: &str) -> String {
    format!("GET /v1/events HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-api-key: {key}\r\n{more}\r\n")
}

fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or(answer)
}

#[tokio::test]
async fn unknown_keys_of_a_source_are_limited_and_valid_keys_are_not() {
    let harness = ApiHarness::new().await;
    let (address, _serving) = bounded(&harness, limits()).await;
    let ask = async |key: &str| receive(say(address, &request(key, "")).await).await;
    for n in 0..5 {
        let answer = ask(&format!("svc_test_{n}")).await;
        assert_eq!(status(&answer), "401", "{answer}");
    }
    let refused = ask("svc_test_another").await;
    assert_eq!(status(&refused), "429", "{refused}");
    assert!(refused.contains("RATE_LIMIT_EXCEEDED") && refused.contains("retry-after: "), "{refused}");
    // Both keys are new to this process.
    for keys in [&harness.acme, &harness.globex] {
        let answer = wait_for("the key to be let in", || async {
            Some(ask(&keys.api_key).await).filter(|answer| status(answer) != "429")
        })
        .await;
        assert_eq!(status(&answer), "200", "{answer}");
    }
    let issued = harness.issue("late", 100, "test", &["events:read"]).await;
    wait_for("a key that was issued afterwards", || async {
        (status(&ask(&issued.api_key).await) == "200").then_some(())
    })
    .await;
    assert_eq!(status(&ask("svc_test_another").await), "429");
}

#[tokio::test]
async fn an_unknown_key_is_looked_up_once_and_works_once_issued() {
    let harness = ApiHarness::new().await;
    let (address, _serving) =
        bounded(&harness, Limits { unknown_keys_per_source: 100_000, ..limits() }).await;
    let ask = async |key: &str| receive(say(address, &request(key, "")).await).await;
    assert_eq!(status(&ask(&harness.acme.api_key).await), "200");
    assert_eq!(status(&ask("svc_test_unknown").await), "401");
    // No process can read keys now: the answer comes from the cache.
    let mut locked = harness.pool().begin().await.unwrap();
    sqlx::query("lock table api_key in access exclusive mode").execute(&mut *locked).await.unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(5), ask("svc_test_unknown")).await;
    drop(locked);
    // On a slow machine it may be forgotten already; it is never let in.
    assert!(answer.is_err() || status(&answer.unwrap()) == "401");
    let vault = harness.engine.clone();
    let hash = vault.context().vault.api_key_hash("svc_test_unknown");
    sqlx::query(
        "insert into api_key (id, partner_id, env, key_hash, key_prefix, sealed_secret, scopes, hash_key) \
         select 'key_later', partner_id, env, $1, 'svc', sealed_secret, scopes, hash_key from api_key where id = $2",
    )
    .bind(hash.as_slice())
    .bind(&harness.acme.id)
    .execute(harness.pool())
    .await
    .unwrap();
    wait_for("the key to work", || async { (status(&ask("svc_test_unknown").await) == "200").then_some(()) })
        .await;
}

#[tokio::test]
async fn behind_a_proxy_each_client_has_its_own_limit() {
    let harness = ApiHarness::new().await;
    let proxies = vec!["127.0.0.0/8".parse().unwrap()];
    let (address, _serving) = bounded(&harness, Limits { proxies, ..limits() }).await;
    let ask = async |n: usize, client: &str| {
        let forwarded = format!("x-forwarded-for: 203.0.113.9, {client}\r\n");
        receive(say(address, &request(&format!("svc_test_{n}"), &forwarded)).await).await
    };
    for n in 0..5 {
        assert_eq!(status(&ask(n, "198.51.100.1").await), "401");
    }
    assert_eq!(status(&ask(6, "198.51.100.1").await), "429");
    assert_eq!(status(&ask(7, "198.51.100.2").await), "401");
}

#[tokio::test]
async fn connections_of_a_source_are_limited() {
    let harness = ApiHarness::new().await;
    let (address, _serving) = bounded(&harness, Limits { connections_per_source: 2, ..limits() }).await;
    let ask = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut socket = say(address, ask).await;
        let mut first = [0; 12];
        socket.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        held.push(socket);
    }
    let mut refused = say(address, ask).await;
    let mut text = Vec::new();
    // Closed with or without a reset, but never answered.
    let _ = refused.read_to_end(&mut text).await;
    assert!(text.is_empty());
    drop(held);
    wait_for("the source to be let in again", || async {
        let mut socket = say(address, ask).await;
        let mut first = [0; 12];
        socket.read_exact(&mut first).await.ok().map(drop)
    })
    .await;
}

#[tokio::test]
async fn a_client_that_does_not_read_its_responses_is_disconnected() {
    let harness = ApiHarness::new().await;
    let (address, _serving) =
        bounded(&harness, Limits { answer: Duration::from_millis(200), ..limits() }).await;
    let ask = "GET /v1/openapi.json HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut socket = say(address, ask).await;
    // Nothing is read: the server's side fills up, and a write fails once the connection is ended.
    let ended = async { while socket.write_all(ask.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(60), ended).await.expect("the connection is ended");
}
