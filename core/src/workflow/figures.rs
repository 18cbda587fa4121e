//! Counts open work in the tables every five seconds, for metrics. `docs/metrics.md` describes them.
//!
//! Every process with the role `worker` does; a value is the same in all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dvp_domain::abandonment::CoolDownScope;
use dvp_domain::chain::CommandKind;
use dvp_domain::limit::{LimitScope, Period};
use dvp_domain::settlement::State;
use dvp_store::chain::{self, StateName, StatusRow, WaitingRow};
use dvp_store::figures::{self, FeedLag, LeaseCount, LimitUse, OpenStage, WebhookBacklog};
use dvp_store::orders::{abandonments, screenings};
use dvp_store::workers::{self, Apart, Step, Worker, in_database, pause, processes, set_aside};
use dvp_store::{PgPool, StoreError};
use metrics::{counter, gauge};
use parking_lot::Mutex;
use tokio::sync::watch;

/// The interval of the counts.
const EVERY: Duration = Duration::from_secs(5);
/// The longest time for one part.
const PART_MAX: Duration = Duration::from_secs(10);

const STAGES: &str = "open orders";
const AMOUNTS: &str = "open amounts";
const FEED: &str = "feed";
const WEBHOOKS: &str = "webhooks";
const LEASES: &str = "leases";
const LIMITS: &str = "limits";
const COOL_DOWNS: &str = "cool-downs";
const SET_ASIDE: &str = "items that are set aside";
const HELD: &str = "orders held by screening";
const CONFIGURATIONS: &str = "configurations";
const PARTS: [&str; 10] =
    [STAGES, AMOUNTS, FEED, WEBHOOKS, LEASES, LIMITS, COOL_DOWNS, HELD, CONFIGURATIONS, SET_ASIDE];

/// The assets that were shown so far.
type Assets = Arc<Mutex<BTreeSet<String>>>;

/// Counts until `stop` turns true.
pub async fn run(pool: PgPool, mut stop: watch::Receiver<bool>) {
    let parts = Apart::new(pool.clone(), Worker::Figures, PART_MAX);
    let assets = Assets::default();
    while !*stop.borrow() {
        count(&pool, &parts, &assets).await;
        if !pause(EVERY, &mut stop).await {
            return;
        }
    }
}

/// Counts every part apart: one that fails is set aside, and the others are shown.
async fn count(pool: &PgPool, parts: &Apart, assets: &Assets) {
    let mut are_all_shown = true;
    for part in PARTS {
        let counting = count_part(pool.clone(), part, Arc::clone(assets));
        are_all_shown &= parts.attend(part, part, counting).await.done().is_some();
    }
    let statuses = list_chains(pool.clone());
    let statuses = parts.attend("chains", "chains", statuses).await.done();
    are_all_shown &= statuses.is_some();
    for status in statuses.into_iter().flatten() {
        let item = format!("chain {}", status.name);
        let counting = count_chain(pool.clone(), status);
        are_all_shown &= parts.attend(&item, &item, counting).await.done().is_some();
    }
    if are_all_shown {
        gauge!("dvp_figures_last_success_timestamp_seconds").set(unix_seconds());
    }
}

async fn count_part(pool: PgPool, part: &'static str, assets: Assets) -> Result<(), StoreError> {
    workers::at(Step::FiguresCount, in_database(&pool, part)).await?;
    let mut conn = pool.acquire().await?;
    match part {
        STAGES => show_stages(&figures::list_open_stages(&mut conn).await?),
        AMOUNTS => {
            let amounts = figures::list_open_amounts(&mut conn).await?;
            let mut assets = assets.lock();
            for (asset, amount) in complete(&mut assets, amounts) {
                gauge!("dvp_open_amount_minor", "asset" => asset).set(amount);
            }
        }
        FEED => show_feed(figures::load_feed_lag(&mut conn).await?),
        WEBHOOKS => show_webhooks(figures::load_webhook_backlog(&mut conn).await?),
        LEASES => show_leases(&figures::list_lease_counts(&mut conn).await?),
        LIMITS => show_limits(&figures::list_limit_use(&mut conn).await?),
        COOL_DOWNS => show_cool_downs(&abandonments::count_cooling(&mut conn).await?),
        HELD => gauge!("dvp_screening_held").set(number(screenings::count_held(&mut conn).await?)),
        CONFIGURATIONS => {
            gauge!("dvp_configurations").set(number(processes::count_configurations(&mut conn).await?));
        }
        _ => show_set_aside(&set_aside::count(&mut conn).await?),
    }
    Ok(())
}

async fn list_chains(pool: PgPool) -> Result<Vec<StatusRow>, StoreError> {
    let mut conn = pool.acquire().await?;
    chain::list_statuses(&mut conn).await
}

async fn count_chain(pool: PgPool, status: StatusRow) -> Result<(), StoreError> {
    workers::at(Step::FiguresCount, in_database(&pool, &status.name)).await?;
    let mut conn = pool.acquire().await?;
    show_chain(&status);
    show_commands(&status.name, &chain::count_waiting(&mut conn, status.chain_id).await?);
    show_transactions(&status.name, figures::load_unmined(&mut conn, status.chain_id.cast_signed()).await?);
    Ok(())
}

fn show_set_aside(counts: &[(String, i64)]) {
    for worker in Worker::ALL {
        let count = counts.iter().find(|(name, _)| name == worker.as_str()).map_or(0, |(_, count)| *count);
        gauge!("dvp_set_aside_items", "loop" => worker.as_str()).set(number(count));
    }
}

/// The values of these assets, and zero for assets of earlier counts, which are gone from the table.
fn complete(known: &mut BTreeSet<String>, values: Vec<(String, f64)>) -> BTreeMap<String, f64> {
    let mut complete: BTreeMap<String, f64> = known.iter().map(|asset| (asset.clone(), 0.0)).collect();
    complete.extend(values);
    known.extend(complete.keys().cloned());
    complete
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

/// A partner's cool-downs are limits that are used up. A wallet's alone are no work for an operator.
fn show_cool_downs(cooling: &[(CoolDownScope, i64)]) {
    for scope in CoolDownScope::ALL {
        let count = cooling.iter().find(|(of, _)| *of == scope).map_or(0, |(_, count)| *count);
        gauge!("dvp_cool_downs", "scope" => scope.as_str()).set(number(count));
        if scope != CoolDownScope::Wallet {
            gauge!("dvp_limit_use_ratio", "scope" => scope.as_str(), "period" => "cool_down")
                .set(f64::from(u8::from(count > 0)));
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
        let labels = [("chain", chain.to_owned()), ("kind", kind.as_str().to_owned())];
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
