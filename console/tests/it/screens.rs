//! The screens of the parts of the service, and what operators request and change there.

use axum::http::StatusCode;
use dvp_core::workflow::audit;
use dvp_core::writer::Outcome;
use dvp_domain::operator::OperatorRole;
use dvp_testing::orders::order;

use crate::scene::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn every_screen_shows_a_service_with_orders() {
    let scene = Scene::new().await;
    let id = scene.fix_session().await;
    let reference = scene.harness.accept(order("000123456789")).await.reference;
    let aside = "update effect set unwritten = 1, failing_since = now(), last_result = 'broken on purpose'";
    scene.run(aside).await;
    let cookie = scene.sign_in("jo", &OperatorRole::ALL).await;
    let session_page = format!("/fix/{}", id.replace(':', "%3A").replace('>', "%3E"));
    for (path, shown) in [
        ("/", "Money in flight"),
        ("/orders", reference.as_str()),
        ("/reconciliation", "Open breaks"),
        ("/treasury", "north"),
        ("/chains", "Relayer accounts"),
        ("/work", "broken on purpose"),
        ("/fix", "FIX.4.4:DVP-"),
        (&session_page, "Next MsgSeqNum out"),
        ("/webhooks", "There is no endpoint."),
        ("/partners", "acme"),
        ("/partners/acme", "ptn_acme"),
        ("/operators", "jo"),
        ("/operators/jo", "viewer, support"),
        ("/audit", "signed in"),
        ("/audit.jsonl", "console_record"),
        ("/search?q=DVP", "Nothing has the identifier"),
    ] {
        let page = scene.get(path, &cookie).await;
        assert_eq!(page.status, StatusCode::OK, "{path}\n{}", page.body);
        assert!(page.body.contains(shown), "{shown} is not in {path}\n{}", page.body);
    }
    assert_eq!(scene.get("/search?q=ACME", &cookie).await.header("location"), session_page);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_two_operators_set_stops_an_order() {
    let scene = Scene::new().await;
    let treasury = scene.sign_in("jo", &[OperatorRole::Treasury]).await;
    let approver = scene.sign_in("kim", &[OperatorRole::Approver]).await;
    let limit = [
        ("scope", "everything"),
        ("asset", "USDC"),
        ("per", "order"),
        ("amount-minor", "99.99"),
        ("reason", "thin"),
        ("evidence", "memo 1"),
    ];
    let preview = scene.post("/act/limit/set", &limit, &treasury).await;
    assert!(preview.body.contains("99.99 USDC (99,990,000 minor units)"), "{}", preview.body);
    assert!(preview.body.contains("no limit is set"), "{}", preview.body);
    let requested = scene.form("limit set", &limit, &treasury).await;
    assert_eq!(requested.status, StatusCode::SEE_OTHER, "{}", requested.body);
    scene.harness.accept(order("000123456789")).await;
    let id = requested.header("location").trim_start_matches("/approvals/");
    let approved = scene.approve(id, "0", &[], &approver).await;
    assert_eq!(approved.status, StatusCode::SEE_OTHER, "{}", approved.body);
    let outcome = scene.harness.submit(order("000123456789")).await;
    assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
    assert!(scene.get("/treasury", &approver).await.body.contains("99.99"));
    let preview = scene.post("/act/limit/set", &limit, &treasury).await;
    assert!(
        preview.body.contains("99.99 USDC per order; today 100.00 USDC are accepted"),
        "{}",
        preview.body
    );
    let wrong = limit.map(|(name, value)| (name, if name == "amount-minor" { "1e3" } else { value }));
    assert_eq!(scene.form("limit set", &wrong, &treasury).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_holds_until_it_is_removed_and_needs_a_reason() {
    let scene = Scene::new().await;
    let treasury = scene.sign_in("jo", &[OperatorRole::Treasury]).await;
    let pause = |reason| [("scope", "pair"), ("target", "USDC/USD"), ("reason", reason)];
    assert_eq!(scene.form("pause add", &pause(" "), &treasury).await.status, StatusCode::BAD_REQUEST);
    let typo = [("scope", "pair"), ("target", "usdc/usd"), ("reason", "feed")];
    let refused = scene.form("pause add", &typo, &treasury).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert!(refused.body.contains("did you mean USDC/USD?"), "{}", refused.body);
    assert_eq!(scene.records().await.pop().unwrap().1, "refused");
    let paused = scene.form("pause add", &pause("feed"), &treasury).await;
    assert_eq!(paused.status, StatusCode::SEE_OTHER);
    assert!(matches!(scene.harness.submit(order("000123456789")).await, Outcome::Rejected { .. }));
    scene.form("pause remove", &pause("feed is right"), &treasury).await;
    scene.harness.accept(order("000123456789")).await;
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    audit::verify(&mut conn).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_about_the_version_that_the_operator_saw() {
    let scene = Scene::new().await;
    let reference = scene.harness.accept(order("000123456789")).await.reference;
    let operator = scene.sign_in("jo", &[OperatorRole::Operator]).await;
    let page = scene.get(&format!("/orders/{reference}"), &operator).await;
    let offered = Scene::offered(&page, "execution resolve");
    let cancel = offered.iter().find(|form| form.contains("?action=cancel&")).unwrap();
    let opened = scene.opened(cancel, &operator).await;
    let seen = opened.iter().find(|(name, _)| name == "seen-version").unwrap().1.as_str();
    let (about, back) = (reference.as_str(), format!("/orders/{reference}"));
    let decide = |version| {
        let own = [("reference", about), ("confirm", about), ("action", "cancel"), ("_back", &back)];
        [&own[..], &[("seen-version", version), ("reason", "the client called")]].concat()
    };
    let outdated = scene.form("execution resolve", &decide("99"), &operator).await;
    assert!(
        outdated.status == StatusCode::CONFLICT && outdated.body.contains("look again"),
        "{}",
        outdated.body
    );
    assert_eq!(scene.records().await.pop().unwrap().1, "refused");
    let decided = scene.form("execution resolve", &decide(seen), &operator).await;
    assert_eq!(
        (decided.status, decided.header("location")),
        (StatusCode::SEE_OTHER, &*format!("/orders/{reference}"))
    );
    let shown = scene.get(&format!("/orders/{reference}"), &operator).await.body;
    assert!(shown.contains("cancel by jo") && shown.contains("the client called"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_and_partners_are_commanded_with_a_reason_and_recorded() {
    let scene = Scene::new().await;
    let id = scene.fix_session().await;
    let cookie = scene.sign_in("jo", &OperatorRole::ALL).await;
    let about = ("session-id", id.as_str());
    let numbers = |out| [about, ("next-in", "7"), ("next-out", out), ("reason", "agreed")];
    assert_eq!(scene.form("fix-session set-seq", &numbers("9"), &cookie).await.status, StatusCode::SEE_OTHER);
    let refused = scene.form("fix-session set-seq", &numbers("3"), &cookie).await;
    assert!(
        refused.status == StatusCode::CONFLICT && refused.body.contains("Next_out is 9"),
        "{}",
        refused.body
    );
    let reset = scene.form("fix-session reset", &[about, ("reason", "new day")], &cookie).await;
    assert_eq!(reset.status, StatusCode::SEE_OTHER, "{}", reset.body);
    let at = format!("/fix/{}", id.replace(':', "%3A").replace('>', "%3E"));
    let page = scene.get(&at, &cookie).await.body;
    for shown in ["set seq", "next in 7, next out 9", "reset", "new day"] {
        assert!(page.contains(shown), "{shown} is not in\n{page}");
    }
    let off = scene.form("partner disable", &[("name", "acme"), ("reason", "no contract")], &cookie).await;
    assert_eq!(off.status, StatusCode::SEE_OTHER, "{}", off.body);
    let page = scene.get("/partners/acme", &cookie).await.body;
    assert!(page.contains("no contract") && page.contains("disabled"), "{page}");
    let silent = [("name", "acme"), ("reason", " ")];
    assert_eq!(scene.form("partner enable", &silent, &cookie).await.status, StatusCode::BAD_REQUEST);
    scene.add("kim", &[OperatorRole::Viewer]).await;
    let disable = |name| [("name", name), ("reason", "has left")];
    let own = scene.form("operator disable", &disable("JO"), &cookie).await;
    assert_eq!(own.status, StatusCode::CONFLICT, "{}", own.body);
    assert_eq!(scene.form("operator disable", &disable("kim"), &cookie).await.status, StatusCode::SEE_OTHER);
    let is_it =
        |record: &(String, String, String, String)| record.1 == "acted" && record.3.contains("name=kim");
    assert!(scene.records().await.iter().any(is_it));
}
