//! Partners and FIX sessions that administrators create.

use axum::http::StatusCode;
use dvp_domain::operator::OperatorRole;
use dvp_store::fix::settings::{self, FixSessionSettings};
use dvp_store::{fix, partners::registry};

use crate::actions::{approve, fact};
use crate::scene::Scene;

const ADMIN: &[OperatorRole] = &[OperatorRole::Admin];
const APPROVER: &[OperatorRole] = &[OperatorRole::Approver];

#[tokio::test(flavor = "multi_thread")]
async fn a_partner_is_created_once_with_a_reason() {
    let scene = Scene::new().await;
    let admin = scene.sign_in("jo", ADMIN).await;
    let form = [("name", "initech"), ("tier", "enterprise"), ("limit", "250"), ("_back", "/partners")];
    let with = |field: &'static str, value: &'static str| {
        form.map(|(name, usual)| (name, if name == field { value } else { usual }))
    };
    for (field, value, status) in [
        ("name", "a b", StatusCode::BAD_REQUEST),
        ("name", "", StatusCode::BAD_REQUEST),
        ("tier", "royal", StatusCode::BAD_REQUEST),
        ("limit", "many", StatusCode::BAD_REQUEST),
        ("limit", "0", StatusCode::BAD_REQUEST),
        ("name", "acme", StatusCode::CONFLICT),
    ] {
        let refused = scene.form("partner create", &with(field, value), &admin).await;
        assert_eq!(refused.status, status, "{field} {value}: {}", refused.body);
    }
    let created = scene.form("partner create", &form, &admin).await;
    assert_eq!((created.status, created.header("location")), (StatusCode::SEE_OTHER, "/partners"));
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let partner = registry::find_partner(&mut conn, "initech").await.unwrap().unwrap();
    assert_eq!((partner.tier.as_str(), partner.limit_per_minute), ("enterprise", 250));
    let last = scene.records().await.pop().unwrap();
    assert_eq!((last.0.as_str(), last.1.as_str()), ("jo", "acted"));
    assert_eq!(last.3, "limit=250 name=initech tier=enterprise");
    let page = scene.get("/partners/initech", &admin).await;
    assert!(page.body.contains("The partner has no key."), "{}", page.body);
    let usual = scene.form("partner create", &[("name", "hooli"), ("tier", "standard")], &admin);
    assert_eq!(usual.await.status, StatusCode::SEE_OTHER);
    let partner = registry::find_partner(&mut conn, "hooli").await.unwrap().unwrap();
    assert_eq!(partner.limit_per_minute, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_and_its_networks_are_those_that_a_second_operator_approved() {
    let scene = Scene::new().await;
    let (admin, checker) = (scene.sign_in("jo", ADMIN).await, scene.sign_in("kim", APPROVER).await);
    let form = [
        ("partner", "acme"),
        ("begin-string", "FIX.4.4"),
        ("sender-comp-id", "ACME2"),
        ("target-comp-id", "DVP"),
        ("username", ""),
        ("drop-copy", "true"),
        ("allowed-sources", "192.0.2.7, 10.1.2.3/8"),
        ("reason", "their back office"),
        ("evidence", "ticket 9"),
    ];
    let with = |field: &'static str, value: &'static str| {
        form.map(|(name, usual)| (name, if name == field { value } else { usual }))
    };
    for (field, value, status) in [
        ("partner", "nobody", StatusCode::CONFLICT),
        ("begin-string", "FIX.5.0", StatusCode::BAD_REQUEST),
        ("sender-comp-id", "A->B", StatusCode::BAD_REQUEST),
        ("target-comp-id", "D P", StatusCode::BAD_REQUEST),
        ("allowed-sources", "10.0.0.0/33", StatusCode::BAD_REQUEST),
    ] {
        let refused = scene.form("fix-session add", &with(field, value), &admin).await;
        assert_eq!(refused.status, status, "{field} {value}: {}", refused.body);
    }
    let id = "FIX.4.4:DVP->ACME2";
    let requested = scene.form("fix-session add", &form, &admin).await;
    assert_eq!(requested.status, StatusCode::OK, "{}", requested.body);
    let password = fact(&requested, "Password").to_owned();
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    assert!(fix::find_session(&mut conn, id).await.unwrap().is_none(), "nobody has approved it");
    let request = format!("/approvals/{}", fact(&requested, "Request"));
    let page = scene.get(&request, &checker).await;
    for shown in ["192.0.2.7/32, 10.0.0.0/8", "Networks of the peer", "Drop copy", "their back office"] {
        assert!(page.body.contains(shown), "{shown} is not in {}", page.body);
    }
    assert!(!page.body.contains(&password) && !page.body.contains("passwordHash"), "{}", page.body);
    let own = approve(&scene, &request, &admin).await;
    assert_eq!(own.status, StatusCode::FORBIDDEN, "an administrator approves nothing");
    assert_eq!(approve(&scene, &request, &checker).await.status, StatusCode::SEE_OTHER);
    let session = fix::find_session(&mut conn, id).await.unwrap().unwrap();
    let vault = &scene.harness.engine.context().vault;
    assert!(vault.is_fix_password(id, &password, &session.password_hash));
    assert!(session.enabled && !session.livemode && session.username == "acme");
    let wanted = FixSessionSettings {
        allowed_sources: Some(vec!["192.0.2.7/32".into(), "10.0.0.0/8".into()]),
        drop_copy: true,
        ..FixSessionSettings::default()
    };
    assert_eq!(settings::find_settings(&mut conn, id).await.unwrap(), Some(wanted.clone()));
    let again = with("drop-copy", "false");
    assert_eq!(scene.form("fix-session add", &again, &admin).await.status, StatusCode::CONFLICT, "it exists");

    // Other networks, by a request that is about the settings as they were.
    let at = "/fix/FIX.4.4%3ADVP-%3EACME2";
    assert!(scene.get(at, &admin).await.body.contains("192.0.2.7/32, 10.0.0.0/8"));
    let sources = [
        ("session-id", id),
        ("allowed-sources", "198.51.100.0/24"),
        ("reason", "moved"),
        ("evidence", "mail"),
    ];
    let requested = scene.form("fix-session set", &sources, &admin).await;
    assert_eq!(requested.status, StatusCode::SEE_OTHER, "{}", requested.body);
    let page = scene.get(requested.header("location"), &checker).await;
    assert!(page.body.contains("198.51.100.0/24 (now 192.0.2.7/32, 10.0.0.0/8)"), "{}", page.body);
    assert!(!page.body.contains("Max latency"), "unchanged settings are not shown: {}", page.body);
    let changed = FixSessionSettings { max_latency_secs: 60, ..wanted.clone() };
    settings::update_settings(&mut conn, id, &changed).await.unwrap();
    let approval = requested.header("location").trim_start_matches("/approvals/");
    let stale = scene.approve(approval, "1", &[], &checker).await;
    assert_eq!(stale.status, StatusCode::CONFLICT, "{}", stale.body);
    assert_eq!(settings::find_settings(&mut conn, id).await.unwrap(), Some(changed));
    settings::update_settings(&mut conn, id, &wanted).await.unwrap();
    assert_eq!(scene.approve(approval, "1", &[], &checker).await.status, StatusCode::SEE_OTHER);
    let now = settings::find_settings(&mut conn, id).await.unwrap().unwrap();
    assert_eq!(now, FixSessionSettings { allowed_sources: Some(vec!["198.51.100.0/24".into()]), ..wanted });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_return_is_refused_and_recorded_while_no_funds_are_committed() {
    let scene = Scene::new().await;
    let order = dvp_testing::orders::order("000123456789");
    let reference = scene.harness.accept(order).await.reference;
    let cookie = scene.sign_in("jo", &[OperatorRole::Operator]).await;
    let page = format!("/orders/{reference}");
    let shown = scene.get(&page, &cookie).await;
    assert!(Scene::offered(&shown, "recall request").is_empty(), "{}", shown.body);
    // The decisions are those that an accepted order allows.
    let offered = Scene::offered(&shown, "execution resolve");
    for (decision, is_offered) in [
        ("ask", true),
        ("cancel", true),
        ("release", true),
        ("return", false),
        ("mark-paid", false),
        ("paid-again", false),
    ] {
        let action = format!("?action={decision}&");
        assert_eq!(offered.iter().any(|form| form.contains(&action)), is_offered, "{decision}: {offered:?}");
    }
    let (one, two) = (format!("0x{}", "11".repeat(65)), format!("0x{}", "22".repeat(65)));
    let signatures = format!("{one}\n{two}");
    let reference = reference.as_str();
    let form = [
        ("reference", reference),
        ("confirm", reference),
        ("action", "return"),
        ("signed-deadline", "1900000000"),
        ("signature", &signatures),
        ("reason", "refused"),
        ("evidence", "statement 17"),
    ];
    let refused = scene.form("execution resolve", &form, &cookie).await;
    assert_eq!(refused.status, StatusCode::CONFLICT, "{}", refused.body);
    assert!(refused.body.contains("a return of committed funds"), "{}", refused.body);
    assert_eq!(scene.records().await.pop().unwrap().1, "refused");
    let late = form.map(|(name, value)| (name, if name == "signed-deadline" { "tomorrow" } else { value }));
    let late = scene.form("execution resolve", &late, &cookie).await;
    assert_eq!(late.status, StatusCode::BAD_REQUEST, "{}", late.body);
    let commands = "select count(*) from chain_command where kind = 'return_filled'";
    assert_eq!(scene.harness.count(commands).await, 0);
}
