//! What operators do beside deciding about orders: statements, breaks, credentials, chains, views, searches.

use axum::http::StatusCode;
use dvp_core::workflow::audit;
use dvp_domain::operator::OperatorRole;
use dvp_domain::reconcile::{Break, BreakKind, Difference, SuggestedAction};
use dvp_store::fix::archive::{self, NewMessage};
use dvp_store::fix::{self, admin};
use dvp_store::reconcile::{NewRun, insert_run};
use dvp_testing::orders::order;

use crate::scene::{Answer, Scene};

const SESSION: &str = "/fix/FIX.4.4%3ADVP-%3EACME";

/// The text of the definition after a term.
pub(crate) fn fact<'a>(page: &'a Answer, term: &str) -> &'a str {
    let rest =
        page.body.split(&format!("<dt>{term}</dt><dd>")).nth(1).unwrap_or_else(|| panic!("{}", page.body));
    let rest = rest.split_once('>').unwrap().1;
    rest.split('<').next().unwrap()
}

/// Another operator approves the request that an answer leads to.
pub(crate) async fn approve(scene: &Scene, request: &str, checker: &str) -> Answer {
    scene.approve(request.trim_start_matches("/approvals/"), "0", &[], checker).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_has_every_entry_between_its_balances_and_as_csv() {
    let scene = Scene::new().await;
    for _ in 0..105 {
        scene.harness.accept(order("000123456789")).await;
    }
    let cookie = scene.sign_in("jo", &[OperatorRole::Viewer]).await;
    let first = scene.get("/treasury/statement?account=provider:north:available", &cookie).await;
    assert_eq!(first.status, StatusCode::OK, "{}", first.body);
    assert!(
        first.body.contains("Opening balance") && !first.body.contains("Closing balance"),
        "{}",
        first.body
    );
    let later = first.body.split("rel=\"next\" href=\"").nth(1).unwrap().split('"').next().unwrap();
    let second = scene.get(&later.replace("&#38;", "&").replace("&amp;", "&"), &cookie).await;
    assert!(
        second.body.contains("Closing balance") && !second.body.contains("Opening balance"),
        "{}",
        second.body
    );
    let orders = |page: &Answer| page.body.matches("href=\"/search?q=exe_").count();
    assert_eq!((orders(&first), orders(&second)), (99, 6), "the deposit is an entry, too");
    let csv = scene.get("/treasury/statement.csv?account=provider:north:available", &cookie).await;
    assert_eq!(csv.body.matches("\r\nentry,").count(), 106, "{}", csv.body);
    let closing = csv.body.lines().last().unwrap().rsplit(',').next().unwrap().to_owned();
    assert!(second.body.contains(&dotted(&closing)), "{closing} is not in {}", second.body);
    scene.harness.deposit("USD", 500).await;
    let treasury = scene.get("/treasury", &cookie).await.body;
    let link = treasury.split("href=\"").map(|rest| rest.split('"').next().unwrap());
    let link =
        link.into_iter().find(|link| link.contains("account=partner")).expect("the partner's statement");
    let partner = scene.get(link, &cookie).await;
    assert!(partner.body.contains("deposit") && partner.body.contains("5.00"), "{link}: {}", partner.body);
    assert_eq!(scene.get("/treasury/statement?account=purse", &cookie).await.status, StatusCode::NOT_FOUND);
    let wrong = "/treasury/statement?account=fees&from=2026-02-02&until=2026-02-01";
    assert_eq!(scene.get(wrong, &cookie).await.status, StatusCode::BAD_REQUEST);
}

/// Cents as the pages show them.
fn dotted(cents: &str) -> String {
    let (whole, fraction) = cents.split_at(cents.len() - 2);
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{grouped}.{fraction}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_break_leads_to_its_cause_and_to_the_requests_that_may_end_it() {
    let scene = Scene::new().await;
    let reference = scene.harness.accept(order("000123456789")).await.reference;
    let about = |kind, action, reference: Option<&str>, difference| Break {
        kind,
        reference: reference.map(str::to_owned),
        entity: None,
        detail: "found by a test".into(),
        action,
        difference,
    };
    let difference = || Some(Difference { account: "bank:ops".into(), asset: "USD".into(), minor: -350 });
    let breaks = vec![
        about(BreakKind::Stuck, SuggestedAction::Resolve, Some(reference.as_str()), None),
        about(BreakKind::UnknownEntry, SuggestedAction::Post, Some("BK-77"), difference()),
    ];
    let run = NewRun { at: None, subjects: 2, queries: 0, started_at: chrono::Utc::now(), breaks };
    let mut tx = scene.harness.pool().begin().await.unwrap();
    let run = insert_run(&mut tx, &run).await.unwrap();
    tx.commit().await.unwrap();
    let maker = scene.sign_in("jo", &[OperatorRole::Operator, OperatorRole::Treasury]).await;
    let viewer = scene.sign_in("vi", &[OperatorRole::Viewer]).await;
    let list = scene.get("/reconciliation", &viewer).await;
    let links: Vec<String> = list
        .body
        .split("href=\"")
        .map(|rest| rest.split('"').next().unwrap_or_default().to_owned())
        .filter(|link| link.starts_with(&format!("/reconciliation/{run}/")))
        .collect();
    assert_eq!(links.len(), 2, "{}", list.body);
    let stuck = scene.get(&links[0], &maker).await;
    assert!(!Scene::offered(&stuck, "execution resolve").is_empty(), "{}", stuck.body);
    assert!(stuck.body.contains(&format!("href=\"/orders/{reference}\"")), "{}", stuck.body);
    assert!(!scene.get(&links[0], &viewer).await.body.contains("/act/"));
    let entry = scene.get(&links[1], &maker).await;
    assert!(entry.body.contains("external%3Abank"), "{}", entry.body);
    let form = &Scene::offered(&entry, "ledger request charge")[0];
    let form = scene.get(form, &maker).await;
    for shown in ["value=\"BK-77\"", "value=\"3.50\"", "value=\"USD\""] {
        assert!(form.body.contains(shown), "{shown} is not in {}", form.body);
    }
    // No statement has the entry: the request is refused, and the refusal recorded.
    let charge = [
        ("id", "BK-77"),
        ("asset", "USD"),
        ("amount-minor", "3.50"),
        ("reason", "fee"),
        ("evidence", "statement"),
    ];
    let refused = scene.form("ledger request charge", &charge, &maker).await;
    assert_eq!(refused.status, StatusCode::CONFLICT, "{}", refused.body);
    assert_eq!(scene.records().await.pop().unwrap().1, "refused");
    assert_eq!(scene.get(&format!("/reconciliation/{run}/99"), &viewer).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_of_the_ledger_is_posted_by_the_second_operator() {
    let scene = Scene::new().await;
    let maker = scene.sign_in("jo", &[OperatorRole::Treasury]).await;
    let checker = scene.sign_in("kim", &[OperatorRole::Approver]).await;
    let before = scene.harness.account("house", "USD").await;
    let operation = [
        ("direction", "credit"),
        ("id", "A-1"),
        ("asset", "USD"),
        ("amount-minor", "12.34"),
        ("account", "available"),
        ("provider", "north"),
        ("reason", "interest"),
        ("evidence", "statement 17"),
    ];
    // Nothing is done before the amount was shown as it was read.
    let checked = scene.post("/act/ledger/request/adjustment", &operation, &maker).await;
    assert!(checked.body.contains("12.34 USD (1,234 minor units)"), "{}", checked.body);
    assert_eq!(scene.harness.count("select count(*) from approval").await, 0);
    let requested = scene.form("ledger request adjustment", &operation, &maker).await;
    assert_eq!(requested.status, StatusCode::SEE_OTHER, "{}", requested.body);
    assert_eq!(scene.harness.account("house", "USD").await, before);
    let approved = approve(&scene, requested.header("location"), &checker).await;
    assert_eq!(approved.status, StatusCode::SEE_OTHER, "{}", approved.body);
    assert_ne!(scene.harness.account("house", "USD").await, before);
    for (name, value) in
        [("account", "purse"), ("amount-minor", "1e3"), ("direction", "both"), ("asset", "XXX")]
    {
        let wrong = operation.map(|(field, usual)| (field, if field == name { value } else { usual }));
        let answer = scene.form("ledger request adjustment", &wrong, &maker).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{name}: {}", answer.body);
        // What was typed is still there, and what is wrong is beside its field.
        assert!(
            answer.body.contains("value=\"A-1\"") && answer.body.contains("class=\"problem\""),
            "{}",
            answer.body
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_works_after_a_second_operator_and_its_texts_are_shown_once() {
    let scene = Scene::new().await;
    let admin = scene.sign_in("jo", &[OperatorRole::Admin]).await;
    let checker = scene.sign_in("kim", &[OperatorRole::Approver]).await;
    let form = [
        ("partner", "acme"),
        ("scopes", "events:read"),
        ("scopes", "reports:read"),
        ("reason", "new reader"),
        ("evidence", "ticket 7"),
    ];
    let issued = scene.form("key issue", &form, &admin).await;
    assert_eq!(issued.status, StatusCode::OK, "{}", issued.body);
    let (key, secret) = (fact(&issued, "API key").to_owned(), fact(&issued, "Signing secret").to_owned());
    assert!(key.starts_with("svc_test_") && secret.len() == 64, "{}", issued.body);
    let id = fact(&issued, "Key id").to_owned();
    let pool = scene.harness.pool();
    let is_enabled = async || {
        let state: (bool,) = sqlx::query_as("select disabled_at is null from api_key where id = $1")
            .bind(&id)
            .fetch_one(pool)
            .await
            .unwrap();
        state.0
    };
    assert!(!is_enabled().await);
    let request = format!("/approvals/{}", fact(&issued, "Request"));
    let page = scene.get(&request, &checker).await;
    assert!(!page.body.contains(&key) && !page.body.contains(&secret), "{}", page.body);
    assert_eq!(approve(&scene, &request, &checker).await.status, StatusCode::SEE_OTHER);
    assert!(is_enabled().await);
    let why = [("key-id", id.as_str()), ("reason", "found"), ("evidence", "mail")];
    let early = scene.form("key enable", &why, &admin).await;
    assert!(early.status == StatusCode::CONFLICT && early.body.contains("is not disabled"), "{}", early.body);
    let revoke = scene.form("key revoke", &[("key-id", &id), ("reason", "lost")], &admin).await;
    assert_eq!(revoke.status, StatusCode::SEE_OTHER, "{}", revoke.body);
    assert!(!is_enabled().await);
    let again = scene.form("key enable", &why, &admin).await;
    assert_eq!(again.status, StatusCode::CONFLICT, "{}", again.body);
    let unknown = [("partner", "acme"), ("scopes", "all"), ("reason", "r")];
    let unknown = scene.form("key issue", &unknown, &admin).await;
    assert_eq!(unknown.status, StatusCode::BAD_REQUEST, "{}", unknown.body);
    let records = scene.records().await;
    assert!(records.iter().all(|record| !record.3.contains(&key) && !record.3.contains(&secret)));
    let mut conn = pool.acquire().await.unwrap();
    audit::verify(&mut conn).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sessions_password_is_replaced_by_the_second_operator() {
    let scene = Scene::new().await;
    let id = scene.fix_session().await;
    let admin = scene.sign_in("jo", &[OperatorRole::Admin]).await;
    let checker = scene.sign_in("kim", &[OperatorRole::Approver]).await;
    let form = [("session-id", id.as_str()), ("reason", "yearly"), ("evidence", "plan")];
    let drawn = scene.form("fix-session password", &form, &admin).await;
    assert_eq!(drawn.status, StatusCode::OK, "{}", drawn.body);
    let password = fact(&drawn, "Password").to_owned();
    let vault = scene.harness.engine.context().vault.clone();
    let is_it = async |password: &str| {
        let mut conn = scene.harness.pool().acquire().await.unwrap();
        let kept = fix::find_session(&mut conn, &id).await.unwrap().unwrap();
        vault.is_fix_password(&id, password, &kept.password_hash)
    };
    assert!(is_it("old").await && !is_it(&password).await);
    let request = format!("/approvals/{}", fact(&drawn, "Request"));
    let page = scene.get(&request, &checker).await;
    assert!(!page.body.contains(&password) && !page.body.contains("passwordHash"), "{}", page.body);
    assert_eq!(approve(&scene, &request, &checker).await.status, StatusCode::SEE_OTHER);
    assert!(is_it(&password).await && !is_it("old").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_operator_disables_a_session_and_two_enable_it() {
    let scene = Scene::new().await;
    let id = scene.fix_session().await;
    let operator = scene.sign_in("al", &[OperatorRole::Operator]).await;
    let admin = scene.sign_in("jo", &[OperatorRole::Admin]).await;
    let checker = scene.sign_in("kim", &[OperatorRole::Approver]).await;
    let is_enabled = async || {
        let mut conn = scene.harness.pool().acquire().await.unwrap();
        admin::find(&mut conn, &id).await.unwrap().unwrap().enabled
    };
    let why = [("session-id", id.as_str()), ("reason", "the peer is repaired"), ("evidence", "ticket 8")];
    // A request of before would outlive the disabling.
    let early = scene.form("fix-session enable", &why, &admin).await;
    assert!(early.status == StatusCode::CONFLICT && early.body.contains("is not disabled"), "{}", early.body);

    let floods = [("session-id", id.as_str()), ("reason", "floods us")];
    let disabled = scene.form("fix-session disable", &floods, &operator).await;
    assert_eq!(disabled.status, StatusCode::SEE_OTHER, "{}", disabled.body);
    assert!(!is_enabled().await);
    assert_eq!(scene.form("fix-session enable", &why, &operator).await.status, StatusCode::FORBIDDEN);
    let enable = "fix-session enable";
    assert!(Scene::offered(&scene.get(SESSION, &operator).await, enable).is_empty());
    assert_eq!(Scene::offered(&scene.get(SESSION, &admin).await, enable).len(), 1);

    let requested = scene.form(enable, &why, &admin).await;
    assert_eq!(requested.status, StatusCode::SEE_OTHER, "{}", requested.body);
    assert!(!is_enabled().await);
    let request = requested.header("location");
    assert_eq!(approve(&scene, request, &checker).await.status, StatusCode::SEE_OTHER);
    assert!(is_enabled().await);
    let page = scene.get(SESSION, &operator).await;
    assert!(page.body.contains("the peer is repaired"), "{}", page.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_session_are_searched_and_paged() {
    let scene = Scene::new().await;
    let id = scene.fix_session().await;
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let now = chrono::Utc::now();
    let message = |n: u64| NewMessage {
        session_id: id.clone(),
        at: now - chrono::TimeDelta::seconds(i64::try_from(200 - n).unwrap()),
        is_outbound: n.is_multiple_of(2),
        seq: Some(n),
        msg_type: if n == 7 { "D" } else { "0" }.into(),
        cl_ord_id: (n == 7).then(|| "order-seven".into()),
        orig_cl_ord_id: None,
        content: format!("34={n}|554=***|"),
    };
    let messages: Vec<_> = (1..=150).map(message).collect();
    for message in &messages {
        archive::create_day(&mut conn, message.at.date_naive()).await.unwrap();
    }
    archive::insert_messages(&mut conn, &messages).await.unwrap();
    let cookie = scene.sign_in("jo", &[OperatorRole::Viewer]).await;
    let newest = scene.get(SESSION, &cookie).await;
    assert!(newest.body.contains("34=150|") && !newest.body.contains("34=140|"), "{}", newest.body);
    let first = scene.get(&format!("{SESSION}/messages"), &cookie).await;
    assert!(first.body.contains("34=51|") && !first.body.contains("34=50|"), "{}", first.body);
    let older = first.body.split("rel=\"next\" href=\"").nth(1).unwrap().split('"').next().unwrap();
    let second = scene.get(&older.replace("&#38;", "&").replace("&amp;", "&"), &cookie).await;
    assert!(second.body.contains("34=50|") && second.body.contains("34=1|"), "{}", second.body);
    for query in ["seq=7", "cl_ord_id=order-seven"] {
        let found = scene.get(&format!("{SESSION}/messages?{query}"), &cookie).await;
        assert_eq!(found.body.matches("554=***").count(), 1, "{query}: {}", found.body);
        assert!(found.body.contains("NewOrderSingle (D)"), "{}", found.body);
    }
    assert_eq!(
        scene.get(&format!("{SESSION}/messages?seq=x"), &cookie).await.status,
        StatusCode::BAD_REQUEST
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_of_each_list_is_saved_for_its_operator_only() {
    let scene = Scene::new().await;
    let [mine, other] = ["jo", "kim"];
    let mine = scene.sign_in(mine, &OperatorRole::ALL).await;
    let other = scene.sign_in(other, &OperatorRole::ALL).await;
    for (page, filter, kept) in [
        ("/orders", "view=stuck&partner=acme&before=1.x&other=1", "view=stuck&partner=acme"),
        ("/approvals", "state=denied", "state=denied"),
        ("/audit", "operator=jo&record=approval", "record=approval&operator=jo"),
    ] {
        let view = [("page", page), ("name", "Of mine"), ("query", filter)];
        let saved = scene.post("/views/save", &view, &mine).await;
        assert_eq!(saved.header("location"), format!("{page}?{kept}"), "{}", saved.body);
        let shown = scene.get(&format!("{page}?{kept}"), &mine).await;
        assert!(shown.status == StatusCode::OK && shown.body.contains("Of mine"), "{}", shown.body);
        assert!(!scene.get(page, &other).await.body.contains("Of mine"));
    }
    let wrong = [("page", "/orders"), ("name", " "), ("query", "")];
    assert_eq!(scene.post("/views/save", &wrong, &mine).await.status, StatusCode::BAD_REQUEST);
    let elsewhere = [("page", "//evil.test"), ("name", "x"), ("query", "")];
    for path in ["/views/save", "/views/delete"] {
        assert_eq!(scene.post(path, &elsewhere, &mine).await.status, StatusCode::BAD_REQUEST);
    }
    let delete = [("page", "/orders"), ("name", "Of mine")];
    assert_eq!(scene.post("/views/delete", &delete, &other).await.status, StatusCode::NOT_FOUND);
    assert_eq!(scene.post("/views/delete", &delete, &mine).await.status, StatusCode::SEE_OTHER);
    assert!(!scene.get("/orders", &mine).await.body.contains("Of mine"));
    assert!(scene.get("/approvals", &mine).await.body.contains("Of mine"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_is_searched_by_record_operator_subject_and_day() {
    let scene = Scene::new().await;
    let sources = "select tgrelid::regclass::text from pg_trigger \
                   where tgfoid = 'audit_append'::regproc group by 1 order by 1";
    let sources: Vec<String> = sqlx::query_scalar(sources).fetch_all(scene.harness.pool()).await.unwrap();
    let auditor = scene.sign_in("ana", &[OperatorRole::Auditor]).await;
    let page = scene.get("/audit", &auditor).await.body;
    for source in &sources {
        assert!(page.contains(&format!("<option value=\"{source}\">")), "{source}: {page}");
    }
    let treasury = scene.sign_in("kim", &[OperatorRole::Treasury]).await;
    for pair in ["USDC/USD", "USDC/EUR"] {
        let pause = [("scope", "pair"), ("target", pair), ("reason", "a feed stands still")];
        scene.form("pause add", &pause, &treasury).await;
    }
    let rows = async |query: &str| {
        let page = scene.get(&format!("/audit?{query}"), &auditor).await;
        assert_eq!(page.status, StatusCode::OK, "{query}: {}", page.body);
        page.body.matches("<tr><td").count()
    };
    assert_eq!(rows("record=pause_change").await, 1, "the second pair is not served");
    assert_eq!(rows("record=pause_change&operator=KIM").await, 1);
    assert_eq!(rows("record=pause_change&operator=ana").await, 0);
    assert_eq!(rows("subject=USDC%2FUSD&record=pause_change").await, 1);
    assert!(rows("operator=kim").await > 1);
    let tomorrow = (chrono::Utc::now() + chrono::TimeDelta::days(1)).format("%Y-%m-%d");
    assert!(rows(&format!("until={tomorrow}")).await > 1);
    assert_eq!(rows("until=2020-01-01").await, 0);
    assert_eq!(scene.get("/audit?until=x", &auditor).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_form_does_the_same_about_each_chosen_row_and_a_refused_one_leaves_the_others() {
    let scene = Scene::new().await;
    let mut references = Vec::new();
    for _ in 0..3 {
        references.push(scene.harness.accept(order("000123456789")).await.reference.as_str().to_owned());
    }
    let cookie = scene.sign_in("jo", &[OperatorRole::Operator]).await;
    let list = scene.get("/orders?view=open", &cookie).await;
    let offered = Scene::offered(&list, "execution resolve");
    assert_eq!(offered.len(), 1, "{}", list.body);
    let opened = scene.get(&offered[0], &cookie).await;
    assert!(references.iter().all(|reference| opened.body.contains(reference.as_str())), "{}", opened.body);
    scene.harness.engine.cancel(&scene.harness.tenant, &references[1], None).await.unwrap();
    let mut fields = scene.opened(&offered[0], &cookie).await;
    let chosen: Vec<String> = fields
        .iter()
        .filter(|(name, _)| name == "reference")
        .enumerate()
        .filter(|(_, (_, value))| *value != references[2])
        .map(|(at, _)| at.to_string())
        .collect();
    let none: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let none = scene.form("execution resolve", &[&none[..], &[("reason", "none")]].concat(), &cookie).await;
    assert!(none.body.contains("Nothing was chosen."), "{}", none.body);
    fields.extend(chosen.into_iter().map(|at| ("_item".to_owned(), at)));
    fields.push(("reason".to_owned(), "the bank was away".to_owned()));
    let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let done = scene.form("execution resolve", &fields, &cookie).await;
    assert_eq!(done.status, StatusCode::OK, "{}", done.body);
    assert!(!done.body.contains(&references[2]), "it was not chosen: {}", done.body);
    let decided = "select reference from operator_action where action = 'ask' order by 1";
    let decided: Vec<String> = sqlx::query_scalar(decided).fetch_all(scene.harness.pool()).await.unwrap();
    assert_eq!(decided, [references[0].clone()]);
    assert_eq!(done.body.matches(">done<").count(), 1, "{}", done.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn words_of_a_failure_find_its_orders() {
    let scene = Scene::new().await;
    let failed = scene.harness.accept(order("000123456789")).await.reference;
    scene.harness.accept(order("000123456789")).await;
    sqlx::query(
        "update execution set state_name = 'failed', terminal_at = now(), \
           state = '{\"state\": \"failed\", \"failure\": {\"stage\": \"intent\", \"code\": \"screening_refused\", \
                     \"message\": \"the receiver is on the list\", \"retryable\": false}}' where reference = $1",
    )
    .bind(failed.as_str())
    .execute(scene.harness.pool())
    .await
    .unwrap();
    let cookie = scene.sign_in("jo", &[OperatorRole::Viewer]).await;
    for words in ["screening_refused", "receiver+list", "Refused"] {
        let found = scene.get(&format!("/search?q={words}"), &cookie).await;
        assert_eq!(found.header("location"), format!("/orders/{failed}"), "{words}: {}", found.body);
    }
    let nothing = scene.get("/search?q=receiver+unknown", &cookie).await;
    assert!(nothing.status == StatusCode::OK && nothing.body.contains("no failure has these words"));
}

#[tokio::test(flavor = "multi_thread")]
async fn chains_and_their_commands_are_refused_what_they_cannot_do() {
    let scene = Scene::new().await;
    let cookie = scene.sign_in("jo", &[OperatorRole::Operator]).await;
    let why = ("reason", "the fork was found");
    let resume = [("chain-id", "31337"), ("halted-at", "2026-01-31T09:00:00Z"), ("shared-block", "7"), why];
    let refused = scene.form("chain resume", &resume, &cookie).await;
    assert!(
        refused.status == StatusCode::CONFLICT && refused.body.contains("is not halted"),
        "{}",
        refused.body
    );
    let retry =
        scene.form("chain command retry", &[("id", "17"), ("reason", "the role is back")], &cookie).await;
    assert!(
        retry.status == StatusCode::CONFLICT && retry.body.contains("no chain command"),
        "{}",
        retry.body
    );
    let silent = scene.form("chain command retry", &[("id", "17"), ("reason", " ")], &cookie).await;
    assert_eq!(silent.status, StatusCode::BAD_REQUEST, "{}", silent.body);
    assert_eq!(scene.records().await.iter().filter(|record| record.1 == "refused").count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_halted_chain_is_followed_again_and_its_fees_backlog_and_fills_are_shown() {
    let scene = Scene::new().await;
    let reference = scene.harness.accept(order("000123456789")).await.reference;
    let cookie = scene.sign_in("jo", &[OperatorRole::Operator]).await;
    scene.harness.start_workers();
    let (entity, _) = scene.harness.command(reference.as_str(), "create").await;
    let sql = format!(
        "update chain_command set chain_id = 31337; \
         insert into chain_cursor (chain_id, head_number, head_hash, final_number, facts_number, halted, halted_detail, \
                                   halted_at) \
         values (31337, 9, decode(repeat('09', 32), 'hex'), 9, 9, 'final_block_changed', 'block 8 is another', now()); \
         insert into chain_block (chain_id, hash, number, parent, block_time, verified_by) \
         values (31337, decode(repeat('07', 32), 'hex'), 7, decode(repeat('06', 32), 'hex'), now(), 'test'); \
         insert into chain_status (chain_id, name, state, reason, node_head, node_final) \
         values (31337, 'home', 'halted', 'block 8 is another', 9, 9); \
         insert into relayer_account (chain_id, signer, next_nonce) values (31337, decode(repeat('0c', 20), 'hex'), 4321); \
         insert into chain_fees (chain_id, base_fee, tip, cap) values (31337, 1250000000, 2000000000, 500000000000); \
         insert into chain_fact (chain_id, entity, kind, payload, block_number, gate, gate_number) \
         values (31337, decode('{}', 'hex'), 'filled', '{{}}', 8, 'finalized', 12)",
        hex::encode(entity)
    );
    scene.run(&sql).await;
    let page = scene.get("/chains", &cookie).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.body);
    for shown in ["1.25", "2.00", "500.00", "4321", "finalized block 12", "below 1 s", "Follow again"] {
        assert!(page.body.contains(shown), "{shown} is not in {}", page.body);
    }
    assert!(page.body.contains(&format!("/search?q={}", reference.as_str())), "{}", page.body);

    let opened = scene.opened(&Scene::offered(&page, "chain resume")[0], &cookie).await;
    let opened: Vec<_> = opened.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let resume = |block: &'static str| {
        [&opened[..], &[("shared-block", block), ("reason", "the fork was found")]].concat()
    };
    let unread = scene.form("chain resume", &resume("8"), &cookie).await;
    assert_eq!(unread.status, StatusCode::CONFLICT, "{}", unread.body);
    let done = scene.form("chain resume", &resume("7"), &cookie).await;
    assert_eq!((done.status, done.header("location")), (StatusCode::SEE_OTHER, "/chains"), "{}", done.body);
    let cursor: (Option<String>, i64) = sqlx::query_as("select halted, final_number from chain_cursor")
        .fetch_one(scene.harness.pool())
        .await
        .unwrap();
    assert_eq!(cursor, (None, 7));
    let again = scene.form("chain resume", &resume("7"), &cookie).await;
    assert_eq!(again.status, StatusCode::CONFLICT, "it is not halted any more");
    let acted = scene.records().await.into_iter().filter(|record| record.1 == "acted").count();
    assert_eq!(acted, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_resent_and_a_stretch_of_time_replayed() {
    let scene = Scene::new().await;
    let cookie = scene.sign_in("jo", &[OperatorRole::Operator]).await;
    let sql = "insert into api_key (id, partner_id, env, key_hash, hash_key, key_prefix, sealed_secret, scopes) \
         select 'key_1', id, 'test', decode(repeat('0f', 32), 'hex'), '1', 'dvp_test_Ab12', 's', '{}' from partner";
    scene.run(sql).await;
    let new = dvp_store::webhooks::NewEndpoint {
        id: "whe_1".into(),
        key_id: "key_1".into(),
        tenant: scene.harness.tenant.clone(),
        url: "https://192.0.2.9/".into(),
        subscribed_types: vec!["intent.accepted".into()],
        api_version: "2026-01-01",
        sealed_secret: vec![1],
    };
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    dvp_store::webhooks::insert(&mut conn, &new).await.unwrap();
    scene.harness.accept(order("000123456789")).await;
    let (event,): (String,) = sqlx::query_as("select event_id from event where type = 'intent.accepted'")
        .fetch_one(&mut *conn)
        .await
        .unwrap();
    let about = [("endpoint-id", "whe_1"), ("_back", "/webhooks/whe_1")];
    let fields = [&about[..], &[("event-id", event.as_str()), ("reason", "the partner lost it")]].concat();
    let resent = scene.form("webhook resend", &fields, &cookie).await;
    assert_eq!(resent.header("location"), "/webhooks/whe_1", "{}", resent.body);
    let queued = "select count(*) from webhook_queue where origin = 'resend'";
    assert_eq!(scene.harness.count(queued).await, 1);

    let at = |minutes: i64| {
        let time = chrono::Utc::now() + chrono::TimeDelta::minutes(minutes);
        time.format("%Y-%m-%dT%H:%M").to_string()
    };
    let (from, to) = (at(-10), at(10));
    let range = [("from", from.as_str()), ("to", &to), ("reason", "the partner was away")];
    let replayed = scene.form("webhook replay", &[&about[..], &range].concat(), &cookie).await;
    assert_eq!(replayed.header("location"), "/webhooks/whe_1", "{}", replayed.body);
    assert_eq!(
        scene.harness.count("select count(*) from webhook_replay where endpoint_id = 'whe_1'").await,
        1
    );
    let backwards = [("from", to.as_str()), ("to", &from), ("reason", "r")];
    let refused = scene.form("webhook replay", &[&about[..], &backwards].concat(), &cookie).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    let acted = scene.records().await.into_iter().filter(|record| record.1 == "acted").count();
    assert_eq!(acted, 2);
}
