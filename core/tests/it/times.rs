//! Times of events are in order for any times of their sources.

use chrono::{DateTime, Utc};
use dvp_core::engine::ReceiptLookup;
use dvp_domain::settlement::{LegDone, RailAnswer};
use dvp_domain::time::Timestamp;
use dvp_rails::{Rail, RailFuture, RailRequest, RailStatus};
use dvp_store::orders::executions::RefType;
use serde_json::Value;
use std::sync::Arc;

use crate::scenes;
use dvp_testing::orders::order;

/// A bank that books with the date alone: at midnight, before the order was accepted.
struct BooksByDate;

fn booked(request: &RailRequest) -> RailAnswer {
    let midnight = Utc::now().date_naive().and_time(chrono::NaiveTime::MIN).and_utc();
    let occurred_at = Timestamp::from(midnight);
    RailAnswer::Done(LegDone { provider_reference: request.reference.clone(), occurred_at })
}

impl Rail for BooksByDate {
    fn submit<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailAnswer> {
        Box::pin(async { Ok(booked(request)) })
    }

    fn status<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailStatus> {
        Box::pin(async { Ok(RailStatus::Known(booked(request))) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_date_and_a_blocks_time_do_not_precede_the_previous_event() {
    let harness = scenes::harness().await;
    harness.start_workers_over(Arc::new(BooksByDate), Arc::new(BooksByDate));
    let accepted = harness.accept(order("000123456789")).await;
    // The chain's times are whole seconds: as far behind as possible, and further.
    let coarse = "create function coarse() returns trigger language plpgsql as \
                  $$ begin new.block_time := new.block_time - interval '1 hour'; return new; end $$";
    harness.run(coarse).await;
    let trigger = "create trigger coarse before insert on chain_fact for each row execute function coarse()";
    harness.run(trigger).await;
    harness.play_chain(&accepted.reference).await;
    harness.wait_for_state(&accepted.reference, "completed").await;

    let rows: Vec<(String, DateTime<Utc>, DateTime<Utc>)> = harness
        .rows_of(
            "select type, occurred_at, observed_at from event where reference = $1 order by sequence",
            &accepted.reference,
        )
        .await;
    assert_eq!(rows.len(), 5);
    for pair in rows.windows(2) {
        assert!(pair[0].1 <= pair[1].1, "{rows:?}");
    }
    assert!(rows.iter().all(|(_, occurred, observed)| occurred <= observed), "{rows:?}");

    let found =
        harness.engine.receipt(&harness.tenant, RefType::ExecutionId, &accepted.reference).await.unwrap();
    let ReceiptLookup::Found(receipt) = found else { panic!("no receipt: {found:?}") };
    let at = |pointer: &str| -> DateTime<Utc> {
        receipt.pointer(pointer).and_then(Value::as_str).unwrap().parse().unwrap()
    };
    let (accepted_at, completed_at) = (rows[0].1, rows[4].1);
    assert!(accepted_at <= at("/offramp/occurredAt"));
    assert!(at("/offramp/occurredAt") <= at("/payout/occurredAt"));
    assert_eq!(at("/payout/occurredAt"), completed_at);
    assert!(completed_at <= at("/issuedAt"));
}
