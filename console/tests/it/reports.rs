//! Reports of the ledger as pages and CSV.

use axum::http::StatusCode;
use dvp_core::ledger::statements::{TimeRange, exposure, fees};
use dvp_domain::operator::OperatorRole;
use dvp_testing::orders::order;

use crate::scene::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn exposure_and_fees_are_shown_as_the_command_line_reports_them() {
    let scene = Scene::new().await;
    let reference = scene.harness.accept(order("000123456789")).await.reference;
    scene.harness.start_workers();
    scene.harness.play_chain(reference.as_str()).await;
    scene.harness.wait_for_state(reference.as_str(), "completed").await;
    scene.harness.accept(order("000123456789")).await;
    let cookie = scene.sign_in("jo", &[OperatorRole::Viewer]).await;

    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let owed = exposure(&mut conn, chrono::DateTime::<chrono::Utc>::MAX_UTC).await.unwrap();
    assert!(!owed.is_empty(), "the second order's output is reserved");
    let page = scene.get("/treasury/exposure", &cookie).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.body);
    let csv = scene.get("/treasury/exposure.csv", &cookie).await;
    assert_eq!(csv.body.lines().count(), owed.len() + 1, "{}", csv.body);
    assert!(csv.header("content-disposition").contains("exposure.csv"));
    assert!(page.body.contains("provider:north:reserved"), "{}", page.body);
    assert!(csv.body.contains("provider:north:reserved,USD,2,"), "{}", csv.body);
    let before = scene.get("/treasury/exposure?at=2020-01-01T00:00", &cookie).await;
    assert!(before.body.contains("Nothing is reserved"), "{}", before.body);

    let now = chrono::Utc::now();
    let range = TimeRange { from: now - chrono::TimeDelta::days(2), to: now + chrono::TimeDelta::days(1) };
    let sums = fees(&mut conn, range).await.unwrap();
    assert!(!sums.is_empty(), "the first order has paid fees");
    let page = scene.get("/treasury/fees", &cookie).await;
    let csv = scene.get("/treasury/fees.csv", &cookie).await;
    assert_eq!((page.status, csv.status), (StatusCode::OK, StatusCode::OK), "{}", page.body);
    for sum in &sums {
        let line = format!("{},{},{},{}", sum.reason, sum.earned, sum.absorbed, sum.entries);
        assert!(csv.body.contains(&line), "{line} is not in {}", csv.body);
        assert!(page.body.contains(&sum.day.to_string()), "{}", page.body);
    }
    let earlier = scene.get("/treasury/fees?from=2020-01-01&until=2020-01-02", &cookie).await;
    assert!(earlier.body.contains("No fee was earned"), "{}", earlier.body);
    for wrong in ["/treasury/exposure?at=noon", "/treasury/fees.csv?from=2020-01-02&until=2020-01-01"] {
        assert_eq!(scene.get(wrong, &cookie).await.status, StatusCode::BAD_REQUEST, "{wrong}");
    }
}
