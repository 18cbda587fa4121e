//! A cell's identifiers and keys.

use dvp_core::{operators::accounts, operators::keys, operators::partners};
use dvp_domain::cell::CellId;
use dvp_domain::environment::Environment;
use dvp_domain::operator::OperatorRole;
use dvp_store::database::deployment::{self, CellMismatch};
use dvp_testing::Harness;
use dvp_testing::orders::order;

use crate::scenes;

fn cell(text: &str) -> CellId {
    text.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_is_stamped_once_and_never_changes() {
    let harness = scenes::harness().await;
    let mut conn = harness.pool().acquire().await.unwrap();
    deployment::stamp(&mut conn, Environment::Test).await.unwrap().unwrap();
    assert_eq!(deployment::stamp_cell(&mut conn, None).await.unwrap(), Ok(()));
    let mine = Some(cell("00a"));
    let mismatch = CellMismatch { stamped: None, configured: mine };
    assert_eq!(deployment::check_cell(&mut conn, mine).await.unwrap(), Err(mismatch));
    for _ in 0..2 {
        assert_eq!(deployment::stamp_cell(&mut conn, mine).await.unwrap(), Ok(()));
    }
    for other in [None, Some(cell("00b"))] {
        let mismatch = CellMismatch { stamped: mine, configured: other };
        assert_eq!(deployment::stamp_cell(&mut conn, other).await.unwrap(), Err(mismatch));
    }
    assert_eq!(deployment::find_cell(&mut conn).await.unwrap(), mine);
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_events_partners_operators_and_keys_carry_the_cell() {
    let mut market = scenes::market().with_funds("north", "USD", 100_000_000_000);
    let mine = cell("00a");
    market.cell = Some(mine);
    let harness = Harness::new(market).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    deployment::stamp(&mut conn, Environment::Test).await.unwrap().unwrap();
    deployment::stamp_cell(&mut conn, Some(mine)).await.unwrap().unwrap();

    let accepted = harness.accept(order("000123456789")).await;
    assert_eq!(CellId::of_id(&accepted.reference.to_string()), Some(mine));
    let events: Vec<(String,)> = harness.rows("select event_id from event").await;
    assert!(!events.is_empty());
    assert!(events.iter().all(|(id,)| CellId::of_id(id) == Some(mine)), "{events:?}");

    let partner = partners::create(&mut conn, "cellular", partners::Tier::Standard, None).await.unwrap();
    let operator = accounts::add(&mut conn, "jo", &[OperatorRole::Viewer], "setup").await.unwrap();
    let vault = &harness.context().vault;
    let issued = keys::issue(&mut conn, vault, &partner, Environment::Test, &[]).await.unwrap();
    for id in [&partner, &operator, &issued.key_id] {
        assert_eq!(CellId::of_id(id), Some(mine), "{id}");
    }
    let rest = issued.api_key.strip_prefix("svc_test_c00a_").unwrap();
    assert_eq!(rest.len(), 48);
    let shown: (String,) =
        harness.row_of("select key_prefix from api_key where id = $1", &issued.key_id).await;
    assert_eq!(shown.0, format!("svc_test_c00a_{}", &rest[..12]));
}
