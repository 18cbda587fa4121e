//! Forms of pages that show an earlier state: somebody else has changed it since.

use axum::http::StatusCode;
use dvp_domain::operator::OperatorRole;

use crate::scene::{Answer, Scene, between};

/// The hidden fields of a page's form, and a reason.
fn fields_of(page: &Answer, action: &str) -> Vec<(String, String)> {
    let form = between(&page.body, &format!("action=\"{action}\""), "</form>");
    let hidden = form.split("<input type=\"hidden\" name=\"").skip(1).map(|rest| {
        let (name, rest) = rest.split_once("\" value=\"").unwrap();
        (name.to_owned(), rest.split('"').next().unwrap().to_owned())
    });
    hidden.chain([("reason".to_owned(), "looked into".to_owned())]).collect()
}

async fn send(scene: &Scene, path: &str, fields: &[(String, String)], cookie: &str) -> Answer {
    let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    scene.post(path, &fields, cookie).await
}

fn assert_outdated(answer: &Answer) {
    assert_eq!(answer.status, StatusCode::CONFLICT, "{}", answer.body);
    assert!(answer.body.contains("since you opened the page"), "{}", answer.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_resumes_only_the_pause_that_its_operator_saw() {
    const REMOVE: &str = "/treasury/pauses/remove";
    let scene = Scene::new().await;
    let jo = scene.sign_in("jo", &[OperatorRole::Treasury]).await;
    let kim = scene.sign_in("kim", &[OperatorRole::Treasury]).await;
    for (scope, target) in [("pair", "USDC/USD"), ("everything", ""), ("partner", "acme")] {
        let pause = |reason| [("scope", scope), ("target", target), ("reason", reason)];
        scene.post("/treasury/pauses/add", &pause("the feed"), &jo).await;
        let opened = fields_of(&scene.get("/treasury", &kim).await, REMOVE);
        let done = send(&scene, REMOVE, &opened, &jo).await;
        assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.body);
        assert_outdated(&send(&scene, REMOVE, &opened, &kim).await);
        scene.post("/treasury/pauses/add", &pause("a theft"), &jo).await;
        assert_outdated(&send(&scene, REMOVE, &opened, &kim).await);
        assert_eq!(scene.harness.count("select count(*) from pause where reason = 'a theft'").await, 1);
        assert_eq!(scene.records().await.pop().unwrap().1, "refused");
        let seen = fields_of(&scene.get("/treasury", &kim).await, REMOVE);
        let done = send(&scene, REMOVE, &seen, &kim).await;
        assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.body);
        assert_eq!(scene.harness.count("select count(*) from pause").await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_enables_only_the_partner_that_its_operator_saw_disabled() {
    const ENABLE: &str = "/partners/acme/enable";
    let scene = Scene::new().await;
    let jo = scene.sign_in("jo", &[OperatorRole::Admin]).await;
    let kim = scene.sign_in("kim", &[OperatorRole::Admin]).await;
    let disable = async |reason| {
        let done = scene.post("/partners/acme/disable", &[("reason", reason)], &jo).await;
        assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.body);
    };
    let disabled = "select count(*) from partner where disabled_at is not null";
    disable("no contract").await;
    let opened = fields_of(&scene.get("/partners/acme", &kim).await, ENABLE);
    let done = send(&scene, ENABLE, &opened, &jo).await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.body);
    disable("a stolen key").await;
    assert_outdated(&send(&scene, ENABLE, &opened, &kim).await);
    assert_eq!(scene.harness.count(disabled).await, 1);
    assert_eq!(scene.records().await.pop().unwrap().1, "refused");
    let seen = fields_of(&scene.get("/partners/acme", &kim).await, ENABLE);
    let done = send(&scene, ENABLE, &seen, &kim).await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.body);
    assert_eq!(scene.harness.count(disabled).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_resumes_only_the_halt_that_its_operator_saw() {
    const RESUME: &str = "/chains/resume";
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
    let opened = async || {
        let mut fields = fields_of(&scene.get("/chains", &cookie).await, RESUME);
        fields.push(("shared_block".to_owned(), "7".to_owned()));
        fields
    };
    let first = opened().await;
    let later = "update chain_cursor set halted_detail = 'block 7 is another', halted_at = clock_timestamp()";
    scene.run(later).await;
    assert_outdated(&send(&scene, RESUME, &first, &cookie).await);
    let halted = "select count(*) from chain_cursor where halted is not null";
    assert_eq!(scene.harness.count(halted).await, 1);
    let done = send(&scene, RESUME, &opened().await, &cookie).await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.body);
    assert_eq!(scene.harness.count(halted).await, 0);
}
