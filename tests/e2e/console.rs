//! The operations console in a browser, over a sandbox with orders.

use serde_json::json;

use crate::browser::Browser;
use crate::partner::Partner;
use crate::sandbox::Sandbox;

/// The screens, each with a text that it shows.
const SCREENS: [(&str, &str); 13] = [
    ("/", "Money in flight"),
    ("/orders", "acme"),
    ("/approvals", "Approvals"),
    ("/reconciliation", "Open breaks"),
    ("/treasury", "Balances"),
    ("/treasury/fees", "Fees from"),
    ("/treasury/exposure", "Exposure"),
    ("/chains", "following"),
    ("/fix", "FIX.4.4:DVP->ACME"),
    ("/webhooks", "There is no endpoint."),
    ("/partners", "globex"),
    ("/operators", "kim"),
    ("/audit", "signed in"),
];

pub(crate) async fn sign_in(browser: &Browser, sandbox: &Sandbox, token: &str, next: &str) {
    let console = sandbox.text("/console");
    // A page that reads itself again while its session is replaced complains of the redirection.
    browser.open("about:blank").await;
    browser.open(&format!("{console}/login?token={token}&next={next}")).await;
    browser.wait_for("document.querySelector('main[id=main]') && document.readyState === 'complete'").await;
}

/// The page has no accessibility violation, and neither it nor an earlier one has made the browser complain. With
/// `DVP_SCREENSHOTS=DIR` it is pictured, too.
pub(crate) async fn check(browser: &Browser, what: &str) {
    browser.picture(what).await;
    assert_eq!(browser.violations().await, json!([]), "{what}");
    assert_eq!(browser.complaints().await, Vec::<String>::new(), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_work_in_a_browser() {
    let (sandbox, browser) = tokio::join!(Sandbox::start(), Browser::start());
    let partner = Partner::of(&sandbox);
    let order = partner.order(&sandbox, 0, "000123456789").await;
    let client = order["clientReference"].as_str().unwrap();
    let reference = partner.settled(&order).await;
    let console = sandbox.text("/console");

    sign_in(&browser, &sandbox, &sandbox.text("/consoleToken"), "/").await;
    for width in [1400, 390] {
        browser.resize(width, 900).await;
        let order_page = format!("/orders/{reference}");
        let documents = format!("/orders/{reference}/documents");
        let more = [
            (order_page.as_str(), "payout.completed"),
            (&documents, "permit"),
            ("/fix/FIX.4.4%3ADVP-%3EACME", "Log out"),
        ];
        for (path, text) in SCREENS.into_iter().chain(more) {
            browser.open(&format!("{console}{path}")).await;
            browser.wait_for(&format!("document.body.textContent.includes({})", json!(text))).await;
            check(&browser, &format!("{path} at {width}")).await;
            let fits = browser.value("document.documentElement.scrollWidth <= window.innerWidth").await;
            assert_eq!(fits, json!(true), "{path} is wider than {width}");
        }
    }
    browser.resize(1400, 1000).await;

    // The keyboard alone: the search box finds the order by its client's reference.
    browser.open(&format!("{console}/")).await;
    browser.type_keys("/").await;
    browser.wait_for("document.activeElement.name === 'q'").await;
    browser.type_keys(&format!("{client}\u{e007}")).await;
    browser.wait_for(&format!("location.pathname === '/orders/{reference}'")).await;

    a_pause_is_made_by_the_keyboard_alone(&browser, &console).await;

    // The list shows a new order without a reload.
    browser.open(&format!("{console}/orders")).await;
    browser.value("(window.isTheSame = true)").await;
    let next = partner.order(&sandbox, 1, "000123456789").await;
    let accepted = partner.submit_accepted(&next).await;
    let shown = format!("document.body.textContent.includes({})", accepted["reference"]);
    browser.wait_for(&format!("window.isTheSame && {shown}")).await;
    check(&browser, "the refreshed list").await;

    // Two operators set a limit, which stops an order.
    let tokens = ["/operators/0/token", "/operators/1/token"].map(|pointer| sandbox.text(pointer));
    sign_in(&browser, &sandbox, &tokens[0], "/treasury").await;
    browser.begin_task();
    let limit = [
        ("scope", "everything"),
        ("asset", "USDC"),
        ("per", "order"),
        ("amount-minor", "0.01"),
        ("reason", "a test"),
        ("evidence", "memo"),
    ];
    browser.act("New limit", &limit).await;
    browser.wait_for("document.body.textContent.includes('another operator approves it')").await;
    check(&browser, "the maker's request").await;
    let request = browser.value("location.pathname").await;
    sign_in(&browser, &sandbox, &tokens[1], request.as_str().unwrap()).await;
    check(&browser, "the checker's request").await;
    browser.press("Approve").await;
    browser.wait_for("document.querySelector('.heading .state').textContent === 'approved'").await;
    browser.task_is_done("raise a limit");
    let stopped = partner.order(&sandbox, 2, "000123456789").await;
    let (status, refused) = partner.submit(&stopped).await;
    assert!(status != 202 || refused["status"] == "rejected", "{status} {refused}");

    an_administrator_begins_a_partner(&sandbox, &browser, &tokens).await;
    browser.press("Sign out").await;
    browser.wait_for("location.pathname === '/login'").await;
    check(&browser, "the sign-in").await;
    sandbox.stop().await;
}

/// Presses the tabulator until the focus is where an expression says.
async fn tab_to(browser: &Browser, wanted: &str) {
    for _ in 0..150 {
        browser.type_keys("\u{e004}").await;
        if browser.value(&format!("Boolean({wanted})")).await == json!(true) {
            // The focus can be seen.
            let outline = "getComputedStyle(document.activeElement).outlineStyle !== 'none'";
            assert_eq!(browser.value(outline).await, json!(true), "{wanted}");
            return;
        }
    }
    panic!("the tabulator never comes to {wanted}");
}

/// From the home page to a pause and its end, without a pointer.
async fn a_pause_is_made_by_the_keyboard_alone(browser: &Browser, console: &str) {
    const ENTER: &str = "\u{e007}";
    let field = |name: &str| format!("document.activeElement.name === '{name}'");
    let link = |text: &str| format!("document.activeElement.textContent.trim() === '{text}'");
    let form = |action: &str| {
        format!("location.pathname === '/act/pause/{action}' && document.readyState === 'complete'")
    };
    browser.open(&format!("{console}/")).await;
    browser.wait_for("document.readyState === 'complete'").await;
    tab_to(browser, "document.activeElement.classList.contains('skip')").await;
    tab_to(browser, "document.activeElement.getAttribute('href') === '/treasury'").await;
    browser.type_keys(ENTER).await;
    browser.wait_for("location.pathname === '/treasury' && document.readyState === 'complete'").await;
    tab_to(browser, "document.activeElement.classList.contains('skip')").await;
    browser.type_keys(ENTER).await;
    tab_to(browser, &link("Pause")).await;
    browser.type_keys(ENTER).await;
    browser.wait_for(&form("add")).await;
    check(browser, "the form of a pause").await;
    tab_to(browser, &field("scope")).await;
    browser.type_keys("pair").await;
    tab_to(browser, &field("target")).await;
    browser.type_keys("USD/USDC").await;
    tab_to(browser, &field("reason")).await;
    browser.type_keys("by the keyboard").await;
    tab_to(browser, &link("Carry it out")).await;
    browser.type_keys(ENTER).await;
    browser.wait_for("document.body.textContent.includes('by the keyboard')").await;
    tab_to(browser, &link("Resume")).await;
    browser.type_keys(ENTER).await;
    browser.wait_for(&form("remove")).await;
    tab_to(browser, &field("reason")).await;
    browser.type_keys(&format!("it works again{ENTER}")).await;
    browser.wait_for("document.body.textContent.includes('Nothing is paused.')").await;
    check(browser, "after a walk by the keyboard").await;
}

/// A partner, and its FIX session, which exists when another operator has approved it.
async fn an_administrator_begins_a_partner(sandbox: &Sandbox, browser: &Browser, tokens: &[String; 2]) {
    sign_in(browser, sandbox, &tokens[0], "/partners").await;
    browser.begin_task();
    browser.act("New partner", &[("name", "initech"), ("tier", "standard")]).await;
    browser.follow("initech").await;
    browser.wait_for("location.pathname === '/partners/initech'").await;
    check(browser, "the new partner").await;
    browser.act("Issue a key", &[("reason", "contract 12")]).await;
    browser.wait_for("document.body.textContent.includes('Shown this once')").await;
    browser.follow("/partners/initech").await;
    let session = [
        ("begin-string", "FIX.4.4"),
        ("sender-comp-id", "INITECH"),
        ("allowed-sources", "192.0.2.0/24"),
        ("reason", "contract 12"),
        ("evidence", "ticket 9"),
    ];
    browser.act("New FIX session", &session).await;
    browser.wait_for("document.body.textContent.includes('Shown this once')").await;
    check(browser, "the new session").await;
    let request =
        browser.value("document.querySelector('a[href^=\"/approvals/\"].id, .facts a').pathname").await;
    sign_in(browser, sandbox, &tokens[1], request.as_str().unwrap()).await;
    check(browser, "the request of a session").await;
    browser.press("Approve").await;
    browser.task_is_done("onboard a partner with a key and a FIX session");
    browser.open(&format!("{}/fix", sandbox.text("/console"))).await;
    browser.wait_for("document.body.textContent.includes('FIX.4.4:DVP->INITECH')").await;
}
