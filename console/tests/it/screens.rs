//! The screens of the parts of the service, and what operators request and change there.

use axum::http::StatusCode;
use dvp_core::workflow::audit;
use dvp_core::writer::Outcome;
use dvp_domain::operator::OperatorRole;
use dvp_testing::orders::order;

use crate::scene::{Scene, between};

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
        ("period", "order"),
        ("amount", "99.99"),
        ("reason", "thin"),
        ("evidence", "memo 1"),
    ];
    let requested = scene.post("/treasury/limits", &limit, &treasury).await;
    assert_eq!(requested.status, StatusCode::SEE_OTHER, "{}", requested.body);
    scene.harness.accept(order("000123456789")).await;
    let approve = format!("{}/approve", requested.header("location"));
    let approved = scene.post(&approve, &[("version", "0")], &approver).await;
    assert_eq!(approved.status, StatusCode::SEE_OTHER, "{}", approved.body);
    let outcome = scene.harness.submit(order("000123456789")).await;
    assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
    assert!(scene.get("/treasury", &approver).await.body.contains("99.99"));
    let wrong = limit.map(|(name, value)| (name, if name == "amount" { "1e3" } else { value }));
    assert_eq!(scene.post("/treasury/limits", &wrong, &treasury).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_holds_until_it_is_removed_and_needs_a_reason() {
    let scene = Scene::new().await;
    let treasury = scene.sign_in("jo", &[OperatorRole::Treasury]).await;
    let pause = |reason| [("scope", "pair"), ("target", "USDC/USD"), ("reason", reason)];
    assert_eq!(scene.post("/treasury/pauses/add", &pause(" "), &treasury).await.status, StatusCode::CONFLICT);
    assert_eq!(scene.records().await.pop().unwrap().1, "refused");
    let typo = [("scope", "pair"), ("target", "usdc/usd"), ("reason", "feed")];
    let refused = scene.post("/treasury/pauses/add", &typo, &treasury).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert!(refused.body.contains("did you mean USDC/USD?"), "{}", refused.body);
    let paused = scene.post("/treasury/pauses/add", &pause("feed"), &treasury).await;
    assert_eq!(paused.status, StatusCode::SEE_OTHER);
    assert!(matches!(scene.harness.submit(order("000123456789")).await, Outcome::Rejected { .. }));
    let page = scene.get("/treasury", &treasury).await.body;
    let seen = between(&page, "name=\"paused_at\" value=\"", "\"");
    let [scope, target, reason] = pause("feed is right");
    scene.post("/treasury/pauses/remove", &[scope, target, reason, ("paused_at", seen)], &treasury).await;
    scene.harness.accept(order("000123456789")).await;
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    audit::verify(&mut conn).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_about_the_version_that_the_operator_saw() {
    let scene = Scene::new().await;
    let reference = scene.harness.accept(order("000123456789")).await.reference;
    let operator = scene.sign_in("jo", &[OperatorRole::Operator]).await;
    let page = scene.get(&format!("/orders/{reference}"), &operator).await.body;
    let seen = page.split("name=\"version\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    let at = format!("/orders/{reference}/decisions");
    let decide = |version| [("version", version), ("decision", "cancel"), ("reason", "the client called")];
    let outdated = scene.post(&at, &decide("99"), &operator).await;
    assert!(
        outdated.status == StatusCode::CONFLICT && outdated.body.contains("look again"),
        "{}",
        outdated.body
    );
    assert_eq!(scene.records().await.pop().unwrap().1, "refused");
    let decided = scene.post(&at, &decide(seen), &operator).await;
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
    let at = format!("/fix/{}/commands", id.replace(':', "%3A").replace('>', "%3E"));
    let numbers = [("action", "set_seq"), ("next_in", "7"), ("next_out", "9"), ("reason", "agreed")];
    assert_eq!(scene.post(&at, &numbers, &cookie).await.status, StatusCode::SEE_OTHER);
    let lower = [("action", "set_seq"), ("next_in", "7"), ("next_out", "3"), ("reason", "agreed")];
    let refused = scene.post(&at, &lower, &cookie).await;
    assert!(
        refused.status == StatusCode::CONFLICT && refused.body.contains("Next_out is 9"),
        "{}",
        refused.body
    );
    assert_eq!(
        scene.post(&at, &[("action", "reset"), ("reason", "new day")], &cookie).await.status,
        StatusCode::SEE_OTHER
    );
    let page = scene.get(at.trim_end_matches("/commands"), &cookie).await.body;
    for shown in ["set seq", "next in 7, next out 9", "reset", "new day"] {
        assert!(page.contains(shown), "{shown} is not in\n{page}");
    }
    let off = scene.post("/partners/acme/disable", &[("reason", "no contract")], &cookie).await;
    assert_eq!(off.status, StatusCode::SEE_OTHER, "{}", off.body);
    let page = scene.get("/partners/acme", &cookie).await.body;
    assert!(page.contains("no contract") && page.contains("disabled"), "{page}");
    let seen = between(&page, "name=\"disabled_at\" value=\"", "\"");
    let silent = [("disabled_at", seen), ("reason", " ")];
    assert_eq!(scene.post("/partners/acme/enable", &silent, &cookie).await.status, StatusCode::CONFLICT);
    scene.add("kim", &[OperatorRole::Viewer]).await;
    assert_eq!(scene.post("/operators/jo/disable", &[], &cookie).await.status, StatusCode::CONFLICT);
    assert_eq!(scene.post("/operators/kim/disable", &[], &cookie).await.status, StatusCode::SEE_OTHER);
    assert!(scene.records().await.iter().any(|record| record.1 == "acted" && record.3 == "kim"));
}
