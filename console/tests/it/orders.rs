//! Lists and pages of orders.

use std::collections::HashSet;

use axum::http::StatusCode;
use dvp_domain::operator::OperatorRole;
use dvp_testing::orders::order;

use crate::scene::Scene;

const VIEWER: &[OperatorRole] = &[OperatorRole::Viewer];

/// The references of a page, in order.
fn references(body: &str) -> Vec<String> {
    let links = body.split("<a class=\"id\" href=\"/orders/").skip(1);
    links.map(|link| link.split('"').next().unwrap().to_owned()).collect()
}

/// The address of the next page.
fn older(body: &str) -> Option<String> {
    let link = body.split("rel=\"next\" href=\"").nth(1)?;
    Some(link.split('"').next().unwrap().replace("&#38;", "&").replace("&amp;", "&"))
}

/// Copies of an order, so many, each a second older than the one before it.
async fn multiply(scene: &Scene, reference: &str, copies: i32) {
    let sql = "insert into execution select reference || '_' || n, partner_id, livemode, intent_id || n, \
                   client_reference || n, sha256(n::text::bytea), terms, state_name, state, version, last_sequence, \
                   last_occurred_at, accepted_at - make_interval(secs => n), terminal_at \
               from execution, generate_series(1, $2) n where reference = $1";
    sqlx::query(sql).bind(reference).bind(copies).execute(scene.harness.pool()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_list_every_order_once_newest_first_and_the_csv_has_the_same_rows() {
    let scene = Scene::new().await;
    let first = scene.harness.accept(order("000123456789")).await;
    multiply(&scene, first.reference.as_str(), 120).await;
    let cookie = scene.sign_in("jo", VIEWER).await;
    let (mut address, mut seen) = ("/orders".to_owned(), Vec::new());
    loop {
        let page = scene.get(&address, &cookie).await;
        assert_eq!(page.status, StatusCode::OK, "{}", page.body);
        let shown = references(&page.body);
        let csv = scene.get(&address.replace("/orders", "/orders.csv"), &cookie).await;
        assert!(csv.header("content-type").starts_with("text/csv"));
        let exported: Vec<&str> =
            csv.body.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
        assert_eq!(exported, shown, "{address}");
        seen.extend(shown);
        match older(&page.body) {
            Some(next) => address = next,
            None => break,
        }
    }
    assert_eq!(seen.len(), 121);
    assert_eq!(seen.iter().collect::<HashSet<_>>().len(), 121);
    assert_eq!(seen[0], first.reference.as_str());
    assert_eq!(seen[120], format!("{}_120", first.reference.as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_and_views_choose_orders() {
    let scene = Scene::new().await;
    // Before the order, which midnight may follow.
    let now = chrono::Utc::now();
    let open = scene.harness.accept(order("000123456789")).await;
    let reference = open.reference.as_str().to_owned();
    multiply(&scene, &reference, 2).await;
    let pool = scene.harness.pool();
    for sql in [
        "update execution set terminal_at = now(), state_name = 'failed' where reference like '%\\_1'",
        "update execution set accepted_at = now() - interval '2 days' where reference like '%\\_2'",
    ] {
        sqlx::query(sql).execute(pool).await.unwrap();
    }
    let cookie = scene.sign_in("jo", VIEWER).await;
    let (failed, old) = (format!("{reference}_1"), format!("{reference}_2"));
    let (today, yesterday) = (now.format("%Y-%m-%d"), (now - chrono::TimeDelta::days(1)).format("%Y-%m-%d"));
    let (later, much_earlier) = (now.timestamp_micros(), 1);
    for (query, expected) in [
        ("", vec![&reference, &failed, &old]),
        ("view=open", vec![&reference, &old]),
        ("view=stuck", vec![&old]),
        ("view=unfilled", vec![&failed]),
        ("view=alarmed", vec![]),
        ("state=failed", vec![&failed]),
        ("partner=acme", vec![&reference, &failed, &old]),
        ("partner=globex", vec![]),
        (&format!("from={today}&view=open"), vec![&reference]),
        ("until=2020-01-01", vec![]),
        ("view=unfilled&partner=acme", vec![&failed]),
        ("view=unfilled&partner=acme&state=failed", vec![&failed]),
        ("view=unfilled&partner=globex", vec![]),
        // The earlier of the two ends holds.
        (&format!("until={yesterday}&before={later}.{reference}"), vec![&old]),
        (&format!("until={today}&before={much_earlier}.{reference}"), vec![]),
    ] {
        let page = scene.get(&format!("/orders?{query}"), &cookie).await;
        assert_eq!(references(&page.body).iter().collect::<Vec<_>>(), expected, "{query}");
    }
    for query in ["view=x", "state=x", "from=x", "before=x"] {
        assert_eq!(
            scene.get(&format!("/orders?{query}"), &cookie).await.status,
            StatusCode::BAD_REQUEST,
            "{query}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_found_by_each_identifier_and_shows_what_happened() {
    let scene = Scene::new().await;
    let request = order("000123456789");
    let (intent, client) = (request.intent_id.clone(), request.client_reference.clone().unwrap());
    let wallet = request.user.clone();
    let accepted = scene.harness.accept(request).await;
    let reference = accepted.reference.as_str();
    scene.harness.start_workers();
    let (entity, _) = scene.harness.command(reference, "create").await;
    let entity = format!("0x{}", hex::encode(entity));
    let cookie = scene.sign_in("jo", VIEWER).await;
    for identifier in [
        reference,
        &intent,
        &client,
        &entity,
        &entity.to_uppercase().replace("0X", "0x"),
        &format!(" {intent} "),
    ] {
        let query = url::form_urlencoded::byte_serialize(identifier.as_bytes()).collect::<String>();
        let answer = scene.get(&format!("/search?q={query}"), &cookie).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{identifier}: {}", answer.body);
        assert_eq!(answer.header("location"), format!("/orders/{reference}"), "{identifier}");
    }
    let page = scene.get(&format!("/orders/{reference}"), &cookie).await;
    assert_eq!(page.status, StatusCode::OK);
    for shown in ["intent.accepted", "create commanded: pending", "100.00 USDC", &client, &wallet, "posted:"]
    {
        assert!(page.body.contains(shown), "{shown} is not in\n{}", page.body);
    }
    for hidden in ["000123456789", "Jane Doe"] {
        assert!(!page.body.contains(hidden), "{hidden}");
    }
    assert_eq!(scene.get("/search?q=nothing-has-it", &cookie).await.status, StatusCode::OK);
    assert_eq!(scene.get("/orders/exe_none", &cookie).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_personal_data_is_in_the_audit_log() {
    let scene = Scene::new().await;
    let accepted = scene.harness.accept(order("000123456789")).await;
    let reference = accepted.reference.as_str();
    let cookie = scene.sign_in("sam", &[OperatorRole::Support]).await;
    let page = scene.get(&format!("/orders/{reference}/documents"), &cookie).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.body.contains("Jane Doe") && page.body.contains("not shown"));
    let record = scene.records().await.pop().unwrap();
    let route = "GET /orders/{reference}/documents".to_owned();
    assert_eq!(record, ("sam".into(), "read".into(), route, reference.into()));
    let logged: (i64,) = sqlx::query_as("select count(*) from audit_entry where source = 'console_record'")
        .fetch_one(scene.harness.pool())
        .await
        .unwrap();
    assert_eq!(logged.0, 2, "the sign-in and the look");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_the_bank_is_read_from_its_order_and_each_look_is_recorded() {
    let scene = Scene::new().await;
    let (first, second) = (
        scene.harness.accept(order("000123456789")).await,
        scene.harness.accept(order("000123456780")).await,
    );
    let reference = first.reference.as_str();
    for statement in [
        "insert into bank_message (execution, digest, said, direction, message, file) \
         values ($1, sha256('a'), 'payment ordered', 'out', 'pain.001.001.09', 'E1.xml'), \
                ($1, sha256('b'), 'refused', 'in', 'pain.002.001.10', 'gone.xml')",
        "insert into bank_document (digest, content) values (sha256('a'), '<Nm>Jane & Co</Nm>' || left($1, 0))",
    ] {
        sqlx::query(statement).bind(reference).execute(scene.harness.pool()).await.unwrap();
    }
    let digest: String = sqlx::query_scalar("select encode(sha256('a'), 'hex')")
        .fetch_one(scene.harness.pool())
        .await
        .unwrap();
    let link = format!("/orders/{reference}/documents/{digest}");
    let viewer = scene.sign_in("jo", VIEWER).await;
    let page = scene.get(&format!("/orders/{reference}"), &viewer).await;
    assert!(page.body.contains("from the bank: refused"), "{}", page.body);
    assert!(!page.body.contains(&link), "a viewer reads no documents");
    assert_eq!(scene.get(&link, &viewer).await.status, StatusCode::FORBIDDEN);
    let cookie = scene.sign_in("sam", &[OperatorRole::Support]).await;
    for address in [format!("/orders/{reference}"), format!("/orders/{reference}/documents")] {
        let page = scene.get(&address, &cookie).await;
        assert!(page.body.contains(&format!("href=\"{link}\"")), "{}", page.body);
        assert!(page.body.contains("gone.xml") && !page.body.contains(">gone.xml</a>"), "not kept any more");
    }
    let page = scene.get(&link, &cookie).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.body.contains("Jane &#38; Co&#60;/Nm&#62;"), "{}", page.body);
    let (_, action, route, about) = scene.records().await.pop().unwrap();
    assert_eq!((action.as_str(), about.as_str()), ("read", reference));
    assert_eq!(route, format!("GET /orders/{{reference}}/documents/{digest}"));
    let other = format!("/orders/{}/documents/{digest}", second.reference.as_str());
    for (address, status) in [
        (other.as_str(), StatusCode::NOT_FOUND),
        (&format!("/orders/{reference}/documents/xyz"), StatusCode::BAD_REQUEST),
        (&format!("/orders/exe_none/documents/{digest}"), StatusCode::NOT_FOUND),
    ] {
        assert_eq!(scene.get(address, &cookie).await.status, status, "{address}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn text_of_partners_is_escaped() {
    let scene = Scene::new().await;
    let mut request = order("000123456789");
    request.client_reference = Some("<script>alert(1)</script>".into());
    let accepted = scene.harness.accept(request).await;
    let cookie = scene.sign_in("jo", VIEWER).await;
    for path in [
        "/orders".to_owned(),
        format!("/orders/{}", accepted.reference.as_str()),
        "/search?q=<script>x".to_owned().replace('<', "%3C").replace('>', "%3E"),
    ] {
        let page = scene.get(&path, &cookie).await;
        assert_eq!(page.status, StatusCode::OK);
        assert!(!page.body.contains("<script>"), "{path}");
    }
}
