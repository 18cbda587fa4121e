//! A file of the bank with parts that do not count: they are marked in its text, and two operators decide about each.

use axum::http::StatusCode;
use dvp_domain::operator::OperatorRole;
use dvp_testing::orders::order;

use crate::actions::approve;
use crate::scene::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn parts_that_do_not_count_are_marked_and_decided_by_two_operators() {
    let scene = Scene::new().await;
    let reference = scene.harness.accept(order("000123456789")).await.reference;
    let id = "0123456789ABCDEF0123456789ABCDEF";
    let sql = format!(
        "insert into bank_file (digest, name, message, refusal) \
         values (sha256('f'), 'camt-9.xml', 'camt.054.001.08', '2 parts: no date; no amount'); \
         insert into bank_document (digest, content) values (sha256('f'), '<a><b>{id} & 2</b><c/></a>'); \
         insert into bank_file_part (file, number, why, starts_at, ends_at) \
         values (sha256('f'), 1, 'no date', 3, 46), (sha256('f'), 2, 'no amount', 46, 50); \
         insert into bank_payment (end_to_end_id, reference, execution, message_id, block_id, amount, currency, exponent, \
                                   status, staged_file) \
         values ('{id}', 'leg1', '{reference}', 'MSG1', 'B1', 100, 'USD', 2, 'sent', 'E2E1.abc.xml')"
    );
    scene.run(&sql).await;
    let digest: String = sqlx::query_scalar("select encode(sha256('f'), 'hex')")
        .fetch_one(scene.harness.pool())
        .await
        .unwrap();
    let address = format!("/bank-files/{digest}");
    let viewer = scene.sign_in("vi", &[OperatorRole::Viewer]).await;
    let maker = scene.sign_in("jo", &[OperatorRole::Operator]).await;
    let checker = scene.sign_in("kim", &[OperatorRole::Approver]).await;
    let link = format!("href=\"{address}\"");
    let list = scene.get("/reconciliation", &viewer).await;
    assert!(list.body.contains("camt-9.xml") && !list.body.contains(&link), "{}", list.body);
    assert!(scene.get("/reconciliation", &maker).await.body.contains(&link));
    assert_eq!(scene.get(&address, &viewer).await.status, StatusCode::FORBIDDEN);

    let page = scene.get(&address, &maker).await;
    let first = format!("<mark>&#60;b&#62;{id} &#38; 2&#60;/b&#62;</mark>");
    for shown in [first.as_str(), "<mark>&#60;c/&#62;</mark>", "no date"] {
        assert!(page.body.contains(shown), "{shown} is not in {}", page.body);
    }
    let offered = |action: &str| Scene::offered(&page, action).len();
    assert_eq!((offered("bank apply-part"), offered("bank dismiss-part")), (2, 3));
    assert_eq!(scene.records().await.pop().unwrap().2, "GET /bank-files/{digest}");

    let about = [("file", digest.as_str()), ("reason", "asked the bank"), ("evidence", "its mail")];
    let paid = [("id", reference.as_str()), ("says", "paid"), ("at", "2026-05-03T10:00:00Z")];
    let apply = [&about[..], &paid, &[("part", "1")]].concat();
    let requested = scene.form("bank apply-part", &apply, &maker).await;
    assert_eq!(requested.status, StatusCode::SEE_OTHER, "{}", requested.body);
    let approved = approve(&scene, requested.header("location"), &checker).await;
    assert_eq!(approved.status, StatusCode::SEE_OTHER, "{}", approved.body);
    assert_eq!(scene.harness.count("select count(*) from bank_payment where status = 'paid'").await, 1);
    let other = [&about[..], &paid, &[("part", "2")]].concat();
    let refused = scene.form("bank apply-part", &other, &maker).await;
    assert!(refused.body.contains("does not name the payment"), "{}", refused.body);
    let dismissed = scene.form("bank dismiss-part", &about, &maker).await;
    assert_eq!(dismissed.status, StatusCode::SEE_OTHER, "{}", dismissed.body);
    approve(&scene, dismissed.header("location"), &checker).await;
    let page = scene.get(&address, &maker).await;
    assert!(
        page.body.contains("dealt with") && page.body.contains(&format!("/orders/{reference}")),
        "{}",
        page.body
    );
    assert!(Scene::offered(&page, "bank dismiss-part").is_empty());
    assert!(!scene.get("/reconciliation", &maker).await.body.contains("camt-9.xml"));
    let again = scene.form("bank apply-part", &apply, &maker).await;
    assert_eq!(again.status, StatusCode::CONFLICT, "{}", again.body);
    assert_eq!(scene.get("/bank-files/00", &maker).await.status, StatusCode::NOT_FOUND);
}
