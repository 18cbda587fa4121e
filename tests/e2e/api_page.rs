//! The page of the API in a browser: a sandbox's operations can be tried there.

use serde_json::json;

use crate::browser::Browser;
use crate::sandbox::Sandbox;

/// Sends an operation's form with this body. Returns the status and the answer.
async fn tried(browser: &Browser, path: &str, method: &str, body: Option<&str>) -> String {
    let form = format!(
        "[...document.querySelectorAll('form')].find(form => form.dataset.path === {} && form.dataset.method === {})",
        json!(path),
        json!(method)
    );
    if let Some(body) = body {
        browser.value(&format!("{form}.elements.body.value = {}", json!(body))).await;
    }
    browser.value(&format!("{form}.requestSubmit()")).await;
    browser.wait_for(&format!("/^[0-9]/.test({form}.querySelector('output').textContent)")).await;
    let answer = browser.value(&format!("{form}.querySelector('output').textContent")).await;
    answer.as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_are_tried_on_a_sandboxs_page_with_a_key_typed_there() {
    let (sandbox, browser) = tokio::join!(Sandbox::start(), Browser::start());
    browser.open(&format!("{}/docs", sandbox.text("/http"))).await;
    assert!(tried(&browser, "/v1/balances", "GET", None).await.starts_with("401 "));
    for (field, pointer) in [("try-key", "/partner/apiKey"), ("try-secret", "/partner/signingSecret")] {
        let typed = json!(sandbox.text(pointer));
        browser.value(&format!("document.getElementById('{field}').value = {typed}")).await;
    }
    let balances = tried(&browser, "/v1/balances", "GET", None).await;
    assert!(balances.starts_with("200 ") && balances.contains("availableMinor"), "{balances}");
    let quote = json!({
        "requestId": "r-1", "actorId": "me", "inputAsset": {"type": "fiat", "symbol": "USD"},
        "outputAsset": {"type": "fiat", "symbol": "EUR"}, "amountMinor": "10000", "amountType": "source",
    });
    let quoted = tried(&browser, "/v1/quotes/firm", "POST", Some(&quote.to_string())).await;
    assert!(quoted.starts_with("201 ") && quoted.contains("qte_"), "{quoted}");
    // The signature is right: the fault is in the body.
    let faulty = tried(&browser, "/v1/intents", "POST", Some("{}")).await;
    assert!(faulty.starts_with("400 ") && faulty.contains("INVALID_PARAMETER"), "{faulty}");
    // Beside the answers that were refused, and the icon that nobody has made.
    let complaints = browser.complaints().await;
    assert!(complaints.iter().all(|one| one.contains("Failed to load resource")), "{complaints:?}");
    sandbox.stop().await;
}
