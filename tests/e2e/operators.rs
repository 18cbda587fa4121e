//! Operators sign in and are authenticated again in a browser, over a sandbox.

use dvp_testing::totp::AuthenticatorApp;
use serde_json::json;

use crate::browser::Browser;
use crate::console::check;
use crate::sandbox::{Sandbox, said};
use crate::wait::until;

/// The console at a host name, to which passkeys belong.
fn console(sandbox: &Sandbox) -> String {
    sandbox.text("/console").replace("127.0.0.1", "localhost")
}

/// An operator who is new, with a link that is used once.
fn invited(sandbox: &Sandbox, name: &str) -> String {
    let words = ["operator", "add", "--name", name, "--roles", "approver,treasury", "--as", "jo"];
    said(sandbox, &words)["token"].as_str().unwrap().to_owned()
}

/// The codes of these minutes count as not used.
const FORGET_CODES: &str = "update operator_password set last_step = 0";
/// Makes the operator's authentications of all sessions old.
const AGE: &str = "update operator_session set authenticated_at = now() - interval '6 minutes'";

async fn execute(sandbox: &Sandbox, statement: &'static str) {
    sqlx::query(statement).execute(&mut sandbox.database().await).await.unwrap();
}

/// Requests a limit by a form of the page.
async fn request_limit(browser: &Browser, amount: &str) {
    let fields = [
        ("scope", "everything"),
        ("asset", "USDC"),
        ("per", "order"),
        ("amount-minor", amount),
        ("reason", "a test"),
        ("evidence", "memo"),
    ];
    browser.act("New limit", &fields).await;
}

/// Signs in by a link, which leads to the account page; again while a service that has just started is unavailable.
async fn use_link(browser: &Browser, console: &str, token: &str) {
    until("the account page", async || {
        browser.open(&format!("{console}/login?token={token}&next=/treasury")).await;
        browser.wait_for("document.readyState === 'complete'").await;
        if browser.value("document.body.textContent.includes('This is a')").await == json!(true) {
            browser.press("Sign in").await;
        }
        let page = browser.value("document.body.innerText").await;
        let is_there = browser.value("location.pathname === '/account'").await == json!(true);
        assert!(is_there || page.as_str().unwrap().contains("unavailable"), "{page}");
        is_there
    })
    .await;
    // What the browser noted about the answers that were unavailable is none of the pages' faults.
    browser.complaints().await;
}

/// Adds a passkey on the account page.
async fn add_passkey(browser: &Browser, name: &str) {
    browser.fill("form[data-passkey=create]", &[("name", name)], "Add a passkey").await;
    let shown = json!(name);
    browser.wait_for(&format!("document.querySelector('main table').textContent.includes({shown})")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_use_passkeys_in_a_browser() {
    let (sandbox, browser) = tokio::join!(Sandbox::start(), Browser::start());
    let console = console(&sandbox);
    let passkeys = browser.add_authenticator().await;

    // A link leads to the registration.
    let token = invited(&sandbox, "pat");
    use_link(&browser, &console, &token).await;
    check(&browser, "the account without a passkey").await;
    add_passkey(&browser, "Laptop").await;
    check(&browser, "the account with a passkey").await;

    // The passkey signs in, without a name.
    browser.press("Sign out").await;
    browser.open(&format!("{console}/treasury")).await;
    browser.wait_for("location.pathname === '/login'").await;
    check(&browser, "the sign-in").await;
    browser.press("Sign in with a passkey").await;
    browser.wait_for("location.pathname === '/treasury'").await;

    // What changes a limit needs a new authentication, and is carried out with it.
    execute(&sandbox, AGE).await;
    request_limit(&browser, "0.02").await;
    browser.wait_for("document.querySelector('[data-step-up]')").await;
    check(&browser, "the step-up").await;
    browser.verify_user(&passkeys, false).await;
    browser.value("document.querySelector('form[data-passkey] button').click()").await;
    browser.wait_for("document.querySelector('[data-problem]').textContent.includes('was not used')").await;
    check(&browser, "the step-up that failed").await;
    browser.verify_user(&passkeys, true).await;
    browser.press("Confirm with a passkey").await;
    browser.press("Request it").await;
    browser.wait_for("document.body.textContent.includes('another operator approves it')").await;
    let request = browser.value("location.pathname").await.as_str().unwrap().to_owned();

    // Another operator approves with its own passkey.
    browser.press("Sign out").await;
    let token = invited(&sandbox, "lou");
    use_link(&browser, &console, &token).await;
    add_passkey(&browser, "Phone").await;
    browser.open(&format!("{console}{request}")).await;
    browser.press("Approve").await;
    browser.wait_for("document.querySelector('.heading .state').textContent === 'approved'").await;
    check(&browser, "the approval").await;
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_use_a_password_and_remove_a_passkey_in_a_browser() {
    const PASSWORD: &str = "correct horse battery";
    let (sandbox, browser) = tokio::join!(Sandbox::start(), Browser::start());
    let console = console(&sandbox);
    browser.add_authenticator().await;

    // A passkey, then a password with the codes of an app.
    let token = invited(&sandbox, "pat");
    use_link(&browser, &console, &token).await;
    add_passkey(&browser, "Laptop").await;
    browser.fill("form[action='/account/password']", &[("password", PASSWORD)], "Choose the password").await;
    check(&browser, "the key of the codes").await;
    let secret = browser.value("document.querySelector('[data-totp]').textContent").await;
    let app = AuthenticatorApp::of(secret.as_str().unwrap());
    let code = app.code();
    browser.fill("form[action='/account/password/confirm']", &[("code", &code)], "Set the password").await;
    browser.wait_for("document.body.textContent.includes('You have a password')").await;
    check(&browser, "the account with a password").await;

    // A removed passkey does not sign in any more.
    browser.press("Remove").await;
    browser.wait_for("document.body.textContent.includes('You have no passkey')").await;
    browser.press("Sign out").await;
    browser.wait_for("location.pathname === '/login'").await;
    browser.press("Sign in with a passkey").await;
    browser.wait_for("document.body.textContent.includes('not known, or was removed')").await;
    check(&browser, "the refused sign-in").await;

    // The password and a code do.
    execute(&sandbox, FORGET_CODES).await;
    browser.value("(document.querySelector('details').open = true)").await;
    check(&browser, "the other ways to sign in").await;
    let code = app.code();
    let fields = [("name", "pat"), ("password", PASSWORD), ("code", &code)];
    browser.fill("form[action='/login/password']", &fields, "Sign in with a password").await;
    browser.wait_for("location.pathname === '/'").await;

    // A code is a step-up, without a passkey.
    execute(&sandbox, AGE).await;
    execute(&sandbox, FORGET_CODES).await;
    browser.open(&format!("{console}/treasury")).await;
    request_limit(&browser, "0.02").await;
    browser.wait_for("document.querySelector('[data-step-up]')").await;
    check(&browser, "the step-up by a code").await;
    let code = app.code();
    browser.fill("[data-step-up] form", &[("step_up_code", &code)], "Confirm with the code").await;
    browser.press("Request it").await;
    browser.wait_for("document.body.textContent.includes('another operator approves it')").await;
    check(&browser, "the request").await;
    sandbox.stop().await;
}
