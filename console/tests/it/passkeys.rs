//! Registration and removal of passkeys, and sign-in with them.

use axum::http::StatusCode;
use dvp_domain::operator::OperatorRole;
use dvp_store::operators::accounts;

use crate::authenticator::Authenticator;
use crate::scene::Scene;

const VIEWER: &[OperatorRole] = &[OperatorRole::Viewer];

/// A scene with an operator who has a passkey, and the cookie of its session.
async fn registered() -> (Scene, Authenticator, String) {
    let scene = Scene::new().await;
    let cookie = scene.sign_in_by("jo", VIEWER, false).await;
    let mut passkey = Authenticator::new(1);
    let cookie = scene.add_passkey(&mut passkey, &cookie).await;
    (scene, passkey, cookie)
}

async fn last_record(scene: &Scene) -> (String, String, String) {
    let (operator, action, _, subject) = scene.records().await.pop().unwrap();
    (operator, action, subject)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_leads_to_the_registration_of_a_passkey_which_signs_in() {
    let scene = Scene::new().await;
    let cookie = scene.sign_in_by("jo", VIEWER, false).await;
    let home = scene.get("/", &cookie).await;
    assert_eq!((home.status, home.header("location")), (StatusCode::SEE_OTHER, "/account"));
    assert_eq!(scene.post("/account/challenge", &[], &cookie).await.status, StatusCode::FORBIDDEN);
    let mut passkey = Authenticator::new(1);
    let registered = scene.add_passkey(&mut passkey, &cookie).await;
    assert_eq!(last_record(&scene).await, ("jo".into(), "registered".into(), "passkey key 1".into()));
    assert_eq!(scene.get("/", &registered).await.status, StatusCode::OK);
    assert_eq!(scene.get("/", &cookie).await.header("location"), "/login?next=%2F", "the token was replaced");

    let answer = scene.sign(&mut passkey).await;
    let signed_in = scene.sign_in_with(&answer).await;
    assert_eq!(scene.get("/", &signed_in).await.status, StatusCode::OK);
    assert_eq!(last_record(&scene).await, ("jo".into(), "signed_in".into(), "passkey key 1".into()));
    let account = scene.get("/account", &signed_in).await.body;
    assert!(account.contains("key 1") && account.contains("your last way to sign in"), "{account}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_used_once_in_time_and_for_its_purpose() {
    let (scene, mut passkey, cookie) = registered().await;
    let answer = scene.sign(&mut passkey).await;
    assert!(!scene.sign_in_with(&answer).await.is_empty());
    assert!(scene.sign_in_with(&answer).await.is_empty(), "it was used");
    let used = "the challenge was answered already or has expired";
    assert_eq!(last_record(&scene).await, (String::new(), "failed".into(), used.into()));

    let late = scene.sign(&mut passkey).await;
    scene.run("update operator_challenge set expires_at = now()").await;
    assert!(scene.sign_in_with(&late).await.is_empty(), "it is late");

    let step_up = passkey.get(&scene.challenge("/account/challenge", &cookie).await);
    assert!(scene.sign_in_with(&step_up).await.is_empty(), "it is of a step-up");
    let registration = passkey.get(&scene.challenge("/account/passkeys/challenge", &cookie).await);
    assert!(scene.sign_in_with(&registration).await.is_empty(), "it is of a registration");
    assert!(scene.sign_in_with("{}").await.is_empty());
    let rows: i64 = sqlx::query_scalar("select count(*) from operator_challenge where purpose = 'sign_in'")
        .fetch_one(scene.harness.pool())
        .await
        .unwrap();
    assert_eq!(rows, 1, "only the late one is left for the retention");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_another_origin_or_without_its_user_is_refused() {
    let (scene, mut passkey, _) = registered().await;
    type Change = fn(&mut Authenticator);
    let changes: [(&str, Change); 5] = [
        ("origin", |one| one.origin = "http://evil.test".to_owned()),
        ("port", |one| one.origin = "http://console.test:8082".to_owned()),
        ("frame", |one| one.cross_origin = true),
        ("host name", |one| one.rp_id = "evil.test".to_owned()),
        ("user", |one| one.verifies_user = false),
    ];
    for (what, change) in changes {
        let usual = Authenticator::new(9);
        change(&mut passkey);
        let answer = scene.sign(&mut passkey).await;
        assert!(scene.sign_in_with(&answer).await.is_empty(), "{what}");
        assert_eq!(last_record(&scene).await.1, "failed", "{what}");
        (passkey.origin, passkey.cross_origin) = (usual.origin, usual.cross_origin);
        (passkey.rp_id, passkey.verifies_user) = (usual.rp_id, usual.verifies_user);
    }
    let forged = scene.sign(&mut Authenticator::new(2)).await;
    assert!(scene.sign_in_with(&forged).await.is_empty(), "a passkey that is not registered");
    let mut thief = Authenticator::new(3);
    thief.credential = passkey.credential;
    let forged = scene.sign(&mut thief).await;
    assert!(scene.sign_in_with(&forged).await.is_empty(), "another key");
    let answer = scene.sign(&mut passkey).await;
    assert!(!scene.sign_in_with(&answer).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_that_does_not_grow_is_refused_and_recorded() {
    let (scene, mut passkey, _) = registered().await;
    passkey.counter = 10;
    let answer = scene.sign(&mut passkey).await;
    assert!(!scene.sign_in_with(&answer).await.is_empty());
    for counter in [10, 5] {
        passkey.counter = counter;
        let answer = scene.sign(&mut passkey).await;
        assert!(scene.sign_in_with(&answer).await.is_empty(), "{counter}");
        let (operator, action, subject) = last_record(&scene).await;
        assert_eq!((operator.as_str(), action.as_str()), ("jo", "failed"));
        assert!(subject.contains("signature counter of passkey key 1"), "{subject}");
    }
    passkey.counter = 11;
    let answer = scene.sign(&mut passkey).await;
    assert!(!scene.sign_in_with(&answer).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_operator_neither_signs_in_nor_completes_what_it_began() {
    let (scene, mut passkey, cookie) = registered().await;
    let begun = scene.sign(&mut passkey).await;
    let new = scene.challenge("/account/passkeys/challenge", &cookie).await;
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    assert!(accounts::set_disabled(&mut conn, "opr_jo", true).await.unwrap());
    assert!(scene.sign_in_with(&begun).await.is_empty());
    let fields = [("name", "another"), ("answer", &Authenticator::new(2).create(&new))];
    assert_eq!(scene.post("/account/passkeys", &fields, &cookie).await.status, StatusCode::UNAUTHORIZED);
    assert!(accounts::set_disabled(&mut conn, "opr_jo", false).await.unwrap());
    assert_eq!(scene.get("/", &cookie).await.status, StatusCode::SEE_OTHER);
    let answer = scene.sign(&mut passkey).await;
    assert!(!scene.sign_in_with(&answer).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_passkey_does_not_sign_in_and_the_last_one_stays() {
    let (scene, mut first, cookie) = registered().await;
    let mut second = Authenticator::new(2);
    let cookie = scene.add_passkey(&mut second, &cookie).await;
    let answer = scene.sign(&mut first).await;
    let elsewhere = scene.sign_in_with(&answer).await;
    let ids: Vec<String> = sqlx::query_scalar("select id from operator_passkey order by created_at")
        .fetch_all(scene.harness.pool())
        .await
        .unwrap();
    let foreign = scene.sign_in("kim", VIEWER).await;
    let remove = |id: &str| format!("/account/passkeys/{id}/remove");
    assert_eq!(scene.post(&remove(&ids[0]), &[], &foreign).await.status, StatusCode::NOT_FOUND);

    assert_eq!(scene.post(&remove(&ids[0]), &[], &cookie).await.status, StatusCode::SEE_OTHER);
    assert_eq!(last_record(&scene).await, ("jo".into(), "removed".into(), "passkey key 1".into()));
    assert_eq!(scene.get("/", &elsewhere).await.status, StatusCode::SEE_OTHER, "other sessions end");
    let answer = scene.sign(&mut first).await;
    assert!(scene.sign_in_with(&answer).await.is_empty());

    assert_eq!(scene.post(&remove(&ids[1]), &[], &cookie).await.status, StatusCode::CONFLICT);
    assert_eq!(last_record(&scene).await.1, "refused");
    let answer = scene.sign(&mut second).await;
    assert!(!scene.sign_in_with(&answer).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_not_recent_adds_no_passkey() {
    let (scene, mut passkey, cookie) = registered().await;
    let options = scene.challenge("/account/passkeys/challenge", &cookie).await;
    let sql = "update operator_session set authenticated_at = now() - interval '6 minutes', \
                 started_at = now() - interval '6 minutes'";
    scene.run(sql).await;
    let refused = scene.post("/account/passkeys/challenge", &[], &cookie).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    let fields = [("name", "mine"), ("answer", &Authenticator::new(2).create(&options))];
    assert_eq!(scene.post("/account/passkeys", &fields, &cookie).await.status, StatusCode::CONFLICT);
    assert_eq!(last_record(&scene).await.1, "refused");
    assert!(!scene.get("/account", &cookie).await.body.contains("Add a passkey</button>"));
    let answer = scene.sign(&mut passkey).await;
    let cookie = scene.sign_in_with(&answer).await;
    scene.add_passkey(&mut Authenticator::new(3), &cookie).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_passkey_belongs_to_one_operator() {
    let (scene, mut passkey, _) = registered().await;
    let kim = scene.sign_in_by("kim", VIEWER, false).await;
    let options = scene.challenge("/account/passkeys/challenge", &kim).await;
    let fields = [("name", "mine"), ("answer", &passkey.create(&options))];
    let taken = scene.post("/account/passkeys", &fields, &kim).await;
    assert!(taken.body.contains("registered already") && taken.cookie().is_empty(), "{}", taken.body);
    let jo = scene.sign_in_by("lee", VIEWER, false).await;
    let fields = [("name", "mine"), ("answer", &Authenticator::new(4).create(&options))];
    let foreign = scene.post("/account/passkeys", &fields, &jo).await;
    assert!(foreign.cookie().is_empty(), "the challenge is another operator's");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_deployment_has_no_sessions_of_reusable_links() {
    let (scene, _, _) = registered().await;
    scene.run("insert into deployment (environment) values ('live')").await;
    let made = sqlx::query(
        "insert into operator_session (token_hash, operator_id, method, source) \
         values (sha256('x'), 'opr_jo', 'reusable_link', 's')",
    )
    .execute(scene.harness.pool())
    .await;
    let error = made.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().constraint(), Some("operator_session_fits_deployment"));
}

/// After too many failures further ones are refused and not recorded. A passkey still signs in, even from their address.
#[tokio::test(flavor = "multi_thread")]
async fn failed_sign_ins_of_strangers_keep_no_passkey_out() {
    let (scene, mut passkey, _) = registered().await;
    let answer = scene.sign(&mut passkey).await;
    for stranger in 0..40 {
        let address = format!("198.51.100.{stranger}");
        for _ in 0..4 {
            scene.post_by(&address, "/login/passkey", &[("answer", "{}")]).await;
        }
    }
    let mut last = StatusCode::OK;
    for _ in 0..70 {
        last = scene.post("/login/passkey", &[("answer", "{}")], "").await.status;
    }
    assert_eq!(last, StatusCode::TOO_MANY_REQUESTS);
    let failed = scene.records().await.iter().filter(|(_, action, ..)| action == "failed").count();
    assert_eq!(failed, 120 + 60, "the audit log does not grow with every failure");
    let signed_in = scene.sign_in_with(&answer).await;
    assert_eq!(scene.get("/", &signed_in).await.status, StatusCode::OK);
}

/// Challenges that one address requests leave those of others.
#[tokio::test(flavor = "multi_thread")]
async fn challenges_for_a_stranger_leave_some_for_operators() {
    let (scene, mut passkey, _) = registered().await;
    let mut last = StatusCode::OK;
    for _ in 0..650 {
        last = scene.post_by("198.51.100.1", "/login/passkey/challenge", &[]).await.status;
    }
    assert_eq!(last, StatusCode::TOO_MANY_REQUESTS);
    let answer = scene.sign(&mut passkey).await;
    assert!(!scene.sign_in_with(&answer).await.is_empty());
}
