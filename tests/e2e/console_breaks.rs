//! Breaks in the console: from the list to the cause, and from the cause to the request that ends it.

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::console::{check, sign_in};
use crate::console_orders::{open, text_of};
use crate::sandbox::{Sandbox, dvp};
use crate::wait::answer;

/// The breaks of a comparison that is made now.
fn breaks(sandbox: &Sandbox) -> Vec<Value> {
    let output = dvp(sandbox, &["reconcile"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    said["breaks"].as_array().cloned().unwrap_or_default()
}

/// Compares until there is such a break.
pub(crate) async fn find_break(sandbox: &Sandbox, is_wanted: impl Fn(&Value) -> bool) -> Value {
    let found = answer(async || breaks(sandbox), |found| found.iter().any(&is_wanted)).await;
    found.into_iter().find(is_wanted).unwrap()
}

/// Follows the link of a break about an order, from the list to its page.
pub(crate) async fn follow(browser: &Browser, sandbox: &Sandbox, reference: &str) {
    open(browser, sandbox, "/reconciliation", reference).await;
    let row = format!(
        "[...document.querySelectorAll('tbody tr')].find(row => row.textContent.includes({}))",
        json!(reference)
    );
    browser.value(&format!("{row}.querySelector('a[href^=\"/reconciliation/\"]').click()")).await;
    browser.wait_for("document.querySelector('h1').textContent.startsWith('Break:')").await;
}

async fn click(browser: &Browser, link: &str) {
    browser
        .value(&format!("document.querySelector({}).click()", json!(format!("a[href={}]", json!(link)))))
        .await;
}

/// A break leads to its order. The order's timeline has no entry of the chain: that is the cause.
pub(crate) async fn a_break_is_traced(browser: &Browser, sandbox: &Sandbox) {
    let found = find_break(sandbox, |found| found["reference"].as_str().is_some()).await;
    let reference = found["reference"].as_str().unwrap();
    follow(browser, sandbox, reference).await;
    let detail = json!(found["detail"]);
    browser.wait_for(&format!("document.body.textContent.includes({detail})")).await;
    check(browser, "the break").await;
    browser.value(&format!("document.querySelector('a[href=\"/orders/{reference}\"]').click()")).await;
    browser.wait_for(&format!("location.pathname === '/orders/{reference}'")).await;
    let chain = "[...document.querySelectorAll('.timeline .kind')].filter(kind => kind.textContent === 'chain').length";
    assert_eq!(browser.value(chain).await, json!(0));
}

/// A payment that the bank returned is a break. It leads to the order, and that to the file of the bank, which is the
/// cause. One operator states that it was paid another way, another one approves it, and the break has ended.
pub(crate) async fn a_returned_payment_is_traced_and_resolved(
    browser: &Browser,
    sandbox: &Sandbox,
    reference: &str,
) {
    let is_it = |found: &Value| found["type"] == "payment_returned" && found["reference"] == reference;
    let found = find_break(sandbox, is_it).await;
    let tokens = ["/operators/0/token", "/operators/1/token"].map(|pointer| sandbox.text(pointer));
    // The sandbox's own operator has every role: it reads documents, too.
    sign_in(browser, sandbox, &sandbox.text("/consoleToken"), "/reconciliation").await;
    follow(browser, sandbox, reference).await;
    let detail = json!(found["detail"]);
    browser.wait_for(&format!("document.body.textContent.includes({detail})")).await;
    check(browser, "the break of a returned payment").await;
    let page = browser.value("location.pathname").await.as_str().unwrap().to_owned();

    click(browser, &format!("/orders/{reference}")).await;
    browser.wait_for(&format!("location.pathname === '/orders/{reference}'")).await;
    let returned = "[...document.querySelectorAll('.timeline > li')].find(line => \
                    line.querySelector('strong').textContent === 'from the bank: returned')";
    browser.wait_for(returned).await;
    for (kind, title) in [
        ("rail", "payout: called, in progress"),
        ("bank", "to the bank: payment ordered"),
        ("bank", "from the bank: paid"),
    ] {
        let line = format!(
            "[...document.querySelectorAll('.timeline > li')].some(line => \
             line.querySelector('.kind').textContent === {} && line.querySelector('strong').textContent === {})",
            json!(kind),
            json!(title)
        );
        browser.wait_for(&line).await;
    }
    check(browser, "the order of a returned payment").await;
    browser.value(&format!("{returned}.querySelector('a').click()")).await;
    browser.wait_for("document.querySelector('pre')?.textContent.includes('AC04')").await;
    check(browser, "the bank's file").await;

    sign_in(browser, sandbox, &tokens[0], &page).await;
    let fields = [
        ("provider-reference", "WIRE-4711"),
        ("reason", "paid to the new account"),
        ("evidence", "wire 4711, statement 18"),
    ];
    browser.act("The returned payment was paid another way", &fields).await;
    browser.wait_for("location.pathname.startsWith('/approvals/')").await;
    let request = browser.value("location.pathname").await.as_str().unwrap().to_owned();
    assert!(breaks(sandbox).iter().any(is_it), "a request alone ends nothing");
    sign_in(browser, sandbox, &tokens[1], &request).await;
    browser.press("Approve").await;
    browser.wait_for("document.body.textContent.includes('approved')").await;
    let mut conn = sandbox.database().await;
    let resolved =
        "select state #>> '{reversal,resolved,done,provider_reference}' from execution where reference = $1";
    assert_eq!(text_of(&mut conn, resolved, reference).await, "WIRE-4711");

    answer(async || breaks(sandbox), |found| !found.iter().any(is_it)).await;
    open(browser, sandbox, "/reconciliation", "Last runs").await;
    let row = format!(
        "[...document.querySelectorAll('tbody tr')].some(row => row.textContent.includes({}) && \
         row.textContent.includes('payment returned'))",
        json!(reference)
    );
    assert_eq!(browser.value(&row).await, json!(false), "the list has it no more");
    open(browser, sandbox, &format!("/orders/{reference}"), "wire 4711, statement 18").await;
    check(browser, "the order after its resolution").await;
}
