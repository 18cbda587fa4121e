//! Invitations of operators and changes of their roles, by two operators.

use axum::http::StatusCode;
use dvp_core::workflow::audit;
use dvp_domain::operator::OperatorRole::{self, Admin, Approver, Treasury, Viewer};
use dvp_store::operators::accounts;

use crate::approvals::state;
use crate::scene::{Answer, Scene, between};

const INVITATION: [(&str, &str); 5] = [
    ("name", "bob"),
    ("reason", "joins treasury"),
    ("evidence", "ticket 9"),
    ("roles", "treasury"),
    ("roles", "viewer"),
];

/// The request that a page leads to.
fn request_of(answer: &Answer) -> String {
    let location = answer.header("location");
    let id = location.strip_prefix("/approvals/").map(ToOwned::to_owned);
    id.unwrap_or_else(|| format!("apr_{}", between(&answer.body, "href=\"/approvals/apr_", "\"")))
}

async fn approve(scene: &Scene, id: &str, cookie: &str) -> Answer {
    let version: i64 = sqlx::query_scalar("select version from approval where id = $1")
        .bind(id)
        .fetch_one(scene.harness.pool())
        .await
        .unwrap();
    scene.approve(id, &version.to_string(), &[], cookie).await
}

async fn make_link(scene: &Scene, id: &str, cookie: &str) -> Answer {
    scene.form("operator make-link", &[("approval", id)], cookie).await
}

async fn roles_of(scene: &Scene, name: &str) -> Vec<OperatorRole> {
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    accounts::find_by_name(&mut conn, name).await.unwrap().unwrap().roles
}

/// The token of the link on a page.
fn token_of(answer: &Answer) -> String {
    between(&answer.body, "/login?token=", "<").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_takes_two_operators_and_a_code_and_a_link() {
    let scene = Scene::new().await;
    let ann = scene.sign_in("ann", &[Admin, Approver]).await;
    let (cat, dan) = (scene.sign_in("cat", &[Approver]).await, scene.sign_in("dan", &[Approver]).await);
    let shown = scene.form("operator add", &INVITATION, &ann).await;
    assert_eq!(shown.status, StatusCode::OK, "{}", shown.body);
    let code = between(&shown.body, "<dt>Code</dt><dd><span class=\"id\">", "<").to_owned();
    let id = request_of(&shown);
    let make = "/act/operator/make-link";

    // The maker neither approves nor makes the link; nobody does before the approval.
    assert_eq!(approve(&scene, &id, &ann).await.status, StatusCode::CONFLICT);
    for cookie in [&ann, &cat] {
        assert_eq!(make_link(&scene, &id, cookie).await.status, StatusCode::CONFLICT);
    }
    let page = scene.get(&format!("/approvals/{id}"), &cat).await.body;
    assert!(page.contains("treasury") && !page.contains(&code), "{page}");
    assert_eq!(approve(&scene, &id, &cat).await.status, StatusCode::SEE_OTHER);
    assert_eq!(roles_of(&scene, "bob").await, [Viewer, Treasury]);
    for cookie in [&ann, &dan] {
        assert_eq!(make_link(&scene, &id, cookie).await.status, StatusCode::CONFLICT);
        assert!(!scene.get(&format!("/approvals/{id}"), cookie).await.body.contains(make));
    }
    assert!(scene.get(&format!("/approvals/{id}"), &cat).await.body.contains(make));
    let link = make_link(&scene, &id, &cat).await;
    let token = token_of(&link);
    assert_eq!(make_link(&scene, &id, &cat).await.status, StatusCode::CONFLICT, "a link is made once");
    assert!(!scene.get(&format!("/approvals/{id}"), &cat).await.body.contains(make));

    // The link is of no use without the code, and is not used up by wrong ones.
    assert!(scene.get(&format!("/login?token={token}"), "").await.body.contains("Code of the invitation"));
    for wrong in ["", "0000-0000-0000-0000-0000", &code[1..]] {
        let refused = scene.post("/login", &[("token", &token), ("code", wrong)], "").await;
        assert!(refused.cookie().is_empty() && refused.body.contains("its code is wrong"), "{wrong}");
    }
    let typed = format!(" {} ", code.to_uppercase().replace('-', " "));
    let signed_in = scene.post("/login", &[("token", &token), ("code", &typed)], "").await;
    assert_eq!(signed_in.status, StatusCode::SEE_OTHER);
    assert_eq!(scene.get("/", &signed_in.cookie()).await.header("location"), "/account");
    let again = scene.post("/login", &[("token", &token), ("code", &typed)], "").await;
    assert!(again.cookie().is_empty());

    let stored: i64 = sqlx::query_scalar("select count(*) from audit_entry where position($1 in entry) > 0")
        .bind(&code)
        .fetch_one(scene.harness.pool())
        .await
        .unwrap();
    assert_eq!(stored, 0, "the code is stored nowhere");
    let made = scene.records().await.into_iter().any(|(operator, action, route, subject)| {
        (operator.as_str(), action.as_str()) == ("cat", "acted")
            && route == "operator make-link"
            && subject == format!("approval={id}")
    });
    assert!(made, "{:?}", scene.records().await);
    audit::verify(&mut scene.harness.pool().acquire().await.unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_are_changed_by_two_others_and_only_as_they_were_seen() {
    let scene = Scene::new().await;
    let ann = scene.sign_in("ann", &[Admin]).await;
    let bob = scene.sign_in("bob", &[Viewer, Approver]).await;
    let cat = scene.sign_in("cat", &[Approver]).await;
    let change = |name: &'static str, roles: &'static str| {
        [("name", name), ("roles", roles), ("reason", "deputy"), ("evidence", "ticket 10")]
    };
    let own = scene.form("operator roles", &change("ANN", "admin"), &ann).await;
    assert!(own.status == StatusCode::CONFLICT && own.body.contains("your own account"), "{}", own.body);
    let same = [&change("bob", "approver")[..], &[("roles", "viewer")]].concat();
    assert_eq!(scene.form("operator roles", &same, &ann).await.status, StatusCode::CONFLICT);

    let id = request_of(&scene.form("operator roles", &change("bob", "admin"), &ann).await);
    let own = approve(&scene, &id, &bob).await;
    assert!(own.status == StatusCode::CONFLICT && own.body.contains("own account"), "{}", own.body);
    assert_eq!(roles_of(&scene, "bob").await, [Viewer, Approver]);
    assert_eq!(make_link(&scene, &id, &cat).await.status, StatusCode::CONFLICT);
    assert_eq!(approve(&scene, &id, &cat).await.status, StatusCode::SEE_OTHER);
    assert_eq!(roles_of(&scene, "bob").await, [Admin]);
    assert_eq!(make_link(&scene, &id, &cat).await.status, StatusCode::CONFLICT);

    let id = request_of(&scene.form("operator roles", &change("bob", "treasury"), &ann).await);
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    accounts::update_roles(&mut conn, "opr_bob", &[Viewer]).await.unwrap();
    let moved = approve(&scene, &id, &cat).await;
    assert!(
        moved.status == StatusCode::CONFLICT && moved.body.contains("was changed since"),
        "{}",
        moved.body
    );
    assert_eq!((roles_of(&scene, "bob").await, state(&scene, &id).await.0), (vec![Viewer], "pending".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_link_is_for_others_who_are_not_disabled() {
    let scene = Scene::new().await;
    let (ann, cat) = (scene.sign_in("ann", &[Admin]).await, scene.sign_in("cat", &[Approver]).await);
    scene.add("bob", &[Viewer]).await;
    let why = |name: &'static str| [("name", name), ("reason", "lost the laptop"), ("evidence", "call")];
    for name in ["ann", "eve"] {
        let refused = scene.form("operator link", &why(name), &ann).await;
        assert_eq!(refused.status, StatusCode::CONFLICT, "{name}");
    }
    let shown = scene.form("operator link", &why("bob"), &ann).await;
    let (id, code) = (request_of(&shown), between(&shown.body, "<dt>Code</dt><dd><span class=\"id\">", "<"));
    assert_eq!(approve(&scene, &id, &cat).await.status, StatusCode::SEE_OTHER);
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    accounts::set_disabled(&mut conn, "opr_bob", true).await.unwrap();
    assert_eq!(make_link(&scene, &id, &cat).await.status, StatusCode::CONFLICT);
    accounts::set_disabled(&mut conn, "opr_bob", false).await.unwrap();
    let token = token_of(&make_link(&scene, &id, &cat).await);
    let signed_in = scene.post("/login", &[("token", &token), ("code", code)], "").await;
    assert_eq!(signed_in.status, StatusCode::SEE_OTHER);
    accounts::set_disabled(&mut conn, "opr_bob", true).await.unwrap();
    assert_eq!(scene.form("operator link", &why("bob"), &ann).await.status, StatusCode::CONFLICT);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_has_a_new_name_and_known_roles() {
    let scene = Scene::new().await;
    let ann = scene.sign_in("ann", &[Admin]).await;
    for (name, role, reason, status) in [
        ("ANN", "viewer", "r", StatusCode::CONFLICT),
        ("", "viewer", "r", StatusCode::BAD_REQUEST),
        ("bob", "root", "r", StatusCode::BAD_REQUEST),
    ] {
        let fields = [("name", name), ("roles", role), ("reason", reason), ("evidence", "e")];
        assert_eq!(scene.form("operator add", &fields, &ann).await.status, status, "{name} {role} {reason}");
    }
    let none = [("name", "bob"), ("reason", "r"), ("evidence", "e")];
    assert_eq!(scene.form("operator add", &none, &ann).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(scene.form("operator add", &INVITATION, &ann).await.status, StatusCode::OK);
    assert_eq!(scene.form("operator add", &INVITATION, &ann).await.status, StatusCode::CONFLICT, "it waits");
}
