//! Who may request which route, and how sessions begin and end.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use dvp_console::{SessionPolicy, permissions};
use dvp_core::workflow::audit;
use dvp_domain::operator::OperatorRole;
use dvp_store::operators::accounts;
use dvp_testing::market::pair;
use dvp_testing::{Harness, Market};

use crate::scene::{ORIGIN, Scene};

/// Each route with values for the parts of its path.
pub(crate) fn path(route: &str) -> String {
    let parts = [
        ("{reference}", "exe_none"),
        ("{id}", "apr_none"),
        ("{run}", "1"),
        ("{session}", "none"),
        ("{endpoint}", "none"),
        ("{name}", "nobody"),
        ("{ordinal}", "1"),
        ("{key}", "key_none"),
    ];
    parts.iter().fold(route.to_owned(), |path, (part, value)| path.replace(part, value))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_may_request_the_routes_of_the_table_and_no_other() {
    let scene = Scene::new().await;
    let mut asked = 0;
    for role in OperatorRole::ALL {
        for (method, route, roles, _) in permissions() {
            let name = format!("{}-{asked}", role.as_str());
            asked += 1;
            let cookie = scene.sign_in(&name, &[role]).await;
            if route == "/live" {
                assert_eq!(scene.status_of(&route, &cookie).await == StatusCode::OK, roles.contains(&role));
                continue;
            }
            let answer = match method {
                Method::GET => scene.get(&path(&route), &cookie).await,
                _ => scene.post(&path(&route), &[("version", "1"), ("note", "n")], &cookie).await,
            };
            let is_allowed = roles.contains(&role);
            let case = format!("{} {method} {route}: {}", role.as_str(), answer.status);
            assert_eq!(answer.status != StatusCode::FORBIDDEN, is_allowed, "{case}");
            assert!(!answer.status.is_server_error(), "{case}\n{}", answer.body);
            if !is_allowed {
                let record = scene.records().await.pop().unwrap();
                assert_eq!(
                    record,
                    (name, "refused".into(), format!("{method} {route}"), path(&route)),
                    "{case}"
                );
            }
        }
    }
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    audit::verify(&mut conn).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_served_without_a_session() {
    let scene = Scene::new().await;
    for (method, route, _, _) in permissions() {
        if method == Method::GET {
            let answer = scene.get(&path(&route), "").await;
            assert_eq!(answer.status, StatusCode::SEE_OTHER, "{route}");
            assert!(answer.header("location").starts_with("/login?next=%2F"), "{route}");
        } else {
            assert_eq!(scene.post(&path(&route), &[], "").await.status, StatusCode::UNAUTHORIZED, "{route}");
        }
    }
    let unknown = format!("dvp_console={}", "a".repeat(64));
    assert_eq!(scene.get("/", &unknown).await.status, StatusCode::SEE_OTHER);
    assert_eq!(scene.get("/nowhere", "").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_signs_in_once_and_a_look_at_it_does_not_use_it_up() {
    let scene = Scene::new().await;
    scene.add("jo", &[OperatorRole::Viewer]).await;
    scene.link("jo", "secret").await;
    let looked = scene.get("/login?token=secret&next=/orders", "").await;
    assert_eq!((looked.status, looked.header("set-cookie")), (StatusCode::OK, ""));
    let signed_in = scene.post("/login", &[("token", "secret"), ("next", "/orders")], "").await;
    assert_eq!((signed_in.status, signed_in.header("location")), (StatusCode::SEE_OTHER, "/orders"));
    let cookie = signed_in.header("set-cookie");
    for part in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert_eq!(scene.get("/account", &signed_in.cookie()).await.status, StatusCode::OK);
    let again = scene.post("/login", &[("token", "secret")], "").await;
    assert!(again.status == StatusCode::OK && again.header("set-cookie").is_empty());
    assert!(again.body.contains("was used, or has expired"), "{}", again.body);
    let stored: (i64,) = sqlx::query_as(
        "select count(*) from operator_link, operator_session s \
         where position('secret' in encode(operator_link.token_hash, 'escape')) > 0 or octet_length(s.token_hash) <> 32",
    )
    .fetch_one(scene.harness.pool())
    .await
    .unwrap();
    assert_eq!(stored.0, 0);
    let failed = "its link is unknown, was used, or has expired, or its code is wrong";
    assert_eq!(
        scene.records().await,
        [
            ("jo".into(), "signed_in".into(), "POST /login".into(), "link".into()),
            (String::new(), "failed".into(), "POST /login".into(), failed.into()),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_sign_in_ends_the_browsers_earlier_session() {
    let scene = Scene::new().await;
    let earlier = scene.sign_in("jo", &[OperatorRole::Viewer]).await;
    scene.link("jo", "another").await;
    let later = scene.post("/login", &[("token", "another")], &earlier).await.cookie();
    assert_ne!(earlier, later);
    assert_eq!(scene.get("/", &earlier).await.status, StatusCode::SEE_OTHER);
    assert_eq!(scene.get("/account", &later).await.status, StatusCode::OK);
    let out = scene.post("/logout", &[], &later).await;
    assert!(out.header("set-cookie").contains("Max-Age=0"));
    assert_eq!(scene.get("/", &later).await.status, StatusCode::SEE_OTHER);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_end_when_they_are_idle_old_or_their_operator_is_disabled() {
    let scene = Scene::new().await;
    for (name, sql) in [
        ("idle", "update operator_session set last_used_at = now() - interval '31 minutes'"),
        ("old", "update operator_session set started_at = now() - interval '12 hours 1 second'"),
    ] {
        let cookie = scene.sign_in(name, &[OperatorRole::Viewer]).await;
        assert_eq!(scene.get("/", &cookie).await.status, StatusCode::OK);
        scene.run(sql).await;
        assert_eq!(scene.get("/", &cookie).await.status, StatusCode::SEE_OTHER, "{name}");
    }
    let cookie = scene.sign_in("gone", &[OperatorRole::Viewer]).await;
    scene.link("gone", "unused").await;
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    assert!(accounts::set_disabled(&mut conn, "opr_gone", true).await.unwrap());
    assert_eq!(scene.get("/", &cookie).await.status, StatusCode::SEE_OTHER);
    assert!(scene.post("/login", &[("token", "unused")], "").await.header("set-cookie").is_empty());
    assert!(accounts::set_disabled(&mut conn, "opr_gone", false).await.unwrap());
    assert_eq!(scene.get("/", &cookie).await.status, StatusCode::SEE_OTHER, "an ended session stays ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_are_read_with_each_request() {
    let scene = Scene::new().await;
    let cookie = scene.sign_in("jo", &[OperatorRole::Viewer]).await;
    assert_eq!(scene.get("/orders/exe_1/documents", &cookie).await.status, StatusCode::FORBIDDEN);
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    assert!(accounts::update_roles(&mut conn, "opr_jo", &[OperatorRole::Support]).await.unwrap());
    assert_eq!(scene.get("/orders/exe_1/documents", &cookie).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_of_other_origins_are_refused() {
    let scene = Scene::new().await;
    let cookie = scene.sign_in("jo", &[OperatorRole::Approver]).await;
    scene.link("jo", "another").await;
    for origin in [
        None,
        Some("null"),
        Some("http://evil.test"),
        Some("http://console.test"),
        Some("https://console.test:8081"),
    ] {
        for (path, fields) in [
            ("/logout", vec![]),
            ("/act/approval/approve", vec![("id", "apr_1")]),
            ("/login", vec![("token", "another")]),
        ] {
            let answer = scene.post_from(path, &fields, &cookie, origin).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path} from {origin:?}");
        }
    }
    assert_eq!(scene.get("/", &cookie).await.status, StatusCode::OK);
    assert_eq!(scene.post_from("/logout", &[], &cookie, Some(ORIGIN)).await.status, StatusCode::SEE_OTHER);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_has_the_headers_that_bind_the_browser() {
    let scene = Scene::new().await;
    let cookie = scene.sign_in("jo", &[OperatorRole::Viewer]).await;
    for path in
        ["/", "/login", "/orders", "/orders.csv", "/orders/exe_1/documents", "/nowhere", "/assets/console.js"]
    {
        let answer = scene.get(path, &cookie).await;
        let policy = answer.header("content-security-policy");
        for part in
            ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'self'"]
        {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("referrer-policy"), "same-origin", "{path}");
        let is_kept = answer.header("cache-control").contains("immutable");
        assert_eq!(is_kept, path.starts_with("/assets/"), "{path}");
        assert!(answer.header("strict-transport-security").is_empty(), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_the_cookie_belongs_to_the_host_and_is_never_sent_in_plain_text() {
    let harness = Harness::new(Market::new(vec![pair("USDC", "USD", "1")])).await;
    let policy = SessionPolicy {
        idle: Duration::from_secs(60),
        absolute: Duration::from_secs(120),
        ..SessionPolicy::default()
    };
    let scene = Scene::with(harness, "https://console.test", policy);
    scene.add("jo", &[OperatorRole::Viewer]).await;
    scene.link("jo", "secret").await;
    let origin = Some("https://console.test");
    let answer = scene.post_from("/login", &[("token", "secret")], "", origin).await;
    let cookie = answer.header("set-cookie");
    assert!(cookie.starts_with("__Host-dvp_console=") && cookie.contains("; Secure"), "{cookie}");
    assert!(cookie.contains("Max-Age=120"), "{cookie}");
    assert!(!answer.header("strict-transport-security").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_sessions_are_listed_and_ended_by_their_operator_and_by_an_administrator() {
    let scene = Scene::new().await;
    let mine = scene.sign_in("jo", &[OperatorRole::Viewer]).await;
    let again = [("token", "token-of-jo")];
    let other = scene.post("/login", &again, "").await.cookie();
    let third = scene.post("/login", &again, "").await.cookie();
    let admin = scene.sign_in("kim", &[OperatorRole::Admin]).await;
    let stranger = scene.sign_in("vi", &[OperatorRole::Viewer]).await;
    let ids = |page: &str| -> Vec<String> {
        page.split("name=\"session\" value=\"").skip(1).map(|rest| rest[..16].to_owned()).collect()
    };
    let own = scene.get("/operators/jo", &mine).await.body;
    assert!(own.contains("this session"), "{own}");
    assert_eq!(ids(&own).len(), 2, "the others can be ended: {own}");
    assert!(!scene.get("/operators/jo", &stranger).await.body.contains("Sign-in sessions"));

    // Another operator's id ends nothing.
    scene.post("/account/sessions/end", &[("session", &ids(&own)[0])], &stranger).await;
    assert_eq!(scene.get("/operators/jo", &other).await.status, StatusCode::OK);
    let of_other = scene.get("/operators/jo", &third).await.body;
    let of_other = ids(&of_other).into_iter().find(|id| ids(&own).contains(id)).unwrap();
    let ended = scene.post("/account/sessions/end", &[("session", &of_other)], &mine).await;
    assert_eq!(ended.header("location"), "/operators/jo", "{}", ended.body);
    assert_eq!(scene.get("/account", &other).await.status, StatusCode::SEE_OTHER);
    assert_eq!(scene.get("/account", &third).await.status, StatusCode::OK);

    let seen = ids(&scene.get("/operators/jo", &admin).await.body);
    assert_eq!(seen.len(), 2, "an administrator may end each");
    for id in &seen {
        let ended = scene.post("/operators/jo/sessions/end", &[("session", id)], &admin).await;
        assert_eq!(ended.status, StatusCode::SEE_OTHER, "{}", ended.body);
    }
    for cookie in [&mine, &third] {
        assert_eq!(scene.get("/", cookie).await.status, StatusCode::SEE_OTHER);
    }
    let acted: Vec<_> = scene.records().await.into_iter().filter(|record| record.1 == "acted").collect();
    assert_eq!(acted.len(), 3, "{acted:?}");
    assert_eq!(acted[1].2, "POST /operators/{name}/sessions/end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_refreshes_itself_does_not_keep_its_session() {
    let scene = Scene::new().await;
    let cookie = scene.sign_in("jo", &[OperatorRole::Viewer]).await;
    let idle_for = async |minutes: i32| {
        sqlx::query("update operator_session set last_used_at = now() - make_interval(mins => $1)")
            .bind(minutes)
            .execute(scene.harness.pool())
            .await
            .unwrap();
    };
    let is_idle = "select count(*) from operator_session where last_used_at < now() - interval '1 minute'";
    idle_for(29).await;
    assert_eq!(scene.refresh("/", &cookie).await.status, StatusCode::OK);
    assert_eq!(scene.status_of("/live", &cookie).await, StatusCode::OK);
    assert_eq!(scene.harness.count(is_idle).await, 1);
    assert_eq!(scene.get("/", &cookie).await.status, StatusCode::OK);
    assert_eq!(scene.harness.count(is_idle).await, 0, "a person's request renews it");
    idle_for(31).await;
    assert_eq!(scene.refresh("/", &cookie).await.header("location"), "/login?next=%2F");
    assert_eq!(scene.status_of("/live", &cookie).await, StatusCode::SEE_OTHER);
}
