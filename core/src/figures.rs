//! Counts open work in the tables every five seconds, for metrics. `docs/metrics.md` describes them.
//!
//! Every process with the role `worker` does; a value is the same in all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dvp_domain::chain::CommandKind;
use dvp_domain::limit::{LimitScope, Period};
use dvp_domain::settlement::State;
use dvp_store::chain::{self, StateName, StatusRow, WaitingRow};
use dvp_store::figures::{self, FeedLag, LeaseCount, LimitUse, OpenStage, WebhookBacklog};
use dvp_store::{PgPool, StoreError};
use metrics::{counter, gauge};
use tokio::sync::watch;
use tracing::{info, warn};

/// The interval of the counts.
const EVERY: Duration = Duration::from_secs(5);

/// Counts until `stop` turns true.
pub async fn run(pool: PgPool, mut stop: watch::Receiver<bool>) {
    let mut was_counted = true;
    let mut assets = BTreeSet::new();
    while !*stop.borrow() {
        let counted = count(&pool, &mut assets).await;
        match &counted {
            Err(error) if was_counted => warn!(%error, "open work could not be counted, retrying every 5 s"),
            Ok(()) if !was_counted => info!("counting open work recovered"),
            Ok(()) | Err(_) => {}
        }
        was_counted = counted.is_ok();
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = stop.changed() => {}
        }
    }
}

/// The values of these assets, and zero for assets of earlier counts, which are gone from the table.
fn complete(known: &mut BTreeSet<String>, values: Vec<(String, f64)>) -> BTreeMap<String, f64> {
    let mut complete: BTreeMap<String, f64> = known.iter().map(|asset| (asset.clone(), 0.0)).collect();
    complete.extend(values);
    known.extend(complete.keys().cloned());
    complete
}

async fn count(pool: &PgPool, assets: &mut BTreeSet<String>) -> Result<(), StoreError> {
    let mut conn = pool.acquire().await?;
    show_stages(&figures::list_open_stages(&mut conn).await?);
    for (asset, amount) in complete(assets, figures::list_open_amounts(&mut conn).await?) {
        gauge!("dvp_open_amount_minor", "asset" => asset).set(amount);
    }
    show_feed(figures::load_feed_lag(&mut conn).await?);
    show_webhooks(figures::load_webhook_backlog(&mut conn).await?);
    gauge!("dvp_partner_closed_seconds").set(figures::load_closed_partners(&mut conn).await?);
    show_leases(&figures::list_lease_counts(&mut conn).await?);
    show_limits(&figures::list_limit_use(&mut conn).await?);
    for status in chain::list_statuses(&mut conn).await? {
        show_chain(&status);
        show_commands(&status.name, &chain::count_waiting(&mut conn, status.chain_id).await?);
        show_transactions(
            &status.name,
            figures::load_unmined(&mut conn, status.chain_id.cast_signed()).await?,
        );
    }
    gauge!("dvp_figures_last_success_timestamp_seconds").set(unix_seconds());
    Ok(())
}

/// The time of the system, as Prometheus compares it with its own.
pub fn unix_seconds() -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0.0, |since| since.as_secs_f64())
}

/// Values above four billion are clamped.
fn number(count: i64) -> f64 {
    f64::from(u32::try_from(count.max(0)).unwrap_or(u32::MAX))
}

/// The nearest floating point number, exact up to 2^53.
pub fn wide(position: i64) -> f64 {
    position.to_string().parse().unwrap_or(f64::MAX)
}

fn show_stages(open: &[OpenStage]) {
    for stage in State::OPEN_STAGES {
        let of_stage = open.iter().find(|row| row.stage == stage);
        let (orders, oldest) = of_stage.map_or((0, 0.0), |row| (row.orders, row.oldest_seconds));
        gauge!("dvp_orders_open", "stage" => stage).set(number(orders));
        gauge!("dvp_orders_oldest_seconds", "stage" => stage).set(oldest);
    }
}

fn show_feed(lag: FeedLag) {
    let FeedLag { position, webhook_position, webhook_seconds } = lag;
    gauge!("dvp_feed_position").set(wide(position));
    gauge!("dvp_feed_follower_position", "follower" => "webhooks").set(wide(webhook_position));
    gauge!("dvp_feed_lag_seconds", "follower" => "webhooks").set(webhook_seconds);
}

fn show_webhooks(backlog: WebhookBacklog) {
    let WebhookBacklog { pending, retried, overdue_seconds, inactive_endpoints } = backlog;
    gauge!("dvp_webhook_deliveries_pending").set(number(pending));
    gauge!("dvp_webhook_deliveries_retried").set(number(retried));
    gauge!("dvp_webhook_overdue_seconds").set(overdue_seconds);
    gauge!("dvp_webhook_endpoints_inactive").set(number(inactive_endpoints));
}

/// The kinds of leases. A kind that is not listed is shown as `other`.
const LEASE_KINDS: [&str; 7] = ["indexer", "relayer", "reconcile", "ranges", "retention", "fix", "other"];

fn show_leases(leases: &[LeaseCount]) {
    for kind in LEASE_KINDS {
        let is_of = |row: &&LeaseCount| match kind {
            "other" => !LEASE_KINDS.contains(&row.kind.as_str()),
            kind => row.kind == kind,
        };
        let (mut held, mut expired, mut acquired) = (0, 0, 0);
        for row in leases.iter().filter(is_of) {
            (held, expired, acquired) = (held + row.held, expired + row.expired, acquired + row.acquired);
        }
        gauge!("dvp_leases", "kind" => kind, "state" => "held").set(number(held));
        gauge!("dvp_leases", "kind" => kind, "state" => "expired").set(number(expired));
        let acquired = u64::try_from(acquired).unwrap_or(0);
        counter!("dvp_lease_acquisitions_total", "kind" => kind).absolute(acquired);
    }
}

fn show_limits(limits: &[LimitUse]) {
    for scope in LimitScope::ALL.map(LimitScope::as_str) {
        for period in [Period::Day, Period::Open].map(Period::as_str) {
            let used = limits.iter().find(|row| row.scope == scope && row.period == period);
            gauge!("dvp_limit_use_ratio", "scope" => scope, "period" => period)
                .set(used.map_or(0.0, |row| row.used));
        }
    }
}

fn show_chain(status: &StatusRow) {
    let chain = status.name.clone();
    for state in StateName::ALL {
        let is_it = f64::from(u8::from(state == status.state));
        gauge!("dvp_chain_indexer_state", "chain" => chain.clone(), "state" => state.as_str()).set(is_it);
    }
    let lag = status.node_head.blocks_above(status.indexed_head);
    gauge!("dvp_chain_indexer_lag_blocks", "chain" => chain.clone())
        .set(number(i64::try_from(lag).unwrap_or(i64::MAX)));
    gauge!("dvp_chain_indexer_silent_seconds", "chain" => chain)
        .set(number(i64::try_from(status.silent_seconds).unwrap_or(i64::MAX)));
}

/// Counted here and not by the relayer, so that they are seen while no relayer works.
fn show_commands(chain: &str, rows: &[WaitingRow]) {
    for kind in CommandKind::ALL {
        let row = rows.iter().find(|row| row.kind == kind);
        let labels = [("chain", chain.to_owned()), ("kind", kind.name().to_owned())];
        let (waiting, troubled, oldest) =
            row.map_or((0, 0, 0), |row| (row.waiting, row.troubled, row.oldest_seconds));
        gauge!("dvp_chain_commands_waiting", &labels).set(number(waiting));
        gauge!("dvp_chain_commands_troubled", &labels).set(number(troubled));
        gauge!("dvp_chain_command_oldest_seconds", &labels).set(number(oldest));
    }
}

fn show_transactions(chain: &str, (pending, oldest): (i64, f64)) {
    gauge!("dvp_relayer_transactions_pending", "chain" => chain.to_owned()).set(number(pending));
    gauge!("dvp_relayer_transaction_oldest_seconds", "chain" => chain.to_owned()).set(oldest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_asset_without_open_orders_is_shown_as_zero() {
        let mut known = BTreeSet::new();
        complete(&mut known, vec![("USDC".to_owned(), 5.0)]);
        let after = complete(&mut known, vec![("DAI".to_owned(), 1.0)]);
        assert_eq!(after, BTreeMap::from([("DAI".to_owned(), 1.0), ("USDC".to_owned(), 0.0)]));
    }
}
