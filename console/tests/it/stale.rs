//! Forms of pages that show an earlier state: somebody else has changed it since.

use axum::http::StatusCode;
use dvp_domain::operator::OperatorRole;

use crate::scene::{Answer, Scene};

/// The hidden fields of the form that a page offers, and a reason.
async fn opened(scene: &Scene, page: &str, action: &str, cookie: &str) -> Vec<(String, String)> {
    let page = scene.get(page, cookie).await;
    let mut fields = scene.opened(&Scene::offered(&page, action)[0], cookie).await;
    fields.push(("reason".to_owned(), "looked into".to_owned()));
    fields
}

async fn send(scene: &Scene, action: &str, fields: &[(String, String)], cookie: &str) -> Answer {
    let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    scene.form(action, &fields, cookie).await
}

fn assert_outdated(answer: &Answer) {
    assert_eq!(answer.status, StatusCode::CONFLICT, "{}", answer.body);
    assert!(answer.body.contains("since you"), "{}", answer.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_resumes_only_the_pause_that_its_operator_saw() {
    const REMOVE: &str = "pause remove";
    let scene = Scene::new().await;
    let jo = scene.sign_in("jo", &[OperatorRole::Treasury]).await;
    let kim = scene.sign_in("kim", &[OperatorRole::Treasury]).await;
    for (scope, target) in [("pair", "USDC/USD"), ("everything", ""), ("partner", "acme")] {
        let pause = |reason| [("scope", scope), ("target", target), ("reason", reason)];
        scene.form("pause add", &pause("the feed"), &jo).await;
        let first = opened(&scene, "/treasury", REMOVE, &kim).await;
        let done = send(&scene, REMOVE, &first, &jo).await;
        assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.body);
        assert_outdated(&send(&scene, REMOVE, &first, &kim).await);
        scene.form("pause add", &pause("a theft"), &jo).await;
        assert_outdated(&send(&scene, REMOVE, &first, &kim).await);
        assert_eq!(scene.harness.count("select count(*) from pause where reason = 'a theft'").await, 1);
        assert_eq!(scene.records().await.pop().unwrap().1, "refused");
        let seen = opened(&scene, "/treasury", REMOVE, &kim).await;
        let done = send(&scene, REMOVE, &seen, &kim).await;
        assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.body);
        assert_eq!(scene.harness.count("select count(*) from pause").await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_enables_only_the_partner_that_its_operator_saw_disabled() {
    const ENABLE: &str = "partner enable";
    let scene = Scene::new().await;
    let jo = scene.sign_in("jo", &[OperatorRole::Admin]).await;
    let kim = scene.sign_in("kim", &[OperatorRole::Admin]).await;
    let disable = async |reason| {
        let done = scene.form("partner disable", &[("name", "acme"), ("reason", reason)], &jo).await;
        assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.body);
    };
    let disabled = "select count(*) from partner where disabled_at is not null";
    disable("no contract").await;
    let first = opened(&scene, "/partners/acme", ENABLE, &kim).await;
    let done = send(&scene, ENABLE, &first, &jo).await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.body);
    disable("a stolen key").await;
    assert_outdated(&send(&scene, ENABLE, &first, &kim).await);
    assert_eq!(scene.harness.count(disabled).await, 1);
    assert_eq!(scene.records().await.pop().unwrap().1, "refused");
    let seen = opened(&scene, "/partners/acme", ENABLE, &kim).await;
    let done = send(&scene, ENABLE, &seen, &kim).await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.body);
    assert_eq!(scene.harness.count(disabled).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_resumes_only_the_halt_that_its_operator_saw() {
    const RESUME: &str = "chain resume";
    let scene = Scene::new().await;
    let cookie = scene.sign_in("jo", &[OperatorRole::Operator]).await;
    let sql = "insert into chain_cursor (chain_id, head_number, head_hash, final_number, facts_number, halted, \
                                   halted_detail, halted_at) \
         values (31337, 9, decode(repeat('09', 32), 'hex'), 9, 9, 'final_block_changed', 'block 8 is another', now()); \
         insert into chain_block (chain_id, hash, number, parent, block_time, verified_by) \
         values (31337, decode(repeat('07', 32), 'hex'), 7, decode(repeat('06', 32), 'hex'), now(), 'test'); \
         insert into chain_status (chain_id, name, state, reason, node_head, node_final) \
         values (31337, 'home', 'halted', 'block 8 is another', 9, 9)";
    scene.run(sql).await;
    let seen = async || {
        let mut fields = opened(&scene, "/chains", RESUME, &cookie).await;
        fields.push(("shared-block".to_owned(), "7".to_owned()));
        fields
    };
    let first = seen().await;
    let later = "update chain_cursor set halted_detail = 'block 7 is another', halted_at = clock_timestamp()";
    scene.run(later).await;
    assert_outdated(&send(&scene, RESUME, &first, &cookie).await);
    let halted = "select count(*) from chain_cursor where halted is not null";
    assert_eq!(scene.harness.count(halted).await, 1);
    let done = send(&scene, RESUME, &seen().await, &cookie).await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.body);
    assert_eq!(scene.harness.count(halted).await, 0);
}
