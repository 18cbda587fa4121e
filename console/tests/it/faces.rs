//! The actions of the table by their second face: a token, and JSON.

use axum::http::{Method, StatusCode};
use dvp_console::{Needs, SessionPolicy, permissions};
use dvp_domain::environment::Environment;
use dvp_domain::operator::OperatorRole;
use dvp_ops::{Second, TABLE};
use dvp_testing::market::pair;
use dvp_testing::{Harness, Market};
use serde_json::{Value, json};

use crate::scene::{Answer, ORIGIN, Scene};

fn read(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap()
}

/// The code of a refusal.
fn code(answer: &Answer) -> String {
    read(answer)["error"]["code"].as_str().unwrap_or("OK").to_owned()
}

/// Whether the action got beyond the caller's authority: what is missing then is its fields.
fn is_let_through(answer: &Answer) -> bool {
    !["FORBIDDEN", "STEP_UP_REQUIRED", "NOT_OF_TOKEN", "UNAUTHENTICATED"].contains(&code(answer).as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_action_takes_the_roles_and_the_step_up_of_its_row_in_both_environments() {
    for environment in [Environment::Test, Environment::Live] {
        let market = Market::new(vec![pair("USDC", "USD", "1")]);
        let at = (ORIGIN, SessionPolicy::default(), None);
        let scene = Scene::of_settings(Harness::new(market).await, environment, at);
        for role in OperatorRole::ALL {
            let name = role.as_str();
            scene.add(name, &[role]).await;
            let token = scene.login_token(name).await;
            let mut answers = Vec::new();
            for spec in TABLE {
                answers.push(scene.act(&token, spec.name, json!({})).await);
            }
            scene.run("update operator_token set created_at = now() - interval '6 minutes'").await;
            for (spec, answer) in TABLE.iter().zip(answers) {
                let may = spec.roles.contains(&role);
                let case = format!("{environment:?} {name} {}: {}", spec.name, answer.body);
                assert_eq!(code(&answer) == "FORBIDDEN", !may, "{case}");
                assert_eq!(is_let_through(&answer), may, "{case}");
                let later = scene.act(&token, spec.name, json!({})).await;
                assert_eq!(code(&later) == "STEP_UP_REQUIRED", may && spec.step_up, "{case}");
            }
        }
    }
}

#[test]
fn nothing_is_changed_but_by_actions_and_ones_own_account() {
    for (method, path, roles, needs) in permissions() {
        let action = dvp_ops::find(&path.trim_start_matches("/act/").replace('/', " "));
        match action {
            Some(spec) => {
                let needs_step_up = method == Method::POST && spec.step_up;
                assert_eq!((roles, needs == Needs::StepUp), (spec.roles, needs_step_up), "{method} {path}");
            }
            None => {
                let own = ["/account", "/views", "/logout", "/operators/{name}/sessions"];
                let is_own = own.iter().any(|own| path.starts_with(own));
                assert!(method == Method::GET || is_own, "{path} has no action");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_action_has_a_form_that_names_what_is_missing_and_loses_nothing() {
    let scene = Scene::new().await;
    let cookie = scene.sign_in("jo", &OperatorRole::ALL).await;
    for spec in TABLE {
        let path = format!("/act/{}", spec.name.replace(' ', "/"));
        let page = scene.get(&path, &cookie).await;
        assert_eq!(page.status, StatusCode::OK, "{}: {}", spec.name, page.body);
        let form = dvp_ops::form(spec);
        let needed = form.fields.iter().filter(|field| field.is_required);
        for field in needed.clone() {
            assert!(
                page.body.contains(&format!("name=\"{}\"", field.name)),
                "{} --{}",
                spec.name,
                field.name
            );
        }
        if needed.count() > 0 {
            let refused = scene.form(spec.name, &[("evidence", "what was typed")], &cookie).await;
            assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}: {}", spec.name, refused.body);
            let takes = form.fields.iter().any(|field| field.name == "evidence");
            assert!(!takes || refused.body.contains("what was typed"), "{}: {}", spec.name, refused.body);
            assert!(refused.body.contains("role=\"alert\""), "{}: {}", spec.name, refused.body);
        }
    }
    assert_eq!(scene.get("/act/pause", &cookie).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_token_is_good_for_its_actions_and_no_signature() {
    let scene = Scene::new().await;
    for name in ["ana", "ben", "robot"] {
        scene.add(name, &OperatorRole::ALL).await;
    }
    let (ana, ben) = (scene.login_token("ana").await, scene.login_token("ben").await);
    let fields = json!({"name": "robot", "actions": ["pause add"], "until": "2999-01-01T00:00:00Z",
                        "reason": "on call", "evidence": "ticket 7"});
    let refused = scene.act(&ana, "operator token", fields.clone()).await;
    assert!(refused.body.contains("within 366 days"), "{}", refused.body);
    let until = (chrono::Utc::now() + chrono::Duration::days(1)).to_rfc3339();
    let with = |actions: Value| {
        let mut fields = fields.clone();
        (fields["until"], fields["actions"]) = (until.as_str().into(), actions);
        fields
    };
    let refused = scene.act(&ana, "operator token", with(json!(["approval approve"]))).await;
    assert_eq!(code(&refused), "INVALID_FIELD", "{}", refused.body);
    let asked = read(&scene.act(&ana, "operator token", with(json!(["pause add"]))).await)["result"].clone();
    let token = asked["token"].as_str().unwrap();
    assert_eq!(scene.act(token, "pause add", json!({})).await.status, StatusCode::UNAUTHORIZED);
    let approve = json!({"id": asked["id"]});
    assert!(scene.act(&ana, "approval approve", approve.clone()).await.body.contains("another operator"));
    assert_eq!(scene.act(&ben, "approval approve", approve).await.status, StatusCode::OK);
    for spec in TABLE {
        let answer = scene.act(token, spec.name, json!({})).await;
        assert_eq!(is_let_through(&answer), spec.name == "pause add", "{}: {}", spec.name, answer.body);
        assert!(spec.second != Second::Signs || code(&answer) == "NOT_OF_TOKEN");
    }
    let pause = json!({"scope": "everything", "reason": "alarm"});
    assert_eq!(scene.act(token, "pause add", pause).await.status, StatusCode::OK);
    // A token that was seen by others ends at once, and others go on.
    let end = json!({"name": "robot", "reason": "seen in a log"});
    let ended = read(&scene.act(&ana, "operator end-tokens", end).await);
    assert_eq!(ended["result"]["ended"], 1, "{ended}");
    assert_eq!(scene.act(token, "pause add", json!({})).await.status, StatusCode::UNAUTHORIZED);
    assert_ne!(scene.act(&ben, "pause add", json!({})).await.status, StatusCode::UNAUTHORIZED);
    let login = scene.login_token("robot").await;
    // Who has left acts no more.
    let disable = json!({"name": "robot", "reason": "retired"});
    assert_eq!(scene.act(&ana, "operator disable", disable).await.status, StatusCode::OK);
    assert_eq!(scene.act(&login, "pause add", json!({})).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_operator_neither_approves_its_request_nor_credits_a_balance() {
    let market = Market::new(vec![pair("USDC", "USD", "1")]).with_funds("north", "USD", 5);
    let at = (ORIGIN, SessionPolicy::default(), None);
    let scene = Scene::of_settings(Harness::new(market).await, Environment::Live, at);
    for name in ["ana", "ben"] {
        scene.add(name, &OperatorRole::ALL).await;
    }
    let (ana, ben) = (scene.login_token("ana").await, scene.login_token("ben").await);
    let deposit = json!({"provider": "north", "asset": "USD", "amount-minor": "1000", "id": "wire-1"});
    let alone = scene.act(&ana, "provider deposit", deposit.clone()).await;
    assert!(alone.body.contains("two operators"), "{}", alone.body);
    let mut with_why = deposit;
    (with_why["reason"], with_why["evidence"]) = ("prefunding".into(), "statement 12".into());
    let asked = read(&scene.act(&ana, "provider deposit", with_why).await)["result"].clone();
    let (operator, id) = (json!("ana"), asked["id"].clone());
    assert_eq!((&asked["maker"], &asked["state"]), (&operator, &json!("pending")));
    let named = json!({"id": id, "operator": "ben"});
    assert_eq!(code(&scene.act(&ana, "approval approve", named).await), "INVALID_FIELD");
    let approve = json!({"id": id});
    assert_eq!(code(&scene.act(&ana, "approval approve", approve.clone()).await), "REFUSED");
    let balance = async || {
        let sql = "select available::text from account_balance where owner = 'north' and asset = 'USD'";
        sqlx::query_scalar::<_, String>(sql).fetch_one(scene.harness.pool()).await.unwrap()
    };
    assert_eq!(balance().await, "5");
    assert_eq!(scene.act(&ben, "approval approve", approve).await.status, StatusCode::OK);
    assert_eq!(balance().await, "1005");
    // Who, from where, by which proof, and what.
    let records: Vec<(String, String, String, String)> =
        sqlx::query_as("select operator, action, route, source from console_record order by id")
            .fetch_all(scene.harness.pool())
            .await
            .unwrap();
    let last = records.last().unwrap();
    let expected = ["ben", "acted", "approval approve", "192.0.2.1 (login on a laptop)"];
    assert_eq!([&last.0, &last.1, &last.2, &last.3], expected);
    assert!(records.iter().any(|one| one.0 == "ana" && one.1 == "refused" && one.2 == "approval approve"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_operator_credits_what_the_bank_has_booked_and_only_once() {
    let market = Market::new(vec![pair("USDC", "USD", "1")]).with_funds("north", "USD", 5);
    let at = (ORIGIN, SessionPolicy::default(), None);
    let scene = Scene::of_settings(Harness::new(market).await, Environment::Live, at);
    scene.add("ana", &OperatorRole::ALL).await;
    let ana = scene.login_token("ana").await;
    scene
        .run(
            "with p as (insert into bank_payment (end_to_end_id, reference, execution, message_id, block_id, amount, \
                                                  currency, exponent, status, staged_file) \
                        values ('0123456789ABCDEF0123456789ABCDEF', 'r', 'e', 'm', 'b', 1000, 'USD', 2, 'sent', 'f')), \
                  s as (insert into bank_statement (account, currency, statement, page, begins_at, ends_at, opening, \
                                                    closing, content, file) \
                        values ('DE1', 'USD', '17', 1, now(), now(), 0, 1000, decode(repeat('07', 32), 'hex'), 'f') \
                        returning id) \
             insert into bank_entry (statement, line, account, currency, amount, booked_at, refs) \
             select id, line, 'DE1', 'USD', 1000, now(), refs from s, \
                    (values (1, array['BK-7', 'for acme']), (2, array['BK-8']), (3, array['r', 'x-1']), \
                            (4, array['01234567-89ab-4def-8123-456789abcdef', 'x-2']), \
                            (5, array['0123456789ABCDEF0123456789ABCDEF', 'x-3'])) entry (line, refs)",
        )
        .await;
    let deposit =
        |id: &str, minor: &str| json!({"provider": "north", "asset": "USD", "amount-minor": minor, "id": id});
    // Not booked; another amount; a payment of ours that came back, by our reference, its UETR and its end-to-end id.
    for (id, minor) in [("BK-9", "1000"), ("BK-7", "1001"), ("x-1", "1000"), ("x-2", "1000"), ("x-3", "1000")]
    {
        let refused = scene.act(&ana, "provider deposit", deposit(id, minor)).await;
        assert!(refused.body.contains("two operators"), "{id} {minor}: {}", refused.body);
    }
    let credited = scene.act(&ana, "provider deposit", deposit("BK-7", "1000")).await;
    assert_eq!(credited.status, StatusCode::OK, "{}", credited.body);
    // The same entry by another of its references.
    let again = scene.act(&ana, "provider deposit", deposit("for acme", "1000")).await;
    assert!(again.body.contains("two operators"), "{}", again.body);
    let (one, other) = (deposit("BK-8", "1000"), deposit("BK-8", "1000"));
    tokio::join!(scene.act(&ana, "provider deposit", one), scene.act(&ana, "provider deposit", other));
    let sql = "select available::text from account_balance where owner = 'north' and asset = 'USD'";
    let available: String = sqlx::query_scalar(sql).fetch_one(scene.harness.pool()).await.unwrap();
    assert_eq!(available, "2005");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_granted_on_the_page_and_bound_to_its_first_address() {
    let scene = Scene::new().await;
    let cookie = scene.sign_in("ana", &OperatorRole::ALL).await;
    let (token, hash) = (
        "drawn-by-the-command",
        hex::encode(dvp_core::operators::accounts::token_hash("drawn-by-the-command")),
    );
    let asked = async |peer: &str| scene.act_from(peer, token, "pause add", json!({})).await;
    assert_eq!(asked("192.0.2.1:1").await.status, StatusCode::UNAUTHORIZED);
    let page = scene.get(&format!("/account/login?token={hash}&machine=laptop"), &cookie).await;
    assert!(page.body.contains(&hash[..8]) && page.body.contains("laptop"), "{}", page.body);
    let fields = [("token", hash.as_str()), ("machine", "laptop")];
    assert_eq!(scene.post("/account/login", &fields, &cookie).await.status, StatusCode::OK);
    assert_eq!(scene.post("/account/login", &fields, &cookie).await.status, StatusCode::CONFLICT);
    assert_eq!(code(&asked("192.0.2.1:1").await), "INVALID_FIELD");
    assert_eq!(asked("192.0.2.2:1").await.status, StatusCode::UNAUTHORIZED, "another machine");
    scene.run("update operator_token set expires_at = now()").await;
    assert_eq!(asked("192.0.2.1:1").await.status, StatusCode::UNAUTHORIZED, "an hour later");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_fields_are_named_and_nothing_is_done() {
    let scene = Scene::new().await;
    scene.add("ana", &OperatorRole::ALL).await;
    let ana = scene.login_token("ana").await;
    for (action, fields, field) in [
        ("pause add", json!({"scope": "pear", "reason": "r"}), "scope"),
        ("pause add", json!({"scope": "pair"}), "reason"),
        ("pause add", json!({"scope": "pair", "reason": "r", "targets": "x"}), "targets"),
        ("pause add", json!({"scope": 7, "reason": "r"}), "scope"),
        (
            "limit set",
            json!({"scope": "everything", "asset": "USD", "per": "day", "amount-minor": "-1",
                             "reason": "r", "evidence": "e"}),
            "amount-minor",
        ),
        ("key issue", json!({"partner": "acme", "scopes": ["quotes:write", "all"]}), "scopes"),
        (
            "fix-session set-seq",
            json!({"next-in": "0", "next-out": "1", "session-id": "s", "reason": "r"}),
            "next-in",
        ),
    ] {
        let answer = scene.act(&ana, action, fields).await;
        assert_eq!((answer.status, code(&answer).as_str()), (StatusCode::BAD_REQUEST, "INVALID_FIELD"));
        assert_eq!(read(&answer)["error"]["field"], field, "{action}: {}", answer.body);
    }
    assert_eq!(code(&scene.act(&ana, "pause", json!({})).await), "UNKNOWN_ACTION");
    let help = scene.act(&ana, "pause add", json!({"help": true})).await;
    assert_eq!(code(&help), "INVALID_FIELD", "{}", help.body);
    let paused: i64 =
        sqlx::query_scalar("select count(*) from pause").fetch_one(scene.harness.pool()).await.unwrap();
    assert_eq!(paused, 0);
}
