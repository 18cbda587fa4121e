//! Every request of the REST API over a history, and what chains' jobs and the command line read beside it.

use alloy::primitives::Address;
use anyhow::{Context as _, ensure};
use chrono::{DateTime, NaiveTime, TimeDelta, Utc};
use dvp_core::ledger::statements::{TimeRange, balances, exposure, fees};
use dvp_core::workflow::audit;
use dvp_domain::chain::CommandKind;
use dvp_domain::money::Minor;
use dvp_store::archive;
use dvp_store::chain::{self, CommandFilter};
use dvp_store::ledger::closings;
use dvp_store::orders::operations::{self, ExecutionFilter};
use dvp_store::reconcile::wallets::is_surplus;
use dvp_store::reconcile::{self, NewPoint, OpenKind, Point, Scope};
use dvp_store::{PgConnection, PgPool};
use dvp_testing::market::CHAIN_ID;
use serde_json::json;

use crate::harness::{DurableHarness, fiat_order};
use crate::history::SESSION;
use crate::http::{Served, body};

/// The rows of a page of a comparison with a chain.
const PAGE: i64 = 500;
/// Blocks since the last comparison.
const SINCE_BLOCKS: i64 = 100;

/// Requests of every route once.
pub async fn rest(harness: &DurableHarness, served: &Served) -> anyhow::Result<()> {
    let client = reqwest::Client::new();
    let sample = "select e.reference, e.intent_id, v.event_id, to_char(e.accepted_at at time zone 'UTC', 'YYYY-MM-DD') \
                  from execution e join event v on v.reference = e.reference \
                  where e.partner_id = 'ptn_acme' and e.livemode = false and e.state_name = 'completed' \
                    and e.accepted_at < now() - interval '5 days' order by e.accepted_at desc limit 1";
    let (reference, intent, event, day): (String, String, String, String) = harness.row(sample).await;
    let from = (Utc::now() - TimeDelta::days(6)).format("%Y-%m-%d");
    let url = |path: &str| format!("http://{}{path}", served.address);
    for path in [
        format!("/v1/executions/{reference}?refType=executionId"),
        format!("/v1/executions/ref-{intent}?refType=clientReference"),
        format!("/v1/executions?reference={reference}&refType=executionId"),
        format!("/v1/executions?reference=ref-{intent}&refType=clientReference"),
        format!("/v1/executions/{reference}/receipt?refType=executionId"),
        format!("/v1/intents/{intent}/status"),
        format!("/v1/intents/{intent}"),
        "/v1/intents/older-20".into(),
        "/v1/intents".into(),
        "/v1/intents?status=settled".into(),
        "/v1/intents?status=pending&strategy=scheduled&page=3".into(),
        format!("/v1/intents?fromDate={from}&toDate={from}"),
        "/v1/events".into(),
        "/v1/events?type=payout.reversed".into(),
        "/v1/events?type=payout.completed&limit=100".into(),
        format!("/v1/events?intentId={intent}"),
        format!("/v1/events/{event}"),
        format!("/v1/reconciliation?from={from}&to={day}"),
        format!("/v1/reports/reconciliation/daily?date={from}"),
        "/v1/resting-orders".into(),
        "/v1/requests?limit=100".into(),
        "/v1/webhook_endpoints".into(),
        "/v1/webhook_endpoints/deliveries".into(),
        "/v1/webhook_endpoints/deliveries?state=failed".into(),
        format!("/v1/webhook_endpoints/deliveries?eventId={event}"),
        "/v1/pairs".into(),
        "/v1/rates/USD/EUR".into(),
    ] {
        let answer = client.get(url(&path)).header("x-api-key", &served.keys.api_key).send().await?;
        let status = answer.status().as_u16();
        let said = answer.text().await?;
        ensure!(status < 300 || status == 404 || said.contains("not a maker"), "{path}: {status} {said}");
    }
    let usd = json!({"type": "fiat", "symbol": "USD", "currency": "USD"});
    let eur = json!({"type": "fiat", "symbol": "EUR", "currency": "EUR"});
    let indicative = json!({
        "requestId": uuid::Uuid::new_v4().to_string(), "actorId": "acme", "source": "USD", "target": "EUR",
        "amount": "100", "side": "sell",
    });
    let firm = json!({
        "requestId": uuid::Uuid::new_v4().to_string(), "actorId": "acme", "inputAsset": usd, "outputAsset": eur,
        "amountMinor": "10000", "amountType": "source",
    });
    for (path, quote) in [("/v1/quotes", indicative), ("/v1/quotes/firm", firm)] {
        let request = client.post(url(path)).header("x-api-key", &served.keys.api_key);
        let request = request.header("x-idempotency-key", uuid::Uuid::new_v4().to_string());
        let answer = request.json(&quote).send().await?;
        let status = answer.status().as_u16();
        let said = answer.text().await?;
        ensure!(status < 300, "{path}: {status} {said}");
    }
    submit(&client, served).await
}

/// Submits an order, and cancels it, which may be too late.
async fn submit(client: &reqwest::Client, served: &Served) -> anyhow::Result<()> {
    let order = fiat_order();
    let place = (&*format!("http://{}", served.address), "/v1/intents");
    let request = served.keys.post(client, place, &uuid::Uuid::new_v4().to_string(), body(&order)?)?;
    let answer = request.send().await?;
    let (status, text) = (answer.status().as_u16(), answer.text().await?);
    ensure!(status == 202, "an order was not accepted: {status} {text}");
    let path = format!("http://{}/v1/intents/{}", served.address, order.intent_id);
    client.delete(path).header("x-api-key", &served.keys.api_key).send().await?;
    Ok(())
}

/// How much of the history a comparison with the chain reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// All of it, as once a day. Leaves a point to go on from.
    Whole,
    /// What came since the point.
    Since,
}

/// What a comparison with the chain reads of the database, at the end of the history: a page of each kind.
pub async fn reconcile(pool: &PgPool, reads: Reads) -> anyhow::Result<()> {
    let mut conn = reconcile::snapshot(pool).await?;
    let cursor = chain::find_cursor(&mut conn, CHAIN_ID).await?.context("no cursor")?;
    let final_number = cursor.facts_number.0.cast_signed();
    let scope = Scope {
        chain_id: CHAIN_ID.cast_signed(),
        facts_number: final_number,
        block_number: final_number,
        since: (reads == Reads::Since).then_some(final_number - SINCE_BLOCKS),
        ended_since: Utc::now() - TimeDelta::hours(2),
    };
    let point = reconcile_from(&mut conn, &scope).await?;
    conn.rollback().await?;
    if reads == Reads::Whole {
        let mut tx = pool.begin().await?;
        reconcile::set_point(&mut tx, &point).await?;
        reconcile::set_point(&mut tx, &point).await?;
        tx.commit().await?;
    }
    Ok(())
}

/// Returns a point some blocks before the end, with what a page of each kind leaves open.
async fn reconcile_from(conn: &mut PgConnection, scope: &Scope) -> anyhow::Result<NewPoint> {
    reconcile::find_point(conn, scope.chain_id).await?;
    let end = scope.block_number - SINCE_BLOCKS;
    let at = Point { block_number: end, block_hash: vec![0; 32], full_at: Utc::now() };
    let mut point = NewPoint::new(scope.chain_id, at);
    let contract: Vec<u8> = sqlx::query_scalar(
        "select contract from chain_log where chain_id = $1 order by block_number desc limit 1",
    )
    .bind(scope.chain_id)
    .fetch_one(&mut *conn)
    .await?;
    reconcile::list_final_blocks(conn, scope, 10).await?;
    let before = Scope { block_number: end, ..*scope };
    point.counts = reconcile::count_events(conn, &before, std::slice::from_ref(&contract)).await?;
    reconcile::count_events(conn, scope, &[contract]).await?;
    let open = reconcile::list_open_entities(conn, scope, &[], PAGE).await?;
    reconcile::list_lock_facts(conn, scope, &open).await?;
    let page = reconcile::list_booked(conn, scope, &open, "", PAGE).await?;
    if let (Some(last), None) = (page.last, scope.since) {
        reconcile::list_booked(conn, scope, &open, &last, PAGE).await?;
    }
    reconcile::list_lone_entities(conn, scope, &[], PAGE).await?;
    let anchors = reconcile::list_lone_anchors(conn, scope, &[], PAGE).await?;
    is_surplus(conn, "USDC", Minor::new(1)).await?;
    point.keep(OpenKind::Anchor, &anchors);
    point.keep(OpenKind::Funds, &open);
    Ok(point)
}

/// What the relayer and the indexer read repeatedly.
pub async fn relay(pool: &PgPool) -> anyhow::Result<()> {
    let mut conn = pool.begin().await?;
    let signer = Address::repeat_byte(0xa1);
    let share = chain::find_share(&mut conn, CHAIN_ID, signer).await?;
    for kind in CommandKind::ALL {
        chain::list_ready_commands(&mut conn, CHAIN_ID, kind, share, 50).await?;
    }
    chain::list_live_commands(&mut conn, CHAIN_ID, signer, 10).await?;
    chain::find_load(&mut conn, CHAIN_ID, signer).await?;
    chain::lowest_waiting(&mut conn, CHAIN_ID, signer).await?;
    chain::list_unsettled_slots(&mut conn, CHAIN_ID, signer, 5).await?;
    chain::list_retired(&mut conn, CHAIN_ID).await?;
    chain::list_attempts(&mut conn, CHAIN_ID, signer, &[10]).await?;
    chain::judge_slots(&mut conn, CHAIN_ID, signer).await?;
    chain::finalize_slots(&mut conn, CHAIN_ID).await?;
    chain::count_waiting(&mut conn, CHAIN_ID).await?;
    chain::count_waiting_fills(&mut conn, CHAIN_ID).await?;
    chain::list_new_fills(&mut conn, CHAIN_ID, 100).await?;
    chain::commands::list_due_refunds(&mut conn, 60, "", 100).await?;
    chain::commands::insert_refund(&mut conn, 60, "exe_none").await?;
    for filter in [CommandFilter::Troubled, CommandFilter::Open, CommandFilter::Failed] {
        chain::list_commands(&mut conn, filter, 50).await?;
    }
    conn.rollback().await?;
    Ok(())
}

/// What commands of the command line read.
pub async fn commands(harness: &DurableHarness) -> anyhow::Result<()> {
    let mut conn = harness.pool().acquire().await?;
    for (stuck_for_secs, state) in [(None, None), (Some(600), None), (None, Some("reversed"))] {
        let filter = ExecutionFilter { stuck_for_secs, state, after: None, limit: 50 };
        operations::list(&mut conn, &filter).await?;
    }
    let now = Utc::now();
    balances(&mut conn, now).await?;
    exposure(&mut conn, now).await?;
    // Whole days: of a part of a day the entries are read, and how many they are depends on the present time of day.
    let today = now.date_naive().and_time(NaiveTime::MIN).and_utc();
    fees(&mut conn, TimeRange { from: today - TimeDelta::days(1), to: now }).await?;
    audit::verify(&mut conn).await?;
    dvp_store::fix::find_session(&mut conn, SESSION).await?;
    archive_day(&mut conn, now - TimeDelta::days(2)).await
}

/// What the archive reads of a day.
async fn archive_day(conn: &mut PgConnection, from: DateTime<Utc>) -> anyhow::Result<()> {
    let to = from + TimeDelta::days(1);
    archive::find_closed_until(conn).await?;
    archive::find_beginning(conn).await?;
    // A share of the history as small as a page of the archive is of a real one.
    let orders = archive::list_ended(conn, (from, to), "", 20).await?;
    ensure!(!orders.is_empty(), "no order of the history ended on the day");
    let references: Vec<&str> = orders.iter().map(|order| order.reference.as_str()).collect();
    archive::count_unended(conn, &references).await?;
    archive::list_events(conn, &references).await?;
    archive::list_receipts(conn, &references).await?;
    archive::list_entries(conn, from, to).await?;
    archive::has_entries(conn, to).await?;
    closings::list_balances_before(conn, from).await?;
    Ok(())
}
