//! Passwords with one-time codes.

use axum::http::StatusCode;
use dvp_core::operators::rotation;
use dvp_core::secrets::{Vault, seal_key};
use dvp_domain::operator::OperatorRole;
use dvp_store::operators::accounts;
use dvp_testing::market::master_key;
use dvp_testing::totp::AuthenticatorApp;

use crate::approvals::{requested, state};
use crate::authenticator::Authenticator;
use crate::scene::{Answer, Scene, between};

const PASSWORD: &str = "correct horse battery";
const APPROVER: &[OperatorRole] = &[OperatorRole::Approver];

impl Scene {
    /// Sets a password in a session. Returns the app and the session's new cookie.
    async fn set_password(&self, cookie: &str) -> (AuthenticatorApp, String) {
        let chosen = self.post("/account/password", &[("password", PASSWORD)], cookie).await;
        let app = AuthenticatorApp::of(between(&chosen.body, "<code data-totp>", "</code>"));
        let squares = between(&chosen.body, "QR code of the key", "</svg>").matches("h1v1h-1z").count();
        assert!(squares > 500, "{squares} dark squares");
        let sealed = between(&chosen.body, "name=\"sealed\" value=\"", "\"");
        let wrong =
            self.post("/account/password/confirm", &[("sealed", sealed), ("code", "1")], cookie).await;
        assert!(wrong.body.contains("The code is wrong") && wrong.cookie().is_empty(), "{}", wrong.body);
        let code = app.code();
        let fields = [("sealed", sealed), ("code", code.as_str())];
        let done = self.post("/account/password/confirm", &fields, cookie).await;
        assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.body);
        self.forget_codes().await;
        (app, done.cookie())
    }

    /// The codes of these minutes count as not used.
    async fn forget_codes(&self) {
        sqlx::query("update operator_password set last_step = 0").execute(self.harness.pool()).await.unwrap();
    }

    async fn sign_in_as(&self, name: &str, password: &str, code: &str) -> Answer {
        let fields = [("name", name), ("password", password), ("code", code), ("next", "/orders")];
        self.post("/login/password", &fields, "").await
    }

    async fn attempts(&self) -> Vec<(String, i32)> {
        sqlx::query_as("select kind, attempts from operator_attempt order by kind, attempts")
            .fetch_all(self.harness.pool())
            .await
            .unwrap()
    }
}

async fn registered() -> (Scene, AuthenticatorApp, String) {
    let scene = Scene::new().await;
    let cookie = scene.sign_in_by("jo", APPROVER, false).await;
    let (app, cookie) = scene.set_password(&cookie).await;
    (scene, app, cookie)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_signs_in_with_a_code_that_is_used_once() {
    let (scene, app, cookie) = registered().await;
    assert_eq!(scene.get("/", &cookie).await.status, StatusCode::OK, "the operator is registered");
    let code = app.code();
    let signed_in = scene.sign_in_as("JO", PASSWORD, &code).await;
    assert_eq!((signed_in.status, signed_in.header("location")), (StatusCode::SEE_OTHER, "/orders"));
    assert_eq!(scene.get("/", &signed_in.cookie()).await.status, StatusCode::OK);
    let last = scene.records().await.pop().unwrap();
    assert_eq!((last.0.as_str(), last.1.as_str(), last.3.as_str()), ("jo", "signed_in", "password and code"));
    let again = scene.sign_in_as("jo", PASSWORD, &code).await;
    assert!(again.cookie().is_empty() && again.body.contains("was used already"), "{}", again.body);
    assert_eq!(scene.records().await.pop().unwrap().1, "failed");
    let stored: (String, Vec<u8>) = sqlx::query_as("select hash, sealed_totp from operator_password")
        .fetch_one(scene.harness.pool())
        .await
        .unwrap();
    assert!(stored.0.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{}", stored.0);
    assert!(!stored.1.windows(20).any(|part| part == app.secret()));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_and_unknown_are_answered_alike_and_bounded_alike() {
    let (scene, app, _) = registered().await;
    scene.sign_in("kim", APPROVER).await;
    let wrong = "Name, password or code is wrong.";
    let cases = [
        ("jo", "wrong horse battery", app.code()),
        ("jo", PASSWORD, "000".to_owned()),
        ("kim", PASSWORD, app.code()),
        ("nobody", PASSWORD, app.code()),
        ("no\u{0}body", PASSWORD, app.code()),
        ("opr_jo", PASSWORD, app.code()),
    ];
    let mut bodies = Vec::new();
    for (name, password, code) in &cases {
        let answer = scene.sign_in_as(name, password, code).await;
        assert!(answer.status == StatusCode::OK && answer.body.contains(wrong), "{name}: {}", answer.body);
        bodies.push(answer.body);
    }
    assert!(bodies.iter().all(|body| *body == bodies[0]));
    let records = scene.records().await;
    assert!(
        records[records.len() - cases.len()..]
            .iter()
            .all(|(operator, action, _, _)| operator.is_empty() && action == "failed")
    );
    for name in ["jo", "nobody"] {
        for _ in 0..5 {
            scene.sign_in_as(name, "wrong horse battery", "000000").await;
        }
        let bounded = scene.sign_in_as(name, PASSWORD, &app.code()).await;
        assert!(bounded.cookie().is_empty() && bounded.body.contains("Too many attempts"), "{name}");
    }
    scene.run("update operator_attempt set since = now() - interval '16 minutes'").await;
    assert_eq!(scene.sign_in_as("jo", PASSWORD, &app.code()).await.status, StatusCode::SEE_OTHER);
    let counted = scene.attempts().await;
    assert_eq!(counted.iter().find(|(kind, _)| kind == "source"), Some(&("source".to_owned(), 1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_is_bounded_over_all_names() {
    let (scene, app, _) = registered().await;
    for number in 0..30 {
        scene.sign_in_as(&format!("name{number}"), "wrong horse battery", "000000").await;
    }
    let bounded = scene.sign_in_as("jo", PASSWORD, &app.code()).await;
    assert!(bounded.cookie().is_empty() && bounded.body.contains("Too many attempts"), "{}", bounded.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_is_a_step_up_and_guesses_are_bounded() {
    let (scene, app, cookie) = registered().await;
    let (id, version) = requested(&scene, "kim", 1_000_000).await;
    scene.run("update operator_session set authenticated_at = now() - interval '6 minutes'").await;
    let send = async |code: &str, cookie: &str| {
        scene.approve(&id, &version, &[("step_up_code", code)], cookie).await
    };
    assert!(send("", &cookie).await.body.contains("Confirm with the code"));
    for _ in 0..5 {
        assert!(send("000000x", &cookie).await.body.contains("The code is wrong"));
    }
    assert!(send(&app.code(), &cookie).await.body.contains("Too many attempts"));
    assert_eq!(state(&scene, &id).await.0, "pending");
    scene.run("delete from operator_attempt").await;
    let code = app.code();
    let done = send(&code, &cookie).await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.body);
    assert_eq!(state(&scene, &id).await.0, "approved");
    scene.run("update operator_session set authenticated_at = now() - interval '6 minutes'").await;
    let replayed = send(&code, &done.cookie()).await;
    assert!(replayed.body.contains("was used already"), "{}", replayed.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_chosen_and_confirmed_by_its_operator_in_time() {
    let scene = Scene::new().await;
    let cookie = scene.sign_in_by("jo", APPROVER, false).await;
    let other = scene.sign_in_by("kim", APPROVER, false).await;
    for short in ["", "short", "elevenchars"] {
        let refused = scene.post("/account/password", &[("password", short)], &cookie).await;
        assert!(refused.body.contains("A password has 12 to 256 characters"), "{}", refused.body);
    }
    let chosen = scene.post("/account/password", &[("password", PASSWORD)], &cookie).await;
    assert!(!chosen.body.contains(PASSWORD), "it is not shown");
    let app = AuthenticatorApp::of(between(&chosen.body, "<code data-totp>", "</code>"));
    let sealed = between(&chosen.body, "name=\"sealed\" value=\"", "\"").to_owned();
    let code = app.code();
    let fields = [("sealed", sealed.as_str()), ("code", code.as_str())];
    let foreign = scene.post("/account/password/confirm", &fields, &other).await;
    assert!(foreign.body.contains("choose it again") && foreign.cookie().is_empty(), "{}", foreign.body);
    scene.run("update operator_session set started_at = now() - interval '6 minutes'").await;
    let late = scene.post("/account/password/confirm", &fields, &cookie).await;
    assert_eq!(late.status, StatusCode::CONFLICT);
    assert!(
        !accounts::passwords::exists(&mut scene.harness.pool().acquire().await.unwrap(), "opr_jo")
            .await
            .unwrap()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_password_is_removed_when_a_passkey_is_left_and_its_secret_is_resealed() {
    let (scene, app, cookie) = registered().await;
    let last = scene.post("/account/password/remove", &[], &cookie).await;
    assert_eq!(last.status, StatusCode::CONFLICT);
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let vault = Vault::with_keys(vec![master_key("2027", 9), master_key("2026", 7)]).unwrap();
    assert_eq!(rotation::reseal(&mut conn, &vault).await.unwrap(), 1);
    let sealed: Vec<u8> =
        sqlx::query_scalar("select sealed_totp from operator_password").fetch_one(&mut *conn).await.unwrap();
    assert_eq!(seal_key(&sealed), Some("2027"));
    assert_eq!(vault.open("opr_jo", &sealed).unwrap(), app.secret());
    let cookie = scene.add_passkey(&mut Authenticator::new(1), &cookie).await;
    assert_eq!(scene.post("/account/password/remove", &[], &cookie).await.status, StatusCode::SEE_OTHER);
    assert_eq!(scene.records().await.pop().unwrap().1, "removed");
    let gone = scene.sign_in_as("jo", PASSWORD, &app.code()).await;
    assert!(gone.body.contains("Name, password or code is wrong."), "{}", gone.body);
}

/// An address has its own failures: others sign in with a password while it is refused.
#[tokio::test(flavor = "multi_thread")]
async fn failures_of_one_address_do_not_count_for_another() {
    let (scene, app, _) = registered().await;
    let mut last = StatusCode::OK;
    for _ in 0..130 {
        last = scene.post_by("198.51.100.1", "/login", &[("token", "unknown")]).await.status;
    }
    assert_eq!(last, StatusCode::TOO_MANY_REQUESTS);
    let signed_in = scene.sign_in_as("jo", PASSWORD, &app.code()).await;
    assert_eq!(signed_in.status, StatusCode::SEE_OTHER, "{}", signed_in.body);
}
