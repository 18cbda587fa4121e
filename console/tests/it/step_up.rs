//! What needs an authentication of the last minutes.

use axum::http::{Method, StatusCode};
use dvp_console::{Needs, permissions};
use dvp_domain::operator::OperatorRole;

use crate::access::path;
use crate::approvals::{requested, state};
use crate::authenticator::Authenticator;
use crate::scene::{Answer, Scene};

fn is_step_up(answer: &Answer) -> bool {
    answer.status == StatusCode::OK && answer.body.contains("data-step-up")
}

/// A new operator with these roles and a passkey, whose authentication is six minutes old.
async fn operator(scene: &Scene, name: &str, roles: &[OperatorRole], seed: u8) -> (Authenticator, String) {
    let cookie = scene.sign_in_by(name, roles, false).await;
    let mut passkey = Authenticator::new(seed);
    let cookie = scene.add_passkey(&mut passkey, &cookie).await;
    sqlx::query(
        "update operator_session set authenticated_at = now() - interval '6 minutes', \
                started_at = now() - interval '7 minutes' where operator_id = $1",
    )
    .bind(format!("opr_{name}"))
    .execute(scene.harness.pool())
    .await
    .unwrap();
    (passkey, cookie)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_route_needs_what_the_table_says_of_every_role() {
    let scene = Scene::new().await;
    let fields = [("version", "1"), ("note", "n"), ("reason", "r")];
    for (seed, role) in (1..).zip(OperatorRole::ALL) {
        let (_, cookie) = operator(&scene, role.as_str(), &[role], seed).await;
        let link = scene.sign_in_by(&format!("{}-link", role.as_str()), &[role], false).await;
        for (method, route, roles, needs) in permissions() {
            if route == "/logout" || route == "/live" {
                continue;
            }
            let request = async |cookie: &str| match method {
                Method::GET => scene.get(&path(&route), cookie).await,
                _ => scene.post(&path(&route), &fields, cookie).await,
            };
            let case = format!("{} {method} {route}", role.as_str());
            let answer = request(&cookie).await;
            let is_allowed = roles.contains(&role);
            assert_eq!(answer.status == StatusCode::FORBIDDEN, !is_allowed, "{case}: {}", answer.status);
            assert_eq!(is_step_up(&answer), is_allowed && needs == Needs::StepUp, "{case}");
            if is_step_up(&answer) {
                assert!(answer.body.contains(r#"name="reason" value="r""#), "{case}: {}", answer.body);
                let record = scene.records().await.pop().unwrap();
                assert_eq!((record.1.as_str(), record.2), ("refused", format!("{method} {route}")), "{case}");
            }
            let unregistered = request(&link).await;
            let is_led_away = match method {
                Method::GET => unregistered.header("location") == "/account",
                _ => unregistered.status == StatusCode::FORBIDDEN,
            };
            assert_eq!(is_led_away, needs > Needs::Session, "{case}: {}", unregistered.status);
        }
    }
}

#[test]
fn a_sign_in_that_is_removed_or_granted_needs_a_step_up() {
    let guarded = permissions().into_iter().filter(|(_, _, _, needs)| *needs == Needs::StepUp);
    let own = guarded.map(|(_, route, _, _)| route).filter(|route| !route.starts_with("/act/"));
    let own: Vec<_> = own.collect();
    assert_eq!(own, ["/account/passkeys/{id}/remove", "/account/password/remove", "/account/login"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_carried_out_with_a_passkey_and_the_earlier_cookie_ends() {
    let scene = Scene::new().await;
    let (id, version) = requested(&scene, "kim", 1_000_000).await;
    let (mut passkey, copied) = operator(&scene, "jo", &[OperatorRole::Approver], 1).await;
    let mut fields = vec![("note", "read & \"checked\"")];
    let page = scene.approve(&id, &version, &fields, &copied).await;
    assert!(is_step_up(&page), "{}", page.body);
    assert!(page.body.contains("value=\"read &#38; &#34;checked&#34;\""), "{}", page.body);
    assert_eq!(state(&scene, &id).await.0, "pending");

    let answer = passkey.get(&scene.challenge("/account/challenge", &copied).await);
    fields.push(("step_up_passkey", &answer));
    let done = scene.approve(&id, &version, &fields, &copied).await;
    assert_eq!((done.status, done.header("location")), (StatusCode::SEE_OTHER, &*format!("/approvals/{id}")));
    assert_eq!(state(&scene, &id).await, ("approved".into(), Some("jo".into())));
    let note: String = sqlx::query_scalar("select note from approval where id = $1")
        .bind(&id)
        .fetch_one(scene.harness.pool())
        .await
        .unwrap();
    assert_eq!(note, "read & \"checked\"");
    let records: Vec<_> = scene.records().await.into_iter().map(|(_, action, _, _)| action).collect();
    assert_eq!(records[records.len() - 3..], ["refused", "stepped_up", "acted"]);

    let renewed = done.cookie();
    assert_eq!(scene.get("/", &copied).await.header("location"), "/login?next=%2F");
    assert_eq!(scene.get("/", &renewed).await.status, StatusCode::OK);
    let (next, version) = requested(&scene, "kim", 2_000_000).await;
    let at_once = scene.approve(&next, &version, &[], &renewed).await;
    assert_eq!(at_once.status, StatusCode::SEE_OTHER, "the authentication is recent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_decision_keeps_the_new_token() {
    let scene = Scene::new().await;
    let (id, _) = requested(&scene, "kim", 1_000_000).await;
    let (mut passkey, cookie) = operator(&scene, "jo", &[OperatorRole::Approver], 1).await;
    let answer = passkey.get(&scene.challenge("/account/challenge", &cookie).await);
    let refused = scene.approve(&id, "17", &[("step_up_passkey", &answer)], &cookie).await;
    assert_eq!(refused.status, StatusCode::CONFLICT, "{}", refused.body);
    assert_eq!(scene.get("/", &refused.cookie()).await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_a_new_answer_of_the_operators_own_passkey_is_a_step_up() {
    let scene = Scene::new().await;
    let (id, version) = requested(&scene, "max", 1_000_000).await;
    let (mut passkey, cookie) = operator(&scene, "jo", &[OperatorRole::Approver], 1).await;
    let (mut other, others) = operator(&scene, "kim", &[OperatorRole::Approver], 2).await;
    let challenge = scene.challenge("/account/challenge", &cookie).await;
    passkey.origin = "http://evil.test".to_owned();
    let elsewhere = passkey.get(&scene.challenge("/account/challenge", &cookie).await);
    passkey.origin = crate::scene::ORIGIN.to_owned();
    let answers = [
        ("another operator's passkey", other.get(&challenge)),
        ("another operator's challenge", passkey.get(&scene.challenge("/account/challenge", &others).await)),
        ("an answer of another origin", elsewhere),
        ("a sign-in's answer", scene.sign(&mut passkey).await),
        ("no answer", "{}".to_owned()),
    ];
    for (what, answer) in &answers {
        let page = scene.approve(&id, &version, &[("step_up_passkey", answer)], &cookie).await;
        assert!(is_step_up(&page) && page.cookie().is_empty(), "{what}: {}", page.body);
        assert!(page.body.contains("role=\"alert\""), "{what}");
        assert_eq!(scene.records().await.pop().unwrap().1, "failed", "{what}");
    }
    assert_eq!(state(&scene, &id).await.0, "pending");
    let fresh = passkey.get(&scene.challenge("/account/challenge", &cookie).await);
    let fields = [("step_up_passkey", fresh.as_str())];
    let cookie = scene.approve(&id, "17", &fields, &cookie).await.cookie();
    scene.run("update operator_session set authenticated_at = now() - interval '6 minutes'").await;
    assert!(is_step_up(&scene.approve(&id, &version, &fields, &cookie).await), "an answer is used once");
    assert_eq!(state(&scene, &id).await.0, "pending");
}
