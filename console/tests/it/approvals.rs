//! Decisions about requests of other operators.

use axum::http::StatusCode;
use dvp_console::SessionPolicy;
use dvp_core::engine::KNOWN;
use dvp_core::operators::limits::{LimitChange, request};
use dvp_core::operators::requests::Maker;
use dvp_core::workflow::audit;
use dvp_domain::limit::{LimitScope, Period};
use dvp_domain::money::Minor;
use dvp_domain::operator::OperatorRole;
use dvp_store::operators::limits;
use dvp_testing::market::pair;
use dvp_testing::orders::{Terms, order, order_for, ranged};
use dvp_testing::{Harness, Market};

use crate::scene::{ORIGIN, Scene};

const APPROVER: &[OperatorRole] = &[OperatorRole::Approver];

/// A limit that `maker` requests. Returns the request's id and version.
pub(crate) async fn requested(scene: &Scene, maker: &str, amount: u128) -> (String, String) {
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let change = LimitChange {
        scope: LimitScope::Everything,
        target: String::new(),
        asset: "USDC".into(),
        period: Period::Day,
        amount_minor: Some(Minor::new(amount)),
    };
    let maker = Maker { operator: maker, reason: "new quarter", evidence: "memo 7" };
    let targets = scene.harness.market.targets();
    let made = request(&mut conn, &targets, &change, maker).await.unwrap();
    (made.approval.id, made.approval.version.to_string())
}

pub(crate) async fn state(scene: &Scene, id: &str) -> (String, Option<String>) {
    let sql = "select state, checker from approval where id = $1";
    sqlx::query_as(sql).bind(id).fetch_one(scene.harness.pool()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn another_operator_approves_what_it_saw_and_the_maker_cannot() {
    let scene = Scene::new().await;
    let (id, version) = requested(&scene, "Jo", 1_000_000).await;
    let (maker, checker) = (scene.sign_in("jo", APPROVER).await, scene.sign_in("kim", APPROVER).await);
    let own = scene.approve(&id, &version, &[], &maker).await;
    assert_eq!(own.status, StatusCode::CONFLICT);
    assert!(own.body.contains("The maker cannot approve a request of its own"), "{}", own.body);
    let other = scene.approve(&id, "17", &[], &checker).await;
    assert!(other.status == StatusCode::CONFLICT && other.body.contains("another version"), "{}", other.body);
    assert_eq!(state(&scene, &id).await, ("pending".into(), None));

    let page = scene.get(&format!("/approvals/{id}"), &checker).await;
    for shown in ["new quarter", "memo 7", "1.00 USDC", "Approve"] {
        assert!(page.body.contains(shown), "{shown}");
    }
    assert!(!scene.get(&format!("/approvals/{id}"), &maker).await.body.contains("/act/approval/approve\""));
    let done = scene.approve(&id, &version, &[("note", "read")], &checker).await;
    assert_eq!((done.status, done.header("location")), (StatusCode::SEE_OTHER, &*format!("/approvals/{id}")));
    assert_eq!(state(&scene, &id).await, ("approved".into(), Some("kim".into())));
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    assert_eq!(limits::list(&mut conn).await.unwrap()[0].amount, "1000000");
    assert_eq!(scene.approve(&id, &version, &[], &checker).await.status, StatusCode::CONFLICT);

    let refused: Vec<_> = scene.records().await.into_iter().filter(|record| record.1 == "refused").collect();
    let who: Vec<&str> = refused.iter().map(|record| record.0.as_str()).collect();
    assert_eq!(who, ["jo", "kim", "kim"], "{refused:?}");
    assert!(refused.iter().all(|record| record.3.contains(&format!("id={id}"))), "{refused:?}");
    audit::verify(&mut conn).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approver_denies_and_a_maker_withdraws_with_a_reason() {
    let scene = Scene::new().await;
    let treasury = scene.sign_in("jo", &[OperatorRole::Treasury]).await;
    let approver = scene.sign_in("kim", APPROVER).await;
    let (id, version) = requested(&scene, "kim", 1).await;
    let deny =
        |reason: &'static str| [("id", id.as_str()), ("seen-version", version.as_str()), ("reason", reason)];
    let foreign = scene.form("approval deny", &deny("no"), &treasury).await;
    assert_eq!(foreign.status, StatusCode::CONFLICT, "only an approver denies another operator's request");
    assert_eq!(state(&scene, &id).await.0, "pending");
    let silent = scene.form("approval deny", &deny(" "), &approver).await;
    assert_eq!(silent.status, StatusCode::BAD_REQUEST);
    let denied = scene.form("approval deny", &deny("too low"), &approver).await;
    assert_eq!(denied.status, StatusCode::SEE_OTHER);
    assert_eq!(state(&scene, &id).await, ("denied".into(), Some("kim".into())));

    let (own, version) = requested(&scene, "jo", 2).await;
    let fields = [("id", own.as_str()), ("seen-version", version.as_str()), ("reason", "slip")];
    let withdrawn = scene.form("approval deny", &fields, &treasury).await;
    assert_eq!(withdrawn.status, StatusCode::SEE_OTHER);
    let list = scene.get("/approvals?state=denied", &approver).await.body;
    assert!(list.contains(&id) && list.contains(&own));
    assert!(!scene.get("/approvals?state=pending", &approver).await.body.contains(&own));
    assert_eq!(scene.get("/approvals?state=x", &approver).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_decision_of_an_operator_who_may_not_approve_leaves_the_request_pending() {
    let scene = Scene::new().await;
    let reference = scene.harness.accept(order("000123456789")).await.reference;
    sqlx::query(
        "insert into screening (reference, verdict, source, detail) values ($1, 'hold', 'list', 'a name')",
    )
    .bind(reference.as_str())
    .execute(scene.harness.pool())
    .await
    .unwrap();
    let decide = async |cookie: &str| {
        let fields = [("reason", "a list"), ("evidence", "case 17")];
        let decided = scene.decide(reference.as_str(), "refuse", &fields, cookie).await;
        assert_eq!(decided.status, StatusCode::SEE_OTHER, "{}", decided.body);
        decided.header("location").trim_start_matches("/approvals/").to_owned()
    };
    let id = decide(&scene.sign_in("jo", &[OperatorRole::Operator]).await).await;
    let same = decide(&scene.sign_in("kim", &[OperatorRole::Operator]).await).await;
    assert_eq!(same, id, "the request is shown");
    assert_eq!(state(&scene, &id).await, ("pending".into(), None));
    let both = [OperatorRole::Operator, OperatorRole::Approver];
    decide(&scene.sign_in("max", &both).await).await;
    assert_eq!(state(&scene, &id).await, ("approved".into(), Some("max".into())));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_was_filled_before_a_restore_is_filled_again_by_two_operators_over_its_forms() {
    let market = Market::new(vec![pair("EUR", "USD", "0.9")]).with_funds("north", "USD", 1_000_000);
    let scene = Scene::with(Harness::new(market).await, ORIGIN, SessionPolicy::default());
    scene.harness.deposit("EUR", 1_000_000).await;
    let request = order_for(&Terms { input: ("EUR", 10_000), output: "USD", account: "000123456789" });
    let reference = scene.harness.accept(ranged(request, 9_600, 8_500, 600_000)).await.reference;
    let fields =
        [("input-minor", "99"), ("output-minor", "95.5"), ("reason", "a restore"), ("evidence", "S17")];
    let (jo, kim) = (
        scene.sign_in("jo", &[OperatorRole::Operator]).await,
        scene.sign_in("kim", &[OperatorRole::Operator, OperatorRole::Approver]).await,
    );
    let unknown = scene.decide(reference.as_str(), "fill", &fields, &jo).await;
    assert!(unknown.body.contains("a fill that its rail knows from before a restore"), "{}", unknown.body);
    assert!(unknown.body.contains("value=\"95.5\""), "what was typed is lost: {}", unknown.body);
    sqlx::query("update effect set last_result = $1, called_at = now() where kind = 'lock'")
        .bind(KNOWN)
        .execute(scene.harness.pool())
        .await
        .unwrap();
    let asked = scene.decide(reference.as_str(), "fill", &fields, &jo).await;
    assert_eq!(asked.status, StatusCode::SEE_OTHER, "{}", asked.body);
    let path = asked.header("location").to_owned();
    let shown = scene.get(&path, &kim).await.body;
    assert!(shown.contains("99.00") && shown.contains("95.50"), "{shown}");
    let wrong = [("input-minor", "99"), ("output-minor", "80"), ("reason", "a restore"), ("evidence", "S17")];
    let outside = scene.decide(reference.as_str(), "fill", &wrong, &kim).await;
    assert!(
        outside.status == StatusCode::CONFLICT && outside.body.contains("takes 10000 at most"),
        "{}",
        outside.body
    );
    let id = path.trim_start_matches("/approvals/");
    assert_eq!(state(&scene, id).await, ("pending".into(), None));
    let filled = scene.decide(reference.as_str(), "fill", &fields, &kim).await;
    assert_eq!(filled.status, StatusCode::SEE_OTHER, "{}", filled.body);
    assert_eq!(state(&scene, id).await, ("approved".into(), Some("kim".into())));
}
